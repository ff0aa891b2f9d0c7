//! What the kernel says of all interfaces of this network namespace at once: a dump of `RTM_GETLINK`, which names what sysfs
//! has no file for, and is of this namespace also where the mounted `/sys` is another's.
//!
//! It waits for a lock that is held while a network is configured, so it is no way to read counters at each tick.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recvfrom, sendto, socket,
};

/// Where the kernel is reached.
const KERNEL: u32 = 0;

/// One interface.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) kind: Option<String>,
    /// Index of the bridge or bond that it is a port of.
    pub(super) master: Option<u32>,
    /// Index of what it stands on, or of its peer; in another namespace if `leads_to_other_namespace`.
    pub(super) link: Option<u32>,
    pub(super) leads_to_other_namespace: bool,
    /// Whether a bus has a device for it. Linux 5.14
    pub(super) has_parent: bool,
    pub(super) is_ethernet: bool,
    /// As sysfs prints it.
    pub(super) address: Option<String>,
    pub(super) mtu: Option<u32>,
    /// `IF_OPER_UP` and others, of RFC 2863.
    pub(super) operstate: Option<u8>,
}

/// The states of RFC 2863 by their numbers, as sysfs prints them.
const OPERSTATES: [&str; 7] = ["unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"];

impl Device {
    /// As sysfs prints it.
    pub(super) fn operstate(&self) -> Option<&'static str> {
        OPERSTATES.get(usize::from(self.operstate?)).copied()
    }
}

const MESSAGE_HEADER: usize = 16;
const LINK_HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
const ALIGNMENT: usize = 4;
/// The kernel puts no more in an answer.
const ANSWER: usize = 32 << 10;

/// Asks the kernel.
pub(super) fn devices() -> io::Result<Vec<Device>> {
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    sendto(socket.as_raw_fd(), &request(), &NetlinkAddr::new(KERNEL, 0), MsgFlags::empty())?;
    receive(&socket)
}

fn request() -> Vec<u8> {
    let length = (MESSAGE_HEADER + LINK_HEADER + ATTRIBUTE_HEADER + 4) as u32;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let mut request = Vec::with_capacity(length as usize);
    request.extend(length.to_ne_bytes());
    request.extend(libc::RTM_GETLINK.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    // Sequence and port, then a header that asks for every interface.
    request.extend([0; 8 + LINK_HEADER]);
    request.extend(8u16.to_ne_bytes());
    request.extend(libc::IFLA_EXT_MASK.to_ne_bytes());
    request.extend(libc::RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
    request
}

fn receive(socket: &OwnedFd) -> io::Result<Vec<Device>> {
    let mut devices = Vec::new();
    let mut answer = vec![0; ANSWER];
    loop {
        let (length, sender) = recvfrom::<NetlinkAddr>(socket.as_raw_fd(), &mut answer)?;
        // Any process may send to the socket.
        if sender.is_none_or(|sender| sender.pid() != KERNEL) {
            continue;
        }
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (kind, body) in messages(&answer[..length]) {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(devices),
                libc::NLMSG_ERROR => return Err(io::Error::other("the kernel lists no interfaces")),
                _ => devices.extend(device(body)),
            }
        }
    }
}

/// Type and body of each message.
fn messages(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    pieces(bytes, MESSAGE_HEADER, |header| Some((u32_of(header)? as usize, u16_of(&header[4..])?)))
}

/// Type and value of each attribute.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    // The two highest bits say how the value is stored.
    let header = |header: &[u8]| Some((usize::from(u16_of(header)?), u16_of(&header[2..])? & 0x3fff));
    pieces(bytes, ATTRIBUTE_HEADER, header)
}

/// Pieces that begin with a header, which says how long the whole piece is and of which type. Ends at one that is cut off.
fn pieces(
    mut rest: &[u8],
    header: usize,
    parse: impl Fn(&[u8]) -> Option<(usize, u16)>,
) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = parse(rest.get(..header)?)?;
        let body = rest.get(header..length)?;
        rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// What a message of type `RTM_NEWLINK` is about.
