//! What interfaces are, according to sysfs and to the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::edge;
use super::link::Link;
use super::netlink::Device;
use crate::procfile::attribute;

/// What interfaces are. Their files are read again when the kernel's answer has changed.
pub(super) struct Links {
    root: PathBuf,
    names: Vec<String>,
    devices: Vec<Device>,
    links: Arc<Vec<Link>>,
}

impl Links {
    /// Of a `class/net` of sysfs.
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, names: Vec::new(), devices: Vec::new(), links: Arc::default() }
    }

    /// Of those with these names, in this order. Without `devices` there is no netlink.
    pub(super) fn read(&mut self, names: Vec<String>, devices: Vec<Device>) -> Arc<Vec<Link>> {
        if devices.is_empty() || (&names, &devices) != (&self.names, &self.devices) {
            self.links = Arc::new(read_links(&self.root, names.clone(), &devices));
            (self.names, self.devices) = (names, devices);
        }
        Arc::clone(&self.links)
    }
}

/// Reads sysfs, and adds the `devices` of the kernel, of which there are none without netlink.
pub(super) fn read_links(root: &Path, names: Vec<String>, devices: &[Device]) -> Vec<Link> {
    let by_name: BTreeMap<&str, &Device> = devices.iter().map(|device| (device.name.as_str(), device)).collect();
    let by_index: BTreeMap<u32, &Device> = devices.iter().map(|device| (device.index, device)).collect();
    let mut ports: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for device in devices {
        device.master.into_iter().for_each(|master| ports.entry(master).or_default().push(&device.name));
    }
    let read = |name: String| {
        let device = by_name.get(name.as_str());
        let link = from_sysfs(root, name, device.copied());
        match device {
            Some(device) => complete(link, device, &by_index, ports.get(&device.index)),
            None => link,
        }
    };
    let mut links: Vec<Link> = names.into_iter().map(read).collect();
    edge::choose(&mut links);
    links
}

pub(super) fn is_card(root: &Path, name: &str) -> bool {
    root.join(name).join("device").exists()
}

/// Reads sysfs for what the kernel's `device` does not say.
fn from_sysfs(root: &Path, name: String, device: Option<&Device>) -> Link {
    let directory = root.join(&name);
    let text = |name: &str| attribute(&directory.join(name));
    let target = |name: &str| {
        let target = std::fs::read_link(directory.join(name)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    };
    let is_card = is_card(root, &name);
    // A card stands on nothing but its ports, and of these, as of what has a link, the kernel tells.
    let tells_lower = device.is_some_and(|device| is_card || device.link.is_some());
    // A card can be a `wlan` there, which is no kind.
    let may_have_kind = !is_card && device.is_none_or(|device| device.kind.is_none());
    let kind = || {
        let uevent = text("uevent");
        let kind = uevent.as_deref().and_then(|uevent| uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE=")));
        kind.map(str::to_owned).or_else(|| text("tun_flags").map(|_| "tun".to_owned()))
    };
    Link {
        index: text("ifindex").and_then(|index| index.parse().ok()),
        kind: if may_have_kind { kind() } else { None },
        lower: if tells_lower { Vec::new() } else { lower(&directory) },
        master: if device.is_none() { target("master") } else { None },
        mac_address: text("address"),
        driver: if is_card { target("device/driver") } else { None },
        operstate: if device.is_none() { text("operstate") } else { None },
        mtu: if device.is_none() { text("mtu").and_then(|mtu| mtu.parse().ok()) } else { None },
        is_counted: false,
        is_card,
        leads_to_other_namespace: false,
        has_peer_here: false,
        is_ethernet: device.is_none() && text("type").is_some_and(|kind| kind == libc::ARPHRD_ETHER.to_string()),
        name,
    }
}

/// The names of what it stands on.
fn lower(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut lower: Vec<String> =
        entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("lower_")?.to_owned())).collect();
    lower.sort_unstable();
    lower
}

