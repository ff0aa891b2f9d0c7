//! What is mounted, from which disk, and how much space there is. All of it off the sampling thread.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use resource_tracker_core::Host;
use resource_tracker_metrics::{DiskKind, DiskMountMetrics};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::device::{Identity, head_of, kernel_name};
use super::shared::SharedMounts;
use super::space::Space;
use crate::mountinfo::{self, MountInfo};
use crate::procfile::{attribute, percent, read_once};

/// How often devices and mounts are looked up again when nothing is known to have changed; space is asked for more often.
const RELIST: Duration = Duration::from_secs(60);

/// What is known of disks beside their counters.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Whole disks by kernel name, with their mounts.
    pub(super) devices: BTreeMap<String, Identity>,
    /// File systems without a block device, by source.
    pub(super) others: BTreeMap<String, Vec<DiskMountMetrics>>,
}

pub(super) struct Surveyor {
    sysfs: PathBuf,
    mountinfo: PathBuf,
    watch: MountWatch,
    listed: Option<Instant>,
    devices: BTreeMap<String, Identity>,
    mounts: Vec<Mount<'static>>,
    shared: SharedMounts,
}

impl Surveyor {
    pub(super) fn new(host: &Host) -> Self {
        let mountinfo = host.procfs.join("self/mountinfo");
        Self {
            sysfs: host.sysfs.clone(),
            watch: MountWatch::new(&mountinfo),
            mountinfo,
            listed: None,
            devices: BTreeMap::new(),
            mounts: Vec::new(),
            shared: SharedMounts::default(),
        }
    }

    /// What is known now; looked up anew when devices or mounts have `changed`.
    pub(super) fn survey(&mut self, at: Instant, changed: bool) -> Arc<Facts> {
        let is_old = self.listed.is_none_or(|listed| at.saturating_duration_since(listed) >= RELIST);
        if self.watch.has_changed() || changed || is_old {
            self.devices = self.list_devices();
            let mountinfo = read_once(&self.mountinfo).unwrap_or_default();
            let mounts: Vec<MountInfo<'_>> = mountinfo::parse(&mountinfo).collect();
            self.put_paths_behind_heads();
            self.put_loops_on_disks(&mounts);
            let mounts = distinct(mounts.into_iter(), |mount| self.disk_of(mount));
            self.mounts = mounts.into_iter().map(Mount::into_owned).collect();
            self.listed = Some(at);
        }
        let mut facts = Facts { devices: self.devices.clone(), others: BTreeMap::new() };
        let far = self.mounts.iter().filter(|mount| mount.disk.is_none()).map(|mount| &*mount.info.point);
        let far_space = self.shared.space(far.collect(), at);
        for mount in &self.mounts {
            let space = match mount.disk {
                Some(_) => Space::of(&mount.info.point),
                None => far_space.get(&*mount.info.point).copied(),
            };
            let metrics = mount.metrics(space);
            match mount.disk.as_ref().and_then(|disk| facts.devices.get_mut(disk)) {
                Some(identity) => identity.mounts.push(metrics),
                None => facts.others.entry(mount.group().to_owned()).or_default().push(metrics),
            }
        }
        facts.others.values_mut().for_each(join_pool);
        facts.devices.retain(|name, identity| !Identity::is_mapped(name) || !identity.mounts.is_empty());
        Arc::new(facts)
    }

    fn list_devices(&self) -> BTreeMap<String, Identity> {
        let entries = std::fs::read_dir(self.sysfs.join("block")).into_iter().flatten().flatten();
        let identify = |entry: std::fs::DirEntry| {
            let name = kernel_name(&entry.file_name().to_string_lossy());
            let identity = Identity::read(&entry.path(), &name)?;
            Some((name, identity))
        };
        entries.filter_map(identify).filter(|(name, _)| !name.starts_with("ram")).collect()
    }

    fn put_paths_behind_heads(&mut self) {
        for path in self.names_of(DiskKind::Path) {
            if let Some(head) = head_of(&path).and_then(|head| self.devices.get_mut(&head)) {
                head.paths.push(path);
            }
        }
    }

