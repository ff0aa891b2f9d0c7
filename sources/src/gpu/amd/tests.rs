//! Cards as trees of files: one recorded on a real machine, and written ones.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use resource_tracker_core::ObservedJob;
use resource_tracker_metrics::{GpuMetrics, GpuProcess};
use rustix::fs::inotify;

use super::*;

/// With a job of these processes, the root first.
fn tick(number: u64, job: Option<&[i32]>) -> Tick<'_> {
    let job = job.map(|members| ObservedJob::new(members[0], false, members));
    Tick::new(number, Instant::now(), Duration::from_secs(number), Duration::from_secs(1)).with_job(job)
}

/// The last tick of a run, at which all counters are read, whether or not they are due.
fn last_tick(number: u64) -> Tick<'static> {
    let mut tick = tick(number, None);
    tick.last = true;
    tick
}

fn source(host: &Host) -> Option<Box<dyn Source>> {
    AmdConfig { devices: "/nonexistent".into() }.build(host).unwrap()
}

fn read(source: &mut dyn Source, tick: &Tick) -> Vec<GpuMetrics> {
    let mut out = Sections::default();
    source.collect(tick, &mut out).unwrap();
    out.get::<Gpus>().unwrap().0.clone()
}

fn write(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// A card with everything that the driver of a data centre card shows.
fn card(root: &Path) {
    let device = "class/drm/card1/device";
    let files = [
        ("uevent", "DRIVER=amdgpu\nPCI_ID=1002:740F\nPCI_SLOT_NAME=0000:83:00.0\n"),
        ("device", "0x740f\n"),
        ("revision", "0x02\n"),
        ("gpu_busy_percent", "37\n"),
        ("mem_busy_percent", "12\n"),
        ("mem_info_vram_total", "68702699520\n"),
        ("mem_info_vram_used", "34351349760\n"),
        ("hwmon/hwmon4/temp1_input", "41000\n"),
        ("hwmon/hwmon4/power1_average", "93500000\n"),
        ("hwmon/hwmon4/power1_cap", "300000000\n"),
        ("hwmon/hwmon4/freq1_input", "1700000000\n"),
        ("hwmon/hwmon4/freq2_input", "1600000000\n"),
        ("hwmon/hwmon4/fan1_input", "1000\n"),
        ("hwmon/hwmon4/fan1_max", "4000\n"),
        ("hwmon/hwmon4/power1_input", "101000000\n"),
        ("power_dpm_force_performance_level", "auto\n"),
        ("current_link_speed", "16.0 GT/s PCIe\n"),
        ("max_link_speed", "32.0 GT/s PCIe\n"),
        ("current_link_width", "8\n"),
        ("max_link_width", "16\n"),
        ("ras/umc_err_count", "ue: 1\nce: 12\n"),
        ("drm/renderD129/dev", "226:129\n"),
    ];
    for (name, text) in files {
        write(root, &format!("{device}/{name}"), text);
    }
    write(root, "module/amdgpu/version", "6.8.5\n");
    write(root, "class/drm/card1-DP-1/status", "connected\n");
    write(root, "class/drm/card0/device/uevent", "DRIVER=ast\nPCI_SLOT_NAME=0000:05:00.0\n");
    let node = "class/kfd/kfd/topology/nodes/2";
    write(root, &format!("{node}/gpu_id"), "4711\n");
    write(root, &format!("{node}/properties"), "simd_count 416\nsimd_per_cu 4\ndrm_render_minor 129\n");
}

#[test]
fn every_field_of_a_written_card() {
    let root = tempfile::tempdir().unwrap();
    card(root.path());
    let mut source = source(&Host::new("/proc", root.path())).unwrap();
    let list = read(&mut *source, &tick(2, None));
    let [gpu] = &list[..] else { panic!("{list:?}") };
    assert_eq!((gpu.uuid.as_str(), gpu.host_id.as_str()), ("0000:83:00.0", "card1"), "T-GPU-05");
    assert_eq!(gpu.name, "AMD Instinct MI210");
    assert_eq!(gpu.detail["driver_version"], "6.8.5");
    assert_eq!((gpu.utilization_pct, gpu.memory_utilization_pct), (Some(37.0), Some(12.0)));
    assert_eq!((gpu.vram_total_bytes, gpu.vram_used_pct), (Some(68_702_699_520), Some(50.0)));
    assert_eq!((gpu.temperature_celsius, gpu.power_watts), (Some(41), Some(93.5)));
    assert_eq!((gpu.power_limit_watts, gpu.energy_joules), (Some(300.0), None));
    assert_eq!((gpu.power_average_watts, gpu.power_instant_watts), (Some(93.5), Some(101.0)));
    assert_eq!((gpu.frequency_mhz, gpu.memory_frequency_mhz), (Some(1700), Some(1600)));
    assert_eq!((gpu.fan_speed_pct, gpu.performance_state.as_deref()), (Some(25.0), Some("auto")));
    assert_eq!((gpu.pcie_link_generation, gpu.pcie_link_generation_max), (Some(4), Some(5)));
    assert_eq!((gpu.pcie_link_width, gpu.pcie_link_width_max), (Some(8), Some(16)));
    assert_eq!((gpu.ecc_corrected_errors, gpu.ecc_uncorrected_errors), (Some(12), Some(1)));
    assert_eq!((gpu.core_count, &gpu.processes), (Some(104 * 64), &None));
    assert_eq!((gpu.encoder_utilization_pct, &gpu.throttle_reasons), (None, &None));
}

/// A process that computes holds memory that DRM does not know of.
#[test]
fn processes_that_compute_belong_to_the_job() {
    let root = tempfile::tempdir().unwrap();
    card(root.path());
    let own = std::process::id();
    write(root.path(), &format!("class/kfd/kfd/proc/{own}/vram_4711"), "1073741824\n");
    write(root.path(), &format!("class/kfd/kfd/proc/{own}/stats_4711/cu_occupancy"), "26\n");
    write(root.path(), "class/kfd/kfd/proc/1/vram_4711", "5\n");
    write(root.path(), "class/kfd/kfd/proc/2/vram_4711", "0\n");
    let host = Host::new("/proc", root.path());
    let mut source = source(&host).unwrap();
    let list = read(&mut *source, &tick(1, Some(&[own as i32])));
    // `kfd_get_cu_occupancy` in `kfd_process.c`: "Collect number of waves in-flight on this device by current process. Translates
    // acquired wave count into number of compute units that are occupied." So it is no share of the time.
    let expected = [GpuProcess {
        pid: own as i32,
        vram_bytes: Some(1 << 30),
        utilization_pct: None,
        cu_occupancy_pct: Some(25.0),
    }];
    assert_eq!((list[0].processes.as_deref(), list[0].process_count), (Some(&expected[..]), Some(2)));
    let share = crate::gpu::Share::of_devices(&list).unwrap();
    assert_eq!((share.usage, share.vram_bytes, share.utilized), (None, Some(1 << 30), 0));
}

/// What it draws is counted, and what it computes is not: a share of both would be too small.
#[test]
fn a_process_that_computes_has_no_share_of_the_time() {
    let process =
        |pid, vram_bytes, utilization_pct| GpuProcess { pid, vram_bytes, utilization_pct, ..Default::default() };
    let drawing = vec![process(7, Some(5), Some(2.0)), process(8, Some(1), Some(60.0))];
    let computing = vec![process(7, Some(9), None), process(9, Some(3), None)];
    let listed = [kfd::Process { pid: 7, vram_bytes: Some(9), cu_occupancy_pct: Some(80.0) }];
    let busy = GpuProcess { cu_occupancy_pct: Some(80.0), ..process(7, Some(9), None) };
    let expected = [busy, process(9, Some(3), None), process(8, Some(1), Some(60.0))];
    assert_eq!(kfd::joined(drawing, computing, &listed), expected);
}

/// The kernel wakes a card for its table and its sensors, and for what is in its configuration when it has no power at all:
/// none of these files is opened.
#[test]
fn a_card_that_sleeps_is_not_woken() {
    let root = tempfile::tempdir().unwrap();
    card(root.path());
    let device = root.path().join("class/drm/card1/device");
    write(&device, "gpu_metrics", metrics_table(120, 3));
    write(&device, "unique_id", "0123456789abcdef\n");
    write(&device, "power/runtime_status", "suspended\n");
    let opened = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    for name in ["gpu_metrics", "gpu_busy_percent", "hwmon/hwmon4/temp1_input", "unique_id", "max_link_speed"] {
        inotify::add_watch(&opened, device.join(name), inotify::WatchFlags::OPEN).unwrap();
    }
    let mut source = source(&Host::new("/proc", root.path())).unwrap();
    let list = read(&mut *source, &tick(0, None));
    assert_eq!((list[0].uuid.as_str(), list[0].name.as_str()), ("0000:83:00.0", "AMD Instinct MI210"));
    assert_eq!((list[0].utilization_pct, list[0].power_watts, list[0].pcie_link_generation_max), (None, None, None));
    assert_eq!(rustix::io::read(&opened, &mut [0; 1024]), Err(rustix::io::Errno::AGAIN), "it was asked");

    // Another program wakes it: now everything is read.
    write(&device, "power/runtime_status", "active\n");
    let list = read(&mut *source, &tick(1, None));
    assert_eq!((list[0].utilization_pct, list[0].pcie_link_generation_max), (Some(37.0), Some(5)));
    assert_eq!((list[0].detail["unique_id"].as_str(), list[0].core_count), ("0123456789abcdef", Some(104 * 64)));
}

/// amdgpu lets a card sleep 5 s after it was last asked, so one that is asked at each tick would never do so.
#[test]
fn a_card_that_is_idle_is_left_alone_so_that_it_can_sleep() {
    let root = tempfile::tempdir().unwrap();
    card(root.path());
    let device = root.path().join("class/drm/card1/device");
    write(&device, "gpu_busy_percent", "0\n");
    write(&device, "power/runtime_status", "active\n");
    for (control, left_alone) in [("auto", true), ("on", false)] {
        write(&device, "power/control", control);
        let mut source = source(&Host::new("/proc", root.path())).unwrap();
        let start = Instant::now();
        let mut at = |secs| {
            let tick = Tick::new(1, start + Duration::from_secs(secs), Duration::ZERO, Duration::from_secs(1));
            read(&mut *source, &tick)[0].utilization_pct
        };
        assert_eq!((at(0), at(9)), (Some(0.0), Some(0.0)));
        assert_eq!((at(10), at(11).is_none()), (Some(0.0), left_alone), "{control}");
    }
}

#[test]
fn without_the_driver_there_is_nothing() {
    let root = tempfile::tempdir().unwrap();
    card(root.path());
    fs::rename(root.path().join("module"), root.path().join("gone")).unwrap();
    assert!(source(&Host::new("/proc", root.path())).is_none());
}

/// Version 1.3, of which the middle is all ones where there is no value.
fn metrics_table(size: u16, minor: u8) -> Vec<u8> {
    let mut table = vec![0xff; usize::from(size)];
    table[..4].copy_from_slice(&[size.to_le_bytes()[0], size.to_le_bytes()[1], 1, minor]);
    table[4..6].copy_from_slice(&55u16.to_le_bytes());
    table[16..18].copy_from_slice(&64u16.to_le_bytes());
    table[22..24].copy_from_slice(&210u16.to_le_bytes());
    table
}

#[test]
fn the_table_of_the_firmware_fills_the_gaps() {
    let root = tempfile::tempdir().unwrap();
    card(root.path());
    let sensors = ["temp1_input", "power1_average", "power1_input"].map(|name| format!("hwmon/hwmon4/{name}"));
    for name in sensors.iter().map(String::as_str).chain(["gpu_busy_percent"]) {
        fs::remove_file(root.path().join("class/drm/card1/device").join(name)).unwrap();
    }
    write(root.path(), "class/drm/card1/device/gpu_metrics", metrics_table(120, 3));
    let list = read(&mut *source(&Host::new("/proc", root.path())).unwrap(), &tick(1, None));
    let gpu = &list[0];
    assert_eq!((gpu.utilization_pct, gpu.temperature_celsius, gpu.power_watts), (Some(64.0), Some(55), Some(210.0)));
}

/// "Energy (15.259uJ (2^-16) units)" and "Accumulated throttler residencies" (`gpu_metrics_v1_6` in `kgd_pp_interface.h`).
#[test]
fn energy_and_throttling_are_what_the_counters_of_the_table_gained() {
    let root = tempfile::tempdir().unwrap();
    card(root.path());
    let table = |joules: u64, ppt: u32| {
        let mut table = vec![0u8; 1024];
        table[..4].copy_from_slice(&[0, 4, 1, 6]);
        table[16..24].copy_from_slice(&(joules << 16).to_le_bytes());
        table[40..44].copy_from_slice(&ppt.to_le_bytes());
        write(root.path(), "class/drm/card1/device/gpu_metrics", table);
    };
    table(1_000_000, 500);
    let mut source = source(&Host::new("/proc", root.path())).unwrap();
    let mut at = |number| {
        let gpu = read(&mut *source, &last_tick(number)).remove(0);
        (gpu.energy_joules, gpu.throttle_reasons)
    };
    assert_eq!(at(0), (None, None));
    table(1_000_750, 500);
    assert_eq!(at(1), (Some(750.0), Some(vec![])));
    table(1_000_751, 501);
    assert_eq!(at(2), (Some(1.0), Some(vec!["ppt".to_owned()])));
    table(5, 0);
    assert_eq!(at(3), (None, Some(vec![])), "a reset");
}

/// Of tables before 1.4 only one family's unit is known: `smu13_driver_if_aldebaran.h` has "EnergyAcc64bitLow; //15.259uJ
/// resolution", and others say nothing.
#[test]
fn energy_of_an_unknown_unit_is_not_told() {
    for (target, joules) in [("90010", Some(3.0)), ("100300", None)] {
        let root = tempfile::tempdir().unwrap();
        card(root.path());
        let properties = "simd_count 416\nsimd_per_cu 4\ndrm_render_minor 129\ngfx_target_version";
        write(root.path(), "class/kfd/kfd/topology/nodes/2/properties", format!("{properties} {target}\n"));
        let table = |joules: u64| {
            let mut table = metrics_table(120, 3);
            table[24..32].copy_from_slice(&(joules << 16).to_le_bytes());
            write(root.path(), "class/drm/card1/device/gpu_metrics", table);
        };
        table(7);
        let mut source = source(&Host::new("/proc", root.path())).unwrap();
        read(&mut *source, &tick(0, None));
        table(10);
        let gpu = read(&mut *source, &last_tick(1)).remove(0);
        assert_eq!((gpu.energy_joules, gpu.temperature_celsius), (joules, Some(41)), "{target}");
    }
}

#[test]
fn a_newer_table_is_left_alone_and_a_broken_one_switches_off() {
    let root = tempfile::tempdir().unwrap();
    card(root.path());
    write(root.path(), "class/drm/card1/device/gpu_metrics", metrics_table(240, 99));
    let list = read(&mut *source(&Host::new("/proc", root.path())).unwrap(), &tick(1, None));
    assert_eq!(list[0].utilization_pct, Some(37.0));
    for broken in [&metrics_table(240, 99)[..200], b"\x01", b""] {
        write(root.path(), "class/drm/card1/device/gpu_metrics", broken);
        assert!(source(&Host::new("/proc", root.path())).is_none(), "{broken:?}");
    }
}

/// Recorded on a real machine, where the folder with recordings is at hand.
#[test]
fn a_real_card() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures/sys/class/drm");
    if !recorded.exists() {
        eprintln!("skipped: no recorded machine here");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("module/amdgpu")).unwrap();
    fs::create_dir_all(root.path().join("class")).unwrap();
    std::os::unix::fs::symlink(recorded, root.path().join("class/drm")).unwrap();
    let mut source = source(&Host::new("/proc", root.path())).unwrap();
    let list = read(&mut *source, &tick(1, None));
    let gpu = &list[0];
    assert_eq!((gpu.name.as_str(), gpu.uuid.as_str()), ("AMD Radeon RX Vega", "0000:09:00.0"));
    assert_eq!((gpu.utilization_pct, gpu.vram_used_bytes), (Some(4.0), Some(1_490_378_752)));
    assert_eq!((gpu.frequency_mhz, gpu.memory_frequency_mhz), (Some(852), Some(167)));
    assert_eq!((gpu.pcie_link_generation, gpu.pcie_link_width), (Some(3), Some(16)));
    assert_eq!(gpu.detail["vbios_version"], "115-D050PIL-100");
}
