//! Whether the tracker's figures of an NVIDIA GPU are right: checks that a person with such a GPU would make, with a
//! verdict for each.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use nvml_wrapper::Nvml;
use serde_json::Value as Json;

use crate::launch::{part, tracker};
use crate::table;

use super::calls::{CALLS, open, time};
use super::cuda;

/// What was seen, and whether it is right.
type Seen = (String, bool);

type Check = fn(&Nvml) -> anyhow::Result<Seen>;

const CHECKS: [(&str, Check); 9] = [
    ("share of bursts of 150 ms in 1350", bursts),
    ("time that the calls take", calls),
    ("energy, by counter and by power", energy),
    ("list of processes", |_| processes(&[], "steady")),
    ("… in another pid namespace", |_| {
        processes_if_told(&["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"])
    }),
    ("… of who is not root", |_| processes_if_told(&["setpriv", "--reuid=65534", "--clear-groups"])),
    ("… of a client of MPS", mps),
    ("… of two that share memory", |_| processes(&[], "share")),
    ("PCIe rate of a copy of 10 GB", copy),
];

pub(crate) fn print() -> anyhow::Result<()> {
    let nvml = match open() {
        Ok(nvml) if nvml.device_count()? > 0 => nvml,
        Ok(_) => {
            println!("no GPU here: NVML knows none");
            return Ok(());
        }
        Err(error) => {
            println!("no GPU here: {error}");
            return Ok(());
        }
    };
    let name = nvml.device_by_index(0)?.name()?;
    println!("{name}, driver {}.\n", nvml.sys_driver_version().unwrap_or_default());
    table::head("Whether the figures of a GPU are right", ["check", "seen", "verdict"]);
    for (name, check) in CHECKS {
        let (seen, verdict) = match check(&nvml) {
            Ok((seen, is_right)) => (seen, if is_right { "right" } else { "**wrong**" }),
            Err(error) => (format!("{error:#}"), "not checked"),
        };
        table::row([name.into(), seen, verdict.into()]);
    }
    table::note("The first GPU, which nothing else should use meanwhile.");
    Ok(())
}

/// The samples of a run of some work of ours, ten a second, by a tracker that is started in some way.
fn record(way: &[&str], work: &str) -> anyhow::Result<Vec<Json>> {
    cuda::check()?;
    run(way, &[&["cuda"][..], &[work]].concat())
}

fn run(way: &[&str], arguments: &[&str]) -> anyhow::Result<Vec<Json>> {
    let binary = tracker();
    let mut command = match way {
        [program, options @ ..] => {
            let mut command = Command::new(program);
            command.args(options).arg(&binary);
            command
        }
        [] => Command::new(&binary),
    };
    // A part of this program is the job.
    let job = part(arguments)?;
    command.args(["-q", "-i", "0.1", "-o", "-", "--"]).arg(job.get_program()).args(job.get_args());
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", said.lines().last().unwrap_or("it fails"));
    let samples: Vec<Json> =
        output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let samples: Vec<Json> = samples.into_iter().filter(|sample| sample["gpu"][0].is_object()).collect();
    ensure!(!samples.is_empty(), "no sample has a GPU");
    Ok(samples)
}

/// Seconds of a sample, and a figure of it.
fn figures<'a>(samples: &'a [Json], pointer: &'a str) -> impl Iterator<Item = (f64, f64)> + 'a {
    samples
        .iter()
        .filter_map(move |sample| Some((sample["elapsed_secs"].as_f64()?, sample.pointer(pointer)?.as_f64()?)))
}

/// The mean over the time of those samples that have it.
fn mean(samples: &[Json], pointer: &str) -> Option<f64> {
    let (secs, sum) = figures(samples, pointer)
        .fold((0.0, 0.0), |(secs, sum), (elapsed, value)| (secs + elapsed, sum + value * elapsed));
    (secs > 0.0).then(|| sum / secs)
}

/// The sum over the time.
fn integral(samples: &[Json], pointer: &str) -> f64 {
    figures(samples, pointer).map(|(elapsed, value)| value * elapsed).sum()
}