    fn put_loops_on_disks(&mut self, mounts: &[MountInfo<'_>]) {
        for name in self.names_of(DiskKind::Loop) {
            let file = attribute(&self.sysfs.join("block").join(&name).join("loop/backing_file"));
            let disk = file.and_then(|file| self.disk_of_file(&file, mounts));
            if let Some(identity) = self.devices.get_mut(&name) {
                identity.slaves.extend(disk);
            }
        }
    }

    fn names_of(&self, kind: DiskKind) -> Vec<String> {
        self.devices.iter().filter(|(_, identity)| identity.kind == kind).map(|(name, _)| name.clone()).collect()
    }

    /// The whole disk that a file is on, or that it is. A file of a dead server would not answer, so its mount is looked
    /// at instead.
    fn disk_of_file(&self, file: &str, mounts: &[MountInfo<'_>]) -> Option<String> {
        let above = mounts.iter().filter(|mount| Path::new(file).starts_with(&*mount.point));
        self.disk_of_node(file).or_else(|| self.disk_of(above.max_by_key(|mount| mount.point.as_os_str().len())?))
    }

    /// The whole disk that a mount is on.
    fn disk_of(&self, mount: &MountInfo<'_>) -> Option<String> {
        let by_number = self.disk_of_number(&mount.device_number);
        // Btrfs gives each subvolume a number of its own; its source still names the device.
        by_number.or_else(|| self.disk_of_node(&mount.source))
    }

    fn disk_of_node(&self, path: &str) -> Option<String> {
        let device = Some(path).filter(|path| path.starts_with("/dev/"))?;
        let number = std::fs::metadata(device).ok()?.rdev();
        self.disk_of_number(&format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number)))
    }

    fn disk_of_number(&self, number: &str) -> Option<String> {
        // A mount without a device has a number of the kernel's own, which sysfs does not know.
        if number.starts_with("0:") {
            return None;
        }
        let link = self.sysfs.join("dev/block").join(number);
        // `../../devices/…/block/vda/vda1`
        let path = std::fs::read_link(&link).ok()?;
        let whole = if link.join("partition").exists() { path.parent()? } else { &path };
        let name = kernel_name(&whole.file_name()?.to_string_lossy());
        self.devices.contains_key(&name).then_some(name)
    }
}

/// Notices that something was mounted or unmounted.
struct MountWatch(Option<File>);

impl MountWatch {
    fn new(mountinfo: &Path) -> Self {
        Self(File::open(mountinfo).ok())
    }

    /// Whether the list of mounts has changed since the last time: the kernel says so by an exceptional condition.
    fn has_changed(&self) -> bool {
        self.0.as_ref().is_some_and(|file| {
            let mut poll = [PollFd::new(file, PollFlags::PRI)];
            rustix::event::poll(&mut poll, Some(&Timespec::default())).is_ok()
                && poll[0].revents().intersects(PollFlags::PRI | PollFlags::ERR)
        })
    }
}

/// A mount, and the whole disk that it is on, if it is on one.
#[derive(Debug, Clone, PartialEq)]
struct Mount<'a> {
    info: MountInfo<'a>,
    disk: Option<String>,
}

impl Mount<'_> {
    fn into_owned(self) -> Mount<'static> {
        Mount { info: self.info.into_owned(), disk: self.disk }
    }

    /// File systems without a block device that hold data: on the network, in user space, or pooled.
    fn is_shared(&self) -> bool {
        const SHARED: [&str; 16] = [
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "ceph",
            "lustre",
            "gpfs",
            "beegfs",
            "afs",
            "9p",
            "virtiofs",
            "glusterfs",
            "orangefs",
            "zfs",
            "fuse",
        ];
        const VIRTUAL: [&str; 3] = ["fuse.lxcfs", "fuse.gvfsd-fuse", "fuse.portal"];
        let kind = &*self.info.filesystem;
        SHARED.contains(&kind) || (kind.starts_with("fuse.") && !VIRTUAL.contains(&kind))
    }

    /// What its space is listed under: the pool of a ZFS dataset, else the source.
    fn group(&self) -> &str {
        let source = &*self.info.source;
        if self.info.filesystem == "zfs" { source.split('/').next().unwrap_or_default() } else { source }
    }

    /// What mounts of one file system have in common.
    fn identity(&self) -> &str {
        match (&self.disk, &*self.info.filesystem) {
            (Some(_), "btrfs") | (None, _) => &self.info.source,
            (Some(_), _) => &self.info.device_number,
        }
    }

    fn metrics(&self, space: Option<Space>) -> DiskMountMetrics {
        let used = space.map(|space| space.total.saturating_sub(space.free));
        DiskMountMetrics {
            mount_point: self.info.point.to_string_lossy().into_owned(),
            filesystem: self.info.filesystem.clone().into_owned(),
            total_bytes: space.map(|space| space.total),
            available_bytes: space.map(|space| space.available.min(space.free)),
            used_bytes: used,
            used_pct: space.zip(used).map(|(space, used)| percent(used as f64, space.total as f64)),
        }
    }
}

