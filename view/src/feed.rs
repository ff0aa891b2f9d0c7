//! How samples, keys and requests to stop come to the screen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::{fmt, io};

use ratatui::crossterm::event::KeyEvent;
use resource_tracker_core::{Outcome, Sample, Sink};

use crate::moment::Moment;

/// So many samples wait at most for the screen.
const WAITING: usize = 256;

/// What happens beside samples.
#[derive(Debug)]
pub(crate) enum Event {
    /// There are samples.
    Samples,
    /// All that was there has been read; what comes now is new.
    CaughtUp,
    /// No more samples come.
    Ended,
    /// It cannot go on.
    Failed(anyhow::Error),
    /// A message to show.
    Note(String),
    Key(KeyEvent),
    Resized,
    Stop,
}

/// The sending end of the screen's input. As a [`Sink`], it takes the samples of a tracker.
#[derive(Clone)]
pub struct ScreenSink {
    samples: SyncSender<Moment>,
    events: Sender<Event>,
    /// Whether an `Event::Samples` is on its way that the screen has not handled yet.
    is_told: Arc<AtomicBool>,
}

/// The receiving end.
pub(crate) struct Inbox {
    pub(crate) samples: Receiver<Moment>,
    pub(crate) events: Receiver<Event>,
    pub(crate) is_told: Arc<AtomicBool>,
}

pub(crate) fn channel() -> (ScreenSink, Inbox) {
    let (samples, waiting) = mpsc::sync_channel(WAITING);
    let (events, inbox) = mpsc::channel();
    let is_told = Arc::new(AtomicBool::new(false));
    let feed = ScreenSink { samples, events, is_told: Arc::clone(&is_told) };
    (feed, Inbox { samples: waiting, events: inbox, is_told })
}

impl ScreenSink {
    /// Ends the view, as the key for it does.
    pub fn stop(&self) {
        self.tell(Event::Stop);
    }

    /// Shows a message.
    pub fn note(&self, message: String) {
        self.tell(Event::Note(message));
    }

    pub(crate) fn tell(&self, event: Event) {
        // A screen that is closed needs no events.
        let _ = self.events.send(event);
    }

    /// Waits until there is room for the sample. A screen that is closed is a broken pipe.
    pub(crate) fn give(&self, moment: Moment) -> io::Result<()> {
        self.samples.send(moment).map_err(|_| io::ErrorKind::BrokenPipe)?;
        if !self.is_told.swap(true, Ordering::AcqRel) {
            self.tell(Event::Samples);
        }
        Ok(())
    }
}

impl fmt::Debug for ScreenSink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ScreenSink").finish_non_exhaustive()
    }
}

impl Sink for ScreenSink {
    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        Ok(self.give(Moment::of(sample, sample.run().pid))?)
    }

    fn finish(&mut self, _: &Outcome) -> anyhow::Result<()> {
        self.tell(Event::Ended);
        Ok(())
    }
}
