//! The cost of the sinks that work on each sample: those that show a person a run at its end, and those for servers of metrics.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::cputime;
use crate::launch::{Running, seconds, tracker};
use crate::size::resident;
use crate::table;

/// Time between samples, and how long it is measured.
const INTERVALS: [(Duration, Duration); 3] = [
    (Duration::from_secs(1), Duration::from_secs(60)),
    (Duration::from_millis(100), Duration::from_secs(30)),
    (Duration::from_millis(10), Duration::from_secs(20)),
];
/// As many samples as a day has seconds, at 1 ms, and a part of them.
const DAY: Duration = Duration::from_secs(87);
const PART: Duration = Duration::from_secs(10);

pub(crate) fn print() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let report = format!("sinks.report.path={}", directory.path().join("report.html").display());
    let server = server()?;
    let otlp = format!("sinks.otlp.endpoint=http://{server}");
    let remote_write = format!("sinks.prometheus.url=http://{server}/api/v1/write");
    let sinks: [(&str, &str, &[&str]); 5] = [
        ("`summary`", "summary", &["--summary"]),
        ("`report`", "report", &["--set", &report]),
        ("`prometheus`, scraped", "prometheus", &["--set", "sinks.prometheus.listen=127.0.0.1:0"]),
        (
            "`prometheus`, remote-write",
            "prometheus",
            &["--set", "sinks.prometheus.mode=remote-write", "--set", &remote_write],
        ),
        ("`otlp`", "otlp", &["--set", &otlp]),
    ];
    table::head(
        "Cost of a sample with sinks that work on each",
        ["sink", "interval", "all else, µs", "the sink, µs", "adds", "of a core"],
    );
    for (interval, time) in INTERVALS {
        let running: Vec<_> =
            sinks.iter().map(|(_, _, options)| start(interval, options)).collect::<anyhow::Result<_>>()?;
        thread::sleep((interval * 3).max(Duration::from_secs(3)));
        let taken = || -> anyhow::Result<Vec<_>> {
            running.iter().zip(&sinks).map(|(one, (_, sink, _))| of_sink(one.pid(), sink)).collect()
        };
        let (began, first) = (Instant::now(), taken()?);
        thread::sleep(time);
        let (elapsed, last) = (began.elapsed(), taken()?);
        let samples = elapsed.as_secs_f64() / interval.as_secs_f64();
        for ((name, ..), (first, last)) in sinks.iter().zip(first.into_iter().zip(last)) {
            let own = (last.0 - first.0).as_secs_f64();
            let others = (last.1 - first.1).as_secs_f64();
            table::row([
                (*name).into(),
                format!("{interval:?}"),
                format!("{:.0}", others * 1e6 / samples),
                format!("{:.1}", own * 1e6 / samples),
                format!("{:.1} %", 100.0 * own / others),
                format!("{:.3} %", 100.0 * own / elapsed.as_secs_f64()),
            ]);
        }
    }
    table::note(
        "Around `sleep`, all at the same time; CPU time of the threads of the sink and of all other threads of the same tracker, in 60, 30 \
         and 20 s. What is sent goes to a server that takes everything, every 10 s.",
    );
    table::head("Their memory", ["sink", "KiB more after 10,000 samples", "after 87,000"]);
    for (name, _, options) in sinks {
        let (early, late) = memory(options)?;
        table::row([name.into(), format!("{early}"), format!("{late}")]);
    }
    table::note("What `VmRSS` is more by, at 1 ms.");
    Ok(())
}

fn start(interval: Duration, options: &[&str]) -> anyhow::Result<Running> {
    let mut command = Command::new(tracker());
    command.args(["-i", &seconds(interval), "-o", "/dev/null"]).args(options).args(["--", "sleep", "infinity"]);
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// CPU time of the threads of a sink, which have its name, and of all others.
fn of_sink(pid: u32, sink: &str) -> anyhow::Result<(Duration, Duration)> {
    let mut own = Duration::ZERO;
    for task in fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"))? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.starts_with(sink) {
            own += cputime::of_thread(&task)?;
        }
    }
    Ok((own, cputime::of(pid)?.saturating_sub(own)))
}

/// A server that takes every request; where it listens.
fn server() -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || -> anyhow::Result<()> {
                let mut reader = BufReader::new(stream.try_clone()?);
                loop {
                    let (mut line, mut length) = (String::new(), 0);
                    while reader.read_line(&mut line)? > 2 {
                        let header = line.to_lowercase();
                        length =
                            header.strip_prefix("content-length: ").map_or(Ok(length), |text| text.trim().parse())?;
                        line.clear();
                    }
                    if line.is_empty() {
                        return Ok(());
                    }
                    reader.read_exact(&mut vec![0; length])?;
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
                }
            });
        }
    });
    Ok(address)
}

/// KiB that it takes more after a part of a day's samples, and after all.
fn memory(options: &[&str]) -> anyhow::Result<(i64, i64)> {
    let interval = Duration::from_millis(1);
    let (without, with) = (start(interval, &[])?, start(interval, options)?);
    let more = || anyhow::Ok(resident(&with)? as i64 - resident(&without)? as i64);
    std::thread::sleep(PART);
    let early = more()?;
    std::thread::sleep(DAY - PART);
    Ok((early, more()?))
}
