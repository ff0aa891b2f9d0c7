//! Figures of NVIDIA's devices where one call means different things on different hardware. What the stand-in plays is
//! what nvml.h says of a call or a field.

use std::fs;
use std::path::{Path, PathBuf};

use resource_tracker_tests::gpu::{Nvml, WITH_GPUS, busy, with_gpus};
use resource_tracker_tests::{Recording, command, has, in_time, is_root, number, text, tracker};
use serde_json::{Value as Json, json};

fn is_near(told: &Json, truth: f64) -> bool {
    told.as_f64().is_some_and(|told| (told / truth - 1.0).abs() < 0.2)
}

/// `POWER_AVERAGE` is "supported on Ampere (except GA100) or newer", `POWER_INSTANT` "on all architectures"; what
/// `nvmlDeviceGetPowerUsage` gives is the one or the other.
#[test]
fn power_of_the_moment_and_of_a_second_are_told_apart() {
    let newer = json!({ "milliwatts": 300_500, "average_milliwatts": 250_250 });
    let nvml = Nvml::new(json!({ "devices": [newer, { "milliwatts": 120_000 }] }));
    let all = nvml.some_samples();
    let told = |gpu: usize| ["instant", "average"].map(|kind| &all[2]["gpu"][gpu][format!("power_{kind}_watts")]);
    assert_eq!(told(0), [&json!(300.5), &json!(250.25)]);
    assert_eq!(told(1), [&json!(120.0), &json!(null)]);
}

/// A slow call is made rarely, but always at the last tick: what was used until then is not lost.
#[test]
fn energy_is_counted_to_the_end() {
    let device = json!({ "milliwatts": 100_000 });
    let slow = json!({ "nvmlDeviceGetTotalEnergyConsumption": 0.03 });
    let nvml = Nvml::new(json!({ "devices": [device], "slow": slow }));
    in_time(|| {
        let recording = Recording::new();
        nvml.record(&recording, &["-i", "0.1"], &recording.until(8, WITH_GPUS));
        let all = with_gpus(&recording);
        let told: Vec<f64> = all.iter().filter_map(|sample| sample["gpu"][0]["energy_joules"].as_f64()).collect();
        let secs = (number(&all[all.len() - 1], "/timestamp_ms") - number(&all[0], "/timestamp_ms")) / 1e3;
        println!("{told:?} J in {secs} s");
        // A tick without a call has no energy.
        told.len() < all.len() / 2 && (0.8..1.4).contains(&(told.iter().sum::<f64>() / (100.0 * secs)))
    });
}

/// `NVLINK_THROUGHPUT_DATA_*` of all links before the fifth generation, `NVLINK_COUNT_*_BYTES` "in NVLink5"; up to 36 links
/// (`NVML_NVLINK_MAX_LINKS`), each known by its number when another goes down.
#[test]
fn each_link_keeps_its_own_rate() {
    for is_nvlink_5 in [false, true] {
        let device = |down: Json| {
            json!({ "devices": [{ "links": 36, "links_down": down, "is_nvlink_5": is_nvlink_5, "uneven": true,
                                  "link_kib_per_sec": 1024 }] })
        };
        in_time(|| {
            let nvml = Nvml::new(device(json!([1])));
            let recording = Recording::new();
            let mut tracker = nvml.tracker();
            tracker.args(["-i", "0.1", "-o"]).arg(recording.path()).args(["--", "sh", "-c", &recording.until_told()]);
            let links = |sample: &Json| sample["gpu"][0]["nvlinks"].as_array().map_or(0, Vec::len);
            let seen = |count: usize| recording.samples().iter().filter(|sample| links(sample) == count).count();
            let mut is_down = false;
            recording.run_until(&mut tracker, "both", || {
                if !is_down && seen(35) > 5 {
                    nvml.play(device(json!([0, 1])));
                    is_down = true;
                }
                seen(34) > 5
            });
            let mib = f64::from(1 << 20);
            let is_right = |sample: &Json| {
                let gpu = &sample["gpu"][0];
                let all = gpu["nvlinks"].as_array().unwrap();
                let of_link = |link: &Json| (number(link, "/link") + 1.0) * mib;
                let sum: f64 = all.iter().map(of_link).sum();
                is_near(&gpu["nvlink_tx_bytes_per_sec"], sum)
                    && is_near(&gpu["nvlink_rx_bytes_per_sec"], sum / 2.0)
                    && all.iter().all(|link| is_near(&link["tx_bytes_per_sec"], of_link(link)))
            };
            let all = recording.samples();
            let later = |count: usize| all.iter().filter(|sample| links(sample) == count).nth(4).unwrap();
            for (count, down) in [(35, &[1][..]), (34, &[0, 1])] {
                let known = later(count)["gpu"][0]["nvlinks"].as_array().unwrap().iter();
                let known: Vec<u64> = known.map(|link| link["link"].as_u64().unwrap()).collect();
                assert_eq!(known, (0..36).filter(|link| !down.contains(link)).collect::<Vec<_>>());
            }
            // A rate is right as long as nothing holds up the tracker between two readings.
            is_right(later(35)) && is_right(later(34))
        });
    }
}

