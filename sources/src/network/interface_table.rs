//! The interfaces that were there at the last reading, known by their number: a name can change, and another interface can
//! get it.

use std::path::PathBuf;
use std::time::Duration;

use resource_tracker_core::Host;
use rustix::fs::{PROC_SUPER_MAGIC, statfs};

use super::counters::Counters;
use super::link::Link;
use super::links::is_card;
use super::netlink::{self, Device};
use crate::procfile::attribute;
use resource_tracker_scan::find_near;

pub(super) struct Interface {
    pub(super) name: String,
    pub(super) index: Option<u32>,
    pub(super) counters: Counters,
    /// What sums include of it.
    counted: Counters,
    /// Its counters when it was first seen.
    first: Counters,
    /// For how long it could not be read.
    unread: Duration,
    is_here: bool,
}

impl Interface {
    pub(super) fn is_of(&self, link: &Link) -> bool {
        match (self.index, link.index) {
            (Some(index), Some(other)) => index == other,
            _ => self.name == link.name,
        }
    }

    /// Sums include all that it counts now: it is another interface than before.
    pub(super) fn reset_baseline(&mut self) {
        (self.counted, self.first) = (Counters::default(), Counters::default());
    }

    /// Sums leave out what it counted before it was first seen, unless they include some of it already.
    pub(super) fn exclude_initial_bytes(&mut self) {
        let first = std::mem::take(&mut self.first);
        if self.counted == Counters::default() {
            self.counted = first;
        }
    }

    /// The time that a reading covers: `elapsed`, and before it the time in which the interface could not be read.
    pub(super) fn time_of(&mut self, elapsed: Duration) -> Duration {
        std::mem::take(&mut self.unread) + elapsed
    }

    /// The bytes received and sent that this reading adds to sums: none while it is not known whether the interface
    /// counts. They come once that is known.
    pub(super) fn count(&mut self, is_counted: Option<bool>, now: &Counters) -> (u64, u64) {
        let Some(is_counted) = is_counted else { return (0, 0) };
        let before = std::mem::replace(&mut self.counted, *now);
        match is_counted {
            true => (now.rx.bytes.saturating_sub(before.rx.bytes), now.tx.bytes.saturating_sub(before.tx.bytes)),
            false => (0, 0),
        }
    }
}

pub(super) struct InterfaceTable {
    lookup: InterfaceLookup,
    interfaces: Vec<Interface>,
    /// Whether there was a reading. If so, an interface that is not in the table appeared after it.
    has_read: bool,
    is_new: bool,
}

impl InterfaceTable {
    pub(super) fn new(lookup: InterfaceLookup) -> Self {
        Self { lookup, interfaces: Vec::new(), has_read: false, is_new: false }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.interfaces.iter().map(|interface| interface.name.clone()).collect()
    }

    /// A reading begins.
    pub(super) fn begin(&mut self) {
        self.interfaces.iter_mut().for_each(|interface| interface.is_here = false);
        self.is_new = false;
    }

    /// A reading ends. Whether an interface is new, or has another name. After a reading that `has_garbage`, interfaces
    /// that were not in it stay in the table: perhaps only their lines were unreadable.
    pub(super) fn end(&mut self, has_garbage: bool, elapsed: Duration) -> bool {
        match has_garbage {
            true => self.interfaces.iter_mut().filter(|it| !it.is_here).for_each(|it| it.unread += elapsed),
            false => self.interfaces.retain(|interface| interface.is_here),
        }
        self.has_read = true;
        self.is_new
    }

    /// The interface that has this name and these counters, which is likely to be at this place, and its place.
    pub(super) fn find(&mut self, near: usize, name: &[u8], now: &Counters) -> Option<(usize, &mut Interface)> {
        let known = find_near(&self.interfaces, near, |interface| interface.name.as_bytes() == name);
        let place = match known {
            Some(place) if !now.fell_since(&self.interfaces[place].counters) => place,
            _ => self.identify(known, std::str::from_utf8(name).ok()?, now),
        };
        let interface = &mut self.interfaces[place];
        interface.is_here = true;
        Some((place, interface))
    }

    /// The place of an interface whose name is new, or whose counters fell. `known` is the place that has the name so
    /// far.
    fn identify(&mut self, known: Option<usize>, name: &str, now: &Counters) -> usize {
        let index = self.lookup.index(name);
        let same = self.interfaces.iter().position(|interface| index.is_some() && interface.index == index);
        let former = known.map(|place| std::mem::take(&mut self.interfaces[place].name));
        let place = match (same, known) {
            (Some(same), _) => same,
            (None, Some(known)) if index.is_none() => known,
            (None, _) => {
                let counters = self.past(name, now);
                let (name, unread) = (String::new(), Duration::ZERO);
                let (counted, first, is_here) = (counters, *now, true);
                self.interfaces.push(Interface { name, index, counters, counted, first, unread, is_here });
                self.interfaces.len() - 1
            }
        };
        self.is_new |= known != Some(place);
        // The entry that had the name is left without one. It is found by its number under another name.
        self.interfaces[place].name = former.unwrap_or_else(|| name.to_owned());
        place
    }

    /// The baseline of an interface that was not in the table. After the first reading such a one is new and began at
    /// zero, unless it is a card: a card keeps its counters when it comes from another namespace.
    fn past(&self, name: &str, now: &Counters) -> Counters {
        if self.has_read && !self.lookup.is_card(name) { Counters::default() } else { *now }
    }
}

/// In the place of the sysfs of another namespace.
pub(super) const NOWHERE: &str = "/nonexistent";

