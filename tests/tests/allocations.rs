//! A warm tick takes no memory from the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use resource_tracker_core::{Host, Moment, Observer, Sections, SourceConfig, Tick};
use resource_tracker_sources::{
    AffinityConfig, CgroupConfig, CpuConfig, DiskConfig, JobObserver, MemoryConfig, NetworkConfig, PressureConfig,
    ProcessConfig, TrackedJob,
};
use resource_tracker_tests::wait_until;

/// The system's allocator, which counts what this thread asks it for.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all is passed on to the system's allocator as it comes.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many processes and threads the machine has begun so far.
fn forks() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    stat.lines().find_map(|line| line.strip_prefix("processes ")).unwrap().parse().unwrap()
}

#[test]
fn a_warm_tick_allocates_nothing() {
    // A shell that keeps running, with a child, so that all of it is read.
    let mut job = Command::new("sh").args(["-c", "while :; do :; done & sleep 100"]).process_group(0).spawn().unwrap();
    let process = ProcessConfig { pss_budget_pct: 0.0, ..ProcessConfig::default() };
    let configs: [(&str, Box<dyn SourceConfig>); 8] = [
        ("cpu", Box::new(CpuConfig::default())),
        ("process", Box::new(process)),
        ("affinity", Box::new(AffinityConfig::default())),
        ("cgroup", Box::new(CgroupConfig::default())),
        ("memory", Box::new(MemoryConfig::default())),
        ("network", Box::new(NetworkConfig::default())),
        ("disk", Box::new(DiskConfig::default())),
        ("pressure", Box::new(PressureConfig::default())),
    ];
    let host = Host::default();
    let mut observer = JobObserver::new(TrackedJob::attached(job.id() as i32), host.clone());
    let mut sources: Vec<_> = configs
        .into_iter()
        .filter_map(|(name, config)| Some((name, config.build(&host).unwrap()?, Sections::default())))
        .collect();
    let mut number = 0;
    let mut tick = |counts: &mut Vec<(&str, usize)>| {
        let (elapsed, interval) = (Duration::from_millis(10), Duration::from_secs(1));
        let moment = Moment::new(number, Instant::now(), elapsed, interval);
        let before = COUNT.get();
        observer.observe(&moment).unwrap();
        let tick = Tick::of(&moment, observer.seen());
        counts.push(("the observer", COUNT.get() - before));
        for (name, source, sections) in &mut sources {
            let before = COUNT.get();
            source.collect(&tick, sections).unwrap();
            counts.push((*name, COUNT.get() - before));
        }
        number += 1;
        std::thread::sleep(Duration::from_millis(5));
    };
    for _ in 0..50 {
        tick(&mut Vec::new());
    }
    // A process of the machine that comes up can make a list grow, at once or when the observer looks at it once more, a
    // second later: what counts are ticks before which none did.
    const LOOKED_AT_AGAIN: Duration = Duration::from_millis(1500);
    let mut counts = Vec::new();
    let mut quiet_ticks = 0;
    let (mut seen, mut since) = (forks(), Instant::now());
    wait_until("two seconds without a new process", || {
        let place = counts.len();
        tick(&mut counts);
        tick(&mut counts);
        let now = forks();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if since.elapsed() > LOOKED_AT_AGAIN {
            quiet_ticks += 2;
        } else {
            counts.truncate(place);
        }
        quiet_ticks >= 50
    });
    let of = |name: &str| counts.iter().filter(|(of, _)| *of == name).map(|(_, count)| count).sum::<usize>();
    let sums: Vec<_> = counts.iter().take(9).map(|(name, _)| (*name, of(name))).collect();
    assert!(sums.iter().all(|(_, count)| *count <= 2), "{sums:?}");
    nix::sys::signal::killpg(nix::unistd::Pid::from_raw(job.id() as i32), nix::sys::signal::Signal::SIGKILL).unwrap();
    job.wait().unwrap();
}
