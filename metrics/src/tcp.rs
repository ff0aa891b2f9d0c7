use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::Delta;

use super::shared_section;

/// What TCP had to do again, and what it turned away: `tcp`. Null when the counter began anew meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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

shared_section!(TcpMetrics);
