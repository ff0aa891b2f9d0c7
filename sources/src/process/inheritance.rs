//! What forks can have from their parents, while it was not read yet how much they share.

use std::collections::HashMap;

use super::counted_once::CurrentMemory;
use crate::job::Image;

#[derive(Default)]
pub(super) struct Inheritance {
    /// The most that each fork can have had from its parent when it was first seen, in bytes.
    inherited: HashMap<Image, u64>,
    before: HashMap<Image, u64>,
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
    /// Finds out about new forks, and forgets those that are not among these any more.
    pub(super) fn update<'a>(
        &mut self,
        forks: impl Iterator<Item = &'a CurrentMemory> + Clone,
        alive: impl Iterator<Item = CurrentMemory>,
    ) {
        std::mem::swap(&mut self.inherited, &mut self.before);
        self.inherited.clear();
        if forks.clone().any(|fork| !self.before.contains_key(&fork.image)) {
            self.by_pid.clear();
            self.by_stack.clear();
            for CurrentMemory { image, most, .. } in alive {
                self.by_pid.insert(image.pid, (image.stack, most));
                self.by_stack.entry(image.stack).or_default().add(most, image.pid);
            }
        }
        for fork in forks {
            let Image { pid, stack, .. } = fork.image;
            let from_parent = || match self.by_pid.get(&fork.parent) {
                // It may have given memory back since.
                Some((of_parent, most)) if *of_parent == stack => *most,
                // Its parent has ended, and it may share with any of the others.
                _ => self.by_stack.get(&stack).map_or(0, |most| most.beside(pid)),
            };
            let inherited = self.before.get(&fork.image).copied().unwrap_or_else(from_parent);
            self.inherited.insert(fork.image, inherited);
        }
    }

    /// The most that a fork can have from its parent, in bytes: all of it if the fork was in no update.
    pub(super) fn of(&self, fork: &CurrentMemory) -> u64 {
        self.inherited.get(&fork.image).copied().unwrap_or(u64::MAX)
    }
}
