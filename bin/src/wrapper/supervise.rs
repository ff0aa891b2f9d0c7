//! From the command's start to its end: passes signals on, stops with it, reaps orphans, and keeps account of what they
//! used.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::libc;
use resource_tracker_sources::job::Ledger;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, getpgid, getpid, getppid};

use super::children::Children;
use super::fork::Launch;
use super::guardian::Guardian;
use super::witness::{Witness, is_stop_pending, let_group_signals_arrive};
use super::{stop, wait};
use crate::ending::Ending;
use crate::inherited::CommandLine;
use crate::signals::{Arrived, Signals};

/// The kernel's first signal that is queued each time that it is sent.
const FIRST_REAL_TIME: i32 = 32;

/// How many signals of one number to the group are merged before other work has its turn.
const MERGED: usize = 16;

/// The most signals that are still taken when the command has ended: so they do not hold up the end.
const LAST_WORDS: usize = 4096;

/// A command that ends within this time gets no guardian: to make and to end one would be a good part of the cost of
/// tracking it.
const UNGUARDED: Duration = Duration::from_millis(20);

/// What stands between the command and the senders of signals to the tracker.
pub(super) struct Supervisor {
    /// The process that started this one.
    parent: Option<Pid>,
    pub(super) signals: Signals,
    command_line: CommandLine,
    pub(super) witness: Witness,
    guardian: Option<Guardian>,
    /// The signal that had stopped the command at the last look.
    stop: Option<i32>,
}

/// What ended a wait.
#[derive(PartialEq, Eq)]
enum Woken {
    BySignal,
    /// By the other file, which has hung up.
    ByOther,
    /// By nothing, for as long as was to be waited.
    InVain,
}

impl Supervisor {
    /// Begins when all signals are blocked, in the thread that will start the command.
    pub(super) fn new(parent: Option<Pid>, signals: Signals, command_line: CommandLine) -> Self {
        Self { parent, signals, command_line, witness: Witness::start(command_line), guardian: None, stop: None }
    }

    /// Makes room for processes of more use. `false` when there was none already.
    pub(super) fn give_up_companions(&mut self) -> bool {
        self.guardian = None;
        self.witness.give_up()
    }

    /// From now on the guardian wakes this process when the command goes on. Where there was no room for the witness,
    /// there is none for the guardian.
    fn guard(&mut self, command: Pid) {
        self.guardian.get_or_insert_with(|| match self.witness.is_there() {
            true => Guardian::start(self.command_line, command),
            false => Guardian::none(self.command_line, command),
        });
    }

    /// Waits until the command is its program, or is gone. That can take long: the program may lie on a slow disk, and
    /// the command may be stopped before that.
    pub(super) fn until_exec(&mut self, launch: &mut Launch) {
        while self.wait(Some(launch.as_fd()), None) != Woken::ByOther {
            // Until it is prepared, it takes the signals that the group has got by itself.
            launch.wait_until_prepared();
            if self.serve(launch.child()).is_err() {
                return;
            }
            self.stop_with(launch.child());
        }
    }

    /// Waits until the command has ended, and reaps it.
    pub(super) fn until_exit(&mut self, command: Pid, children: &mut Children, ledger: &Ledger) -> Ending {
        let guarded_from = Instant::now() + UNGUARDED;
        loop {
            // This does not wait for a SIGCHLD: it can queue behind lower numbers for long, and stand for several ends.
            if let Some(ending) = reap(command, children, ledger) {
                self.hear_last_words(command);
                return ending;
            }
            self.stop_with(command);
            let unguarded = guarded_from.saturating_duration_since(Instant::now());
            if unguarded.is_zero() {
                self.guard(command);
            }
            if self.wait(None, self.guardian.is_none().then_some(unguarded)) == Woken::InVain {
                continue;
            }
            // Without signals, what is left is to wait for the command itself.
            if self.serve(command).is_err() && !wait::until_ended(command) {
                return Ending::Exited(0);
            }
        }
    }

