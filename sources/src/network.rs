//! Network interfaces: counters from `/proc/net/dev`, identity and link state from `/sys/class/net`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use resource_tracker_core::background::Background;
use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, register_source};
use resource_tracker_metrics::{NetworkMetrics, Networks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::procfile::{FIRST_ANSWER, ProcFile, assign, attribute, rate};
use crate::scan::{find_near, lines, numbers};

/// How often identity and link state are read again.
const REFRESH: Duration = Duration::from_secs(10);

/// Throughput, packets, errors and link state of every network interface but loopback.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
pub struct NetworkConfig {}

#[typetag::deserialize(name = "network")]
impl SourceConfig for NetworkConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let root = host.sysfs.join("class/net");
        Ok(Some(Box::new(Network {
            // That of the tracker's own network namespace: `/proc/net` is a link to `/proc/self/net`.
            devices: ProcFile::open(host.procfs.join("net/dev"))?,
            // Asking a driver for the link's speed takes a lock that can be held for long.
            links: Background::spawn("net-links", move |names| read_links(&root, names)).ok(),
            asked: None,
            first_wait: FIRST_ANSWER,
            interfaces: Vec::new(),
        })))
    }
}

register_source!(
    SourceEntry::new::<NetworkConfig>("network", "Throughput, packets, errors and link state of network interfaces")
        .on_by_default()
        .order(40)
);

struct Network {
    devices: ProcFile,
    links: Option<Background<Vec<String>, Links>>,
    asked: Option<Instant>,
    /// How long the first sample waits for the links; nothing once it has waited.
    first_wait: Duration,
    interfaces: Vec<Interface>,
}

/// In the order in which they were asked for.
type Links = Arc<Vec<(String, Link)>>;

struct Interface {
    name: String,
    counters: Counters,
    here: bool,
}

impl Source for Network {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let wait = std::mem::take(&mut self.first_wait);
        self.read(tick, out, wait)
    }

    /// Nobody waits for the links, which are asked for with it.
    fn prime(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        self.read(tick, out, Duration::ZERO)
    }
}

impl Network {
    /// Waits so long for what is first known of the links.
    fn read(&mut self, tick: &Tick, out: &mut Sections, wait: Duration) -> anyhow::Result<()> {
        let secs = tick.elapsed.as_secs_f64();
        let links = self.links.as_ref().and_then(|links| links.first_answer(wait));
        let list = &mut out.section::<Networks>().0;
        let (mut count, mut is_new) = (0, false);
        self.interfaces.iter_mut().for_each(|interface| interface.here = false);
        for (name, now) in lines(self.devices.read()?).filter_map(parse_line).filter(|(name, _)| *name != b"lo") {
            let known = find_near(&self.interfaces, count, |interface| interface.name.as_bytes() == name);
            let index = match known {
                Some(index) => index,
                None => {
                    let Ok(name) = std::str::from_utf8(name) else { continue };
                    is_new = true;
                    self.interfaces.push(Interface { name: name.to_owned(), counters: now, here: true });
                    self.interfaces.len() - 1
                }
            };
            let interface = &mut self.interfaces[index];
            interface.here = true;
            if count == list.len() {
                list.push(NetworkMetrics::default());
            }
            fill(&mut list[count], &interface.name, &interface.counters, &now, secs);
            let links = links.as_ref().map(|links| links.as_slice()).unwrap_or_default();
            let link = find_near(links, index, |(name, _)| *name == interface.name);
            set_link(&mut list[count], link.map_or(&UNKNOWN, |place| &links[place].1));
            interface.counters = now;
            count += 1;
        }
        list.truncate(count);
        self.interfaces.retain(|interface| interface.here);
        self.refresh(tick.at, is_new);
        Ok(())
    }

    fn refresh(&mut self, now: Instant, is_new: bool) {
        let due = self.asked.is_none_or(|asked| now.saturating_duration_since(asked) >= REFRESH);
        if let Some(links) = &self.links
            && (due || is_new)
        {
            links.ask(self.interfaces.iter().map(|interface| interface.name.clone()).collect());
            self.asked = Some(now);
        }
    }
}

