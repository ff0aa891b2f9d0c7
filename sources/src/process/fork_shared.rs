//! What forks can have from their parents, while it was not read yet how much they share.

use super::current_memory::CurrentMemory;
use crate::job::Image;

#[derive(Default)]
pub(super) struct SharedSinceFork {
    /// The most that each fork can have had from its parent when it was first seen, in bytes; in order.
    known: Vec<(Image, u64)>,
    now: Vec<u64>,
    /// All that are alive, in order.
    all: Vec<Process>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    /// A fork has the address of its parent until it runs another program.
    stack: u64,
    pid: i32,
    /// The most memory that it ever had.
    most: u64,
}

/// The two largest of the processes with one stack address.
#[derive(Default)]
struct MostOfStack {
    stack: u64,
    first: (u64, i32),
    second: u64,
}

impl SharedSinceFork {
    /// The most that each of these forks can have from its parent, in bytes. Others are forgotten.
    pub(super) fn of(&mut self, forks: &[CurrentMemory], alive: impl Iterator<Item = CurrentMemory>) -> &[u64] {
        let Self { known, now, .. } = self;
        let find = |fork: &CurrentMemory| known.binary_search_by_key(&fork.image, |(image, _)| *image).ok();
        now.clear();
        now.extend(forks.iter().map(|fork| find(fork).map_or(NEW, |index| known[index].1)));
        if now.contains(&NEW) {
            self.all.clear();
            self.all.extend(alive.map(|CurrentMemory { image, most, .. }| {
                let Image { pid, stack, .. } = image;
                Process { stack, pid, most }
            }));
            self.all.sort_unstable();
        }
        let mut of_stack = MostOfStack::default();
        for (fork, inherited) in forks.iter().zip(&mut *now).filter(|(_, inherited)| **inherited == NEW) {
            let Image { pid, stack, .. } = fork.image;
            let place = |of: &Process| (of.stack, of.pid);
            let of_parent = match self.all.binary_search_by_key(&(stack, fork.parent), place) {
                // It may have given memory back since.
                Ok(index) => self.all[index].most,
                // Its parent has ended, and it may share with any of the others.
                Err(_) => {
                    if of_stack.stack != stack {
                        of_stack = MostOfStack::of(&self.all, stack);
                    }
                    of_stack.beside(pid)
                }
            };
            // It has at most what it ever had itself, if that is known.
            *inherited = of_parent.min(if fork.kinds.is_some() { fork.most } else { NEW - 1 });
        }
        known.clear();
        known.extend(forks.iter().zip(&*now).map(|(fork, inherited)| (fork.image, *inherited)));
        // They are found in this order, mostly.
        known.sort_unstable();
        now
    }
}

impl MostOfStack {
    fn of(all: &[Process], stack: u64) -> Self {
        let mut found = Self { stack, ..Self::default() };
        let first = all.partition_point(|process| process.stack < stack);
        for Process { pid, most, .. } in all[first..].iter().take_while(|process| process.stack == stack) {
            match *most > found.first.0 {
                true => found.second = std::mem::replace(&mut found.first, (*most, *pid)).0,
                false => found.second = found.second.max(*most),
            }
        }
        found
    }

    fn beside(&self, pid: i32) -> u64 {
        if self.first.1 == pid { self.second } else { self.first.0 }
    }
}

/// Stands for that of a fork that is seen for the first time.
const NEW: u64 = u64::MAX;
