//! What a sample repeats while a source is not read.

use std::sync::Arc;

use crate::sample::Sections;

/// What was last read, as a sample gets it.
#[derive(Default)]
pub(super) struct LastReading {
    sections: Option<Arc<Sections>>,
    is_repeated: bool,
}

impl LastReading {
    pub(super) fn set(&mut self, sections: Option<Arc<Sections>>) {
        *self = Self { sections, is_repeated: false };
    }

    /// Once more, without what is counted over an interval.
    pub(super) fn repeat(&mut self) -> Option<Arc<Sections>> {
        if !self.is_repeated {
            self.is_repeated = true;
            if let Some(repeated) = self.sections.as_ref().and_then(|sections| sections.without_deltas()) {
                self.sections = Some(Arc::new(repeated));
            }
        }
        self.sections.clone()
    }
}
