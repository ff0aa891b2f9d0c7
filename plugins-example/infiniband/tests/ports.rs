//! Adapters as trees of files.
//!
//! A file in `trees` is what `cd /sys/class/infiniband/DEVICE && grep -rs . ports` prints. `hfi1_0`, `mlx4_0` and
//! `mlx5_0` were recorded on machines. The others have the files that their drivers make, with figures made up: `mlx5_1`
//! for RoCE, `mlx4_1` for OFED before 4.0 with its `counters_ext`, `mthca0` for 32 bits, `i40iw0` and `rxe0` for those
//! whose counters are no numbers or not there, `siw0` for one with almost nothing.

#![allow(clippy::unwrap_used, reason = "it is a test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use infiniband::{Infiniband, InfinibandConfig, Port};
use resource_tracker_core::{Host, Sections, Source, SourceConfig, Tick};
use tempfile::TempDir;

fn open(root: &Path) -> Box<dyn Source> {
    InfinibandConfig { root: Some(root.to_owned()) }.build(&Host::default()).unwrap().unwrap()
}

/// What is read so many seconds after the last time; `None` when there is no section.
fn section(source: &mut dyn Source, elapsed: u64) -> Option<Vec<Port>> {
    let mut out = Sections::default();
    let interval = Duration::from_secs(1);
    let elapsed = Duration::from_secs(elapsed);
    let tick = Tick::new(1, Instant::now(), elapsed, interval);
    source.collect(&tick, &mut out).unwrap();
    out.get::<Infiniband>().map(|ports| ports.0.clone())
}

fn read(source: &mut dyn Source, elapsed: u64) -> Vec<Port> {
    section(source, elapsed).unwrap()
}

