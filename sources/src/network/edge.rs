//! Which interfaces are at the edge of the network namespace, so that a sum over them has each byte once.
//!
//! Network cards are. A namespace that has none, as that of most containers, has its edge where interfaces lead into
//! another namespace (veth, macvlan, ipvlan), else at its TAP interfaces (a virtual network in user space), else at
//! all that stand on no other interface. The two ends of a routed veth look alike, and only this tells the host from
//! the container: a host has a network card. What passes between it and its containers never leaves it.

use super::link::Link;

/// Kinds that are never at the edge: switches and groups, whose ports count the bytes; `dummy`, which sends nowhere;
/// `ifb` and `nlmon`, whose bytes other interfaces count; ports of a switch chip (`dsa`), whose bytes its card counts.
const INNER: [&str; 9] = ["bridge", "openvswitch", "bond", "team", "dummy", "ifb", "nlmon", "vcan", "dsa"];

/// Sets `is_counted` of the interfaces of a namespace.
pub(super) fn choose(links: &mut [Link]) {
    let kinds: Vec<Option<EdgeKind>> = links.iter().map(|link| edge_kind(link, links)).collect();
    let edge = kinds.iter().flatten().min().copied();
    for (link, kind) in links.iter_mut().zip(kinds) {
        link.is_counted = kind.is_some() && kind == edge;
    }
}

/// How an interface leads out of its namespace. The interfaces of the first kind that a namespace has are its edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EdgeKind {
    Card,
    Namespace,
    Tap,
    Other,
}

fn edge_kind(link: &Link, links: &[Link]) -> Option<EdgeKind> {
    let is_kind = |link: &Link, kinds: &[&str]| link.kind.as_deref().is_some_and(|kind| kinds.contains(&kind));
    let master = link.master.as_ref().and_then(|master| links.iter().find(|link| link.name == *master));
    if is_kind(link, &INNER) {
        return None;
    }
    if link.is_card {
        // Such a master (Hyper-V) has the bytes of its port in its own.
        return (!master.is_some_and(|master| master.is_card)).then_some(EdgeKind::Card);
    }
    let is_port = master.is_some_and(|master| is_kind(master, &["bridge", "openvswitch"]));
    if is_port || !link.lower.is_empty() || link.has_peer_here {
        return None;
    }
    Some(match link.leads_to_other_namespace {
        true => EdgeKind::Namespace,
        false if link.is_ethernet && is_kind(link, &["tun"]) => EdgeKind::Tap,
        false => EdgeKind::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, kind: &str) -> Link {
        let kind = Some(kind.to_owned()).filter(|kind| !kind.is_empty());
        Link { name: name.to_owned(), kind, is_ethernet: true, ..Link::default() }
    }

    fn card(name: &str) -> Link {
        Link { is_card: true, ..link(name, "") }
    }

    /// A link that leads into another namespace.
    fn far(name: &str, kind: &str) -> Link {
        Link { leads_to_other_namespace: true, ..link(name, kind) }
    }

    fn on(lower: &[&str], link: Link) -> Link {
        Link { lower: lower.iter().map(|name| (*name).to_owned()).collect(), ..link }
    }

    fn port(master: &str, link: Link) -> Link {
        Link { master: Some(master.to_owned()), ..link }
    }

    fn tunnel(name: &str, kind: &str) -> Link {
        Link { is_ethernet: false, ..link(name, kind) }
    }

    #[track_caller]
    fn edge_is(expected: &[&str], mut links: Vec<Link>) {
        for _ in 0..links.len() {
            links.rotate_left(1);
            choose(&mut links);
            let mut counted: Vec<&str> =
                links.iter().filter(|link| link.is_counted).map(|link| link.name.as_str()).collect();
            counted.sort_unstable();
            assert_eq!(counted, expected);
        }
    }

    #[test]
    fn of_a_machine_it_is_its_cards() {
        edge_is(&["wlan0"], vec![card("wlan0"), tunnel("tun0", "tun"), tunnel("wg0", "wireguard")]);
        edge_is(&["eth0"], vec![card("eth0"), link("dummy0", "dummy"), link("ifb0", "ifb"), tunnel("ppp0", "ppp")]);
        edge_is(&["eth0"], vec![card("eth0"), on(&["eth0"], link("eth0.5", "vlan")), link("vxlan0", "vxlan")]);
        let bond = on(&["eth0", "eth1"], link("bond0", "bond"));
        edge_is(&["eth0", "eth1"], vec![port("bond0", card("eth0")), port("bond0", card("eth1")), bond]);
        // Hyper-V, whose card has the bytes of the virtual function in its own.
        edge_is(&["eth0"], vec![on(&["enP1"], card("eth0")), port("eth0", card("enP1"))]);
        edge_is(&["eth0"], vec![card("eth0"), Link { is_card: true, ..on(&["eth0"], link("lan1", "dsa")) }]);
        edge_is(&["ib0"], vec![Link { is_card: true, ..tunnel("ib0", "ipoib") }]);
    }

    #[test]
    fn of_a_host_it_is_its_cards_too() {
        let bridge = on(&["eth0", "veth1", "vnet0"], link("br0", "bridge"));
        let vm = port("br0", link("vnet0", "tun"));
        edge_is(&["eth0"], vec![port("br0", card("eth0")), bridge, port("br0", far("veth1", "veth")), vm]);
        // Containers that are routed to, without a bridge.
        edge_is(&["eth0"], vec![card("eth0"), far("cali1", "veth"), far("cali2", "veth"), tunnel("tunl0", "ipip")]);
        // Without a card, nothing leaves it.
        edge_is(&[], vec![on(&["veth1"], link("docker0", "bridge")), port("docker0", far("veth1", "veth"))]);
        edge_is(&[], vec![link("docker0", "bridge")]);
    }

    #[test]
    fn of_a_container_it_is_what_leads_out_of_it() {
        for kind in ["veth", "macvlan", "ipvlan", "vlan"] {
            edge_is(&["eth0"], vec![far("eth0", kind), tunnel("wg0", "wireguard"), tunnel("tun0", "tun")]);
            edge_is(&["eth0", "eth1"], vec![far("eth0", kind), far("eth1", "veth"), link("dummy0", "dummy")]);
        }
        let inner = [on(&["veth1"], link("docker0", "bridge")), port("docker0", far("veth1", "veth"))];
        edge_is(&["eth0"], inner.into_iter().chain([far("eth0", "veth")]).collect());
        let bond = on(&["eth0", "eth1"], link("bond0", "bond"));
        edge_is(&["eth0", "eth1"], vec![bond, port("bond0", far("eth0", "veth")), port("bond0", far("eth1", "veth"))]);
        edge_is(&["eth0"], vec![far("eth0", "veth"), on(&["eth0"], link("mv0", "macvlan"))]);
        // A virtual network in user space, and a tunnel over it.
        edge_is(&["tap0"], vec![link("tap0", "tun"), tunnel("tun0", "tun"), link("dummy0", "dummy")]);
        edge_is(&["wg0"], vec![tunnel("wg0", "wireguard"), link("dummy0", "dummy")]);
        // Both ends are here: no byte leaves.
        let pair = |name| Link { has_peer_here: true, ..link(name, "veth") };
        edge_is(&[], vec![pair("veth0"), pair("veth1")]);
    }

    #[test]
    fn what_nothing_is_known_of_counts() {
        edge_is(&["eth0", "eth1"], vec![link("eth0", ""), link("eth1", "")]);
    }
}
