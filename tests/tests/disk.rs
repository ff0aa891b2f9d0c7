//! The sums over all disks: what passes through devices that stand on others, or in memory, is in them once or not at all. And how
//! full a file system is.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use resource_tracker_tests::{Recording, command, has, is_root, number, text, tracker};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

const WRITTEN: f64 = (200 << 20) as f64;

/// A block device, or a file system, that goes when the test ends.
struct Device {
    path: String,
    remove: Command,
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.remove.status();
    }
}

impl Device {
    /// A loop device over a new file in the folder; `None` where there can be none.
    fn over_file_in(folder: &Path) -> Option<Self> {
        let backing = folder.join("backing");
        File::create(&backing).unwrap().set_len(256 << 20).unwrap();
        let attached = command("losetup").args(["--find", "--show"]).arg(&backing).output().unwrap();
        if !attached.status.success() {
            println!("skipped: no loop device: {}", text(&attached.stderr));
            return None;
        }
        let path = text(&attached.stdout).trim().to_owned();
        let mut remove = command("losetup");
        remove.args(["--detach", &path]);
        Some(Self { path, remove })
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap()
    }
}

/// A folder on a disk, and not in memory.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// What a run saw of 200 MiB that its job wrote.
struct Seen {
    /// As a device of the first sample and the last.
    ends: [Json; 2],
    /// The sum of all disks, as rows of CSV have it.
    sum: f64,
}

impl Seen {
    /// Writes to `path` as soon as a sample lists the device `listed`.
    fn of_writing_to(path: &str, listed: &str) -> Self {
        let (recording, folder) = (Recording::new(), tempfile::tempdir().unwrap());
        let table = folder.path().join("table.csv");
        let known = recording.until(1, &format!("\"device\":\"{listed}\""));
        let write = format!("dd if=/dev/zero of={path} bs=1M count=200 oflag=direct conv=fsync,notrunc status=none");
        let output = recording.run(
            command(tracker())
                .args(["-i", "0.1", "-o"])
                .arg(recording.path())
                .args(["--set", "sinks.table.type=file", "--set", &format!("sinks.table.path={}", table.display())])
                .args(["--", "sh", "-c", &format!("{known}; {write}")]),
        );
        // Another test can make a device anew meanwhile.
        let is_of_another = |line: &str| line.contains("so it began anew") && !line.contains(&format!(" {listed} "));
        let said = text(&output.stderr);
        let said: Vec<&str> = said.lines().filter(|line| !is_of_another(line)).collect();
        assert_eq!((output.status.code(), said), (Some(0), vec![]));
        let samples = recording.samples();
        let first = samples.iter().position(|sample| find(sample, listed).is_some()).unwrap();
        let rows = fs::read_to_string(table).unwrap();
        let column = rows.lines().next().unwrap().split(',').position(|name| name == "disk_write_bytes").unwrap();
        let rows: Vec<&str> = rows.lines().skip(1).collect();
        assert_eq!(rows.len(), samples.len());
        let sum = rows[first + 1..].iter().map(|row| row.split(',').nth(column).unwrap().parse::<f64>().unwrap()).sum();
        Self { ends: [samples[first].clone(), samples.last().unwrap().clone()], sum }
    }

    /// The bytes written to one device, by its own counter.
    fn grown(&self, name: &str) -> f64 {
        let [before, after] =
            self.ends.each_ref().map(|sample| number(&find(sample, name).unwrap(), "/write_bytes_total"));
        after - before
    }

    /// The same of all that stand on nothing else, by their names.
    fn grown_below(&self) -> f64 {
        let is_above = |name: &str| ["loop", "zram", "ram", "dm-", "md"].iter().any(|start| name.starts_with(start));
        let names = self.ends[1]["disk"].as_array().unwrap().iter().filter(|disk| disk["write_bytes_total"].is_u64());
        let names = names.map(|disk| disk["device"].as_str().unwrap());
        names.filter(|name| !is_above(name)).map(|name| self.grown(name)).sum()
    }

    /// Asserts that the sum is what came down to the disks, and that this was at least so much.
    fn assert_sum(&self, at_least: f64) {
        let below = self.grown_below();
        println!("{} MiB in the sum, {} MiB below", self.sum / 1048576.0, below / 1048576.0);
        assert!((self.sum - below).abs() < 0.02 * WRITTEN, "{} instead of {below}", self.sum);
        assert!(below >= at_least, "{below} came down");
    }
}

fn find(sample: &Json, name: &str) -> Option<Json> {
    sample["disk"].as_array()?.iter().find(|disk| disk["device"] == name).cloned()
}

#[test]
fn what_a_loop_device_writes_to_a_disk_is_counted_there() {
    let test = "a loop device over a file";
    let folder = folder();
    if !is_root(test) || !has("losetup", test) {
        return;
    }
    let Some(device) = Device::over_file_in(folder.path()) else { return };
    let seen = Seen::of_writing_to(&device.path, device.name());
    assert_eq!(seen.grown(device.name()), WRITTEN);
    let told = find(&seen.ends[1], device.name()).unwrap();
    assert_eq!((&told["kind"], &told["is_counted"]), (&json!("loop"), &json!(false)));
    for below in told["slaves"].as_array().unwrap() {
        assert!(find(&seen.ends[1], below.as_str().unwrap()).is_some(), "{below}");
    }
    seen.assert_sum(0.95 * WRITTEN);
}

