//! The terminal while the view is on it.

use std::io::{self, BufWriter, Stdout};
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::Pid;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use resource_tracker_report::printable;

use crate::clock::Clock;
use crate::draw::{Palette, draw};
use crate::feed::{Event, Inbox, ScreenSink, channel};
use crate::moment::Moment;
use crate::view::{Source, View};

/// The shortest time between two pictures, and the longest for which samples are taken without a look at keys.
const FRAME: Duration = Duration::from_millis(100);
/// How often the screen looks whether a run is silent.
const LOOK: Duration = Duration::from_secs(1);
const BUFFER: usize = 64 << 10;
const CTRL_Z: KeyEvent = KeyEvent::new(KeyCode::Char('z'), KeyModifiers::CONTROL);
/// Terminals send the same for Ctrl-4, and it is read as that.
const CTRL_BACKSLASH: KeyEvent = KeyEvent::new(KeyCode::Char('4'), KeyModifiers::CONTROL);

/// A view before it is on the terminal.
pub struct Screen {
    view: View,
    palette: Palette,
    clock: Option<Clock>,
    /// The next sample of a replay, whose time has not come.
    next: Option<Moment>,
    feed: ScreenSink,
    inbox: Inbox,
    /// The state of the view once all waiting samples were taken.
    then: Then,
}

#[derive(Default)]
struct Then {
    is_caught_up: bool,
    is_ended: bool,
}

impl Screen {
    /// A view of the samples from `source`.
    pub fn new(source: Source, has_colour: bool) -> Self {
        let (feed, inbox) = channel();
        let clock = if let Source::Replay(speed) = source { Some(Clock::new(speed)) } else { None };
        Self {
            view: View::new(source),
            palette: Palette::new(has_colour),
            clock,
            next: None,
            feed,
            inbox,
            then: Then::default(),
        }
    }

    /// Sets the title for samples that name no command.
    pub fn set_title(&mut self, title: &str) {
        self.view.title = Some(printable(title));
    }

    /// The sink that gives samples to it.
    pub fn feed(&self) -> ScreenSink {
        self.feed.clone()
    }

    /// Shows the view on standard output, which must be a terminal, and acts on its keys, until it is told to stop. The
    /// terminal is restored in any case, also after a panic.
    ///
    /// # Errors
    /// When the terminal cannot be used, or the recording cannot be read.
    pub fn show(mut self) -> anyhow::Result<()> {
        let feed = self.feed.clone();
        restore_at_panic(feed.clone());
        let _taken = Taken::take().context("cannot use the terminal")?;
        let mut terminal = Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(BUFFER, io::stdout())))
            .context("cannot use the terminal")?;
        thread::Builder::new().name("keys".into()).spawn(move || read_keys(&feed)).context("cannot start a thread")?;
        self.run(&mut terminal)
    }

    fn run(&mut self, terminal: &mut Terminal<CrosstermBackend<BufWriter<Stdout>>>) -> anyhow::Result<()> {
        let mut drawn: Option<Instant> = None;
        let mut state = String::new();
        let mut is_new = true;
        loop {
            let wait = drawn.map_or(Duration::ZERO, |drawn| FRAME.saturating_sub(drawn.elapsed()));
            if is_new && wait.is_zero() {
                let now = now();
                terminal.draw(|frame| draw(&self.view, now, &self.palette, frame)).context("cannot draw")?;
                state = self.view.state(now).0;
                (drawn, is_new) = (Some(Instant::now()), false);
            }
            let wait = if is_new { wait } else { LOOK };
            match self.inbox.events.recv_timeout(self.until_next().map_or(wait, |next| next.min(wait))) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(Event::Failed(error)) => return Err(error),
                // Keys that a terminal in its usual mode turns into signals.
                Ok(Event::Key(key)) if key == CTRL_BACKSLASH => kill(Pid::this(), Signal::SIGQUIT)?,
                Ok(Event::Key(key)) if key == CTRL_Z => {
                    sleep()?;
                    // `clear` would ask the terminal where the cursor is, and the other thread would take the answer
                    // for keys.
                    terminal.resize(terminal.size()?.into())?;
                    is_new = true;
                }
                Ok(Event::Key(key)) => {
                    self.view.note = None;
                    if !self.view.position.press(key, &self.view.history) {
                        return Ok(());
                    }
                    is_new = true;
                }
                Ok(event) => is_new |= self.heed(event),
                Err(RecvTimeoutError::Timeout) => (),
            }
            is_new |= self.take_samples() || self.view.state(now()).0 != state;
        }
    }

    /// Handles an event. True if there is anything new to show.
    fn heed(&mut self, event: Event) -> bool {
        match event {
            Event::CaughtUp => self.then.is_caught_up = true,
            Event::Ended => self.then = Then { is_caught_up: true, is_ended: true },
            Event::Note(note) => {
                self.view.note = Some(note);
                return true;
            }
            Event::Resized => return true,
            _ => (),
        }
        false
    }

    /// Takes the samples whose time has come. True if there were any.
    fn take_samples(&mut self) -> bool {
        let began = Instant::now();
        let is_held = self.view.position.cursor().is_some();
        let mut taken = false;
        self.inbox.is_told.store(false, Ordering::Release);
        if let Some(clock) = &mut self.clock {
            clock.go_on(began, is_held);
        }
        while let Some(moment) = self.next.take().or_else(|| self.inbox.samples.try_recv().ok()) {
            if let Some(clock) = &mut self.clock
                && !clock.has_come(&moment, &self.view.history)
            {
                self.next = Some(moment);
                return taken;
            }
            self.view.add(moment, now());
            taken = true;
            if began.elapsed() >= FRAME {
                // Keys come before further samples.
                self.feed.tell(Event::Samples);
                return true;
            }
        }
        let Then { is_caught_up, is_ended } = self.then;
        taken |= is_caught_up != self.view.is_caught_up || is_ended != self.view.is_ended;
        self.view.is_caught_up |= is_caught_up;
        self.view.is_ended |= is_ended;
        taken
    }

    /// The time until the next sample of a replay.
    fn until_next(&self) -> Option<Duration> {
        let (clock, next) = self.clock.as_ref().zip(self.next.as_ref())?;
        self.view.position.cursor().is_none().then(|| clock.until(next).max(FRAME / 10))
    }
}

/// The time since the Unix epoch, in seconds.
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn read_keys(feed: &ScreenSink) {
    loop {
        match event::read() {
            Ok(Input::Key(key)) if key.kind != KeyEventKind::Release => feed.tell(Event::Key(key)),
            Ok(Input::Resize(..)) => feed.tell(Event::Resized),
            Ok(_) => (),
            // Without keys nobody could quit.
            Err(error) => {
                let error = anyhow::Error::from(error).context("cannot read keys");
                return feed.tell(Event::Failed(error));
            }
        }
    }
}

/// Ctrl-Z: gives the terminal back until the shell says `fg`.
fn sleep() -> anyhow::Result<()> {
    give_back();
    raise(Signal::SIGTSTP)?;
    take()?;
    Ok(())
}

/// The terminal is ours for as long as this lives.
struct Taken;

impl Taken {
    fn take() -> io::Result<Self> {
        take().inspect_err(|_| give_back())?;
        Ok(Self)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

fn give_back() {
    // Nothing is left to do where that fails.
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Gives the terminal back at a panic, so that its message can be read. A panic of a component is caught, and no reason
/// to end.
fn restore_at_panic(feed: ScreenSink) {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !resource_tracker_core::is_guarded() {
            give_back();
            feed.stop();
        }
        print(panic);
    }));
}
