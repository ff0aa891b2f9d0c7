//! When the phases were that the job named, by its marks.

use resource_tracker_metrics::{Mark, MarkKind};
use serde::Serialize;

/// Those that come after are left out.
const SPANS: usize = 1000;
/// So many phases can be at once.
pub(crate) const OPEN: usize = 100;

/// The phases that go on. `T` is what is kept of each.
#[derive(Debug)]
pub(crate) struct Open<T> {
    /// The one that the next mark ends.
    current: Option<T>,
    /// Those that go on until their end is said.
    beside: Vec<(String, T)>,
    /// How often there was no room for one.
    left_out: u64,
}

impl<T> Default for Open<T> {
    fn default() -> Self {
        Self { current: None, beside: Vec::new(), left_out: 0 }
    }
}

impl<T> Open<T> {
    /// Takes a mark. `begin` gives what is kept of a phase that begins, if there is room for it. Returns the one that has ended.
    pub(crate) fn heed(&mut self, mark: &Mark, begin: impl FnOnce() -> Option<T>) -> Option<T> {
        match mark.kind {
            MarkKind::Begin => {
                match if self.beside.len() < OPEN { begin() } else { None } {
                    Some(begun) => self.beside.push((mark.name.clone(), begun)),
                    None => self.left_out += 1,
                }
                None
            }
            MarkKind::End => {
                let ended = self.beside.iter().rposition(|(name, _)| *name == mark.name)?;
                Some(self.beside.remove(ended).1)
            }
            _ => {
                let begun = begin();
                self.left_out += u64::from(begun.is_none());
                std::mem::replace(&mut self.current, begun)
            }
        }
    }

    /// How often one began for which there was no room.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.current.iter().chain(self.beside.iter().map(|(_, phase)| phase))
    }
}

/// One time that a phase took, in seconds as its marks are given.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Span {
    /// What the job calls it.
    pub name: String,
    /// When it began.
    pub from: f64,
    /// When it ended. Null while it goes on.
    pub to: Option<f64>,
    /// Whether it is beside others, and does not end with the next mark.
    pub is_beside: bool,
}

/// Phases as they begin and end.
#[derive(Debug, Default)]
pub struct Spans {
    spans: Vec<Span>,
    open: Open<usize>,
}

impl Spans {
    /// Takes a mark that was made then.
    pub fn add(&mut self, mark: &Mark, at: f64) {
        let Self { spans, open } = self;
        let begin = || {
            let is_beside = mark.kind == MarkKind::Begin;
            (spans.len() < SPANS).then(|| {
                spans.push(Span { name: mark.name.clone(), from: at, to: None, is_beside });
                spans.len() - 1
            })
        };
        if let Some(ended) = open.heed(mark, begin) {
            spans[ended].to = Some(at);
        }
    }

    /// How many came for which there was no room.
    pub fn left_out(&self) -> u64 {
        self.open.left_out()
    }

    /// All of them, in the order in which they began.
    pub fn all(&self) -> &[Span] {
        &self.spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_ends_where_the_next_begins() {
        let mut spans = Spans::default();
        let mut mark = |name: &str, kind, at| spans.add(&Mark { name: name.into(), kind, at_ms: 0 }, at);
        mark("load", MarkKind::Next, 1.0);
        mark("io", MarkKind::Begin, 2.0);
        mark("train", MarkKind::Next, 3.0);
        mark("io", MarkKind::End, 4.0);
        mark("nobody", MarkKind::End, 5.0);
        let told: Vec<_> = spans.all().iter().map(|span| (span.name.as_str(), span.from, span.to)).collect();
        assert_eq!(told, [("load", 1.0, Some(3.0)), ("io", 2.0, Some(4.0)), ("train", 3.0, None)]);
        assert!(spans.all()[1].is_beside && !spans.all()[2].is_beside);
        for number in 0..10_000 {
            let kind = if number % 2 == 0 { MarkKind::Begin } else { MarkKind::Next };
            spans.add(&Mark { name: number.to_string(), kind, at_ms: 0 }, 6.0);
        }
        assert_eq!(spans.all().len(), SPANS);
        assert!(spans.open.all().count() <= OPEN + 1);
    }
}
