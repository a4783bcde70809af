//! A client that changes its address again and again, as one that leaves its Wi-Fi does.
//!
//! The client itself knows nothing of it: its packets get the current address on their way, and packets to the current
//! address get the client's own one. The address before it receives for a moment longer, as that of a network whose signal
//! fades; a packet to an earlier one has no receiver. Connections of TCP are bound to their addresses and end; connections
//! of QUIC have identifiers and continue ([RFC 9000, section 9](https://www.rfc-editor.org/rfc/rfc9000#section-9)).

use std::net::Ipv4Addr;
use std::time::Duration;

/// How long the address before a move still receives. A client that only receives acknowledges meanwhile, and so tells the
/// server its new address.
const OVERLAP: Duration = Duration::from_millis(200);

/// Addresses that the client has in turn, its own one included.
const ADDRESSES: u8 = 100;

const SOURCE: usize = 12;
const DESTINATION: usize = 16;

/// IPv4, without options.
const HEADER_BYTES: usize = 20;
const HEADER_CHECKSUM: usize = 10;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The addresses of a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moves {
    own: Ipv4Addr,
    every: Option<Duration>,
}

impl Moves {
    /// With `every`, the client has another address after each such interval.
    pub(super) fn new(own: Ipv4Addr, every: Option<Duration>) -> Moves {
        Moves { own, every }
    }

    /// The address that the server sees at `now`.
    fn current(&self, now: Duration) -> Ipv4Addr {
        let moves = match self.every {
            Some(every) => now.as_nanos() / every.as_nanos(),
            None => 0,
        };
        let [a, b, c, d] = self.own.octets();
        let offset = (moves % u128::from(ADDRESSES)) as u8;
        Ipv4Addr::new(a, b, c, d + offset)
    }

    fn receives(&self, destination: Ipv4Addr, now: Duration) -> bool {
        let before = now.saturating_sub(OVERLAP);
        destination == self.current(now) || destination == self.current(before)
    }

    /// A packet of the client begins its way at `now`.
    pub(super) fn leave(&self, now: Duration, packet: &mut [u8]) {
        if self.every.is_some() && address(packet, SOURCE) == Some(self.own) {
            replace(packet, SOURCE, self.current(now));
        }
    }

    /// A packet of the server arrives at `now`: whether the client still has the address that it was sent to.
    pub(super) fn arrive(&self, now: Duration, packet: &mut [u8]) -> bool {
        if self.every.is_none() {
            return true;
        }
        match address(packet, DESTINATION) {
            Some(destination) if self.receives(destination, now) => {
                replace(packet, DESTINATION, self.own);
                true
            }
            Some(_) => false,
            None => true,
        }
    }
}

/// An address of a packet of IPv4.
fn address(packet: &[u8], at: usize) -> Option<Ipv4Addr> {
    let is_v4 = packet.len() >= HEADER_BYTES && packet[0] == 0x45;
    let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
    is_v4.then(|| bytes.into())
}

/// Replaces an address, and corrects the checksums that cover it.
fn replace(packet: &mut [u8], at: usize, new: Ipv4Addr) {
    let old: [u8; 4] = packet[at..at + 4].try_into().expect("four bytes");
    let new = new.octets();
    packet[at..at + 4].copy_from_slice(&new);
    correct(packet, HEADER_CHECKSUM, old, new);
    match packet[9] {
        TCP => correct(packet, HEADER_BYTES + 16, old, new),
        // Zero means that the datagram has no checksum (RFC 768).
        UDP if packet.get(HEADER_BYTES + 6..HEADER_BYTES + 8) != Some(&[0, 0]) => {
            correct(packet, HEADER_BYTES + 6, old, new);
        }
        _ => {}
    }
}

/// A checksum after some of the bytes that it covers were replaced ([RFC 1624, section
/// 3](https://www.rfc-editor.org/rfc/rfc1624#section-3)).
fn correct(packet: &mut [u8], at: usize, old: [u8; 4], new: [u8; 4]) {
    let Some(field) = packet.get_mut(at..at + 2) else {
        return;
    };
    let word = |bytes: &[u8]| u32::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let mut sum = 0xffff - word(field);
    for half in [0, 2] {
        sum += 0xffff - word(&old[half..]) + word(&new[half..]);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    field.copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn sum(bytes: &[u8]) -> u32 {
        let words = bytes.chunks(2);
        words
            .map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low)))
            .sum()
    }

    fn fold(mut sum: u32) -> u16 {
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// Of the addresses, the protocol and the length, and of the datagram.
    fn datagram_sum(packet: &[u8]) -> u16 {
        let datagram = &packet[HEADER_BYTES..];
        fold(sum(&packet[12..20]) + u32::from(UDP) + datagram.len() as u32 + sum(datagram))
    }

    /// A datagram with valid checksums.
    fn datagram(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 33, 1, 2, 0, 0, 64, UDP, 0, 0];
        packet.extend(from.octets());
        packet.extend(to.octets());
        packet.extend([0x20, 0xfb, 0x1f, 0x90, 0, 13, 0, 0]);
        packet.extend(b"hello");
        let checksum = !datagram_sum(&packet);
        packet[26..28].copy_from_slice(&checksum.to_be_bytes());
        let checksum = !fold(sum(&packet[..HEADER_BYTES]));
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    #[test]
    fn the_client_has_a_new_address_after_each_interval_and_checksums_stay_valid() {
        let moves = Moves::new(OWN, Some(Duration::from_secs(5)));
        for (seconds, last) in [(0, 2), (4, 2), (5, 3), (14, 4), (499, 101), (500, 2)] {
            let now = Duration::from_secs(seconds);
            let mut packet = datagram(OWN, SERVER);
            moves.leave(now, &mut packet);
            let outside = Ipv4Addr::new(10, 0, 0, last);
            assert_eq!(packet, datagram(outside, SERVER), "after {seconds} s");
            let mut reply = datagram(SERVER, outside);
            assert!(moves.arrive(now, &mut reply));
            assert_eq!(reply, datagram(SERVER, OWN));
        }
    }

    #[test]
    fn packets_to_an_earlier_address_have_no_receiver() {
        let moves = Moves::new(OWN, Some(Duration::from_secs(5)));
        let arrives = |millis| {
            let mut late = datagram(SERVER, OWN);
            moves.arrive(Duration::from_millis(millis), &mut late)
        };
        assert!(arrives(5_100), "the old network is still there");
        assert!(!arrives(5_300));
    }

    #[test]
    fn without_moves_packets_are_unchanged() {
        let moves = Moves::new(OWN, None);
        let mut packet = datagram(OWN, SERVER);
        moves.leave(Duration::from_secs(60), &mut packet);
        assert_eq!(packet, datagram(OWN, SERVER));
        assert!(moves.arrive(Duration::from_secs(60), &mut packet));
    }

    #[test]
    fn short_and_other_packets_pass() {
        let moves = Moves::new(OWN, Some(Duration::from_secs(1)));
        for mut packet in [vec![], vec![0x45; 19], vec![0x60; 60]] {
            let before = packet.clone();
            moves.leave(Duration::from_secs(3), &mut packet);
            assert!(moves.arrive(Duration::from_secs(3), &mut packet));
            assert_eq!(packet, before);
        }
    }
}
