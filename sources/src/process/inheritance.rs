//! What forks can have from their parents, while it was not read yet how much they share.

use std::collections::HashMap;

use super::current_memory::CurrentMemory;
use crate::job::Image;

#[derive(Default)]
pub(super) struct Inheritance {
    /// The most that each fork can have had from its parent when it was first seen, in bytes; in order.
    known: Vec<(Image, u64)>,
    now: Vec<u64>,
    /// The stack address and the most memory of each process. A fork has the address of its parent until it runs another
    /// program.
    by_pid: HashMap<i32, (u64, u64)>,
    by_stack: HashMap<u64, MostOfStack>,
}

/// The two largest of the processes with one stack address.
#[derive(Default)]
struct MostOfStack {
    first: (u64, i32),
    second: u64,
}

impl MostOfStack {
    fn add(&mut self, most: u64, pid: i32) {
        match most > self.first.0 {
            true => self.second = std::mem::replace(&mut self.first, (most, pid)).0,
            false => self.second = self.second.max(most),
        }
    }

    fn beside(&self, pid: i32) -> u64 {
        if self.first.1 == pid { self.second } else { self.first.0 }
    }
}

impl Inheritance {
    /// The most that each of these forks can have from its parent, in bytes. Others are forgotten.
    pub(super) fn of(&mut self, forks: &[CurrentMemory], alive: impl Iterator<Item = CurrentMemory>) -> &[u64] {
        let Self { known, now, .. } = self;
        let find = |fork: &CurrentMemory| known.binary_search_by_key(&fork.image, |(image, _)| *image).ok();
        now.clear();
        now.extend(forks.iter().map(|fork| find(fork).map_or(NEW, |index| known[index].1)));
        if now.contains(&NEW) {
            self.by_pid.clear();
            self.by_stack.clear();
            for CurrentMemory { image, most, .. } in alive {
                self.by_pid.insert(image.pid, (image.stack, most));
                self.by_stack.entry(image.stack).or_default().add(most, image.pid);
            }
        }
        for (fork, inherited) in forks.iter().zip(&mut *now).filter(|(_, inherited)| **inherited == NEW) {
            let Image { pid, stack, .. } = fork.image;
            let of_parent = match self.by_pid.get(&fork.parent) {
                // It may have given memory back since.
                Some((of_parent, most)) if *of_parent == stack => *most,
                // Its parent has ended, and it may share with any of the others.
                _ => self.by_stack.get(&stack).map_or(0, |most| most.beside(pid)),
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

/// Stands for that of a fork that is seen for the first time.
const NEW: u64 = u64::MAX;