fn is_about(seen: f64, truth: f64, part: f64) -> bool {
    (seen / truth - 1.0).abs() <= part
}

fn bursts(_: &Nvml) -> anyhow::Result<Seen> {
    let share = mean(&record(&[], "bursts")?, "/cpu/process_gpu_usage").context("no share is told")?;
    let truth = cuda::BURST.as_secs_f64() / cuda::CYCLE.as_secs_f64();
    Ok((format!("{:.1} % of {:.1} %", share * 100.0, truth * 100.0), is_about(share, truth, 0.2)))
}

/// A tracker that asks ten times a second takes 2 % of a thread at most for each call; those that take longer it asks
/// more rarely.
fn calls(nvml: &Nvml) -> anyhow::Result<Seen> {
    let gpu = nvml.device_by_index(0)?;
    let times: Vec<(&str, f64)> = CALLS.map(|(name, call)| (name, time(call, &gpu).0)).to_vec();
    let sum: f64 = times.iter().map(|(_, median)| median).sum();
    let slow: Vec<String> = times
        .iter()
        .filter(|(_, median)| *median > 2000.0)
        .map(|(name, median)| format!("{name} {:.0} ms", median / 1e3))
        .collect();
    // That one watches the link for 20 ms.
    let is_right = slow.iter().all(|name| name.starts_with("PcieThroughput"));
    Ok((
        format!(
            "{:.1} ms in all; over 2 ms: {}",
            sum / 1e3,
            if slow.is_empty() { "none".into() } else { slow.join(", ") }
        ),
        is_right,
    ))
}

fn energy(nvml: &Nvml) -> anyhow::Result<Seen> {
    let gpu = nvml.device_by_index(0)?;
    let before = gpu.total_energy_consumption().context("no counter of energy")?;
    let samples = record(&[], "steady")?;
    let counted = (gpu.total_energy_consumption()? - before) as f64 / 1e3;
    let told: f64 = figures(&samples, "/gpu/0/energy_joules").map(|(_, joules)| joules).sum();
    let by_power = integral(&samples, "/gpu/0/power_watts");
    // The counter was also read before the tracker started and after it ended.
    let is_right = told <= counted * 1.01 && is_about(told, counted, 0.15) && is_about(told, by_power, 0.15);
    Ok((format!("{told:.0} J told, {counted:.0} J counted, {by_power:.0} J by power"), is_right))
}

/// The job is listed with its memory.
fn processes(way: &[&str], work: &str) -> anyhow::Result<Seen> {
    told(listed(&record(way, work)?, if work == "share" { cuda::SHARED as u64 } else { 0 }))
}

/// The job is listed with its memory, or the list is not known: the driver need not have one.
fn processes_if_told(way: &[&str]) -> anyhow::Result<Seen> {
    Ok(listed(&record(way, "steady")?, 0).unwrap_or_else(|| ("not known".into(), true)))
}

/// The list, which the driver must have for a tracker that knows processes by the same ids.
fn told(seen: Option<Seen>) -> anyhow::Result<Seen> {
    // `PROC_PID_INIT_INO` of the kernel: the namespace that processes begin in.
    let is_in_container =
        || std::fs::read_link("/proc/self/ns/pid").is_ok_and(|it| it.as_os_str() != "pid:[4026531836]");
    match seen {
        Some(seen) => Ok(seen),
        None if is_in_container() => bail!("not known, which a driver may leave so in a container"),
        None => Ok(("not known".into(), false)),
    }
}

/// `None`: the processes are not known.
fn listed(samples: &[Json], shared: u64) -> Option<Seen> {
    // The last samples of the work, when everything is there; the very last is after it.
    let busy =
        samples.iter().rev().find(|sample| sample["gpu"][0]["utilization_pct"].as_f64().is_some_and(|pct| pct > 0.0));
    let Some(gpu) = busy.map(|sample| &sample["gpu"][0]) else {
        return Some(("the GPU was never busy".into(), false));
    };
    let list = gpu["processes"].as_array()?;
    let bytes: Vec<u64> = list.iter().map(|process| process["vram_bytes"].as_u64().unwrap_or(0)).collect();
    let used = gpu["vram_used_bytes"].as_u64().unwrap_or(u64::MAX);
    let sum: u64 = bytes.iter().sum();
    let is_right = !list.is_empty() && bytes.iter().all(|bytes| *bytes > 0) && sum <= used && sum >= shared;
    Some((format!("{} processes with {} MiB of {} MiB used", list.len(), sum >> 20, used >> 20), is_right))
}

