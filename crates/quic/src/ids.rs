//! Connection IDs that name their core.

use std::time::Duration;

use aws_lc_rs::hmac;
use blitz_reactor::Steering;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

use crate::keys::{Keys, first};

/// Bytes of a connection ID.
pub(crate) const ID_BYTES: usize = Steering::ID_BYTES;

/// Makes the connection IDs of one endpoint.
pub(crate) struct Ids {
    steering: Steering,
    core: usize,
    key: hmac::Key,
    made: u64,
}

impl Ids {
    pub(crate) fn new(keys: &Keys, core: usize, endpoint: u64) -> Ids {
        Ids {
            steering: *keys.steering(),
            core,
            key: keys.ids(endpoint),
            made: 0,
        }
    }
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        self.made += 1;
        let random = hmac::sign(&self.key, &self.made.to_be_bytes());
        let id = self.steering.connection_id(self.core, first(random));
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        self.steering.core_of(id).map(drop).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The core that a datagram is for, if its first packet has one of our connection IDs.
///
/// Packets of a handshake are for the core that has begun it. An Initial packet may have an ID that the client has
/// chosen (RFC 9000, section 7.2).
pub(crate) fn core_of(steering: &Steering, datagram: &[u8]) -> Option<usize> {
    const LONG_HEADER: u8 = 0x80;
    const TYPE: u8 = 0x30;
    const HANDSHAKE: u8 = 0x20;
    // RFC 9000, section 17.2: first byte, version, length of the ID, ID.
    const LONG_ID_AT: usize = 6;
    let first = *datagram.first()?;
    let id = match first & LONG_HEADER {
        0 => datagram.get(1..)?.get(..ID_BYTES)?,
        _ if first & TYPE != HANDSHAKE => return None,
        _ if usize::from(*datagram.get(LONG_ID_AT - 1)?) != ID_BYTES => return None,
        _ => datagram.get(LONG_ID_AT..)?.get(..ID_BYTES)?,
    };
    steering.core_of(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_their_core_and_never_repeat() {
        let keys = Keys::from_secret(&[7; 32]);
        let mut seen = std::collections::HashSet::new();
        for (core, endpoint) in [(0, 0), (1, 1), (1, 2), (3, 3)] {
            let mut ids = Ids::new(&keys, core, endpoint);
            for _ in 0..1_000 {
                let id = ids.generate_cid();
                assert_eq!(keys.steering().core_of(&id), Some(core));
                assert!(ids.validate(&id).is_ok());
                assert!(seen.insert(id));
            }
        }
    }

    #[test]
    fn packets_are_for_the_core_of_their_id() {
        let keys = Keys::from_secret(&[7; 32]);
        let steering = keys.steering();
        let id = Ids::new(&keys, 3, 0).generate_cid();
        let short = [&[0x40][..], &id, &[1, 2, 3]].concat();
        let long = |first: u8| [&[first, 0, 0, 0, 1, 8][..], &id, &[0]].concat();
        assert_eq!(core_of(steering, &short), Some(3));
        assert_eq!(core_of(steering, &long(0xE0)), Some(3), "Handshake");
        assert_eq!(core_of(steering, &long(0xC0)), None, "Initial");
        for len in 0..9 {
            assert_eq!(core_of(steering, &short[..len]), None);
        }
        for len in 0..14 {
            assert_eq!(core_of(steering, &long(0xE0)[..len]), None);
        }
    }
}
