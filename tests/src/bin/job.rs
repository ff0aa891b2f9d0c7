//! Jobs whose use of the machine is known.

use std::io::Write;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments[index].parse::<u64>();
    match arguments[0].as_str() {
        "burn" => burn(number(1)?, Duration::from_millis(number(2)?)),
        "touch" => touch(number(1)? as usize, Duration::from_millis(number(2)?)),
        "lines" => (0..number(1)?).for_each(|line| println!("line {line}")),
        "signals" => signals(Duration::from_millis(number(1)?))?,
        "write" => write(&arguments[1], number(2)?)?,
        other => anyhow::bail!("no job is called {other}"),
    }
    Ok(())
}

/// Keeps `threads` threads busy, and prints the CPU time and the wall time that it took, in seconds.
fn burn(threads: u64, time: Duration) {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| while start.elapsed() < time {});
        }
    });
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    println!("{} {}", cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9, start.elapsed().as_secs_f64());
}

/// Holds `mib` MiB of memory.
fn touch(mib: usize, time: Duration) {
    let mut memory = vec![0u8; mib << 20];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::thread::sleep(time);
    std::hint::black_box(memory);
}

/// Says `ready`, then the number of each signal that arrives in the given time.
fn signals(time: Duration) -> anyhow::Result<()> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1] {
        set.add(signal);
    }
    set.thread_block()?;
    let file = SignalFd::new(&set)?;
    std::thread::spawn(move || {
        while let Ok(Some(info)) = file.read_signal() {
            println!("{}", info.ssi_signo);
        }
    });
    println!("ready");
    std::io::stdout().flush()?;
    std::thread::sleep(time);
    Ok(())
}

/// Writes `mib` MiB past the page cache to a file or device.
fn write(path: &str, mib: u64) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;
    let mut file = std::fs::OpenOptions::new().write(true).custom_flags(O_DIRECT).open(path)?;
    // Direct I/O wants memory that begins on a sector.
    let block = vec![0u8; 2 << 20];
    let start = block.as_ptr().align_offset(4096);
    (0..mib).try_for_each(|_| file.write_all(&block[start..start + (1 << 20)]))?;
    Ok(file.sync_all()?)
}