/// "Percentage of SMs that were busy" of each GPU instance; the sum over processes is another figure, which parts do
/// not have.
#[test]
fn parts_have_a_use_of_their_own() {
    let part = |number: u32, gpm: Json| json!({ "uuid": format!("MIG-{number}"), "gpm": gpm });
    let parts = [part(0, json!(37.5)), part(1, json!(0.0)), part(2, json!(null))];
    let nvml = Nvml::new(json!({ "devices": [{ "parts": parts }] }));
    let recording = Recording::new();
    // The windows of the parts need not end in the same sample.
    nvml.record(&recording, &["-i", "0.11"], &recording.until(4, "\"sm_utilization_pct\":37.5"));
    let all = recording.samples();
    let told = |sample: &Json| -> Vec<Json> {
        (0..4).map(|index| sample["gpu"][index]["sm_utilization_pct"].clone()).collect()
    };
    let expected = [json!(null), json!(37.5), json!(0.0), json!(null)];
    assert!(all.iter().any(|sample| told(sample) == expected), "{all:?}");
    let may_be = |sample: &Json| told(sample).iter().zip(&expected).all(|(one, all)| one.is_null() || one == all);
    assert!(all.iter().all(may_be), "{all:?}");
}

/// A reading that fails is null, and those after it are there again.
#[test]
fn a_sample_of_the_counters_that_fails_is_one_without() {
    let device = json!({ "gpm": 62.5, "gpm_fails": false, "gpm_pcie": [100.0, 50.0], "pcie": [1_500, 2_500] });
    let nvml = Nvml::new(json!({ "devices": [device] }));
    let recording = Recording::new();
    let set = |fails: bool| format!("sed -i 's/\"gpm_fails\":{}/\"gpm_fails\":{fails}/' \"$FAKE_NVML\"", !fails);
    let told = |value: &str, times: usize| recording.until(times, &format!("\"sm_utilization_pct\":{value}"));
    let watched = recording.until(2, "\"pcie_tx_bytes_per_sec\":1500000.0");
    let script = [told("62.5", 2), set(true), told("null", 4), watched, set(false), told("62.5", 6)];
    nvml.record(&recording, &["-i", "0.15"], &script.join("; "));
    let all = recording.samples();
    let told: Vec<Json> = all.iter().map(|sample| sample["gpu"][0]["sm_utilization_pct"].clone()).collect();
    let last_failed = told[..told.len() - 1].iter().rposition(|pct| *pct == json!(null)).unwrap();
    let [before, after] = [&told[..last_failed], &told[last_failed + 1..]];
    assert!([before, after].iter().all(|part| part.contains(&json!(62.5))), "{told:?}");
    let last = &all[all.len() - 2]["gpu"][0];
    assert_eq!(last["pcie_tx_bytes_per_sec"], json!(100.0 * 1_048_576.0), "it is counted again");
}

/// "PCIe transmit bytes. Value can be wrapped."; "querying a byte counter over a 20ms interval" without it.
#[test]
fn pcie_is_counted_where_the_counter_can_be_trusted() {
    // 4 GB/s at most: the counter takes more than a second to go round.
    let slow = [3, 3, 4, 4];
    let counts = json!({ "pcie_link": slow, "pcie_counted": [500_000_000, 300_000_000], "pcie": [1, 1] });
    let watched = json!({ "pcie_link": slow, "pcie": [1_500, 2_500] });
    // 64 GB/s at most: fifteen rounds a second.
    let fast = json!({ "pcie_link": [5, 5, 16, 16], "pcie_counted": [500_000_000, 0], "pcie": [3_500, 4_500] });
    let hopper = json!({ "pcie_counted": [1, 1], "pcie": [1, 1], "gpm": 5.0, "gpm_pcie": [100.0, 50.0] });
    let nvml = Nvml::new(json!({ "devices": [counts, watched, fast, hopper] }));
    in_time(|| {
        let recording = Recording::new();
        // Those that are watched take turns.
        let seen = ["1500000.0", "3500000.0"].map(|tx| recording.until(2, &format!("\"pcie_tx_bytes_per_sec\":{tx}")));
        nvml.record(&recording, &["-i", "0.2"], &seen.join("; "));
        let all = recording.samples();
        let rates = |gpu: &Json| ["tx", "rx"].map(|way| gpu[format!("pcie_{way}_bytes_per_sec")].clone());
        let are_watched = |sample: &&Json| {
            let rates = [1, 2].map(|index| rates(&sample["gpu"][index]));
            rates == [[json!(1_500e3), json!(2_500e3)], [json!(3_500e3), json!(4_500e3)]]
        };
        let Some(sample) = all.iter().find(are_watched) else { return false };
        let gpus = &sample["gpu"];
        assert_eq!(rates(&gpus[3]), [json!(100.0 * 1_048_576.0), json!(50.0 * 1_048_576.0)]);
        let [tx, rx] = rates(&gpus[0]);
        println!("{tx} and {rx}");
        is_near(&tx, 500e6) && is_near(&rx, 300e6)
    });
}

