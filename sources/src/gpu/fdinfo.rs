//! What processes have of GPUs by their open DRM files: `/proc/PID/fdinfo/FD`, as the kernel's drm-usage-stats
//! document describes it. Every driver that fills it looks the same.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Instant;

use crate::job::{Stat, folder_of_process};
use crate::procfile::{percent, read_into};
use resource_tracker_scan::number;

use super::pace::Paced;

/// The DRM clients of a process tree.
pub(super) struct Clients {
    procfs: PathBuf,
    /// Whether a driver is of interest.
    is_wanted: fn(&str) -> bool,
    /// Files of processes that are DRM devices. Looking for them costs more than reading them.
    files: Paced<(Vec<(i32, PathBuf)>, bool)>,
    /// Whether the files of all processes could be looked at.
    pub(super) is_complete: bool,
    before: HashMap<(String, u64), (Engines, Instant)>,
    buffer: Vec<u8>,
}

/// What a process has of one device.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Usage {
    pub(super) pid: i32,
    /// PCI address of the device.
    pub(super) device: String,
    pub(super) vram_bytes: Option<u64>,
    /// Share of the device's time, in percent; `None` at first, or where the driver does not tell.
    pub(super) utilization_pct: Option<f64>,
}

/// Time or cycles that the engines which draw and compute were busy.
#[derive(Debug, Clone, Default, PartialEq)]
struct Engines {
    nanoseconds: Option<u64>,
    /// Busy cycles, and all that have passed.
    cycles: Option<(u64, u64)>,
}

/// One file: `drm-client-id` tells those apart that are not copies of each other.
#[derive(Debug, Clone, Default, PartialEq)]
struct Client {
    driver: String,
    device: String,
    id: u64,
    engines: Engines,
    vram_bytes: Option<u64>,
}

impl Clients {
    pub(super) fn new(procfs: PathBuf, is_wanted: fn(&str) -> bool) -> Self {
        Self {
            procfs,
            is_wanted,
            files: Paced::default(),
            is_complete: true,
            before: HashMap::new(),
            buffer: Vec::new(),
        }
    }

    /// What the processes of `tree` have, by process and device.
    pub(super) fn read(&mut self, tree: &[i32], now: Instant) -> Vec<Usage> {
        let Self { procfs, is_wanted, is_complete, before, buffer, .. } = self;
        let list = || {
            let of_each: Vec<_> = tree.iter().map(|pid| drm_files(procfs, *pid)).collect();
            let is_complete = of_each.iter().all(Option::is_some);
            Some((of_each.into_iter().flatten().flatten().collect(), is_complete))
        };
        let files;
        (files, *is_complete) = self.files.get(1, list).unwrap_or_default();
        let mut seen = HashMap::new();
        let mut usage: Vec<Usage> = Vec::new();
        for (pid, path) in files {
            let Ok(text) = read_into(&path, buffer) else { continue };
            let client = parse(&String::from_utf8_lossy(text));
            let key = (client.device.clone(), client.id);
            if !is_wanted(&client.driver) || seen.contains_key(&key) {
                continue;
            }
            let share = before.get(&key).and_then(|(engines, then)| {
                client.engines.share_since(engines, now.saturating_duration_since(*then).as_nanos() as u64)
            });
            seen.insert(key, (client.engines, now));
            match usage.iter_mut().find(|known| known.pid == pid && known.device == client.device) {
                Some(known) => {
                    known.vram_bytes = known.vram_bytes.into_iter().chain(client.vram_bytes).reduce(|a, b| a + b);
                    let shares = known.utilization_pct.into_iter().chain(share);
                    known.utilization_pct = shares.reduce(|a, b| (a + b).min(100.0));
                }
                None => usage.push(Usage {
                    pid,
                    device: client.device,
                    vram_bytes: client.vram_bytes,
                    utilization_pct: share,
                }),
            }
        }
        *before = seen;
        usage
    }
}

