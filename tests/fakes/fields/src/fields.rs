//! Twenty numbers: a section of the usual size, which costs nothing to read.

use resource_tracker_core::unit::Gauge;
use resource_tracker_core::{
    Host, Section, Sections, Source, SourceConfig, SourceEntry, Tick, register_section, register_source,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! fields {
    ($($name:ident)*) => {
        /// Twenty numbers.
        #[derive(Debug, Clone, Default, Serialize, JsonSchema)]
        pub(crate) struct Fields {
            $(
                /// One of them.
                #[schemars(transform = Gauge("percent"))]
                pub(crate) $name: f64,
            )*
        }

        impl Fields {
            fn set(&mut self, value: f64) {
                $(self.$name = value;)*
            }
        }
    };
}

fields! {
    one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen twenty
}

impl Section for Fields {
    const NAME: &'static str = "fields";
}

register_section!(Fields);

/// Twenty numbers.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct FieldsConfig {
    /// Panic at the third reading.
    pub(crate) panics: bool,
    /// Say something at the second reading.
    pub(crate) says: bool,
}

#[typetag::deserialize(name = "fields")]
impl SourceConfig for FieldsConfig {
    fn build(&self, _: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(Twenty { panics: self.panics, says: self.says })))
    }
}

register_source!(SourceEntry::new::<FieldsConfig>("fields", "Twenty numbers"));

struct Twenty {
    panics: bool,
    says: bool,
}

impl Source for Twenty {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        if self.says && tick.number == 2 {
            log::warn!("this is the second reading");
            log::info!("nobody wants to know this");
        }
        assert!(!(self.panics && tick.number == 3), "the third reading");
        out.section::<Fields>().set((tick.number % 100) as f64 / 4.0);
        Ok(())
    }
}