/// Writes a file of an adapter, such as `mlx5_0/ports/1/state`.
fn write(root: &Path, name: &str, text: &str) {
    let path = root.join("class/infiniband").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

fn plug_in(root: &Path, device: &str) {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees").join(device).with_extension("txt");
    for line in fs::read_to_string(tree).unwrap().lines() {
        let (name, text) = line.split_once(':').unwrap();
        write(root, &format!("{device}/{name}"), text);
    }
}

fn machine(device: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    plug_in(root.path(), device);
    root
}

/// The only port of a machine with this adapter.
fn port_of(device: &str) -> Port {
    let [port] = read(&mut *open(machine(device).path()), 0).try_into().unwrap();
    port
}

fn names(counters: &BTreeMap<String, u64>) -> Vec<&str> {
    counters.keys().map(String::as_str).collect()
}

/// What PortCounters has of errors.
const ERRORS: [&str; 10] = [
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_constraint_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "symbol_error",
];
const DISCARDS: [&str; 2] = ["VL15_dropped", "port_xmit_discards"];
const PACKETS: [&str; 4] =
    ["multicast_rcv_packets", "multicast_xmit_packets", "unicast_rcv_packets", "unicast_xmit_packets"];

#[test]
fn mlx5() {
    let port = port_of("mlx5_0");
    assert_eq!((port.device.as_str(), port.port, port.rate_gbps), ("mlx5_0", 1, Some(25.0)));
    assert_eq!((port.link_layer.as_deref(), port.state.as_deref()), (Some("InfiniBand"), Some("ACTIVE")));
    assert_eq!((port.rx_bytes_total, port.tx_bytes_total), (Some(72_505_381_512), Some(11_523_046_035_392)));
    assert_eq!((port.rx_packets_total, port.tx_packets_total), (Some(541_889_824), Some(10_907_922_116)));
    assert_eq!((port.rx_bytes_per_sec, port.tx_packets_per_sec), (None, None), "nothing was read before");
    assert_eq!((names(&port.errors), names(&port.discards)), (ERRORS.into(), DISCARDS.into()));
    assert_eq!((names(&port.packets), names(&port.counters)), (PACKETS.into(), vec!["port_xmit_wait"]));
    assert_eq!(port.packets["unicast_xmit_packets"], 10_907_922_116);
    assert_eq!((port.hw_counters["resp_cqe_error"], port.hw_counters.get("lifespan")), (8109, None));
}

#[test]
fn mlx5_with_roce() {
    let port = port_of("mlx5_1");
    assert_eq!((port.link_layer.as_deref(), port.physical_state.as_deref()), (Some("Ethernet"), Some("LinkUp")));
    assert_eq!((port.rx_bytes_total, port.tx_bytes_total, port.rate_gbps), (Some(4000000), Some(8000000), Some(100.0)));
    assert_eq!((port.discards["port_xmit_discards"], port.packets["multicast_rcv_packets"]), (6, 10));
    assert_eq!((port.errors.values().sum::<u64>(), port.hw_counters["np_cnp_sent"]), (0, 9));
}

#[test]
fn two_ports_of_mlx4() {
    let ports = read(&mut *open(machine("mlx4_0").path()), 0);
    let seen: Vec<_> = ports.iter().map(|port| (port.device.as_str(), port.port, port.tx_bytes_total)).collect();
    assert_eq!(seen, [("mlx4_0", 1, Some(106_036_453_180)), ("mlx4_0", 2, Some(106_161_427_560))]);
    assert_eq!((names(&ports[0].packets), ports[0].counters["port_xmit_wait"]), (vec![], 3599));
}

#[test]
fn hfi1() {
    let port = port_of("hfi1_0");
    assert_eq!((port.rx_bytes_total, port.rx_packets_total), (Some(1_380_366_808_104), Some(638_036_947)));
    assert_eq!((names(&port.errors), port.rate_gbps), (ERRORS.into(), Some(100.0)));
}

/// Its `counters` have stopped at the end of 32 bits long ago.
#[test]
fn mlx4_with_an_old_driver() {
    let root = machine("mlx4_1");
    let mut source = open(root.path());
    let port = &read(&mut *source, 0)[0];
    assert_eq!((port.rx_bytes_total, port.rx_packets_total), (Some(36_000_000_000_000), Some(7_000_000_000)));
    assert_eq!((port.tx_bytes_total, port.tx_packets_total), (Some(1_600_000), Some(500)));
    assert_eq!((names(&port.packets), names(&port.counters)), (PACKETS.into(), vec![]));
    assert_eq!(port.packets["unicast_rcv_packets"], 6_999_999_990);
    write(root.path(), "mlx4_1/ports/1/counters_ext/port_xmit_data_64", "900000");
    assert_eq!(read(&mut *source, 2)[0].tx_bytes_per_sec, Some(1e6));
    // What is missing for a moment is not taken from the other folder.
    let gone = root.path().join("class/infiniband/mlx4_1/ports/1/counters_ext/port_xmit_data_64");
    fs::write(&gone, "N/A (no PMA)\n").unwrap();
    assert_eq!(read(&mut *source, 1)[0].tx_bytes_total, None);
    fs::write(&gone, "900500\n").unwrap();
    let port = &read(&mut *source, 1)[0];
    assert_eq!((port.tx_bytes_per_sec, port.tx_bytes_total), (Some(1000.0), Some(3_602_000)));
}

/// Some of its counters have 64 bits in `counters_ext`, the others 32 in `counters`.
#[test]
fn a_driver_with_some_extended_counters() {
    let root = machine("mthca0");
    for (name, text) in [("port_rcv_data_64", "9000000000000"), ("port_xmit_packets_64", "N/A (no PMA)")] {
        write(root.path(), &format!("mthca0/ports/1/counters_ext/{name}"), text);
    }
    write(root.path(), "mthca0/ports/1/counters/port_xmit_data", "4294967290");
    write(root.path(), "mthca0/ports/1/counters/port_xmit_packets", "500");
    let mut source = open(root.path());
    let port = &read(&mut *source, 0)[0];
    assert_eq!((port.rx_bytes_total, port.tx_bytes_total), (Some(36_000_000_000_000), Some(17_179_869_160)));
    assert_eq!(port.tx_packets_total, Some(500), "there is no number in its extended file");
    write(root.path(), "mthca0/ports/1/counters_ext/port_rcv_data_64", "9000000000100");
    write(root.path(), "mthca0/ports/1/counters/port_xmit_data", "94");
    let port = &read(&mut *source, 1)[0];
    assert_eq!((port.rx_bytes_per_sec, port.tx_bytes_per_sec), (Some(400.0), Some(400.0)), "32 bits have wrapped");
}

#[test]
fn an_adapter_with_32_bits() {
    let root = machine("mthca0");
    let mut source = open(root.path());
    assert_eq!(read(&mut *source, 0)[0].errors["symbol_error"], 3);
    write(root.path(), "mthca0/ports/1/counters/port_rcv_data", "100");
    write(root.path(), "mthca0/ports/1/counters/port_xmit_data", "100");
    let port = &read(&mut *source, 1)[0];
    let wrapped = (1_u64 << 32) - 3_221_225_472 + 100;
    assert_eq!(port.rx_bytes_per_sec, Some((4 * wrapped) as f64), "it wrapped");
    assert_eq!(port.rx_bytes_total, Some(4 * ((1 << 32) + 100)));
    assert_eq!(port.tx_bytes_per_sec, Some(400.0), "it had stopped at its end, and was reset");
}

/// The same figures, of counters that are known to have 64 bits.
#[test]
fn a_counter_of_64_bits_that_is_reset_is_no_wrap() {
    // mlx4 tells by another counter that is beyond 32 bits, mlx5 also by the unicast packets.
    for device in ["mlx4_0", "mlx5_1"] {
        let root = machine(device);
        let counter = format!("{device}/ports/1/counters/port_rcv_data");
        write(root.path(), &counter, "4294967200");
        let mut source = open(root.path());
        let before = read(&mut *source, 0)[0].rx_bytes_total.unwrap();
        write(root.path(), &counter, "25");
        let port = &read(&mut *source, 1)[0];
        assert_eq!((port.rx_bytes_per_sec, port.rx_bytes_total), (Some(100.0), Some(before + 100)), "{device}");
    }
}

#[test]
fn adapters_without_these_counters() {
    for device in ["i40iw0", "rxe0", "siw0"] {
        let port = port_of(device);
        assert_eq!((port.rx_bytes_total, port.tx_packets_total), (None, None), "{device}");
        assert!(port.errors.is_empty() && port.discards.is_empty() && port.packets.is_empty(), "{port:?}");
        assert_eq!(port.link_layer.as_deref(), Some("Ethernet"));
    }
    assert_eq!(port_of("rxe0").hw_counters["sent_pkts"], 19);
    assert_eq!((port_of("siw0").state.as_deref(), port_of("siw0").rate_gbps), (Some("DOWN"), Some(2.5)));
    // Not even a file.
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("class/infiniband/odd0/ports/1")).unwrap();
    assert_eq!(read(&mut *open(root.path()), 0), [Port { device: "odd0".into(), port: 1, ..Port::default() }]);
}