impl Engines {
    fn share_since(&self, before: &Self, elapsed: u64) -> Option<f64> {
        let by_time = || {
            let busy = self.nanoseconds?.saturating_sub(before.nanoseconds?);
            Some(percent(busy as f64, elapsed as f64))
        };
        let by_cycles = || {
            let ((busy, all), (busy_before, all_before)) = (self.cycles?, before.cycles?);
            Some(percent(busy.saturating_sub(busy_before) as f64, all.saturating_sub(all_before) as f64))
        };
        by_time().or_else(by_cycles).map(|share| share.min(100.0))
    }
}

/// The open DRM files of a process; `None` where nobody may look. One that has ended has none.
fn drm_files(procfs: &std::path::Path, pid: i32) -> Option<Vec<(i32, PathBuf)>> {
    let folder = folder_of_process(procfs, pid);
    let entries = match std::fs::read_dir(folder.join("fd")) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            // What is left of a process that has ended may not be looked at either.
            let stat = std::fs::read(procfs.join(pid.to_string()).join("stat")).ok();
            let has_ended = stat.and_then(|text| Stat::parse(&text)).is_none_or(|stat| stat.state == b'Z');
            return has_ended.then(Vec::new);
        }
        entries => entries.into_iter().flatten().flatten(),
    };
    let is_drm = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().contains("/dev/dri/"))
    };
    Some(entries.filter(is_drm).map(|entry| (pid, folder.join("fdinfo").join(entry.file_name()))).collect())
}

fn parse(text: &str) -> Client {
    let mut client = Client::default();
    let mut memory: HashMap<&str, u64> = HashMap::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let Some(key) = key.strip_prefix("drm-") else { continue };
        let value = value.trim();
        match key {
            "driver" => client.driver = value.to_owned(),
            "pdev" => client.device = value.to_owned(),
            "client-id" => client.id = first_number(value).unwrap_or(0),
            _ => {
                if key.strip_prefix("engine-").is_some_and(computes) {
                    client.engines.nanoseconds = sum(client.engines.nanoseconds, first_number(value));
                } else if key.strip_prefix("total-cycles-").is_some_and(computes) {
                    // Those of all engines pass at the same speed.
                    let (busy, all) = client.engines.cycles.unwrap_or_default();
                    client.engines.cycles = Some((busy, all.max(first_number(value).unwrap_or(0))));
                } else if key.strip_prefix("cycles-").is_some_and(computes) {
                    let (busy, all) = client.engines.cycles.unwrap_or_default();
                    let more = first_number(value).unwrap_or(0);
                    client.engines.cycles = Some((busy.saturating_add(more), all));
                } else if let Some((kind, region)) = key.split_once('-') {
                    // `memory` is what older kernels call `resident`. An integrated device has none of its own.
                    if matches!(kind, "resident" | "memory") {
                        let bytes = bytes(value).filter(|_| is_vram(region)).unwrap_or(0);
                        memory.entry(region).and_modify(|known| *known = bytes.max(*known)).or_insert(bytes);
                    }
                }
            }
        }
    }
    client.vram_bytes = memory.into_values().reduce(u64::saturating_add);
    client
}

/// Engines that run shaders: amdgpu's `gfx` and `compute`, i915's `render` and `compute`, xe's `rcs` and `ccs`.
fn computes(engine: &str) -> bool {
    matches!(engine, "gfx" | "compute" | "render" | "rcs" | "ccs")
}

/// Memory of the device itself: amdgpu's `vram`, xe's `vram0`, i915's `local0`.
fn is_vram(region: &str) -> bool {
    region.starts_with("vram") || region.starts_with("local")
}

fn first_number(value: &str) -> Option<u64> {
    number(value.split_whitespace().next()?.as_bytes())
}

