//! From the command's start to its end: passes signals on, stops with it, reaps orphans, and keeps account of what they
//! used.

use nix::libc;
use resource_tracker_sources::job::Ledger;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, getpgid, getpid, getppid};

use super::children::Children;
use super::guardian::Guardian;
use super::witness::{Witness, let_group_signals_arrive};
use super::{stop, wait};
use crate::ending::Ending;
use crate::signals::{Arrived, Signals};

/// The kernel's first signal that is queued each time that it is sent.
const FIRST_REAL_TIME: i32 = 32;

/// Waits until the command has ended, and reaps it. `parent` is who started this process.
pub(super) fn until_exit(
    command: Pid,
    parent: Option<Pid>,
    witness: &mut Witness,
    guardian: &mut Guardian,
    signals: &Signals,
    children: &mut Children,
    ledger: &Ledger,
) -> Ending {
    loop {
        wait_for_a_signal(signals, witness, guardian);
        let ended = match next(signals, witness) {
            Ok((arrived, _)) if is_of_tracker(arrived, witness, guardian) => None,
            Ok((arrived, group_had)) => {
                if !arrived.is_of_child() {
                    let group_had = group_had.unwrap_or_else(|| witness.group_had(arrived.number));
                    pass_on(command, arrived, parent, group_had);
                }
                // One that a process sent can stand for one of a child: while it is pending there is no second one.
                let is_chld = arrived.number == libc::SIGCHLD;
                let ended = is_chld.then(|| reap(command, children, ledger)).flatten();
                if is_chld
                    && ended.is_none()
                    && let Some(signal) = stop::of_command(command)
                {
                    stop::with_command(signal, witness, guardian);
                }
                ended
            }
            // Without signals, what is left is to wait for the command itself.
            Err(_) if wait::until_ended(command) => reap(command, children, ledger),
            Err(_) => return Ending::Exited(0),
        };
        if let Some(ending) = ended {
            // What it sent to its parent before it ended, but for its end.
            while let Some(arrived) = signals.next_if_any() {
                if is_by(command, arrived) && !arrived.is_of_child() && !getpid().is_init() {
                    pass_on(command, arrived, parent, witness.group_had(arrived.number));
                }
            }
            return ending;
        }
    }
}

/// Whether a signal is no concern of the command's. A SIGCHLD always is one: that of a companion which was stopped can stand
/// for that of the command, because while one is pending there is no second.
fn is_of_tracker(arrived: Arrived, witness: &Witness, guardian: &Guardian) -> bool {
    let is_of_companion = || witness.is(arrived.sender) || guardian.is(arrived.sender);
    arrived.number != libc::SIGCHLD && (arrived.is_own_fault() || is_of_companion())
}

/// Meanwhile a companion that was killed is replaced.
fn wait_for_a_signal(signals: &Signals, witness: &mut Witness, guardian: &mut Guardian) {
    loop {
        let lines = [witness.line(), guardian.line()].into_iter().flatten();
        let signal = PollFd::new(signals, PollFlags::IN);
        let hang_up = lines.map(|line| PollFd::from_borrowed_fd(line, PollFlags::empty()));
        let mut files: Vec<_> = [signal].into_iter().chain(hang_up).collect();
        // Should it fail, reading a signal waits as well.
        let is_over = poll(&mut files, None).is_err() || !files[0].revents().is_empty();
        if files[1..].iter().any(|line| !line.revents().is_empty()) {
            witness.revive();
            guardian.revive();
        }
        if is_over {
            return;
        }
    }
}

/// A signal that went to the whole group has reached the command already, unless that has left the group. One that the
/// command itself sent was meant for its parent, which without this process is that of this process.
fn pass_on(command: Pid, arrived: Arrived, parent: Option<Pid>, group_had: Option<bool>) {
    let is_in_group = || getpgid(Some(command)) == getpgid(None);
    let receiver = match (group_had.unwrap_or(arrived.is_of_terminal()), is_by(command, arrived)) {
        (true, false) if !is_in_group() => Some(command),
        (true, _) => None,
        (false, false) => Some(command),
        // In a container `kill 1` means the command, wherever it comes from.
        (false, true) if getpid().is_init() => Some(command),
        // Not who has adopted this process, whom the command does not mean, nor the first process of all.
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

/// The next signal, and what the witness says of it where it was asked before.
///
/// It is asked while the signal is still pending here: of several that are sent to the group in a moment both may have got but
/// one. What comes to this process alone after it was taken is another one.
fn next(signals: &Signals, witness: &mut Witness) -> nix::Result<(Arrived, Option<Option<bool>>)> {
    // These can be of a child or a companion, of which the witness knows nothing; real-time signals are queued one by one.
    let is_merged = |number: &i32| *number < FIRST_REAL_TIME && ![libc::SIGCHLD, libc::SIGCONT].contains(number);
    let Some(number) = signals.pending().filter(is_merged) else { return Ok((signals.next()?, None)) };
    let mut group_had = witness.group_had(number);
    let_group_signals_arrive();
    let Some(arrived) = signals.take(number) else { return Ok((signals.next()?, None)) };
    while witness.group_had(number) == Some(true) {
        let_group_signals_arrive();
        // A later one of the group's, which is done with, or one that has come before this one was taken.
        if signals.take(number).is_none() {
            group_had = Some(true);
        }
    }
    Ok((arrived, Some(group_had)))
}

/// Reaps every child that has ended. The command itself is the one that is answered for.
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
