//! What the stand-in has and does, as the file that `FAKE_NVML` names says. It is read again when it changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Instant, SystemTime};

use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct Script {
    pub devices: Vec<Device>,
    /// That many copies of the first device, each with a number of its own.
    pub copies: Option<usize>,
    /// Version of the driver.
    pub driver: String,
    /// What `nvmlInit_v2` returns.
    pub init: u32,
    /// Where to write how often the devices were read.
    pub collections: Option<std::path::PathBuf>,
    /// A folder `power` of sysfs. While the library is held, the devices are awake; real ones sleep 6 s after, these at once.
    pub power: Option<std::path::PathBuf>,
    /// Calls that take this many seconds.
    pub slow: BTreeMap<String, f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct Device {
    pub uuid: String,
    pub name: String,
    pub minor: u32,
    pub cores: u32,
    pub utilization: [u32; 2],
    /// Total and used bytes.
    pub memory: [u64; 2],
    pub temperature: u32,
    pub milliwatts: u32,
    /// Over a second, where the device tells it.
    pub average_milliwatts: Option<u32>,
    pub limit_milliwatts: u32,
    /// Of the multiprocessors and of the memory.
    pub megahertz: [u32; 2],
    pub encoder: u32,
    pub decoder: u32,
    pub fans: Vec<u32>,
    pub throttle: u64,
    pub state: u32,
    /// Sent and received, in KB/s.
    pub pcie: [u32; 2],
    /// Bytes a second by its counters, where it has some.
    pub pcie_counted: Option<[u64; 2]>,
    /// Generation now and at most, width now and at most.
    pub pcie_link: [u32; 4],
    pub links: u32,
    /// Those of them that are down.
    pub links_down: Vec<u32>,
    /// They are of the fifth generation.
    pub is_nvlink_5: bool,
    /// Of the first link. The second carries twice as much where they are `uneven`, the third three times.
    pub link_kib_per_sec: u64,
    pub uneven: bool,
    pub link_megabytes_per_sec: u32,
    /// Corrected and not.
    pub ecc: [u64; 2],
    /// Use of the multiprocessors, where the device can count it.
    pub gpm: Option<f64>,
    /// It cannot do so now.
    pub gpm_fails: bool,
    /// Sent and received, in MiB/s, as the same counters tell.
    pub gpm_pcie: [f64; 2],
    pub processes: Vec<Process>,
    /// The list of processes has another length whenever it is asked for.
    pub churn: bool,
    /// Samples of use that are none: process, share, timestamp.
    pub garbage: Vec<(u32, u32, u64)>,
    pub parts: Vec<Device>,
    /// What these calls return instead.
    pub errors: BTreeMap<String, u32>,
}

/// One process, found by a word of its command line, or given.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Process {
    pub argument: String,
    pub pid: u32,
    pub bytes: u64,
    /// It holds so many bytes more whenever it is asked for.
    pub grows: u64,
    pub share: u32,
    /// It uses its share only so many milliseconds of so many.
    pub bursts: Option<[u64; 2]>,
    pub draws: bool,
    /// It is a client of an MPS server.
    pub mps: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            copies: None,
            driver: "570.86.15".into(),
            init: 0,
            collections: None,
            slow: BTreeMap::new(),
            power: None,
        }
    }
}

impl Script {
    /// Branch and release of the driver.
    pub fn version(&self) -> (u32, u32) {
        let mut numbers = self.driver.split('.').map(|number| number.parse().expect("a number"));
        (numbers.next().expect("a branch"), numbers.next().expect("a release"))
    }
}

impl Default for Device {
    fn default() -> Self {
        Self {
            uuid: "GPU-00000000".into(),
            name: "NVIDIA Stand-in".into(),
            minor: 0,
            cores: 16896,
            utilization: [0, 0],
            memory: [80 << 30, 0],
            temperature: 40,
            milliwatts: 70_000,
            average_milliwatts: None,
            limit_milliwatts: 700_000,
            megahertz: [1980, 2619],
            encoder: 0,
            decoder: 0,
            fans: Vec::new(),
            throttle: 0,
            state: 0,
            pcie: [0, 0],
            pcie_counted: None,
            pcie_link: [5, 5, 16, 16],
            links: 0,
            links_down: Vec::new(),
            is_nvlink_5: false,
            link_kib_per_sec: 0,
            uneven: false,
            link_megabytes_per_sec: 26_562,
            ecc: [0, 0],
            gpm: None,
            gpm_fails: false,
            gpm_pcie: [0.0, 0.0],
            processes: Vec::new(),
            churn: false,
            garbage: Vec::new(),
            parts: Vec::new(),
            errors: BTreeMap::new(),
        }
    }
}

impl Device {
    pub fn has_link(&self, link: u32) -> bool {
        link < self.links && !self.links_down.contains(&link)
    }

    /// What a link has carried, or with the scope of all each of them.
    pub fn link_kib(&self, scope: u32) -> f64 {
        let links = (0..self.links).filter(|link| self.has_link(*link) && (scope == u32::MAX || scope == *link));
        let parts: u64 = links.map(|link| if self.uneven { u64::from(link) + 1 } else { 1 }).sum();
        uptime() * (self.link_kib_per_sec * parts) as f64
    }
}

impl Process {
    /// The process, if it is there.
    pub fn pid(&self) -> Option<u32> {
        if self.argument.is_empty() {
            return Some(self.pid);
        }
        let mut pids =
            std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let has_argument = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|argument| argument == self.argument.as_bytes())
        };
        // The tracker has the words of the command among its own.
        pids.find(|pid| *pid != std::process::id() && has_argument(pid))
    }
}

/// The script as it is now.
pub fn script() -> Arc<Script> {
    static NOW: Mutex<Option<(SystemTime, Arc<Script>)>> = Mutex::new(None);
    let path = std::env::var_os("FAKE_NVML").unwrap_or_default();
    let changed = std::fs::metadata(&path).and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut now = NOW.lock().expect("nobody panics with it");
    match &*now {
        Some((read, script)) if *read == changed => Arc::clone(script),
        _ => {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|_| "{}".to_owned());
            let script = Arc::new(numbered(serde_json::from_str(&text).expect("the script is one")));
            *now = Some((changed, Arc::clone(&script)));
            script
        }
    }
}

fn numbered(mut script: Script) -> Script {
    if let (Some(copies), Some(first)) = (script.copies, script.devices.first().cloned()) {
        let copy = |number: usize| Device {
            uuid: format!("{}-{number}", first.uuid),
            minor: number as u32,
            processes: if number == 0 { first.processes.clone() } else { Vec::new() },
            ..first.clone()
        };
        script.devices = (0..copies).map(copy).collect();
    }
    script
}

/// Seconds since the library was first asked for them.
pub fn uptime() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}
