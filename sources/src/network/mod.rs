//! Network interfaces: counters from `/proc/net/dev`, what they are from netlink and `/sys/class/net`.

mod counters;
mod edge;
mod interface_table;
mod job;
mod link;
mod links;
mod netlink;

use std::sync::Arc;
use std::time::{Duration, Instant};

use resource_tracker_core::background::Background;
use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, from_json, register_source};
use resource_tracker_metrics::{NetworkMetrics, Networks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counter_deltas::CounterDeltas;
use crate::procfile::{FIRST_ANSWER, ProcFile, assign, attribute, rate};
use counters::{Counters, interfaces};
use interface_table::{Interface, InterfaceLookup, InterfaceTable};
pub use job::JobNetworkConfig;
use link::{Link, REFRESH, UNKNOWN};
use links::Links;
use resource_tracker_scan::find_near;

/// Throughput, packets, errors and link state of every network interface but loopback.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct NetworkConfig {}

from_json!(NetworkConfig);

#[typetag::deserialize(name = "network")]
impl SourceConfig for NetworkConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let root = host.sysfs.join("class/net");
        let lookup = InterfaceLookup::new(host);
        let (for_links, for_speeds) = (lookup.clone(), root.clone());
        let mut links = Links::new(root);
        let links = move |names| links.read(names, for_links.devices());
        let speeds = move |names: Vec<String>| {
            // A virtual interface, or one whose link is down, has no speed: reading it fails, or gives -1.
            let speed = |name: &String| attribute(&for_speeds.join(name).join("speed"))?.parse().ok();
            Arc::new(names.into_iter().map(|name| (speed(&name).unwrap_or(-1), name)).collect())
        };
        Ok(Some(Box::new(Network {
            // That of the tracker's own network namespace: `/proc/net` is a link to `/proc/self/net`.
            devices: ProcFile::open(host.procfs.join("net/dev"))?,
            links: host.background("net-links", links).ok(),
            // To ask a driver takes a lock that can be held for long, also by a driver that never answers. So this is
            // apart from the links, which are then known all the same.
            speeds: host.background("net-speeds", speeds).ok(),
            asked: None,
            first_wait: FIRST_ANSWER,
            known: InterfaceTable::new(lookup),
            deltas: CounterDeltas::new("network"),
            has_said: false,
        })))
    }
}

register_source!(
    SourceEntry::new::<NetworkConfig>("network", "Throughput, packets, errors and link state of network interfaces")
        .on_by_default()
        .order(40)
);

/// The speed of each interface, with its name.
type Speeds = Arc<Vec<(i64, String)>>;

/// Both answers are in the order in which the interfaces were asked for.
struct Network {
    devices: ProcFile,
    links: Option<Background<Vec<String>, Arc<Vec<Link>>>>,
    speeds: Option<Background<Vec<String>, Speeds>>,
    asked: Option<Instant>,
    /// How long the first sample waits for the links; nothing once it has waited.
    first_wait: Duration,
    known: InterfaceTable,
    deltas: CounterDeltas,
    /// Whether a warning has said that a line could not be read.
    has_said: bool,
}

impl Source for Network {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let wait = std::mem::take(&mut self.first_wait);
        self.read(tick, out, wait)
    }

    /// It does not wait for the links, which it asks for.
    fn prime(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        self.read(tick, out, Duration::ZERO)
    }
}

impl Network {
    /// Reads, and waits so long for the first answer about the links.
    fn read(&mut self, tick: &Tick, out: &mut Sections, wait: Duration) -> anyhow::Result<()> {
        let waits = Instant::now();
        let links = self.links.as_ref().and_then(|links| links.first_answer(wait));
        let wait = wait.saturating_sub(waits.elapsed());
        let speeds = self.speeds.as_ref().and_then(|speeds| speeds.first_answer(wait));
        let (links, speeds) =
            (links.as_deref().map_or(&[][..], Vec::as_slice), speeds.as_deref().map_or(&[][..], Vec::as_slice));
        let list = &mut out.section::<Networks>().0;
        let mut count = 0;
        self.known.begin();
        let mut has_garbage = false;
        for (name, now) in interfaces(self.devices.read()?, &mut has_garbage) {
            let Some((place, interface)) = self.known.find(count, name, &now) else { continue };
            if count == list.len() {
                list.push(NetworkMetrics::default());
            }
            let metrics = &mut list[count];
            let secs = interface.time_of(tick.elapsed).as_secs_f64();
            fill(metrics, interface, &now, secs, &mut self.deltas);
            let link = find_near(links, place, |link| interface.is_of(link)).map(|place| &links[place]);
            set_link(metrics, link);
            // Without the thread it will never be known: then all count.
            let is_counted = metrics.is_counted.or(self.links.is_none().then_some(true));
            (metrics.counted_rx_bytes, metrics.counted_tx_bytes) = interface.count(is_counted, &now);
            let speed = find_near(speeds, place, |(_, name)| *name == interface.name);
            metrics.speed_mbps = speed.map(|place| speeds[place].0);
            interface.counters = now;
            count += 1;
        }
        list.truncate(count);
        let is_new = self.known.end(has_garbage, tick.elapsed);
        if has_garbage && !std::mem::replace(&mut self.has_said, true) {
            log::warn!("source network: an interface in /proc/net/dev cannot be read; it is left out until it can");
        }
        self.refresh(tick.at, is_new);
        Ok(())
    }

