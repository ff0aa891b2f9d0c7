//! What an interface is, what it stands on, and the state of its link.

use std::time::Duration;

/// The time between two questions.
pub(super) const REFRESH: Duration = Duration::from_secs(10);

/// All of an interface that is no counter, but for the speed of its link.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) index: Option<u32>,
    pub(super) kind: Option<String>,
    pub(super) lower: Vec<String>,
    pub(super) master: Option<String>,
    pub(super) mac_address: Option<String>,
    pub(super) driver: Option<String>,
    pub(super) operstate: Option<String>,
    pub(super) mtu: Option<u32>,
    pub(super) is_counted: bool,
    /// Whether it is a device of a bus, real or of a virtual machine.
    pub(super) is_card: bool,
    /// Whether it stands on an interface of another namespace, or has its peer there.
    pub(super) leads_to_other_namespace: bool,
    pub(super) has_peer_here: bool,
    pub(super) is_ethernet: bool,
}

/// While nothing is known.
pub(super) static UNKNOWN: Link = Link {
    name: String::new(),
    index: None,
    kind: None,
    lower: Vec::new(),
    master: None,
    mac_address: None,
    driver: None,
    operstate: None,
    mtu: None,
    is_counted: false,
    is_card: false,
    leads_to_other_namespace: false,
    has_peer_here: false,
    is_ethernet: false,
};
