//! When the phases were that the job named.

use resource_tracker_metrics::{Mark, MarkKind};
use serde::Serialize;

/// Those that come after are not drawn.
const MOST: usize = 500;

/// Phases as they begin and end.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    spans: Vec<Span>,
    left_out: u64,
}

/// One time that a phase took, in seconds since the run's start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Span {
    name: String,
    from: f64,
    /// Null while it goes on.
    to: Option<f64>,
    /// Whether it is beside others, and does not end with the next mark.
    is_beside: bool,
}

impl Phases {
    /// A mark that was made then.
    pub(crate) fn add(&mut self, mark: &Mark, at: f64) {
        let is_beside = mark.kind != MarkKind::Next;
        let mut open = self.spans.iter_mut().rev().filter(|span| span.to.is_none() && span.is_beside == is_beside);
        let ended = match mark.kind {
            MarkKind::Next => open.next(),
            MarkKind::End => open.find(|span| span.name == mark.name),
            _ => None,
        };
        if let Some(ended) = ended {
            ended.to = Some(at);
        }
        if mark.kind == MarkKind::End {
            return;
        }
        if self.spans.len() == MOST {
            self.left_out += 1;
        } else {
            self.spans.push(Span { name: mark.name.clone(), from: at, to: None, is_beside });
        }
    }

    /// All of them, in the order in which they began.
    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// How many came after those.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_ends_where_the_next_begins() {
        let mut phases = Phases::default();
        let mut mark = |name: &str, kind, at| phases.add(&Mark { name: name.into(), kind, at_ms: 0 }, at);
        mark("load", MarkKind::Next, 1.0);
        mark("io", MarkKind::Begin, 2.0);
        mark("train", MarkKind::Next, 3.0);
        mark("io", MarkKind::End, 4.0);
        mark("nobody", MarkKind::End, 5.0);
        let told: Vec<_> = phases.spans().iter().map(|span| (span.name.as_str(), span.from, span.to)).collect();
        assert_eq!(told, [("load", 1.0, Some(3.0)), ("io", 2.0, Some(4.0)), ("train", 3.0, None)]);
        (0..10_000).for_each(|_| phases.add(&Mark::default(), 6.0));
        assert_eq!((phases.spans().len(), phases.left_out()), (MOST, 10_003 - MOST as u64));
    }
}
