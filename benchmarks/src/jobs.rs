//! Commands whose CPU time is hard to see from outside.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::bail;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::wait::wait;
use nix::unistd::{ForkResult, Pid, fork, pipe, setpgid, setsid};
use rustix::time::{ClockId, clock_gettime};

/// Their names, and what they do.
pub(crate) const ALL: [(&str, &str); 9] = [
    ("serial", "200 children, one after the other, 5 ms each"),
    ("parallel", "40 children at once, 50 ms each"),
    ("nested", "4 children with 10 children each, 25 ms each"),
    ("threads", "32 threads, 4 at a time, 50 ms each"),
    ("exec", "a process that becomes another one in between, 1 s each"),
    ("long", "a child that lives to the end and is reaped then, 2 s"),
    ("sessions", "10 children with a process group or session of their own, 100 ms each"),
    ("daemons", "40 workers that outlive their parent, `setsid`, 100 ms each"),
    ("ignored", "30 children of a parent that ignores `SIGCHLD`, 100 ms each"),
];

/// Keeps all cores busy until it is stopped.
pub(crate) const LOAD: &str = "load";

/// Runs one of them, or what they need beside themselves.
pub(crate) fn run(name: &str) -> anyhow::Result<()> {
    let children = |count, millis| (0..count).map(move |_| child(move || burn(millis)));
    match name {
        "serial" => (0..200).for_each(|_| reap(child(|| burn(5)))),
        "parallel" => children(40, 50).collect::<Vec<_>>().into_iter().for_each(reap),
        "nested" => {
            let parents =
                (0..4).map(|_| child(move || children(10, 25).collect::<Vec<_>>().into_iter().for_each(reap)));
            parents.collect::<Vec<_>>().into_iter().for_each(reap);
        }
        "threads" => {
            for _ in 0..8 {
                let threads = [(); 4].map(|()| thread::spawn(|| burn_on(ClockId::ThreadCPUTime, 50)));
                threads.into_iter().for_each(|thread| drop(thread.join()));
            }
        }
        "exec" => {
            burn(1000);
            return Err(Command::new(std::env::current_exe()?).args(["job", "long"]).exec().into());
        }
        "long" => reap(child(|| burn(2000))),
        "sessions" => {
            let leader = |index: i32| match index % 2 {
                0 => setsid().map(|_| ()),
                _ => setpgid(Pid::from_raw(0), Pid::from_raw(0)),
            };
            let started = (0..10).map(|index| {
                child(move || {
                    // It burns in any case.
                    let _ = leader(index);
                    burn(100);
                })
            });
            started.collect::<Vec<_>>().into_iter().for_each(reap);
        }
        "daemons" => {
            // The pipe ends when the last of them has ended.
            let (read, write) = pipe()?;
            for _ in 0..40 {
                reap(child(|| {
                    let _ = setsid();
                    child(|| burn(100));
                }));
            }
            drop(write);
            nix::unistd::read(&read, &mut [0])?;
        }
        "ignored" => {
            // SAFETY: ignoring a signal runs no code of ours.
            unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
            let started: Vec<Pid> = children(30, 100).collect();
            // `wait` returns when the last one is gone.
            started.into_iter().for_each(reap);
        }
        LOAD => {
            let cores = thread::available_parallelism()?.get();
            let busy = (0..cores).map(|_| thread::spawn(|| burn_on(ClockId::ThreadCPUTime, 3_600_000)));
            busy.collect::<Vec<_>>().into_iter().for_each(|thread| drop(thread.join()));
        }
        "peak" => {
            let memory = vec![1u8; 500 << 20];
            std::hint::black_box(&memory);
            thread::sleep(Duration::from_millis(50));
        }
        other => bail!("no job is called {other}"),
    }
    Ok(())
}

/// A process that does this and ends.
fn child(work: impl FnOnce()) -> Pid {
    // SAFETY: the jobs that fork have one thread.
    match unsafe { fork() } {
        Ok(ForkResult::Parent { child }) => child,
        Ok(ForkResult::Child) => {
            work();
            std::process::exit(0);
        }
        Err(error) => {
            eprintln!("cannot fork: {error}");
            std::process::exit(1);
        }
    }
}

fn reap(_: Pid) {
    // Any one will do: as many are waited for as were started.
    let _ = wait();
}

fn burn(millis: u64) {
    burn_on(ClockId::ProcessCPUTime, millis);
}

fn burn_on(clock: ClockId, millis: u64) {
    let now = || Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    let until = now() + Duration::from_millis(millis);
    while now() < until {
        std::hint::spin_loop();
    }
}
