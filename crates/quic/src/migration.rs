//! Migration of a connection (RFC 9000, section 9): which datagrams from other addresses are accepted, how many bytes
//! may be sent there, and which address is validated.
//!
//! Methods that are called for each datagram return at once while the client is at its validated address.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use quinn_proto::Transmit;

/// RFC 9000, section 8.1: "Prior to validating the client address, servers MUST NOT send more than three times
/// as many bytes as the number of bytes they have received."
pub(crate) const AMPLIFICATION_MAX: usize = 3;

/// The first datagram to a new address, and a reply to PATH_CHALLENGE from elsewhere: both are padded.
const PROBE_BYTES: usize = 1_200;

/// Moves to other hosts within [`MOVES_TIME`] that were not validated; datagrams from further ones are ignored.
const MOVES_MAX: u32 = 4;
const MOVES_TIME: Duration = Duration::from_secs(10);

/// The address of a client.
pub(crate) struct Migration {
    /// The last address that was validated.
    validated: SocketAddr,
    /// The address that the library sends to.
    path: SocketAddr,
    /// The unvalidated host that last sent a datagram.
    candidate: Option<Candidate>,
    /// Moves that count, and since when.
    moves: u32,
    moves_since: Instant,
}

/// A host that is not validated.
struct Candidate {
    host: IpAddr,
    /// Bytes that may be sent there.
    room: usize,
}

impl Migration {
    /// A client at an address that the handshake validates.
    pub(crate) fn new(remote: SocketAddr, now: Instant) -> Migration {
        Migration {
            validated: remote,
            path: remote,
            candidate: None,
            moves: 0,
            moves_since: now,
        }
    }

    /// The last address that was validated.
    pub(crate) fn validated(&self) -> SocketAddr {
        self.validated
    }

    /// Whether the library sends to an address that is not known to be validated.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.path != self.validated
    }

    /// Counts a received datagram. False if it is to be ignored: the library could send too much in reply.
    #[inline]
    pub(crate) fn admits(&mut self, from: SocketAddr, bytes: usize, now: Instant) -> bool {
        from.ip() == self.validated.ip() || self.admits_unvalidated(from, bytes, now)
    }

    /// The library sends to `path` after a datagram from there, which was authentic, or after the validation of
    /// another address has failed.
    #[inline]
    pub(crate) fn note_path(&mut self, path: SocketAddr, now: Instant) {
        if path != self.path {
            self.change_path(path, now);
        }
    }

    /// Bytes that may be sent to the library's address; `None` if its host is validated.
    #[inline]
    pub(crate) fn room(&self) -> Option<usize> {
        let host = self.path.ip();
        (host != self.validated.ip()).then(|| match &self.candidate {
            Some(candidate) if candidate.host == host => candidate.room,
            _ => 0,
        })
    }

    #[inline]
    pub(crate) fn note_sent(&mut self, sent: &Transmit) {
        if let Some(candidate) = &mut self.candidate
            && candidate.host == sent.destination.ip()
        {
            candidate.room = candidate.room.saturating_sub(sent.size);
        }
    }

    /// The path is validated.
    pub(crate) fn validate(&mut self) {
        self.validated = self.path;
        self.candidate = None;
        self.moves = 0;
    }

    /// Counts a datagram from a host that is not validated. A datagram from another address than the path is accepted
    /// if all bytes from that address pay for the reply to it: short datagrams are therefore accepted in the end.
    #[cold]
    fn admits_unvalidated(&mut self, from: SocketAddr, bytes: usize, now: Instant) -> bool {
        let host = from.ip();
        let candidate = self.candidate.take().filter(|known| known.host == host);
        let room = candidate.map_or(0, |known| known.room) + bytes * AMPLIFICATION_MAX;
        let is_path = from == self.path;
        let is_admitted = is_path || (room >= PROBE_BYTES && self.moves(now) < MOVES_MAX);
        let paid = if is_admitted && !is_path {
            PROBE_BYTES
        } else {
            0
        };
        let room = room - paid;
        self.candidate = Some(Candidate { host, room });
        is_admitted
    }

    #[cold]
    fn change_path(&mut self, path: SocketAddr, now: Instant) {
        let before = std::mem::replace(&mut self.path, path);
        let host = path.ip();
        if host == self.validated.ip() {
            return;
        }
        if host != before.ip() {
            self.moves = self.moves(now) + 1;
        }
        // The bytes that were paid for are sent on the path now, which counts them.
        if let Some(candidate) = &mut self.candidate
            && candidate.host == host
        {
            candidate.room += PROBE_BYTES;
        }
    }

    fn moves(&mut self, now: Instant) -> u32 {
        if now.saturating_duration_since(self.moves_since) >= MOVES_TIME {
            self.moves = 0;
            self.moves_since = now;
        }
        self.moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, host], port))
    }

    fn sent(to: SocketAddr, size: usize) -> Transmit {
        Transmit {
            destination: to,
            ecn: None,
            size,
            segment_size: None,
            src_ip: None,
        }
    }

    #[test]
    fn a_new_host_gets_three_times_its_bytes_until_it_is_validated() {
        let now = Instant::now();
        let (home, new) = (address(1, 1), address(2, 1));
        let mut migration = Migration::new(home, now);
        assert!(migration.admits(home, 20, now));
        assert_eq!(migration.room(), None);
        // Short datagrams count together, and others between them do not.
        assert!(!migration.admits(new, 100, now));
        assert!(!migration.admits(new, 200, now));
        assert!(migration.admits(address(1, 2), 20, now));
        assert!(migration.admits(new, 101, now));
        migration.note_path(new, now);
        assert!(migration.is_pending());
        assert_eq!(migration.room(), Some(3 * 401));
        migration.note_sent(&sent(new, 1_200));
        assert_eq!(migration.room(), Some(3));
        // On the path all are accepted, because the room limits the sent bytes.
        assert!(migration.admits(new, 20, now));
        assert_eq!(migration.room(), Some(63));
        migration.note_sent(&sent(home, 1_200));
        assert_eq!(migration.room(), Some(63));
        migration.validate();
        assert_eq!((migration.validated(), migration.room()), (new, None));
        assert!(!migration.is_pending());
        assert!(!migration.admits(home, 20, now), "it is a new host now");
    }

    #[test]
    fn each_answer_to_another_port_of_a_new_host_is_paid_for() {
        let now = Instant::now();
        let mut migration = Migration::new(address(1, 1), now);
        assert!(migration.admits(address(2, 1), 400, now));
        migration.note_path(address(2, 1), now);
        for port in 2..10 {
            assert!(!migration.admits(address(2, port), 0, now) || port == 2);
        }
        assert_eq!(migration.room(), Some(0));
    }

    #[test]
    fn moves_without_validation_are_limited_in_time() {
        let start = Instant::now();
        let mut migration = Migration::new(address(1, 1), start);
        for host in 2..6 {
            assert!(migration.admits(address(host, 1), 400, start));
            migration.note_path(address(host, 1), start);
        }
        assert!(!migration.admits(address(6, 1), 1_200, start));
        assert!(migration.admits(address(1, 1), 20, start));
        let later = start + MOVES_TIME;
        assert!(migration.admits(address(6, 1), 400, later));
        migration.note_path(address(6, 1), later);
        migration.validate();
        assert_eq!(migration.validated(), address(6, 1));
    }
}
