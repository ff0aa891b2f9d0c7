//! TCP of the machine, or of the container whose network it is: `/proc/self/net/snmp`.

use resource_tracker_core::prelude::*;

use crate::procfile::ProcFile;
use crate::scan::{lines, number, words};

/// What TCP sent: `tcp`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct TcpMetrics {
    /// Segments that were sent once more, because nobody acknowledged them. `RetransSegs`
    #[schemars(transform = Delta("segments"))]
    pub retransmits: Option<u64>,
}

impl Section for TcpMetrics {
    const NAME: &'static str = "tcp";
}

register_section!(TcpMetrics);
register_source!(SourceEntry::new::<TcpConfig>("tcp", "Segments that TCP sent once more"));

/// Segments that TCP sent once more.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct TcpConfig {}

#[typetag::deserialize(name = "tcp")]
impl SourceConfig for TcpConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(Tcp { snmp: ProcFile::open(host.procfs.join("self/net/snmp"))?, before: None })))
    }
}

struct Tcp {
    snmp: ProcFile,
    before: Option<u64>,
}

impl Source for Tcp {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let now = retransmits(self.snmp.read()?);
        let before = std::mem::replace(&mut self.before, now);
        out.section::<TcpMetrics>().retransmits = now.zip(before).map(|(now, before)| now.saturating_sub(before));
        Ok(())
    }
}

/// A line of names, and one of values.
fn retransmits(snmp: &[u8]) -> Option<u64> {
    let mut tcp = lines(snmp).filter(|line| line.starts_with(b"Tcp:"));
    let (names, values) = (tcp.next()?, tcp.next()?);
    number(words(names).zip(words(values)).find(|(name, _)| *name == b"RetransSegs")?.1)
}

#[test]
fn it_is_found_by_its_name() {
    assert_eq!(retransmits(b"Udp: In\nUdp: 7\nTcp: OutSegs RetransSegs InErrs\nTcp: 10 3 0\n"), Some(3));
}