/// Each file system once, where its root is mounted if it is, else at the shortest path; so bind mounts, btrfs
/// subvolumes and the overlays of containers are not counted again. Only where nothing else is mounted, as in some
/// sandboxes, the overlay on `/` stands for the disk below it.
fn distinct<'a>(
    mounts: impl Iterator<Item = MountInfo<'a>>,
    disk_of: impl Fn(&MountInfo<'a>) -> Option<String>,
) -> Vec<Mount<'a>> {
    let mut chosen: Vec<Mount<'a>> = Vec::new();
    let mut overlay = None;
    for info in mounts {
        let mount = Mount { disk: disk_of(&info), info };
        if mount.disk.is_none() && !mount.is_shared() {
            if mount.info.filesystem == "overlay" && mount.info.point == Path::new("/") {
                overlay = Some(mount);
            }
            continue;
        }
        let rank = |mount: &Mount<'_>| (mount.info.root != Path::new("/"), mount.info.point.as_os_str().len());
        match chosen.iter_mut().find(|other| other.identity() == mount.identity()) {
            Some(other) if rank(&mount) < rank(other) => *other = mount,
            Some(_) => (),
            None => chosen.push(mount),
        }
    }
    if chosen.is_empty() {
        chosen.extend(overlay);
    }
    chosen
}

/// The datasets of a ZFS pool share what is free: they are listed as one file system.
fn join_pool(mounts: &mut Vec<DiskMountMetrics>) {
    if mounts.len() < 2 || mounts.iter().any(|mount| mount.filesystem != "zfs") {
        return;
    }
    let pool = (0..mounts.len()).min_by_key(|index| mounts[*index].mount_point.len()).unwrap_or(0);
    mounts.swap(0, pool);
    let used = mounts.iter().filter_map(|mount| mount.used_bytes).reduce(|a, b| a.saturating_add(b));
    let available = mounts.iter().filter_map(|mount| mount.available_bytes).max();
    let total = used.zip(available).map(|(used, available)| used.saturating_add(available));
    mounts.truncate(1);
    mounts[0].used_bytes = used;
    mounts[0].available_bytes = available;
    mounts[0].total_bytes = total;
    mounts[0].used_pct = used.zip(total).map(|(used, total)| percent(used as f64, total as f64));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container host: a root with a bind mount, btrfs subvolumes, ZFS datasets, an NFS export mounted twice,
    /// overlays, virtual file systems, and a mount point with a space.
    const MOUNTINFO: &str = "\
20 1 8:2 / / rw,relatime shared:1 - ext4 /dev/root rw
21 20 0:5 / /proc rw - proc proc rw
22 20 8:2 /var/lib/data /srv/data rw - ext4 /dev/root rw
23 20 0:40 /@home /home rw - btrfs /dev/sdb1 rw,subvol=/@home
24 20 0:41 /@ /mnt/whole rw - btrfs /dev/sdb1 rw,subvol=/@
25 20 0:50 / /tank rw - zfs tank rw
26 20 0:51 / /tank/home rw - zfs tank/home rw
27 20 0:60 / /net/data rw - nfs4 server:/export rw
28 20 0:60 / /net/again rw - nfs4 server:/export rw
29 20 0:61 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw
30 20 0:62 / /run rw - tmpfs tmpfs rw
31 20 8:3 / /media/my\\040disk rw - ext4 /dev/sda3 rw
";

    fn disk_of(mount: &MountInfo<'_>) -> Option<String> {
        match (&*mount.device_number, &*mount.source) {
            ("8:2" | "8:3", _) => Some("sda".into()),
            (_, "/dev/sdb1") => Some("sdb".into()),
            _ => None,
        }
    }

    #[test]
    fn each_file_system_is_listed_once() {
        let mounts = distinct(mountinfo::parse(MOUNTINFO.as_bytes()), disk_of);
        let points: Vec<_> = mounts.iter().map(|mount| mount.info.point.display().to_string()).collect();
        assert_eq!(points, ["/", "/home", "/tank", "/tank/home", "/net/data", "/media/my disk"]);
    }

    #[test]
    fn an_overlay_stands_for_the_disk_where_there_is_nothing_else() {
        let text = b"1 0 0:9 / / rw - overlay overlay rw\n2 1 0:5 / /proc rw - proc proc rw\n";
        let mounts = distinct(mountinfo::parse(text), disk_of);
        assert_eq!(mounts.iter().map(|mount| &*mount.info.filesystem).collect::<Vec<_>>(), ["overlay"]);
    }

    #[test]
    fn datasets_of_a_pool_share_what_is_free() {
        let dataset = |point: &str, used, available| DiskMountMetrics {
            mount_point: point.into(),
            filesystem: "zfs".into(),
            total_bytes: Some(used + available),
            available_bytes: Some(available),
            used_bytes: Some(used),
            used_pct: None,
        };
        let mut mounts = vec![dataset("/tank/home", 30, 100), dataset("/tank", 20, 100)];
        join_pool(&mut mounts);
        assert_eq!(mounts.len(), 1);
        assert_eq!(
            (mounts[0].mount_point.as_str(), mounts[0].total_bytes, mounts[0].used_bytes),
            ("/tank", Some(150), Some(50))
        );
    }
}