/// Finds the number of an interface by its name, and what else the system knows of it.
#[derive(Clone)]
pub(super) struct InterfaceLookup {
    root: PathBuf,
    /// Whether the counters are of this system and not recorded: then the kernel can be asked.
    is_live: bool,
}

impl InterfaceLookup {
    pub(super) fn new(host: &Host) -> Self {
        let is_live = statfs(&host.procfs).is_ok_and(|system| system.f_type == PROC_SUPER_MAGIC);
        Self { root: host.sysfs.join("class/net"), is_live }
    }

    /// Knows no numbers: interfaces are known by their names alone.
    pub(super) fn nowhere() -> Self {
        Self { root: NOWHERE.into(), is_live: false }
    }

    /// What the kernel says of all interfaces; nothing where a sandbox has no netlink.
    pub(super) fn devices(&self) -> Vec<Device> {
        if self.is_live { netlink::devices().unwrap_or_default() } else { Vec::new() }
    }

    /// The number of an interface. Needs no lock; `/sys` could be that of another namespace.
    fn index(&self, name: &str) -> Option<u32> {
        match self.is_live {
            true => nix::net::if_::if_nametoindex(name).ok(),
            false => attribute(&self.root.join(name).join("ifindex"))?.parse().ok(),
        }
    }

    fn is_card(&self, name: &str) -> bool {
        is_card(&self.root, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::counters::Direction;

    /// The numbers of the interfaces that have these names now.
    struct Namespace(tempfile::TempDir);

    impl Namespace {
        fn new() -> std::io::Result<(Self, InterfaceTable)> {
            let directory = tempfile::tempdir()?;
            let lookup = InterfaceLookup { root: directory.path().to_owned(), is_live: false };
            Ok((Self(directory), InterfaceTable::new(lookup)))
        }

        fn name(&self, index: u32, name: &str) -> std::io::Result<()> {
            std::fs::create_dir_all(self.0.path().join(name))?;
            std::fs::write(self.0.path().join(name).join("ifindex"), format!("{index}\n"))
        }
    }

    fn counters(bytes: u64) -> Counters {
        let direction = Direction { bytes, ..Direction::default() };
        Counters { rx: direction, tx: direction }
    }

    /// What each interface received since the reading before, and whether any is new.
    fn read(known: &mut InterfaceTable, lines: &[(&str, u64)]) -> (Vec<u64>, bool) {
        known.begin();
        let mut grown = Vec::new();
        for (place, (name, bytes)) in lines.iter().enumerate() {
            let now = counters(*bytes);
            let (_, interface) = known.find(place, name.as_bytes(), &now).unwrap();
            assert_eq!(interface.name, *name);
            let before = interface.counters.rx.bytes;
            assert_eq!(interface.count(Some(true), &now), (bytes.saturating_sub(before), bytes.saturating_sub(before)));
            interface.counters = now;
            grown.push(bytes.saturating_sub(before));
        }
        (grown, known.end(false, Duration::ZERO))
    }

    #[test]
    fn a_new_name_loses_no_bytes() -> anyhow::Result<()> {
        let (namespace, mut known) = Namespace::new()?;
        namespace.name(2, "a")?;
        namespace.name(3, "b")?;
        assert_eq!(read(&mut known, &[("a", 1000), ("b", 2000)]), (vec![0, 0], true), "nothing is known of before");
        assert_eq!(read(&mut known, &[("a", 1001), ("b", 2002)]), (vec![1, 2], false));
        namespace.name(2, "c")?;
        assert_eq!(read(&mut known, &[("c", 1011), ("b", 2022)]), (vec![10, 20], true));
        // Another one gets the name that it had.
        namespace.name(2, "d")?;
        namespace.name(4, "c")?;
        assert_eq!(read(&mut known, &[("c", 5), ("d", 1012), ("b", 2022)]), (vec![5, 1, 0], true));
        // Two change names.
        namespace.name(2, "b")?;
        namespace.name(3, "d")?;
        assert_eq!(read(&mut known, &[("c", 5), ("b", 1013), ("d", 2024)]), (vec![0, 1, 2], true));
        assert_eq!(read(&mut known, &[("c", 6), ("b", 1014), ("d", 2025)]), (vec![1, 1, 1], false));
        Ok(())
    }

    #[test]
    fn one_that_was_made_began_at_nothing_unless_it_is_a_card() -> anyhow::Result<()> {
        let (namespace, mut known) = Namespace::new()?;
        assert_eq!(read(&mut known, &[]), (vec![], false));
        namespace.name(2, "veth0")?;
        namespace.name(3, "eth1")?;
        std::fs::create_dir(namespace.0.path().join("eth1/device"))?;
        assert_eq!(read(&mut known, &[("veth0", 70), ("eth1", 90)]), (vec![70, 0], true));
        // Made anew, under the same name.
        namespace.name(4, "veth0")?;
        assert_eq!(read(&mut known, &[("veth0", 30), ("eth1", 91)]), (vec![30, 1], true));
        // The driver began anew.
        assert_eq!(read(&mut known, &[("veth0", 10), ("eth1", 91)]), (vec![0, 0], false));
        assert_eq!(read(&mut known, &[("eth1", 91), ("veth0", 12)]), (vec![0, 2], false));
        Ok(())
    }

    #[test]
    fn where_no_numbers_can_be_read_names_are_all_there_is() -> anyhow::Result<()> {
        let (_namespace, mut known) = Namespace::new()?;
        assert_eq!(read(&mut known, &[("a", 10)]), (vec![0], true));
        assert_eq!(read(&mut known, &[("a", 5), ("b", 7)]), (vec![0, 7], true));
        assert_eq!(read(&mut known, &[("a", 6), ("b", 8)]), (vec![1, 1], false));
        Ok(())
    }
}
