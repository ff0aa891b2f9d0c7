//! `view`: live or recorded samples on the terminal.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, bail};
use nix::sys::signal::{SigSet, Signal};
use resource_tracker_core::config::Origin;
use resource_tracker_core::{Host, Outcome, Run, Running, Tracker};
use resource_tracker_report::Look;
use resource_tracker_sources::{JobObserver, RunEnd, TrackedJob};
use resource_tracker_view::{Screen, Source, follow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::attached::Attached;
use crate::cli::Cli;
use crate::ending::{Ending, take_last_sample};
use crate::inherited::Inherited;
use crate::logger::DeferredMessages;
use crate::run::{with_run, with_sources};
use crate::settings::{config_files, settings};
use crate::signals::Signals;
use crate::tables::{JobTable, TrackerTable};

/// The source that asks the cloud, over the network. A token turns it on, and it is of no use here.
const CLOUD: &str = "cloud";

/// Signals that end the program as usual, once the terminal is as it was before.
const FATAL: [Signal; 2] = [Signal::SIGQUIT, Signal::SIGABRT];

/// So many processes of a job are listed, unless it is configured how many.
const BUSIEST: u64 = 5;

pub(crate) fn view(cli: &Cli, inherited: &Inherited, file: Option<&Path>, speed: Option<f64>) -> anyhow::Result<i32> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if !io::stdout().is_terminal() || is_dumb {
        let instead = match file {
            Some(file) => format!("`{} summary {}` says what a recording holds", crate::PROGRAM, file.display()),
            None => format!("`{} -o FILE` records what it would show", crate::PROGRAM),
        };
        let problem = if is_dumb { "TERM names none" } else { "standard output is none" };
        bail!("view needs a terminal, and {problem}; {instead}");
    }
    if file.is_some_and(|file| file == Path::new("-")) && io::stdin().is_terminal() {
        bail!(
            "view reads keys from the terminal, and - is the terminal; name a file, or let another program write to the pipe"
        );
    }
    // This comes before foreign code is loaded: its threads then take none of these signals.
    SigSet::all().thread_block()?;
    let source = match (file, speed) {
        (None, _) => Source::Live,
        (_, None) => Source::Recording,
        (_, Some(speed)) => Source::Replay(speed),
    };
    let mut screen = Screen::new(source, Look::of(&io::stdout()).colour);
    let feed = screen.feed();
    let _kept = DeferredMessages::while_shown_by(move |message| feed.note(message));
    // Dropped at the end of the view, which is the end of the program.
    let _running = match file {
        Some(file) => follow(file, screen.feed()).map(|()| None)?,
        None => live(cli, &mut screen)?,
    };
    let stops: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().chain(FATAL).collect();
    let signals = Signals::block(&stops)?;
    inherited.let_through_all_but(&stops)?;
    let (feed, (fatal, ended_by)) = (screen.feed(), mpsc::channel());
    let stop = move || {
        if let Ok(arrived) = signals.next() {
            if FATAL.iter().any(|signal| *signal as i32 == arrived.number) {
                // The main thread asks for it once the terminal is as before.
                let _ = fatal.send(arrived.number);
            }
            feed.stop();
            // Where the terminal takes no more output, the view cannot end by itself.
            if signals.next().is_ok() {
                Ending::Killed(Signal::SIGTERM as i32).end();
            }
        }
    };
    thread::Builder::new().name("stop".into()).spawn(stop).context("cannot start a thread")?;
    screen.show()?;
    match ended_by.try_recv() {
        Ok(signal) => Ending::Killed(signal).end(),
        Err(_) => Ok(0),
    }
}

/// Starts a tracker whose samples go to the screen and nowhere else. With a process to track, it stops when that ends.
fn live(cli: &Cli, screen: &mut Screen) -> anyhow::Result<Option<Running>> {
    let settings = settings(cli, &config_files(cli))?;
    let settings = settings.set(Origin::default_of("view"), "sources.process.top", BUSIEST);
    let table: TrackerTable = settings.extract("tracker")?;
    let job: JobTable = settings.extract("job")?;
    let mut sources = settings.sources()?;
    sources.retain(|(name, _)| name != CLOUD);
    let host = Host::new(table.procfs, table.sysfs);
    let mut run = Run::new(crate::PROGRAM, env!("CARGO_PKG_VERSION"));
    (run.job, run.interval, run.pid) = (job.labels, table.interval_secs.into(), job.pid);
    let end = RunEnd::default();
    let tracker = with_run(Tracker::new(run).host(host.clone()), &end).sink("view", screen.feed());
    let tracker = with_sources(tracker, sources, settings.registry(), &host)?;
    let Some(pid) = job.pid else { return Ok(Some(tracker.start()?)) };
    if let Some(command) = command_of(&host, pid) {
        screen.set_title(&command);
    }
    watch(tracker, pid, host, end)?;
    Ok(None)
}

/// Tracks a process until it and its descendants have ended.
fn watch(tracker: Tracker, pid: i32, host: Host, end: RunEnd) -> anyhow::Result<()> {
    let (tell, joins) = mpsc::channel();
    let mut attached = Attached::new(pid, &host.procfs, joins, tracker.run().interval);
    let observer = JobObserver::new(TrackedJob::attached(pid), host).tell_joins(tell);
    let running = tracker.observer(observer).start()?;
    let began = Instant::now();
    let wait = move || {
        while !attached.has_ended() {
            let (process, look) = attached.next_look();
            let limit = Timespec { tv_sec: look.as_secs() as i64, tv_nsec: look.subsec_nanos().into() };
            let mut ready: Vec<PollFd> =
                process.map(|process| PollFd::from_borrowed_fd(process, PollFlags::IN)).into_iter().collect();
            // The only error is an interruption: then the next look comes sooner.
            let _ = poll(&mut ready, Some(&limit));
        }
        end.tell(Outcome::default(), began.elapsed());
        take_last_sample(&running);
        running.finish(Outcome::default());
    };
    thread::Builder::new().name("job".into()).spawn(wait).context("cannot start a thread")?;
    Ok(())
}

/// The command line of a process, without secrets.
fn command_of(host: &Host, pid: i32) -> Option<String> {
    let words = std::fs::read(host.procfs.join(pid.to_string()).join("cmdline")).ok()?;
    let words = words.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    (!words.is_empty()).then(|| resource_tracker_mask::command(&words).join(" "))
}
