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
        "together" => together(number(1)?, number(2)? as usize, Duration::from_millis(number(3)?))?,
        "fork" => fork(number(1)?, number(2)? as usize, 0, 0.0, &arguments[3])?,
        "fork-and-write" => {
            fork(number(1)?, number(2)? as usize, number(3)? as usize, number(4)? as f64, &arguments[5])?;
        }
        "fork-and-churn" => fork_and_churn(number(1)?, number(2)? as usize, &arguments[3])?,
        "readers" => readers(number(1)?, number(2)? as usize, &arguments[3])?,
        "map" => map(&arguments[1], number(2)? as usize, &arguments[3])?,
        "touch" => touch(number(1)? as usize, Duration::from_millis(number(2)?)),
        "lines" => (0..number(1)?).for_each(|line| println!("line {line}")),
        "signals" => signals(Duration::from_millis(number(1)?))?,
        "hear" => hear()?,
        "exit" => std::process::exit(number(1)? as i32),
        "without-leader" => without_leader(number(1)? as usize, Duration::from_millis(number(2)?)),
        "traced" => traced(number(1)? as i32, number(2)? as i32),
        "is-subreaper" => println!("{}", rustix::process::child_subreaper()?.is_some()),
        "pidfd" => println!("{}", std::env::var("LISTEN_PIDFDID")? == pidfd_inode()?.to_string()),
        "write" => write(&arguments[1], number(2)?)?,
        "send" => send(&arguments[1], number(2)?)?,
        "receive" => receive(&arguments[1])?,
        "storm" => storm(number(1)?)?,
        "bind-first-thread" => bind_first_thread(number(1)? as usize, &arguments[2])?,
        "children" => children(number(1)?)?,
        "until" => until(&arguments[1], number(2)? as usize, &arguments[3])?,
        "dead-fuse" => dead_fuse(&arguments[1])?,
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

/// Binds the first thread to one CPU, beside another one that may use all, until ten more samples are in the recording. Both
/// end at once: there is no moment with the first one alone.
fn bind_first_thread(cpu: usize, recording: &str) -> anyhow::Result<()> {
    std::thread::spawn(|| {
        loop {
            std::thread::park();
        }
    });
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu);
    rustix::thread::sched_setaffinity(None, &cpus)?;
    let samples = || std::fs::read_to_string(recording).unwrap_or_default().lines().count();
    let (enough, deadline) = (samples() + 10, Instant::now() + Duration::from_secs(120));
    while samples() < enough {
        anyhow::ensure!(Instant::now() < deadline, "{recording} has no more samples");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::process::exit(0)
}