/// With a server of its own, which is stopped again.
fn mps(_: &Nvml) -> anyhow::Result<Seen> {
    let folder = tempfile::tempdir()?;
    let control = |arguments: &[&str]| {
        let mut command = Command::new("nvidia-cuda-mps-control");
        command
            .args(arguments)
            .envs(["CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"].map(|name| (name, folder.path())));
        command
    };
    cuda::check()?;
    if !control(&["-d"]).status().context("no nvidia-cuda-mps-control")?.success() {
        bail!("nvidia-cuda-mps-control does not start");
    }
    let seen = client(folder.path());
    let mut quit = control(&[]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    std::io::Write::write_all(&mut quit.stdin.take().context("it has no input")?, b"quit\n")?;
    quit.wait()?;
    seen
}

fn client(pipes: &Path) -> anyhow::Result<Seen> {
    let variable = format!("CUDA_MPS_PIPE_DIRECTORY={}", pipes.display());
    processes(&["env", &variable], "steady")
}

fn copy(_: &Nvml) -> anyhow::Result<Seen> {
    let received = integral(&record(&[], "copy")?, "/gpu/0/pcie_rx_bytes_per_sec");
    let truth = cuda::COPIED as f64;
    Ok((format!("{:.1} GB of {:.1} GB", received / 1e9, truth / 1e9), is_about(received, truth, 0.2)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_weighted_by_the_time_of_their_samples() {
        let sample = |secs: f64, usage: Json| json!({ "elapsed_secs": secs, "cpu": { "process_gpu_usage": usage } });
        let samples = [sample(0.1, json!(1.0)), sample(0.3, json!(0.0)), sample(5.0, json!(null))];
        assert_eq!(mean(&samples, "/cpu/process_gpu_usage"), Some(0.25));
        assert_eq!(integral(&samples, "/cpu/process_gpu_usage"), 0.1);
        assert_eq!(mean(&samples, "/cpu/other"), None);
        assert!(is_about(0.12, 0.111, 0.2) && !is_about(0.16, 0.111, 0.2) && !is_about(f64::NAN, 1.0, 0.2));
    }

    #[test]
    fn verdicts_on_lists() {
        let sample = |processes: Json| {
            vec![json!({ "gpu": [{ "utilization_pct": 99.0, "vram_used_bytes": 5u64 << 30, "processes": processes }] })]
        };
        let process = |bytes: Option<u64>| json!({ "pid": 7, "vram_bytes": bytes });
        let is_right = |processes: Json, shared: u64| listed(&sample(processes), shared).unwrap().1;
        assert!(is_right(json!([process(Some(1 << 30))]), 0));
        assert!(!is_right(json!([]), 0), "it is the job that keeps it busy");
        assert!(!is_right(json!([process(None)]), 0));
        assert!(!is_right(json!([process(Some(6 << 30))]), 0), "more than is used");
        let both = json!([process(Some(3 << 29)), process(Some(1 << 28))]);
        assert!(is_right(both.clone(), cuda::SHARED as u64) && !is_right(both, 3 << 30));
        assert!(!listed(&[], 0).unwrap().1);
    }

    #[test]
    fn a_list_that_is_not_known_is_not_right_where_it_has_to_be_told() {
        let unknown = json!({ "gpu": [{ "utilization_pct": 99.0, "vram_used_bytes": 5u64 << 30, "processes": null }] });
        let seen = listed(&[unknown], 0);
        assert_eq!(seen, None);
        // In a container it is neither right nor wrong.
        assert!(!told(seen).is_ok_and(|(_, is_right)| is_right));
    }
}
