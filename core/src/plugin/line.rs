//! The line between the tracker and the process of a plugin: a socket of packets, each of which arrives whole or not at all.
//!
//! A message is one packet or several, and each packet has the number of the plugin's life. So a message that one life
//! left half sent, or half read, is passed over, and the line is clean for the next life.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::patience;

/// Longer than anything that is asked or answered.
const LONGEST: usize = 64 << 20;

/// The text of one packet at most: far less than a socket's buffer.
const PART: usize = 16 << 10;

/// The packet begins a message.
const FIRST: u32 = 1;
/// The packet ends a message.
const LAST: u32 = 2;

const HEADER: usize = 12;

/// What a packet begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The life of the plugin, counted from 0.
    pub(super) life: u32,
    /// The number of the message.
    pub(super) number: u32,
    place: u32,
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        for (place, word) in bytes.chunks_exact_mut(4).zip([self.life, self.number, self.place]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// `None` if it is no packet of ours.
    fn of(bytes: &[u8]) -> Option<Self> {
        let word = |index: usize| Some(u32::from_ne_bytes(bytes.get(index * 4..index * 4 + 4)?.try_into().ok()?));
        Some(Self { life: word(0)?, number: word(1)?, place: word(2)? })
    }
}

/// One end of it.
pub(super) struct Line(OwnedFd);

impl Line {
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: there is room for two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were just opened, and are nobody else's.
        let [one, other] = ends.map(|end| Self(unsafe { OwnedFd::from_raw_fd(end) }));
        Ok((one, other))
    }

    /// Sends a message.
    pub(super) fn send(&self, life: u32, number: u32, text: &[u8]) -> io::Result<()> {
        let count = text.len().div_ceil(PART).max(1);
        let mut packet = Vec::with_capacity(HEADER + text.len().min(PART));
        for index in 0..count {
            let place = if index == 0 { FIRST } else { 0 } | if index + 1 == count { LAST } else { 0 };
            packet.clear();
            packet.extend_from_slice(&Header { life, number, place }.to_bytes());
            packet.extend_from_slice(&text[index * PART..text.len().min((index + 1) * PART)]);
            self.put(&packet)?;
        }
        Ok(())
    }

    /// Begins a message and does not end it.
    #[cfg(test)]
    pub(super) fn send_torn(&self, life: u32, number: u32) {
        let packet = Header { life, number, place: FIRST }.to_bytes();
        self.put(&[&packet[..], b"half"].concat()).expect("the other end is there");
    }

    /// The next message that is whole and of no life before `life`, which has to come within `limit`.
    pub(super) fn receive(&self, life: u32, limit: Option<Duration>) -> io::Result<(Header, Vec<u8>)> {
        let mut packet = vec![0; HEADER + PART];
        let (mut begun, mut text): (Option<Header>, _) = (None, Vec::new());
        loop {
            if let Some(limit) = limit
                && !self.is_ready_within(limit)
            {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let length = self.take(&mut packet, 0)?;
            let Some(header) = Header::of(&packet[..length]).filter(|header| header.life >= life) else { continue };
            if header.place & FIRST != 0 {
                begun = Some(header);
                text.clear();
            }
            if begun.is_none_or(|begun| (begun.life, begun.number) != (header.life, header.number)) {
                continue;
            }
            text.extend_from_slice(&packet[HEADER..length]);
            if text.len() > LONGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than 64 MiB"));
            }
            if header.place & LAST != 0 {
                return Ok((header, text));
            }
        }
    }

    /// Waits for a packet of no life before `life`, and leaves it there. Packets of earlier lives are thrown away.
    pub(super) fn wait(&self, life: u32) -> io::Result<Header> {
        let mut packet = [0; HEADER];
        loop {
            let length = self.take(&mut packet, libc::MSG_PEEK)?;
            match Header::of(&packet[..length]) {
                Some(header) if header.life >= life => return Ok(header),
                _ => drop(self.take(&mut packet, 0)?),
            }
        }
    }

    fn put(&self, packet: &[u8]) -> io::Result<()> {
        loop {
            // SAFETY: the packet is valid to read during the call.
            let sent =
                unsafe { libc::send(self.as_raw_fd(), packet.as_ptr().cast(), packet.len(), libc::MSG_NOSIGNAL) };
            match io::Error::last_os_error() {
                _ if sent >= 0 => return Ok(()),
                error if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => (),
            }
        }
    }

    fn take(&self, packet: &mut [u8], flags: i32) -> io::Result<usize> {
        loop {
            // SAFETY: the packet is valid to write during the call.
            let length = unsafe { libc::recv(self.as_raw_fd(), packet.as_mut_ptr().cast(), packet.len(), flags) };
            match (length, io::Error::last_os_error()) {
                (0, _) => return Err(io::ErrorKind::UnexpectedEof.into()),
                (1.., _) => return Ok(length as usize),
                (_, error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => (),
            }
        }
    }

    fn is_ready_within(&self, limit: Duration) -> bool {
        patience::within(limit, |part| {
            let mut poll = libc::pollfd { fd: self.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: it is one `pollfd`, which outlives the call.
            let ready = unsafe { libc::poll(&mut poll, 1, part.as_millis() as i32) };
            (ready > 0).then_some(())
        })
        .is_some()
    }
}

impl AsRawFd for Line {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(line: &Line, life: u32) -> (u32, Vec<u8>) {
        let (header, text) = line.receive(life, Some(Duration::from_secs(60))).unwrap();
        (header.number, text)
    }

    #[test]
    fn messages_of_any_length_arrive_as_they_were() {
        let (one, other) = Line::pair().unwrap();
        for length in [0, 1, PART - 1, PART, PART + 1, 3 * PART, 1 << 20] {
            let text: Vec<u8> = (0..length).map(|index| index as u8).collect();
            std::thread::scope(|scope| {
                scope.spawn(|| one.send(3, 7, &text).unwrap());
                assert_eq!(received(&other, 3), (7, text.clone()), "{length}");
            });
        }
    }

    #[test]
    fn what_a_life_left_behind_is_passed_over() {
        let (one, other) = Line::pair().unwrap();
        let packet = |life, number, place| one.put(&[&Header { life, number, place }.to_bytes()[..], b"x"].concat());
        // It dies in the middle of an answer.
        one.send_torn(0, 5);
        packet(0, 5, 0).unwrap();
        one.send(0, 0, b"died").unwrap();
        assert_eq!(received(&other, 0), (0, b"died".to_vec()));
        // Something else is written to the socket.
        one.put(b"?").unwrap();
        one.put(&[0; 100_000]).unwrap();
        packet(0, 6, FIRST | LAST).unwrap();
        packet(1, 6, LAST).unwrap();
        one.send(1, 7, b"alive").unwrap();
        assert_eq!(other.wait(1).unwrap(), Header { life: 1, number: 6, place: LAST });
        assert_eq!(received(&other, 1).0, 7);
    }

    #[test]
    fn who_waits_hears_of_the_end() {
        let (one, other) = Line::pair().unwrap();
        let error = other.receive(0, Some(Duration::from_millis(20))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(one);
        assert_eq!(other.receive(0, None).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(other.wait(0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(other.send(0, 1, b"x").is_err());
    }
}