fn device(body: &[u8]) -> Option<Device> {
    let mut device = Device {
        index: u32_of(body.get(4..)?)?,
        is_ethernet: u16_of(&body[2..])? == libc::ARPHRD_ETHER,
        ..Device::default()
    };
    for (attribute, value) in attributes(body.get(LINK_HEADER..)?) {
        match attribute {
            libc::IFLA_IFNAME => device.name = text(value)?,
            libc::IFLA_ADDRESS => device.address = Some(hexadecimal(value)),
            libc::IFLA_MTU => device.mtu = u32_of(value),
            libc::IFLA_OPERSTATE => device.operstate = value.first().copied(),
            libc::IFLA_LINK => device.link = u32_of(value),
            libc::IFLA_MASTER => device.master = u32_of(value),
            libc::IFLA_LINK_NETNSID => device.leads_to_other_namespace = true,
            libc::IFLA_PARENT_DEV_NAME => device.has_parent = true,
            libc::IFLA_LINKINFO => {
                let mut parts = attributes(value);
                device.kind = parts.find(|(part, _)| *part == libc::IFLA_INFO_KIND).and_then(|(_, kind)| text(kind));
            }
            _ => (),
        }
    }
    (!device.name.is_empty()).then_some(device)
}

/// Text up to its zero.
fn text(value: &[u8]) -> Option<String> {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    Some(std::str::from_utf8(&value[..end]).ok()?.to_owned())
}

fn hexadecimal(address: &[u8]) -> String {
    address.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

fn u32_of(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.first_chunk()?))
}

fn u16_of(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((ATTRIBUTE_HEADER + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes
    }

    fn link(index: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![0, 0];
        body.extend(libc::ARPHRD_ETHER.to_ne_bytes());
        body.extend(index.to_ne_bytes());
        body.extend([0; 8]);
        body.extend(attributes.concat());
        body
    }

    #[test]
    fn the_end_of_a_pair_in_another_namespace() {
        let kind = attribute(libc::IFLA_INFO_KIND, b"veth");
        let nested = libc::IFLA_LINKINFO | 1 << 15;
        let body = link(
            7,
            &[
                attribute(libc::IFLA_IFNAME, b"eth0\0"),
                attribute(libc::IFLA_MTU, &1500u32.to_ne_bytes()),
                attribute(libc::IFLA_OPERSTATE, &[6]),
                attribute(libc::IFLA_LINK, &9u32.to_ne_bytes()),
                attribute(libc::IFLA_MASTER, &3u32.to_ne_bytes()),
                attribute(libc::IFLA_ADDRESS, &[2, 0, 0, 0, 0xab, 1]),
                attribute(nested, &kind),
                attribute(libc::IFLA_LINK_NETNSID, &0u32.to_ne_bytes()),
            ],
        );
        let expected = Device {
            name: "eth0".to_owned(),
            index: 7,
            kind: Some("veth".to_owned()),
            master: Some(3),
            link: Some(9),
            leads_to_other_namespace: true,
            has_parent: false,
            is_ethernet: true,
            address: Some("02:00:00:00:ab:01".to_owned()),
            mtu: Some(1500),
            operstate: Some(6),
        };
        assert_eq!(device(&body), Some(expected));
    }

    #[test]
    fn agrees_with_another_call_about_this_machine() -> anyhow::Result<()> {
        let devices = devices()?;
        assert!(devices.iter().any(|device| device.name == "lo"));
        // One may have gone since.
        for device in devices {
            assert_eq!(nix::net::if_::if_nametoindex(device.name.as_str()).unwrap_or(device.index), device.index);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            messages(&bytes).for_each(|(_, body)| drop(device(body)));
            device(&bytes);
        }

        /// Headers that are nearly right get further.
        #[test]
        fn any_attributes_are_read_or_refused(
            parts in prop::collection::vec((0u16..60, prop::collection::vec(any::<u8>(), 0..12), 0u16..40), 0..12),
        ) {
            let mut body = link(1, &[]);
            for (kind, value, length) in parts {
                let start = body.len();
                body.extend(attribute(kind, &value));
                if length < 20 {
                    body[start..start + 2].copy_from_slice(&length.to_ne_bytes());
                }
            }
            device(&body);
        }

        #[test]
        fn every_attribute_is_found(
            parts in prop::collection::vec((0u16..100, prop::collection::vec(any::<u8>(), 0..12)), 0..12),
        ) {
            let bytes: Vec<u8> = parts.iter().flat_map(|(kind, value)| attribute(*kind, value)).collect();
            let found: Vec<_> = attributes(&bytes).map(|(kind, value)| (kind, value.to_vec())).collect();
            prop_assert_eq!(found, parts);
        }
    }
}
