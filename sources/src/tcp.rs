//! TCP of the machine, or of the container whose network it is: `/proc/self/net/snmp` and `netstat`.

use resource_tracker_core::prelude::*;

use crate::procfile::ProcFile;
use crate::scan::{lines, number, words};

/// What TCP had to do again, and what it turned away: `tcp`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct TcpMetrics {
    /// Segments that were sent once more, because nobody acknowledged them. `Tcp`, `RetransSegs`
    #[schemars(transform = Delta("segments"))]
    pub retransmits: Option<u64>,
    /// Connections that were turned away because a program did not accept those before fast enough. `TcpExt`, `ListenOverflows`
    #[schemars(transform = Delta("connections"))]
    pub listen_overflows: Option<u64>,
    /// Connections that were turned away for any reason, those among them. `TcpExt`, `ListenDrops`
    #[schemars(transform = Delta("connections"))]
    pub listen_drops: Option<u64>,
}

impl Section for TcpMetrics {
    const NAME: &'static str = "tcp";
}

register_section!(TcpMetrics);
register_source!(SourceEntry::new::<TcpConfig>("tcp", "What TCP sent once more, and connections that it turned away"));

/// What TCP sent once more, and connections that it turned away.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct TcpConfig {}

#[typetag::deserialize(name = "tcp")]
impl SourceConfig for TcpConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let snmp = ProcFile::open(host.procfs.join("self/net/snmp"))?;
        let netstat = ProcFile::open_if_present(host.procfs.join("self/net/netstat"));
        Ok(Some(Box::new(Tcp { snmp, netstat, before: [None; 3] })))
    }
}

struct Tcp {
    snmp: ProcFile,
    netstat: Option<ProcFile>,
    before: [Option<u64>; 3],
}

impl Source for Tcp {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let netstat = self.netstat.as_mut().and_then(|file| file.read().ok()).unwrap_or_default();
        let listen = [b"ListenOverflows", &b"ListenDrops"[..]].map(|name| value(netstat, b"TcpExt:", name));
        let now = [value(self.snmp.read()?, b"Tcp:", b"RetransSegs"), listen[0], listen[1]];
        let before = std::mem::replace(&mut self.before, now);
        let mut since = now.into_iter().zip(before).map(|(now, before)| Some(now?.saturating_sub(before?)));
        let mut next = || since.next().flatten();
        *out.section() = TcpMetrics { retransmits: next(), listen_overflows: next(), listen_drops: next() };
        Ok(())
    }
}

/// Of a line of names and one of values.
fn value(text: &[u8], protocol: &[u8], name: &[u8]) -> Option<u64> {
    let mut both = lines(text).filter(|line| line.starts_with(protocol));
    let (names, values) = (both.next()?, both.next()?);
    number(words(names).zip(words(values)).find(|(other, _)| *other == name)?.1)
}

#[test]
fn it_is_found_by_its_name() {
    let text = b"Udp: In\nUdp: 7\nTcp: OutSegs RetransSegs InErrs\nTcp: 10 3 0\nTcpExt: A ListenDrops\nTcpExt: 1 5\n";
    assert_eq!(value(text, b"Tcp:", b"RetransSegs"), Some(3));
    assert_eq!(value(text, b"TcpExt:", b"ListenDrops"), Some(5));
    assert_eq!(value(text, b"TcpExt:", b"ListenOverflows"), None);
}