/// From a machine without any adapter, and without the kernel's folder for them.
#[test]
fn ports_that_come_and_go() {
    let root = tempfile::tempdir().unwrap();
    let mut source = open(root.path());
    assert_eq!(section(&mut *source, 0), None);
    plug_in(root.path(), "mlx5_1");
    let seen = |ports: &[Port]| ports.iter().map(|port| (port.device.clone(), port.port)).collect::<Vec<_>>();
    let mlx5 = ("mlx5_1".to_owned(), 1);
    let ports = read(&mut *source, 1);
    assert_eq!((seen(&ports), ports[0].rx_bytes_per_sec), (vec![mlx5.clone()], None));
    plug_in(root.path(), "mlx4_0");
    assert_eq!(seen(&read(&mut *source, 1)), [("mlx4_0".to_owned(), 1), ("mlx4_0".to_owned(), 2), mlx5.clone()]);
    let (here, away) = (root.path().join("class/infiniband/mlx5_1"), root.path().join("away"));
    fs::rename(&here, &away).unwrap();
    assert_eq!(read(&mut *source, 1).len(), 2);
    fs::rename(&away, &here).unwrap();
    write(root.path(), "mlx5_1/ports/1/counters/port_rcv_data", "1000500");
    let ports = read(&mut *source, 1);
    assert_eq!((&ports[2].device, ports[2].rx_bytes_per_sec), (&mlx5.0, Some(1000.0)), "over two seconds");
    // An adapter whose driver is gone leaves an empty list: the machine has no port any more.
    for device in ["mlx4_0", "mlx5_1"] {
        fs::rename(root.path().join("class/infiniband").join(device), root.path().join(device)).unwrap();
    }
    assert_eq!(read(&mut *source, 1), []);
}