    /// Waits for a signal, or until this other file hangs up, or so long. Meanwhile a companion that was killed is replaced.
    fn wait(&mut self, other: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> Woken {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        loop {
            let guardian = self.guardian.as_ref().and_then(Guardian::line);
            let hang_up = |file| PollFd::from_borrowed_fd(file, PollFlags::empty());
            let mut files = vec![PollFd::new(&self.signals, PollFlags::IN)];
            files.extend([other, self.witness.line(), guardian].into_iter().flatten().map(hang_up));
            // If it fails, reading a signal waits as well.
            let ready = poll(&mut files, limit.as_ref());
            let is_ready: Vec<bool> = files.iter().map(|file| !file.revents().is_empty()).collect();
            let (others, companions) = is_ready[1..].split_at(usize::from(other.is_some()));
            if companions.contains(&true) {
                self.witness.revive();
                self.guardian.iter_mut().for_each(Guardian::revive);
            }
            match ready {
                _ if others.contains(&true) => return Woken::ByOther,
                Ok(0) => return Woken::InVain,
                Ok(_) if !is_ready[0] => (),
                _ => return Woken::BySignal,
            }
        }
    }

    /// Takes a signal, and passes it on where that is called for.
    fn serve(&mut self, command: Pid) -> nix::Result<()> {
        let (arrived, group_had) = next(&self.signals, &mut self.witness)?;
        let is_of_guardian = self.guardian.as_ref().is_some_and(|guardian| guardian.is(arrived.sender));
        if arrived.is_of_child() || arrived.is_own_fault() || self.witness.is(arrived.sender) {
            return Ok(());
        }
        let group_had = group_had.unwrap_or_else(|| self.witness.group_had(arrived.number));
        if arrived.number == libc::SIGCONT && group_had != Some(true) {
            // A later stop has discarded the SIGCONT that the witness got, and is what counts.
            if is_stop_pending() {
                return Ok(());
            }
            self.witness.forget_stops();
        }
        if !is_of_guardian {
            pass_on(command, arrived, self.parent, group_had);
        }
        Ok(())
    }

    /// Stops if the command is stopped, also if it went on unnoticed and was stopped again.
    fn stop_with(&mut self, command: Pid) {
        self.stop = stop::of_command(command).or(self.stop.filter(|_| stop::is_in_force(command)));
        if let Some(signal) = self.stop {
            self.guard(command);
            if let Some(guardian) = &mut self.guardian {
                stop::with_command(signal, guardian);
            }
        }
    }

    /// Passes on what the command sent to its parent before it ended, without the SIGCHLD of its end.
    fn hear_last_words(&mut self, command: Pid) {
        for arrived in std::iter::from_fn(|| self.signals.next_if_any()).take(LAST_WORDS) {
            if is_by(command, arrived) && !arrived.is_of_child() && !getpid().is_init() {
                pass_on(command, arrived, self.parent, self.witness.group_had(arrived.number));
            }
        }
    }
}

/// A signal that went to the whole group has reached the command already, unless that has left the group. A signal from
/// the command was meant for its parent, which without the tracker is the parent of this process.
fn pass_on(command: Pid, arrived: Arrived, parent: Option<Pid>, group_had: Option<bool>) {
    let is_in_group = || getpgid(Some(command)) == getpgid(None);
    let receiver = match (group_had.unwrap_or(arrived.is_of_terminal()), is_by(command, arrived)) {
        (true, false) if !is_in_group() => Some(command),
        (true, _) => None,
        (false, false) => Some(command),
        // In a container `kill 1` means the command, wherever it comes from.
        (false, true) if getpid().is_init() => Some(command),
        // Not a process that adopted this one, which the command does not mean, nor the first process of all.
        (false, true) => parent.filter(|parent| !parent.is_init() && getppid() == Some(*parent)),
    };
    if let Some(receiver) = receiver {
        // SAFETY: a system call on two numbers. (The safe wrappers do not know real-time signals.) The command's number cannot
        // be another process's by now, because nobody but this thread reaps it.
        unsafe { libc::kill(receiver.as_raw_nonzero().get(), arrived.number) };
    }
}

fn is_by(command: Pid, arrived: Arrived) -> bool {
    arrived.sender == command.as_raw_nonzero().get()
}

/// The next signal, and the answer of the witness, if it was asked by then.
///
/// The witness is asked while the signal is still pending here: of several that go to the group in a moment, both may
/// get only one. A signal that comes to this process alone after it was taken is another one.
fn next(signals: &Signals, witness: &mut Witness) -> nix::Result<(Arrived, Option<Option<bool>>)> {
    // These can be of a child or a companion, of which the witness knows nothing; real-time signals are queued one by one.
    let is_merged = |number: &i32| *number < FIRST_REAL_TIME && ![libc::SIGCHLD, libc::SIGCONT].contains(number);
    let Some(number) = signals.pending().filter(is_merged) else { return Ok((signals.next()?, None)) };
    let mut group_had = witness.group_had(number);
    let_group_signals_arrive();
    let Some(arrived) = signals.take(number) else { return Ok((signals.next()?, None)) };
    for _ in 0..MERGED {
        if witness.group_had(number) != Some(true) {
            break;
        }
        let_group_signals_arrive();
        // Either this process gets the later one of the group as well, which is done with; or it got both as one.
        if signals.take(number).is_none() {
            group_had = Some(true);
        }
    }
    Ok((arrived, Some(group_had)))
}

/// Reaps every child that has ended. Returns how the command ended, if it is one of them.
fn reap(command: Pid, children: &mut Children, ledger: &Ledger) -> Option<Ending> {
    ledger.reap(|reaped| {
        let mut ending = None;
        let command = command.as_raw_nonzero().get();
        for ended in children.ended(command) {
            if ended.pid == command {
                reaped.root(ended.usage);
                ending = Some(ended.ending);
            } else {
                reaped.orphan(ended.usage);
            }
        }
        ending
    })
}