fn bytes(value: &str) -> Option<u64> {
    let unit = match value.split_whitespace().nth(1) {
        None => 1,
        Some("KiB") => 1 << 10,
        Some("MiB") => 1 << 20,
        Some(_) => return None,
    };
    first_number(value)?.checked_mul(unit)
}

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const AMDGPU: &str = "pos:\t0\nflags:\t02100002\nmnt_id:\t27\nino:\t525\ndrm-driver:\tamdgpu\ndrm-client-id:\t38\n\
        drm-pdev:\t0000:03:00.0\npasid:\t32773\ndrm-total-cpu:\t0\ndrm-memory-vram:\t180196 KiB\ndrm-memory-gtt: \t\
        9472 KiB\ndrm-memory-cpu: \t0 KiB\namd-evicted-vram:\t0 KiB\ndrm-engine-gfx:\t65103158 ns\ndrm-engine-enc:\t7 ns\n\
        drm-engine-compute:\t1000 ns\n";
    const XE: &str = "drm-driver:\txe\ndrm-client-id:\t7\ndrm-pdev:\t0000:00:02.0\ndrm-total-vram0:\t40 MiB\n\
        drm-resident-vram0:\t16 MiB\ndrm-cycles-rcs:\t28257900\ndrm-total-cycles-rcs:\t7655183225\ndrm-cycles-bcs:\t5\n\
        drm-total-cycles-bcs:\t7655183225\ndrm-cycles-ccs:\t100\ndrm-total-cycles-ccs:\t7655183225\n";

    #[test]
    fn files_of_two_drivers() {
        let client = parse(AMDGPU);
        assert_eq!((client.driver.as_str(), client.device.as_str(), client.id), ("amdgpu", "0000:03:00.0", 38));
        assert_eq!((client.engines.nanoseconds, client.vram_bytes), (Some(65_104_158), Some(180_196 << 10)));
        let client = parse(XE);
        assert_eq!(client.engines.cycles, Some((28_258_000, 7_655_183_225)));
        assert_eq!(client.vram_bytes, Some(16 << 20));
        assert_eq!(parse("flags:\t0100000\n"), Client::default());
        assert_eq!(parse("drm-driver:\ti915\ndrm-resident-system0:\t60 MiB\n").vram_bytes, Some(0));
        assert_eq!(parse("drm-driver:\ti915\ndrm-engine-render:\t5 ns\n").vram_bytes, None, "before Linux 6.8");
    }

    #[test]
    fn shares_by_time_and_by_cycles() {
        let at = |nanoseconds| Engines { nanoseconds, cycles: None };
        assert_eq!(at(Some(300)).share_since(&at(Some(100)), 1000), Some(20.0));
        assert_eq!(at(Some(100)).share_since(&at(Some(300)), 1000), Some(0.0));
        assert_eq!(at(Some(9000)).share_since(&at(Some(0)), 1000), Some(100.0));
        assert_eq!(at(None).share_since(&at(None), 1000), None);
        let at = |cycles| Engines { nanoseconds: None, cycles: Some(cycles) };
        assert_eq!(at((30, 300)).share_since(&at((10, 100)), 1), Some(10.0));
    }

    /// A process with two copies of one file, and a file that is no device.
    #[test]
    fn a_tree_of_written_processes() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let process = root.path().join("42");
        fs::create_dir_all(process.join("fd"))?;
        fs::create_dir_all(process.join("fdinfo"))?;
        for (file, target) in [("3", "/dev/dri/renderD128"), ("4", "/dev/dri/renderD128"), ("5", "/dev/null")] {
            std::os::unix::fs::symlink(target, process.join("fd").join(file))?;
            fs::write(process.join("fdinfo").join(file), AMDGPU)?;
        }
        let mut clients = Clients::new(root.path().to_owned(), |driver| driver == "amdgpu");
        let start = Instant::now();
        let first = clients.read(&[42, 43], start);
        let expected =
            Usage { pid: 42, device: "0000:03:00.0".into(), vram_bytes: Some(180_196 << 10), utilization_pct: None };
        assert_eq!(first, [expected]);
        let later = AMDGPU.replace("65103158", "315103158");
        fs::write(process.join("fdinfo/3"), &later)?;
        let second = clients.read(&[42, 43], start + Duration::from_secs(1));
        assert_eq!(second[0].utilization_pct, Some(25.0));
        let mut others = Clients::new(root.path().to_owned(), |driver| driver != "amdgpu");
        assert_eq!(others.read(&[42], start), []);
        Ok(())
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(drm-[a-z0-9-]{0,20}:[ \t]*[0-9a-zA-Z: .]{0,30}\n|.{0,20}\n){0,20}") {
            let _ = parse(&text);
        }
    }
}