/// A machine with one card that can sleep, as sysfs shows it.
struct Laptop {
    nvml: Nvml,
    power: PathBuf,
}

const ADDRESS: &str = "0000:01:00.0";

impl Laptop {
    fn new(status: &str) -> Self {
        let nvml = Nvml::new(json!({}));
        let power = nvml.folder.path().join("sys/bus/pci/drivers/nvidia").join(ADDRESS).join("power");
        fs::create_dir_all(&power).unwrap();
        fs::write(power.join("control"), "auto\n").unwrap();
        let mut device = busy(0);
        device["utilization"] = json!([0, 0]);
        nvml.play(json!({ "devices": [device], "power": power }));
        let laptop = Self { nvml, power };
        laptop.set(status);
        laptop
    }

    fn set(&self, status: &str) {
        fs::write(self.power.join("runtime_status"), status).unwrap();
    }

    fn status(&self) -> String {
        fs::read_to_string(self.power.join("runtime_status")).unwrap()
    }

    fn sysfs(&self) -> String {
        format!("--set=tracker.sysfs={}", self.nvml.folder.path().join("sys").display())
    }
}

fn count(recording: &Recording, is_so: impl Fn(&Json) -> bool) -> usize {
    recording.samples().iter().filter(|sample| is_so(&sample["gpu"][0])).count()
}

fn is_read(gpu: &Json) -> bool {
    gpu["utilization_pct"].is_number()
}

fn is_named(gpu: &Json) -> bool {
    gpu.is_object() && !is_read(gpu)
}

/// To start NVML wakes the GPUs, so it is started only after another program has woken them.
#[test]
fn a_gpu_that_sleeps_is_not_woken() {
    let laptop = Laptop::new("suspended\n");
    let recording = Recording::new();
    let mut tracker = laptop.nvml.tracker();
    tracker.arg(laptop.sysfs()).args(["-i", "0.1", "-o"]).arg(recording.path());
    tracker.args(["--", "sh", "-c", &recording.until_told()]);
    let mut is_woken = false;
    let output = recording.run_until(&mut tracker, "both", || {
        if !is_woken && count(&recording, is_named) > 5 {
            assert_eq!(laptop.status(), "suspended\n");
            laptop.set("active\n");
            is_woken = true;
        }
        count(&recording, is_read) > 1
    });
    assert_eq!(text(&output.stderr), "");
    let all = with_gpus(&recording);
    let asleep = &all[0]["gpu"][0];
    assert_eq!(
        (&asleep["uuid"], &asleep["host_id"], &asleep["power_watts"]),
        (&json!(ADDRESS), &json!("nvidia0"), &json!(null))
    );
    assert!(all.iter().any(|sample| sample["gpu"][0]["uuid"] == "GPU-0"));
}

/// As in nvml.h, the library counts its users; a GPU that it holds does not sleep. `Runtime D3 status` is what the open
/// kernel module writes in `nv_procfs_read_power`.
#[test]
fn a_gpu_that_nobody_uses_is_let_go_of_so_that_it_can_sleep() {
    let test = "a_gpu_that_nobody_uses_is_let_go_of_so_that_it_can_sleep";
    if !is_root(test) || !has("unshare", test) || !Path::new("/proc/driver").exists() {
        return;
    }
    let laptop = Laptop::new("active\n");
    let driver = laptop.nvml.folder.path().join("driver");
    let folder = driver.join("nvidia/gpus").join(ADDRESS);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("power"), "Runtime D3 status:          Enabled (fine-grained)\n").unwrap();
    let recording = Recording::new();
    let mut inside = command("unshare");
    inside.env("LD_LIBRARY_PATH", laptop.nvml.folder.path()).env("FAKE_NVML", laptop.nvml.script());
    let script = format!("mount --bind '{}' /proc/driver && exec \"$@\"", driver.display());
    inside.args(["--mount", "sh", "-c", &script, "sh"]).arg(tracker()).arg(laptop.sysfs());
    inside.args(["-i", "0.1", "-o"]).arg(recording.path()).args(["--", "sh", "-c", &recording.until_told()]);
    let (mut is_woken, mut read_before) = (false, 0);
    let output = recording.run_until(&mut inside, "all three", || {
        if !is_woken && count(&recording, is_named) > 5 {
            assert_eq!(laptop.status(), "suspended\n", "it was let go of, and is not woken");
            read_before = count(&recording, is_read);
            laptop.set("active\n");
            is_woken = true;
        }
        is_woken && count(&recording, is_read) > read_before + 1
    });
    assert_eq!(text(&output.stderr), "");
    // The names from NVML stay.
    assert!(with_gpus(&recording).iter().all(|sample| sample["gpu"][0]["uuid"] == "GPU-0"));
    assert!(read_before > 50, "it is watched for ten seconds first: {read_before}");
}
