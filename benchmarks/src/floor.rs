//! The least that a reader of these figures can cost: the same files, kept open and read once a tick into one buffer,
//! without a look at what they say.

use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::fs::{RawDir, SeekFrom, seek, statvfs};

const FILES: [&str; 9] = [
    "stat",
    "loadavg",
    "meminfo",
    "vmstat",
    "self/net/dev",
    "diskstats",
    "pressure/cpu",
    "pressure/memory",
    "pressure/io",
];

/// `floor INTERVAL BYTES OUTPUT PROCFS`: reads the machine, and `stat` and `io` of each process named on a line
/// of its input, through descriptors that stay open as far as the limit allows, and writes so many bytes.
pub(crate) fn run<'a>(mut arguments: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
    fn next<'a, T: FromStr>(arguments: &mut impl Iterator<Item = &'a str>) -> anyhow::Result<T> {
        arguments.next().and_then(|word| word.parse().ok()).context("floor INTERVAL BYTES OUTPUT PROCFS < PIDS")
    }
    let interval = Duration::try_from_secs_f64(next(&mut arguments)?)?;
    let line = vec![b'x'; next(&mut arguments)?];
    let mut output = File::create(next::<String>(&mut arguments)?)?;
    let procfs = PathBuf::from(next::<String>(&mut arguments)?);
    // A kernel without pressure information has nothing to read there.
    let files: Vec<File> = FILES.iter().filter_map(|path| File::open(procfs.join(path)).ok()).collect();
    let processes = open_processes(&procfs)?;
    let directory = File::open(&procfs)?;
    let mut buffer = vec![0; 64 * 1024];
    let mut entries = vec![MaybeUninit::uninit(); 32 * 1024];
    let mut next_tick = Instant::now();
    loop {
        // After a stop it goes on from where it is.
        let now = Instant::now();
        next_tick = now.max(next_tick + interval);
        std::thread::sleep(next_tick - now);
        for file in &files {
            file.read_at(&mut buffer, 0)?;
        }
        seek(&directory, SeekFrom::Start(0))?;
        let mut listing = RawDir::new(&directory, &mut entries);
        while listing.next().is_some() {}
        statvfs("/")?;
        for file in &processes {
            match file {
                Process::Open(file) => file.read_at(&mut buffer, 0)?,
                Process::Closed(path) => File::open(path)?.read_at(&mut buffer, 0)?,
            };
        }
        output.write_all(&line)?;
    }
}

/// A file of a process.
enum Process {
    Open(File),
    /// Beyond the limit of descriptors.
    Closed(PathBuf),
}

/// Descriptors that are left for other things.
const SPARE: u64 = 100;

fn open_processes(procfs: &Path) -> anyhow::Result<Vec<Process>> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let mut files = Vec::new();
    for pid in std::io::stdin().lines() {
        let folder = procfs.join(pid?);
        for path in ["stat", "io"].map(|name| folder.join(name)) {
            let is_within = (files.len() as u64) < limit.saturating_sub(SPARE);
            files.push(if is_within { Process::Open(File::open(path)?) } else { Process::Closed(path) });
        }
    }
    Ok(files)
}