/// Waits until so many lines of a file contain the text, for two minutes at most.
fn until(path: &str, count: usize, text: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let content = String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        let whole = content.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        if whole.filter(|line| without_command(line).contains(text)).count() >= count {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < deadline, "{path} never had {count} lines with {text:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A line without the command in the first sample, which contains the text that is looked for.
fn without_command(line: &str) -> String {
    match line.split_once("\"command\":[").map(|(before, rest)| (before, rest.split_once(",\"started_ms\":"))) {
        Some((before, Some((_, after)))) => format!("{before}{after}"),
        _ => line.to_owned(),
    }
}

/// Holds `mib` MiB of memory.
fn touch(mib: usize, time: Duration) {
    let mut memory = vec![0u8; mib << 20];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::thread::sleep(time);
    std::hint::black_box(memory);
}

/// So many processes that hold `mib` MiB each, all of them at once for the given time.
fn together(workers: u64, mib: usize, time: Duration) -> anyhow::Result<()> {
    use std::io::Read;
    let (mut ready, mut tell) = std::io::pipe()?;
    let (wait, go_on) = std::io::pipe()?;
    for _ in 0..workers {
        // SAFETY: this program has one thread.
        if let nix::unistd::ForkResult::Child = unsafe { nix::unistd::fork() }? {
            drop(go_on);
            let mut memory = vec![0u8; mib << 20];
            memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
            tell.write_all(&[0])?;
            let _ = (&wait).read(&mut [0])?;
            std::hint::black_box(memory);
            return Ok(());
        }
    }
    ready.read_exact(&mut vec![0; workers as usize])?;
    std::thread::sleep(time);
    drop(go_on);
    while nix::sys::wait::wait().is_ok() {}
    Ok(())
}

/// Holds `mib` MiB, and once that was recorded, starts children that each write to `written` MiB of it. Ends when a sample
/// tells that all have `told` MiB.
fn fork(children: u64, mib: usize, written: usize, told: f64, recording: &str) -> anyhow::Result<()> {
    use std::io::Read;
    let (wait, go_on) = std::io::pipe()?;
    let mut memory = vec![0u8; mib << 20];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    until_recorded(3, recording)?;
    for _ in 0..children {
        // SAFETY: this program has one thread.
        if let nix::unistd::ForkResult::Child = unsafe { nix::unistd::fork() }? {
            drop(go_on);
            memory[..written << 20].iter_mut().step_by(4096).for_each(|byte| *byte = 2);
            let _ = (&wait).read(&mut [0])?;
            std::hint::black_box(memory);
            return Ok(());
        }
    }
    until_recorded(6, recording)?;
    until_told(told, recording)?;
    std::hint::black_box(memory);
    drop(go_on);
    while nix::sys::wait::wait().is_ok() {}
    Ok(())
}

/// Holds `mib` MiB, and starts children that use and give back other memory all the time.
fn fork_and_churn(children: u64, mib: usize, recording: &str) -> anyhow::Result<()> {
    let mut memory = vec![0u8; mib << 20];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    until_recorded(3, recording)?;
    let (closed, open) = std::io::pipe()?;
    rustix::io::ioctl_fionbio(&closed, true)?;
    for _ in 0..children {
        // SAFETY: this program has one thread.
        if let nix::unistd::ForkResult::Child = unsafe { nix::unistd::fork() }? {
            drop(open);
            while std::io::Read::read(&mut &closed, &mut [0]).is_err() {
                let other = map_anonymous(4, nix::libc::MAP_PRIVATE)?;
                for page in (0..4 << 20).step_by(4096) {
                    // SAFETY: it is within what was mapped.
                    unsafe { other.add(page).write_volatile(1) };
                }
                // SAFETY: nobody else has it.
                unsafe { nix::libc::munmap(other.cast(), 4 << 20) };
            }
            std::hint::black_box(memory);
            return Ok(());
        }
    }
    until_recorded(20, recording)?;
    std::hint::black_box(memory);
    drop(open);
    while nix::sys::wait::wait().is_ok() {}
    Ok(())
}

fn map_anonymous(mib: usize, kind: i32) -> anyhow::Result<*mut u8> {
    use nix::libc::{MAP_ANONYMOUS, MAP_FAILED, PROT_READ, PROT_WRITE};
    // SAFETY: a new mapping.
    let memory = unsafe {
        nix::libc::mmap(std::ptr::null_mut(), mib << 20, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0)
    };
    anyhow::ensure!(memory != MAP_FAILED, "{}", std::io::Error::last_os_error());
    Ok(memory.cast())
}

/// Holds `mib` MiB of shared memory, and starts children, which come to use it bit by bit while they are recorded.
fn readers(children: u64, mib: usize, recording: &str) -> anyhow::Result<()> {
    let use_it = |memory: *mut u8, parts: usize, after_each: &dyn Fn() -> anyhow::Result<()>| {
        for part in 0..parts {
            for page in (part * (mib << 20) / parts..(part + 1) * (mib << 20) / parts).step_by(4096) {
                // SAFETY: it is within what was mapped.
                unsafe { memory.add(page).write_volatile(1) };
            }
            after_each()?;
        }
        anyhow::Ok(())
    };
    let memory = map_anonymous(mib, nix::libc::MAP_SHARED)?;
    use_it(memory, 1, &|| until_recorded(3, recording))?;
    for _ in 0..children {
        // SAFETY: this program has one thread.
        if let nix::unistd::ForkResult::Child = unsafe { nix::unistd::fork() }? {
            return use_it(memory, 4, &|| until_recorded(2, recording));
        }
    }
    while nix::sys::wait::wait().is_ok() {}
    Ok(())
}

/// Waits until so many more samples are in the recording.
fn until_recorded(samples: usize, recording: &str) -> anyhow::Result<()> {
    let lines = std::fs::read_to_string(recording).unwrap_or_default().lines().count();
    until(recording, lines + samples, "")
}

/// Waits until a sample tells that the job has so many MiB of memory, for five minutes at most: with a small budget, PSS is read once
/// in many seconds.
fn until_told(mib: f64, recording: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(300);
    let tells = |line: &str| {
        let sample: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(sample["cpu"]["process_memory_mib"].as_f64()? >= mib)
    };
    while !std::fs::read_to_string(recording)?.lines().any(|line| tells(line) == Some(true)) {
        anyhow::ensure!(Instant::now() < deadline, "no sample tells of {mib} MiB");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Maps `mib` MiB of a kind, or of the file of that name, and uses them until three more samples are in the recording.
fn map(kind: &str, mib: usize, recording: &str) -> anyhow::Result<()> {
    use nix::libc::{
        MADV_PAGEOUT, MAP_ANONYMOUS, MAP_FAILED, MAP_HUGETLB, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE,
    };
    use std::os::fd::AsRawFd;
    let (flags, file) = match kind {
        "shared" => (MAP_SHARED | MAP_ANONYMOUS, None),
        "swapped" => (MAP_PRIVATE | MAP_ANONYMOUS, None),
        "huge" => (MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, None),
        path => (MAP_PRIVATE, Some(std::fs::File::open(path)?)),
    };
    let protection = if file.is_some() { PROT_READ } else { PROT_READ | PROT_WRITE };
    let descriptor = file.as_ref().map_or(-1, |file| file.as_raw_fd());
    // SAFETY: a new mapping, of which only what was mapped is used.
    unsafe {
        let memory = nix::libc::mmap(std::ptr::null_mut(), mib << 20, protection, flags, descriptor, 0);
        anyhow::ensure!(memory != MAP_FAILED, "{}", std::io::Error::last_os_error());
        for page in (0..mib << 20).step_by(4096) {
            let byte = memory.cast::<u8>().add(page);
            if file.is_some() { _ = byte.read_volatile() } else { byte.write_volatile(1) }
        }
        if kind == "swapped" {
            anyhow::ensure!(nix::libc::madvise(memory, mib << 20, MADV_PAGEOUT) == 0, "it is not swapped out");
        }
    }
    until_recorded(3, recording)
}

/// As `touch`, in a second thread; the first one ends at once.
fn without_leader(mib: usize, time: Duration) {
    std::thread::spawn(move || {
        touch(mib, time);
        std::process::exit(0);
    });
    // SAFETY: it ends this thread, whose memory the other one does not use.
    unsafe { nix::libc::syscall(nix::libc::SYS_exit, 0) };
}

/// Asks its parent to trace it, sends itself a signal, and ends with the code.
fn traced(signal: i32, code: i32) {
    // SAFETY: system calls on numbers.
    unsafe {
        nix::libc::ptrace(nix::libc::PTRACE_TRACEME);
        nix::libc::kill(nix::libc::getpid(), signal);
    }
    std::process::exit(code);
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

/// Says `ready` and its process id, then the number of each signal that arrives, until the last one of all, or an alarm
/// after a minute.
fn hear() -> anyhow::Result<()> {
    let all = SigSet::all();
    all.thread_block()?;
    let file = SignalFd::new(&all)?;
    // SAFETY: it sets a timer.
    unsafe { nix::libc::alarm(60) };
    println!("ready {}", std::process::id());
    while let Some(info) = file.read_signal()? {
        println!("{}", info.ssi_signo);
        if [nix::libc::SIGRTMAX(), nix::libc::SIGALRM].contains(&(info.ssi_signo as i32)) {
            break;
        }
    }
    Ok(())
}

/// What systemd calls the id of a pidfd.
fn pidfd_inode() -> anyhow::Result<u64> {
    let pidfd = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())?;
    Ok(rustix::fs::fstat(&pidfd)?.st_ino)
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

/// Mounts a file system that answers nothing but the first greeting of the kernel, and prints `ready`. It is gone when
/// the process is.
fn dead_fuse(directory: &str) -> anyhow::Result<()> {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    let mut device = std::fs::File::options().read(true).write(true).open("/dev/fuse")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", device.as_raw_fd());
    let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes())?;
    rustix::mount::mount("dead", directory, "fuse.dead", rustix::mount::MountFlags::empty(), Some(options))?;
    let mut request = vec![0u8; 1 << 16];
    let greeting = device.read(&mut request)?;
    anyhow::ensure!(greeting >= 40, "the kernel's greeting is cut");
    // The answer to FUSE_INIT: length, no error, the request's number; then version 7.31 and 56 bytes of limits.
    let mut answer = vec![0u8; 16 + 64];
    answer[..4].copy_from_slice(&80u32.to_ne_bytes());
    answer[8..16].copy_from_slice(&request[8..16]);
    answer[16..20].copy_from_slice(&7u32.to_ne_bytes());
    answer[20..24].copy_from_slice(&31u32.to_ne_bytes());
    device.write_all(&answer)?;
    println!("ready");
    std::io::stdout().flush()?;
    // Requests are taken and never answered.
    while device.read(&mut request)? > 0 {}
    Ok(())
}

/// Sends `mib` MiB over TCP.
fn send(address: &str, mib: u64) -> anyhow::Result<()> {
    let mut connection = std::net::TcpStream::connect(address)?;
    let block = vec![0u8; 1 << 20];
    Ok((0..mib).try_for_each(|_| connection.write_all(&block))?)
}

/// Takes one connection and what comes over it.
fn receive(address: &str) -> anyhow::Result<()> {
    let (mut connection, _) = std::net::TcpListener::bind(address)?.accept()?;
    std::io::copy(&mut connection, &mut std::io::sink())?;
    Ok(())
}

/// So many programs one after the other that end at once, and an orphan. Prints what the kernel has counted of all of them and
/// of this one: voluntary and involuntary context switches, minor and major faults.
fn children(count: u64) -> anyhow::Result<()> {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::unistd::{ForkResult, Pid, fork};
    use std::io::Read;
    let used = |who| {
        getrusage(who).map(|usage| {
            let switches = [usage.voluntary_context_switches(), usage.involuntary_context_switches()];
            [switches, [usage.minor_page_faults(), usage.major_page_faults()]].concat()
        })
    };
    for _ in 0..count {
        std::process::Command::new("true").status()?;
    }
    let (mut from, mut to) = std::io::pipe()?;
    // SAFETY: this program has one thread.
    if let ForkResult::Child = unsafe { fork() }? {
        // SAFETY: as above.
        if let ForkResult::Child = unsafe { fork() }? {
            (0..50).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
            let numbers = used(UsageWho::RUSAGE_SELF)?.into_iter().chain([i64::from(nix::unistd::getpid().as_raw())]);
            numbers.into_iter().try_for_each(|number| writeln!(to, "{number}"))?;
        }
        return Ok(());
    }
    drop(to);
    nix::sys::wait::wait()?;
    let mut said = String::new();
    from.read_to_string(&mut said)?;
    let orphan = said.lines().map(str::parse).collect::<Result<Vec<i64>, _>>()?;
    // Until the orphan was reaped.
    while nix::sys::signal::kill(Pid::from_raw(orphan[4] as i32), None).is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let all = [used(UsageWho::RUSAGE_SELF)?, used(UsageWho::RUSAGE_CHILDREN)?, orphan];
    (0..4).for_each(|index| println!("{}", all.iter().map(|used| used[index]).sum::<i64>()));
    Ok(())
}

/// So many processes that end at once, at most a hundred of them unreaped.
fn storm(count: u64) -> anyhow::Result<()> {
    for index in 0..count {
        // SAFETY: this program has one thread, and the child does nothing but end.
        match unsafe { nix::unistd::fork() }? {
            // SAFETY: ends the process.
            nix::unistd::ForkResult::Child => unsafe { nix::libc::_exit(0) },
            nix::unistd::ForkResult::Parent { .. } if index >= 100 => drop(nix::sys::wait::wait()?),
            nix::unistd::ForkResult::Parent { .. } => (),
        }
    }
    while nix::sys::wait::wait().is_ok() {}
    Ok(())
}
