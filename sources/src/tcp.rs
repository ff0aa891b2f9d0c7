//! TCP of the machine, or of the container whose network it is: `/proc/self/net/snmp` and `netstat`.

use resource_tracker_core::prelude::*;
use resource_tracker_metrics::TcpMetrics;

use crate::counter_deltas::CounterDeltas;
use crate::procfile::ProcFile;
use resource_tracker_scan::{lines, number, words};

register_source!(SourceEntry::new::<TcpConfig>("tcp", "What TCP sent once more, and connections that it turned away"));

/// What TCP sent once more, and connections that it turned away.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct TcpConfig {}

from_json!(TcpConfig);

#[typetag::deserialize(name = "tcp")]
impl SourceConfig for TcpConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let snmp = ProcFile::open(host.procfs.join("self/net/snmp"))?;
        let netstat = ProcFile::open_if_present(host.procfs.join("self/net/netstat"));
        Ok(Some(Box::new(Tcp { snmp, netstat, before: [None; 3], deltas: CounterDeltas::new("tcp") })))
    }
}

struct Tcp {
    snmp: ProcFile,
    netstat: Option<ProcFile>,
    /// What each said last.
    before: [Option<u64>; 3],
    deltas: CounterDeltas,
}

impl Source for Tcp {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let retransmits = self.snmp.parse(|text| value(text, b"Tcp:", b"RetransSegs"));
        let listen = |text: &[u8]| {
            let of = |name| value(text, b"TcpExt:", name);
            Some((of(b"ListenOverflows")?, of(b"ListenDrops")?))
        };
        let (overflows, drops) = self.netstat.as_mut().and_then(|file| file.parse(listen)).unzip();
        let [retransmits_before, overflows_before, drops_before] = &mut self.before;
        let mut gained = |now, before| self.deltas.since("TCP", now, before);
        *out.section() = TcpMetrics {
            retransmits: gained(retransmits, retransmits_before),
            listen_overflows: gained(overflows, overflows_before),
            listen_drops: gained(drops, drops_before),
        };
        Ok(())
    }
}

/// Of a line of names and one of values.
fn value(text: &[u8], protocol: &[u8], name: &[u8]) -> Option<u64> {
    let mut both = lines(text).filter(|line| line.starts_with(protocol));
    let (names, values) = (both.next()?, both.next()?);
    number(words(names).zip(words(values)).find(|(other, _)| *other == name)?.1)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn it_is_found_by_its_name() {
        let text =
            b"Udp: In\nUdp: 7\nTcp: OutSegs RetransSegs InErrs\nTcp: 10 3 0\nTcpExt: A ListenDrops\nTcpExt: 1 5\n";
        assert_eq!(value(text, b"Tcp:", b"RetransSegs"), Some(3));
        assert_eq!(value(text, b"TcpExt:", b"ListenDrops"), Some(5));
        assert_eq!(value(text, b"TcpExt:", b"ListenOverflows"), None);
    }

    #[test]
    fn what_came_between_two_readings() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let net = directory.path().join("self/net");
        std::fs::create_dir_all(&net)?;
        let snmp = |count: &str| std::fs::write(net.join("snmp"), format!("Tcp: RetransSegs\nTcp: {count}\n"));
        let netstat = |counts: &str| {
            std::fs::write(net.join("netstat"), format!("TcpExt: ListenOverflows ListenDrops\nTcpExt: {counts}\n"))
        };
        let host = Host::new(directory.path(), directory.path());
        let told = |source: &mut dyn Source| -> anyhow::Result<_> {
            let second = Duration::from_secs(1);
            let mut out = Sections::default();
            source.collect(&Tick::new(1, Instant::now(), second, second), &mut out)?;
            let tcp = out.get::<TcpMetrics>().cloned().unwrap_or_default();
            Ok((tcp.retransmits, tcp.listen_overflows, tcp.listen_drops))
        };
        snmp("100")?;
        let mut without = TcpConfig {}.build(&host)?.ok_or(anyhow::anyhow!("absent"))?;
        netstat("7 9")?;
        let mut source = TcpConfig {}.build(&host)?.ok_or(anyhow::anyhow!("absent"))?;
        assert_eq!(
            (told(&mut *source)?, told(&mut *without)?),
            ((None, None, None), (None, None, None)),
            "since when?"
        );
        snmp("103")?;
        netstat("7 11")?;
        assert_eq!((told(&mut *source)?, told(&mut *without)?), ((Some(3), Some(0), Some(2)), (Some(3), None, None)));
        snmp("junk")?;
        netstat("8 junk")?;
        assert_eq!(told(&mut *source)?, (None, None, None));
        snmp("105")?;
        netstat("9 11")?;
        assert_eq!(told(&mut *source)?, (Some(2), Some(2), Some(0)), "since what could be read last");
        snmp("4")?;
        assert_eq!(told(&mut *source)?, (None, Some(0), Some(0)), "it began anew");
        snmp("5")?;
        assert_eq!(told(&mut *source)?, (Some(1), Some(0), Some(0)));
        Ok(())
    }
}