#[test]
fn what_a_loop_device_writes_to_memory_is_in_no_sum() {
    let test = "a loop device over a file in memory";
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: {test} needs /dev/shm");
        return;
    };
    if !is_root(test) || !has("losetup", test) {
        return;
    }
    let Some(device) = Device::over_file_in(folder.path()) else { return };
    let seen = Seen::of_writing_to(&device.path, device.name());
    assert_eq!(seen.grown(device.name()), WRITTEN);
    assert_eq!(find(&seen.ends[1], device.name()).unwrap()["slaves"], json!([]));
    seen.assert_sum(0.0);
}

#[test]
fn what_a_disk_in_memory_takes_is_in_no_sum() {
    if !is_root("zram") {
        return;
    }
    let Ok(number) = fs::read_to_string("/sys/class/zram-control/hot_add") else {
        println!("skipped: this kernel has no zram");
        return;
    };
    let name = format!("zram{}", number.trim());
    let mut remove = command("sh");
    remove.args(["-c", "echo 1 >/sys/block/$0/reset; echo ${0#zram} >/sys/class/zram-control/hot_remove", &name]);
    let device = Device { path: format!("/dev/{name}"), remove };
    fs::write(format!("/sys/block/{name}/disksize"), "256M").unwrap();
    let seen = Seen::of_writing_to(&device.path, &name);
    assert_eq!(seen.grown(&name), WRITTEN);
    let told = find(&seen.ends[1], &name).unwrap();
    assert_eq!((&told["kind"], &told["is_counted"]), (&json!("memory"), &json!(false)));
    seen.assert_sum(0.0);
}

#[test]
fn what_a_mapped_device_writes_to_a_loop_device_is_counted_on_the_disk() {
    let test = "a mapped device";
    let folder = folder();
    if !is_root(test) || !has("losetup", test) || !has("dmsetup", test) {
        return;
    }
    if !command("dmsetup").arg("version").output().unwrap().status.success() {
        println!("skipped: this kernel has no device mapper");
        return;
    }
    let Some(below) = Device::over_file_in(folder.path()) else { return };
    let name = format!("resource-tracker-{}", std::process::id());
    let table = format!("0 {} linear {} 0", (256 << 20) / 512, below.path);
    let made = command("dmsetup").args(["create", &name, "--noudevsync", "--table", &table]).status().unwrap();
    assert!(made.success());
    let mut remove = command("dmsetup");
    remove.args(["remove", "--retry", "--noudevsync", &name]);
    let device = Device { path: format!("/dev/mapper/{name}"), remove };
    let seen = Seen::of_writing_to(&device.path, below.name());
    assert_eq!(seen.grown(below.name()), WRITTEN);
    seen.assert_sum(0.95 * WRITTEN);
}

/// Half of it is reserved for root, which alone can still write.
#[test]
fn a_file_system_that_users_have_filled_is_full_as_df_says() {
    let test = "a full file system";
    let folder = folder();
    if !is_root(test) || ["losetup", "mkfs.ext4", "mount", "df"].iter().any(|program| !has(program, test)) {
        return;
    }
    let Some(device) = Device::over_file_in(folder.path()) else { return };
    let point = folder.path().join("mounted");
    fs::create_dir(&point).unwrap();
    let make = "mkfs.ext4 -q -m 50 \"$0\" && mount \"$0\" \"$1\" && dd if=/dev/zero of=\"$1/file\" bs=1M count=130 status=none";
    let made = command("sh").args(["-c", make, &device.path]).arg(&point).status().unwrap();
    let mut remove = command("umount");
    remove.arg(&point);
    let mounted = Device { path: point.display().to_string(), remove };
    if !made.success() {
        println!("skipped: {test} cannot be made");
        return;
    }
    let df =
        text(&command("df").args(["--block-size=1", "--output=used,avail,pcent"]).arg(&point).output().unwrap().stdout);
    let df: Vec<f64> =
        df.lines().nth(1).unwrap().split_whitespace().map(|word| word.trim_end_matches('%').parse().unwrap()).collect();
    let recording = Recording::new();
    let known = recording.until(1, &format!("\"mount_point\":\"{}\"", mounted.path));
    let mut run = command(tracker());
    recording.run(run.args(["-q", "-i", "0.1", "-o"]).arg(recording.path()).args(["--", "sh", "-c", &known]));
    let told = find(recording.samples().last().unwrap(), device.name()).unwrap()["mounts"][0].clone();
    assert_eq!([number(&told, "/used_bytes"), number(&told, "/available_bytes"), 100.0], df[..]);
    assert!((40.0..80.0).contains(&number(&told, "/used_pct")), "{told}");
    let summary = command(tracker()).args(["summary", "--json"]).arg(recording.path()).output().unwrap();
    let summary: Json = serde_json::from_slice(&summary.stdout).unwrap();
    let fullest = &summary["machine"]["fullest_file_system"];
    assert_eq!((&fullest["mount_point"], number(fullest, "/full_pct")), (&json!(mounted.path), 100.0));
    let note = format!("{} was 100 % full", mounted.path);
    let mut notes = summary["notes"].as_array().unwrap().iter();
    assert!(notes.any(|said| said.as_str().unwrap().starts_with(&note)), "{summary}");
}