    fn refresh(&mut self, now: Instant, is_new: bool) {
        if is_new || self.asked.is_none_or(|asked| now.saturating_duration_since(asked) >= REFRESH) {
            let names = self.known.names();
            if let Some(speeds) = &self.speeds {
                speeds.ask(names.clone());
            }
            if let Some(links) = &self.links {
                links.ask(names);
            }
            self.asked = Some(now);
        }
    }
}

fn fill(metrics: &mut NetworkMetrics, interface: &Interface, now: &Counters, secs: f64, deltas: &mut CounterDeltas) {
    let before = &interface.counters;
    let mut rate_of = |now, before| rate(deltas.of(&interface.name, now, before).unwrap_or(0), 0, secs);
    metrics.interface.clear();
    metrics.interface.push_str(&interface.name);
    metrics.ifindex = interface.index;
    metrics.rx_bytes_per_sec = rate_of(now.rx.bytes, before.rx.bytes);
    metrics.tx_bytes_per_sec = rate_of(now.tx.bytes, before.tx.bytes);
    metrics.rx_packets_per_sec = rate_of(now.rx.packets, before.rx.packets);
    metrics.tx_packets_per_sec = rate_of(now.tx.packets, before.tx.packets);
    metrics.rx_bytes_total = now.rx.bytes;
    metrics.tx_bytes_total = now.tx.bytes;
    metrics.rx_errors_total = now.rx.errors;
    metrics.tx_errors_total = now.tx.errors;
    metrics.rx_dropped_total = now.rx.dropped;
    metrics.tx_dropped_total = now.tx.dropped;
}

