//! When the phases of a job began and ended, by its marks.

use resource_tracker_metrics::{Mark, MarkKind};
use serde::Serialize;

/// So many are kept; then the oldest that has ended makes room.
const SPANS: usize = 1000;
const LONGEST_NAME: usize = 200;
/// So many phases can be at once.
pub(crate) const OPEN: usize = 100;

/// The phases that are open. `T` is what is kept of each.
#[derive(Debug)]
pub(crate) struct Open<T> {
    /// The one that the next mark ends.
    current: Option<T>,
    /// Those that have an end mark of their own, by name.
    beside: Vec<(String, T)>,
    /// How often there was no room for one.
    left_out: u64,
    /// The first name that was ended without having begun, and how often that happened.
    never_begun: Option<(String, u64)>,
}

impl<T> Default for Open<T> {
    fn default() -> Self {
        Self { current: None, beside: Vec::new(), left_out: 0, never_begun: None }
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
                let ended = self.beside.iter().rposition(|(name, _)| *name == mark.name);
                if ended.is_none() {
                    self.never_begun.get_or_insert_with(|| (shortened(&mark.name), 0)).1 += 1;
                }
                ended.map(|ended| self.beside.remove(ended).1)
            }
            _ => {
                let begun = begin();
                self.left_out += u64::from(begun.is_none());
                std::mem::replace(&mut self.current, begun)
            }
        }
    }

    /// How often a phase was left out for lack of room.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The first name that was ended without having begun, and how often that happened.
    pub(crate) fn never_begun(&self) -> Option<(&str, u64)> {
        self.never_begun.as_ref().map(|(name, count)| (name.as_str(), *count))
    }

    /// All open phases.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.current.iter().chain(self.beside.iter().map(|(_, phase)| phase))
    }
}

/// The beginning of a name: a recording can have longer names than marks do.
pub(crate) fn shortened(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}

/// One time that a phase took, in seconds as its marks are given.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Span {
    /// What the job calls it.
    pub name: String,
    /// When it began.
    pub from: f64,
    /// When it ended. Null while it goes on.
    pub to: Option<f64>,
    /// Whether it is beside others, and does not end with the next mark.
    pub is_beside: bool,
    /// How many began before it.
    #[serde(skip)]
    number: u64,
}

/// Phases as they begin and end.
#[derive(Debug, Default)]
pub struct Spans {
    spans: Vec<Span>,
    open: Open<u64>,
    begun: u64,
    /// How many made room for others.
    dropped: u64,
}

impl Spans {
    /// Takes a mark that was made at this time.
    pub fn add(&mut self, mark: &Mark, at: f64) {
        let Self { spans, open, begun, dropped } = self;
        let begin = || {
            if spans.len() == SPANS {
                spans.remove(spans.iter().position(|span| span.to.is_some())?);
                *dropped += 1;
            }
            let (number, is_beside) = (*begun, mark.kind == MarkKind::Begin);
            *begun += 1;
            spans.push(Span { name: shortened(&mark.name), from: at, to: None, is_beside, number });
            Some(number)
        };
        let ended = open.heed(mark, begin);
        if let Some(span) = ended.and_then(|number| spans.iter_mut().rfind(|span| span.number == number)) {
            span.to = Some(at);
        }
    }

    /// How many phases are not in the list.
    pub fn left_out(&self) -> u64 {
        self.open.left_out() + self.dropped
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

    #[test]
    fn the_newest_are_kept() {
        let mut spans = Spans::default();
        let mark = |name: &str, kind| Mark { name: name.into(), kind, at_ms: 0 };
        spans.add(&mark("whole", MarkKind::Begin), 0.0);
        (0..5000).for_each(|number| spans.add(&mark(&number.to_string(), MarkKind::Next), f64::from(number)));
        let [first, second, .., newest] = spans.all() else { panic!("many") };
        assert_eq!([first, second, newest].map(|span| span.name.as_str()), ["whole", "4001", "4999"]);
        assert_eq!((first.to, spans.all().len(), spans.left_out()), (None, SPANS, 4001));
        spans.add(&mark("whole", MarkKind::End), 6000.0);
        assert_eq!(spans.all()[0].to, Some(6000.0));
    }
}
