//! What goes over PCIe. The driver counts for a second whenever `pcie_bw` is read, so that is done now and then, on a
//! thread of its own.

use std::path::Path;
use std::time::{Duration, Instant};

use resource_tracker_core::background::Background;

use crate::procfile::attribute;

/// Time from one reading to the next.
const EVERY: Duration = Duration::from_secs(20);

pub(super) struct Pcie {
    thread: Background<(), Option<(f64, f64)>>,
    asked: Option<Instant>,
}

impl Pcie {
    /// `None` for a card that does not count.
    pub(super) fn watch(card: &Path) -> Option<Self> {
        let path = card.join("pcie_bw");
        if !path.exists() {
            return None;
        }
        let thread = Background::spawn("amd-pcie", move |()| parse(&attribute(&path)?)).ok()?;
        Some(Self { thread, asked: None })
    }

    /// Bytes a second that the card received and sent, when they were last counted: upper bounds.
    pub(super) fn rates(&mut self, now: Instant) -> Option<(f64, f64)> {
        if self.asked.is_none_or(|asked| now.saturating_duration_since(asked) >= EVERY) {
            self.asked = Some(now);
            self.thread.ask(());
        }
        self.thread.answer().and_then(|(rates, _)| rates)
    }
}

/// Packets received and sent in a second, and the most bytes in one. Their sizes are not counted.
fn parse(counts: &str) -> Option<(f64, f64)> {
    let mut counts = counts.split_whitespace().map(|count| count.parse::<f64>().ok());
    let (received, sent, size) = (counts.next()??, counts.next()??, counts.next()??);
    Some((received * size, sent * size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_become_bytes() {
        assert_eq!(parse("6641 815 256"), Some((1_700_096.0, 208_640.0)));
        assert_eq!(parse("6641 815"), None);
    }
}