fn set_link(metrics: &mut NetworkMetrics, link: Option<&Link>) {
    metrics.is_counted = link.map(|link| link.is_counted);
    let link = link.unwrap_or(&UNKNOWN);
    // Where a sandbox has no sockets, sysfs may still have it.
    metrics.ifindex = metrics.ifindex.or(link.index);
    assign(&mut metrics.kind, &link.kind);
    assign(&mut metrics.lower, &link.lower);
    assign(&mut metrics.master, &link.master);
    assign(&mut metrics.mac_address, &link.mac_address);
    assign(&mut metrics.driver, &link.driver);
    assign(&mut metrics.operstate, &link.operstate);
    metrics.mtu = link.mtu;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that touches its first counter, as old kernels print it, and an alias-like name.
    const DEV: &str = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0
  eth0:9014029     240    1    2    0     0          0         0    15441     182    3    4    0     0       0          0
br-1:2:      10       1    0    0    0     0          0         0       20       2    0    0    0     0       0          0
";

    fn tick(elapsed: u64) -> Tick<'static> {
        Tick::new(1, Instant::now(), Duration::from_secs(elapsed), Duration::from_secs(1))
    }

    #[test]
    fn rates_identity_and_a_new_interface() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        let device = root.join("class/net/eth0");
        std::fs::create_dir_all(root.join("net"))?;
        std::fs::create_dir_all(&device)?;
        std::fs::create_dir_all(device.join("device"))?;
        std::os::unix::fs::symlink("/sys/bus/pci/drivers/igc", device.join("device/driver"))?;
        for (name, text) in
            [("address", "00:11:22:33:44:55\n"), ("operstate", "up\n"), ("speed", "2500\n"), ("mtu", "9000\n")]
        {
            std::fs::write(device.join(name), text)?;
        }
        std::fs::write(root.join("net/dev"), DEV)?;
        let host = Host::new(root, root);
        let mut source = NetworkConfig::default().build(&host)?.ok_or(anyhow::anyhow!("absent"))?;
        let mut out = Sections::default();
        source.collect(&tick(0), &mut out)?;
        let names = |out: &Sections| -> Vec<String> {
            out.get::<Networks>().into_iter().flat_map(|list| list.0.iter().map(|one| one.interface.clone())).collect()
        };
        assert_eq!(names(&out), ["eth0", "br-1:2"], "T-NET-03: no loopback");

        let later =
            DEV.replace("9014029", "9016029").replace("15441", "15341") + "  new0: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n";
        std::fs::write(root.join("net/dev"), later)?;
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut link_known = |out: &mut Sections| -> anyhow::Result<bool> {
            source.collect(&tick(2), out)?;
            Ok(out.get::<Networks>().is_some_and(|list| list.0[0].speed_mbps.is_some() && list.0[0].mtu.is_some()))
        };
        assert!(
            !link_known(&mut out)? || out.get::<Networks>().is_some_and(|list| list.0[0].rx_bytes_per_sec == 1000.0)
        );
        assert_eq!(names(&out), ["eth0", "br-1:2", "new0"]);
        assert_eq!(
            out.get::<Networks>().map(|list| list.0[0].tx_bytes_per_sec),
            Some(0.0),
            "a reset counter is no rate"
        );
        assert_eq!(
            out.get::<Networks>().map(|list| list.0[2].rx_bytes_per_sec),
            Some(2.5),
            "one that was made since the last reading began at nothing"
        );
        while !link_known(&mut out)? {
            assert!(Instant::now() < deadline);
        }
        let eth0 = out.get::<Networks>().map(|list| list.0[0].clone()).unwrap_or_default();
        assert_eq!((eth0.mac_address.as_deref(), eth0.driver.as_deref()), (Some("00:11:22:33:44:55"), Some("igc")));
        assert_eq!((eth0.operstate.as_deref(), eth0.speed_mbps, eth0.mtu), (Some("up"), Some(2500), Some(9000)));
        assert_eq!(
            (eth0.rx_errors_total, eth0.rx_dropped_total, eth0.tx_errors_total, eth0.tx_dropped_total),
            (1, 2, 3, 4)
        );
        Ok(())
    }

    /// One that is no card, and a card.
    #[test]
    fn a_reading_with_garbage_gives_no_spike_and_loses_no_bytes() -> anyhow::Result<()> {
        let garbage = ["  tun0: 2000 1 junk 0 0 0 0 0 2000 1 0 0 0 0 0 0\n", "  tun0: junk\n", "  tun0 2000\n", ""];
        for garbage in garbage {
            let directory = tempfile::tempdir()?;
            let root = directory.path();
            std::fs::create_dir_all(root.join("net"))?;
            std::fs::create_dir_all(root.join("class/net/eth0/device"))?;
            let line = |name: &str, bytes: u64| format!("  {name}: {bytes} 1 0 0 0 0 0 0 {bytes} 1 0 0 0 0 0 0\n");
            let write = |text: String| std::fs::write(root.join("net/dev"), text);
            write(line("eth0", 5000) + &line("tun0", 1000))?;
            let mut source =
                NetworkConfig::default().build(&Host::new(root, root))?.ok_or(anyhow::anyhow!("absent"))?;
            let mut told = || -> anyhow::Result<Vec<(String, f64)>> {
                let mut out = Sections::default();
                source.collect(&tick(1), &mut out)?;
                let list = out.get::<Networks>().map(|list| list.0.clone()).unwrap_or_default();
                Ok(list.into_iter().map(|one| (one.interface, one.rx_bytes_per_sec)).collect())
            };
            told()?;
            let is_whole = !garbage.is_empty();
            write(if is_whole { line("eth0", 5100) + garbage } else { String::new() })?;
            assert_eq!(told()?, [("eth0".to_owned(), 100.0)][..usize::from(is_whole)], "{garbage:?}");
            write(line("eth0", 5200) + &line("tun0", 1500))?;
            let expected = [("eth0".to_owned(), 100.0), ("tun0".to_owned(), 250.0)];
            assert_eq!(told()?, expected, "over two seconds, where it was left out: {garbage:?}");
            write(line("eth0", 5200) + &line("tun0", 1507))?;
            assert_eq!(told()?[1].1, 7.0);
        }
        Ok(())
    }

    /// The sums over all readings have every byte, however late the interfaces become known.
    #[test]
    fn sums_have_every_byte_once_it_is_known_whose_they_are() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        std::fs::create_dir_all(root.join("net"))?;
        std::fs::create_dir_all(root.join("class/net/eth0/device"))?;
        let write = |bytes: u64| {
            let line = |name: &str| format!("  {name}: {bytes} 1 0 0 0 0 0 0 {bytes} 1 0 0 0 0 0 0\n");
            std::fs::write(root.join("net/dev"), line("eth0") + &line("tun0"))
        };
        write(1000)?;
        let host = Host::new(root, root);
        let mut source = NetworkConfig::default().build(&host)?.ok_or(anyhow::anyhow!("absent"))?;
        let mut out = Sections::default();
        source.prime(&tick(1), &mut out)?;
        let deadline = Instant::now() + Duration::from_secs(5);
        let (mut bytes, mut sum, mut is_known) = (1000, 0, false);
        while !is_known {
            assert!(Instant::now() < deadline);
            bytes += 7;
            write(bytes)?;
            source.collect(&tick(1), &mut out)?;
            let list = out.get::<Networks>().map(|list| list.0.clone()).unwrap_or_default();
            is_known = list.iter().all(|one| one.is_counted == Some(one.interface == "eth0"));
            sum += list.iter().map(|one| one.counted_rx_bytes).sum::<u64>();
        }
        assert_eq!(sum, bytes - 1000);
        Ok(())
    }
}
