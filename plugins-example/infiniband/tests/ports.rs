//! Adapters as trees of files, and those recorded on real machines where the recordings are at hand.

#![allow(clippy::unwrap_used, reason = "it is a test")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use infiniband::{Infiniband, InfinibandConfig, Port};
use resource_tracker_core::{Host, Sections, Source, SourceConfig, Tick};

fn open(root: &Path) -> Option<Box<dyn Source>> {
    InfinibandConfig { root: Some(root.to_owned()) }.build(&Host::default()).unwrap()
}

fn read(source: &mut dyn Source, elapsed: u64) -> Vec<Port> {
    let mut out = Sections::default();
    let second = Duration::from_secs(1);
    let elapsed = Duration::from_secs(elapsed);
    let tick = Tick { number: 1, at: Instant::now(), elapsed, interval: second, last: false, tracked: None };
    source.collect(&tick, &mut out).unwrap();
    out.get::<Infiniband>().unwrap().0.clone()
}

fn write(root: &Path, port: &str, name: &str, text: &str) {
    let path = root.join("class/infiniband").join(port).join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn adapter(root: &Path, port: &str, layer: &str) {
    for (name, text) in [
        ("link_layer", layer),
        ("state", "4: ACTIVE\n"),
        ("phys_state", "5: LinkUp\n"),
        ("rate", "200 Gb/sec (4X HDR)\n"),
        ("counters/port_rcv_data", "1000\n"),
        ("counters/port_xmit_data", "4294967290\n"),
        ("counters/port_rcv_packets", "10\n"),
        ("counters/port_xmit_packets", "20\n"),
        ("counters/symbol_error", "3\n"),
        ("counters/VL15_dropped", "N/A (no PMA)\n"),
        ("hw_counters/out_of_buffer", "7\n"),
        ("hw_counters/lifespan", "12\n"),
    ] {
        write(root, port, name, text);
    }
}

#[test]
fn ports_of_two_adapters() {
    let root = tempfile::tempdir().unwrap();
    adapter(root.path(), "mlx5_1/ports/1", "Ethernet\n");
    adapter(root.path(), "mlx5_0/ports/2", "InfiniBand\n");
    adapter(root.path(), "mlx5_0/ports/1", "InfiniBand\n");
    let mut source = open(root.path()).unwrap();
    read(&mut *source, 0);
    write(root.path(), "mlx5_0/ports/1", "counters/port_rcv_data", "501000\n");
    write(root.path(), "mlx5_0/ports/1", "counters/port_rcv_packets", "1010\n");
    // 32 bits, and around.
    write(root.path(), "mlx5_0/ports/1", "counters/port_xmit_data", "94\n");
    let ports = read(&mut *source, 2);
    let names: Vec<_> = ports.iter().map(|port| (port.device.as_str(), port.port)).collect();
    assert_eq!(names, [("mlx5_0", 1), ("mlx5_0", 2), ("mlx5_1", 1)]);
    let port = &ports[0];
    assert_eq!((port.state.as_deref(), port.physical_state.as_deref()), (Some("ACTIVE"), Some("LinkUp")));
    assert_eq!((port.rate_gbps, port.link_layer.as_deref()), (Some(200.0), Some("InfiniBand")));
    assert_eq!((port.rx_bytes_per_sec, port.rx_bytes_total), (Some(1e6), Some(2_004_000)));
    assert_eq!((port.tx_bytes_per_sec, port.tx_bytes_total), (Some(200.0), Some(4 * 4_294_967_390)));
    assert_eq!((port.rx_packets_per_sec, port.tx_packets_per_sec), (Some(500.0), Some(0.0)));
    assert_eq!(port.errors, [("symbol_error".to_owned(), 3)].into());
    assert_eq!(port.hw_counters, [("out_of_buffer".to_owned(), 7)].into());
    assert_eq!(ports[2].link_layer.as_deref(), Some("Ethernet"));
}

#[test]
fn a_counter_of_64_bits_that_is_reset_is_no_spike() {
    let root = tempfile::tempdir().unwrap();
    adapter(root.path(), "mlx5_0/ports/1", "InfiniBand\n");
    write(root.path(), "mlx5_0/ports/1", "counters/port_rcv_data", "9000000000000\n");
    let mut source = open(root.path()).unwrap();
    read(&mut *source, 0);
    write(root.path(), "mlx5_0/ports/1", "counters/port_rcv_data", "25\n");
    assert_eq!(read(&mut *source, 1)[0].rx_bytes_per_sec, Some(100.0));
}

#[test]
fn a_machine_without() {
    assert!(open(Path::new("/nonexistent")).is_none());
}

#[test]
fn real_adapters() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/sys");
    if !recorded.join("class/infiniband").exists() {
        println!("skipped: no recorded adapters here");
        return;
    }
    let ports = read(&mut *open(&recorded).unwrap(), 0);
    let names: Vec<_> = ports.iter().map(|port| (port.device.as_str(), port.port, port.rate_gbps)).collect();
    assert_eq!(names[0], ("hfi1_0", 1, Some(100.0)));
    assert!(ports.iter().all(|port| port.rx_bytes_total.is_some() && port.state.is_some()), "{ports:#?}");
    let mlx5 = ports.iter().find(|port| port.device == "mlx5_0").unwrap();
    assert!(mlx5.hw_counters.contains_key("out_of_buffer") && !mlx5.hw_counters.contains_key("lifespan"));
}