fn fill(metrics: &mut NetworkMetrics, name: &str, before: &Counters, now: &Counters, secs: f64) {
    metrics.interface.clear();
    metrics.interface.push_str(name);
    metrics.rx_bytes_per_sec = rate(now.rx.bytes, before.rx.bytes, secs);
    metrics.tx_bytes_per_sec = rate(now.tx.bytes, before.tx.bytes, secs);
    metrics.rx_packets_per_sec = rate(now.rx.packets, before.rx.packets, secs);
    metrics.tx_packets_per_sec = rate(now.tx.packets, before.tx.packets, secs);
    metrics.rx_bytes = now.rx.bytes.saturating_sub(before.rx.bytes);
    metrics.tx_bytes = now.tx.bytes.saturating_sub(before.tx.bytes);
    metrics.rx_bytes_total = now.rx.bytes;
    metrics.tx_bytes_total = now.tx.bytes;
    metrics.rx_errors_total = now.rx.errors;
    metrics.tx_errors_total = now.tx.errors;
    metrics.rx_dropped_total = now.rx.dropped;
    metrics.tx_dropped_total = now.tx.dropped;
}

fn set_link(metrics: &mut NetworkMetrics, link: &Link) {
    assign(&mut metrics.mac_address, &link.mac_address);
    assign(&mut metrics.driver, &link.driver);
    assign(&mut metrics.operstate, &link.operstate);
    metrics.speed_mbps = link.speed_mbps;
    metrics.mtu = link.mtu;
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Counters {
    rx: Direction,
    tx: Direction,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Direction {
    bytes: u64,
    packets: u64,
    errors: u64,
    dropped: u64,
}

/// `  eth0: 9014029 240 0 0 …`: eight columns received, eight sent. The two lines of headings have no numbers.
fn parse_line(line: &[u8]) -> Option<(&[u8], Counters)> {
    let colon = line.iter().rposition(|byte| *byte == b':')?;
    let name = line[..colon].trim_ascii();
    let mut columns = numbers(&line[colon + 1..]);
    let mut direction = || {
        let [bytes, packets, errors, dropped] = std::array::from_fn(|_| columns.next());
        columns.by_ref().take(4).count();
        Some(Direction { bytes: bytes?, packets: packets?, errors: errors?, dropped: dropped? })
    };
    Some((name, Counters { rx: direction()?, tx: direction()? }))
}

/// What an interface is, and the state of its link.
#[derive(Debug, Clone, Default, PartialEq)]
struct Link {
    mac_address: Option<String>,
    driver: Option<String>,
    operstate: Option<String>,
    speed_mbps: Option<i64>,
    mtu: Option<u32>,
}

const UNKNOWN: Link = Link { mac_address: None, driver: None, operstate: None, speed_mbps: None, mtu: None };

fn read_links(root: &Path, names: Vec<String>) -> Links {
    Arc::new(names.into_iter().map(|name| (name.clone(), read_link(root.join(name)))).collect())
}

fn read_link(directory: PathBuf) -> Link {
    let text = |name: &str| attribute(&directory.join(name));
    let driver = std::fs::read_link(directory.join("device/driver")).ok();
    Link {
        mac_address: text("address"),
        driver: driver.and_then(|target| Some(target.file_name()?.to_string_lossy().into_owned())),
        operstate: text("operstate"),
        // A virtual interface, or one whose link is down, has no speed: reading it fails, or gives -1.
        speed_mbps: text("speed").and_then(|speed| speed.parse().ok()).or(Some(-1)),
        mtu: text("mtu").and_then(|mtu| mtu.parse().ok()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            Ok(out.get::<Networks>().is_some_and(|list| list.0[0].mtu.is_some()))
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
            Some(0.0),
            "a new interface has no past"
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

    #[test]
    fn agrees_with_the_procfs_crate_about_this_machine() -> anyhow::Result<()> {
        use procfs::FromBufRead;
        let text = std::fs::read("/proc/net/dev")?;
        let theirs = procfs::net::InterfaceDeviceStatus::from_buf_read(&text[..])?.0;
        let ours: Vec<_> = lines(&text).filter_map(parse_line).collect();
        assert_eq!(ours.len(), theirs.len());
        for (name, counters) in ours {
            let status = &theirs[std::str::from_utf8(name)?];
            assert_eq!((counters.rx.bytes, counters.rx.dropped), (status.recv_bytes, status.recv_drop));
            assert_eq!((counters.tx.bytes, counters.tx.errors), (status.sent_bytes, status.sent_errs));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..200)) {
            parse_line(&line);
        }
    }
}