fn complete(link: Link, device: &Device, by_index: &BTreeMap<u32, &Device>, ports: Option<&Vec<&str>>) -> Link {
    // If this is the `/sys` of another namespace, all of it is of another interface with the same name.
    let is_same =
        link.index == Some(device.index) && (link.mac_address.is_none() || link.mac_address == device.address);
    let link = if is_same { link } else { Link { name: link.name, ..Link::default() } };
    let name_of = |index: Option<u32>| Some(by_index.get(&index?)?.name.clone());
    let below = name_of(device.link.filter(|index| !device.leads_to_other_namespace && *index != device.index));
    let has_peer_here = device.kind.as_deref() == Some("veth") && below.is_some();
    let lower: BTreeSet<String> = link
        .lower
        .into_iter()
        .chain(below.filter(|_| !has_peer_here))
        .chain(ports.into_iter().flatten().map(|port| (*port).to_owned()))
        .collect();
    Link {
        index: Some(device.index),
        kind: device.kind.clone().or(link.kind),
        lower: lower.into_iter().collect(),
        master: name_of(device.master),
        mac_address: device.address.clone().or(link.mac_address),
        operstate: device.operstate().map(str::to_owned),
        mtu: device.mtu,
        is_card: link.is_card || device.has_parent,
        leads_to_other_namespace: device.leads_to_other_namespace,
        has_peer_here,
        is_ethernet: device.is_ethernet,
        ..link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, files: &[(&str, &str)]) -> std::io::Result<()> {
        std::fs::create_dir_all(root.join(name))?;
        files.iter().try_for_each(|(file, text)| std::fs::write(root.join(name).join(file), text))
    }

    fn device(index: u32, name: &str, kind: &str) -> Device {
        Device {
            index,
            name: name.to_owned(),
            kind: Some(kind.to_owned()).filter(|kind| !kind.is_empty()),
            address: Some(format!("02:00:00:00:00:0{index}")),
            is_ethernet: true,
            ..Device::default()
        }
    }

    #[test]
    fn files_are_read_again_when_the_kernel_says_something_else() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let mut links = Links::new(directory.path().to_owned());
        let mut kind = |state, file: &str, device: Option<Device>| -> anyhow::Result<Option<String>> {
            let uevent = format!("DEVTYPE={file}\n");
            let files = [("ifindex", "1\n"), ("address", "02:00:00:00:00:01\n"), ("uevent", &uevent)];
            write(directory.path(), "port0", &files)?;
            let devices = device.map(|device| Device { operstate: Some(state), ..device });
            let links = links.read(vec!["port0".to_owned()], devices.into_iter().collect());
            Ok(links[0].kind.clone())
        };
        let port0 = || Some(device(1, "port0", ""));
        assert_eq!(kind(6, "dsa", port0())?.as_deref(), Some("dsa"));
        assert_eq!(kind(6, "ppp", port0())?.as_deref(), Some("dsa"), "the kernel says what it said");
        assert_eq!(kind(2, "ppp", port0())?.as_deref(), Some("ppp"));
        assert_eq!(kind(2, "dsa", None)?.as_deref(), Some("dsa"), "there is no netlink");
        assert_eq!(kind(2, "ppp", None)?.as_deref(), Some("ppp"));
        Ok(())
    }

    /// A network card, a bridge and its port, a VLAN, and both ends of a pair.
    #[test]
    fn what_the_kernel_says_completes_what_sysfs_has() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        for index in 1..=6 {
            let name = ["eth0", "br0", "veth1", "eth0.5", "a", "b"][index - 1];
            write(
                root,
                name,
                &[("ifindex", &format!("{index}\n")), ("address", &format!("02:00:00:00:00:0{index}\n"))],
            )?;
        }
        std::fs::create_dir(root.join("eth0/device"))?;
        write(root, "eth0", &[("uevent", "DEVTYPE=wlan\nINTERFACE=eth0\n"), ("mtu", "1500\n")])?;
        write(root, "br0", &[("uevent", "DEVTYPE=bridge\n"), ("operstate", "down\n")])?;
        let devices = [
            Device { mtu: Some(9000), operstate: Some(6), ..device(1, "eth0", "") },
            device(2, "br0", "bridge"),
            Device { master: Some(2), link: Some(4), leads_to_other_namespace: true, ..device(3, "veth1", "veth") },
            Device { link: Some(1), ..device(4, "eth0.5", "vlan") },
            Device { link: Some(6), ..device(5, "a", "veth") },
            Device { link: Some(5), ..device(6, "b", "veth") },
        ];
        let names = || ["eth0", "br0", "veth1", "eth0.5", "a", "b"].map(str::to_owned).to_vec();
        let links = read_links(root, names(), &devices);
        let kinds: Vec<_> = links.iter().map(|link| link.kind.as_deref()).collect();
        assert_eq!(kinds, [None, Some("bridge"), Some("veth"), Some("vlan"), Some("veth"), Some("veth")]);
        let lower: Vec<_> = links.iter().map(|link| link.lower.join(" ")).collect();
        assert_eq!(lower, ["", "veth1", "", "eth0", "", ""]);
        assert_eq!(links[2].master.as_deref(), Some("br0"));
        assert_eq!(
            (links[0].mtu, links[0].operstate.as_deref(), links[1].operstate.as_deref()),
            (Some(9000), Some("up"), None)
        );
        assert!((links[0].is_card, links[2].leads_to_other_namespace, links[4].has_peer_here) == (true, true, true));
        let counted: Vec<_> = links.iter().map(|link| link.is_counted).collect();
        assert_eq!(counted, [true, false, false, false, false, false]);

        // Without netlink, sysfs says what it can.
        std::fs::write(root.join("br0/lower_veth1"), "")?;
        std::os::unix::fs::symlink("../br0", root.join("veth1/master"))?;
        write(root, "b", &[("tun_flags", "0x1002\n")])?;
        let links = read_links(root, names(), &[]);
        assert_eq!((links[1].kind.as_deref(), links[1].lower.join(" ").as_str()), (Some("bridge"), "veth1"));
        assert_eq!((links[2].master.as_deref(), links[5].kind.as_deref()), (Some("br0"), Some("tun")));
        assert_eq!((links[0].kind.as_deref(), links[0].is_counted, links[0].index), (None, true, Some(1)));
        assert_eq!((links[0].mtu, links[1].operstate.as_deref()), (Some(1500), Some("down")));
        Ok(())
    }

    /// The kernel does not say what a redundant ring (hsr) is made of; sysfs does.
    #[test]
    fn a_ring_stands_on_its_ports() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let files = [("ifindex", "3\n"), ("lower_eth1", ""), ("lower_eth0", "")];
        write(directory.path(), "hsr0", &files)?;
        let links = read_links(directory.path(), vec!["hsr0".to_owned()], &[device(3, "hsr0", "hsr")]);
        assert_eq!((links[0].lower.join(" ").as_str(), links[0].is_counted), ("eth0 eth1", false));
        Ok(())
    }

    #[test]
    fn an_interface_of_the_same_name_in_another_namespace_is_another() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let files = [("ifindex", "2\n"), ("address", "02:00:00:00:00:09\n"), ("mtu", "9000\n")];
        write(directory.path(), "eth0", &files)?;
        std::fs::create_dir(directory.path().join("eth0/device"))?;
        let here = Device { link: Some(2), leads_to_other_namespace: true, ..device(2, "eth0", "veth") };
        let links = read_links(directory.path(), vec!["eth0".to_owned()], &[here]);
        assert_eq!((links[0].mtu, links[0].is_card, links[0].is_counted), (None, false, true));
        assert_eq!(links[0].mac_address.as_deref(), Some("02:00:00:00:00:02"));
        Ok(())
    }
}
