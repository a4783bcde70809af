//! PROXY headers: what is written is read again, however it is cut, and no input is read beyond the header.

use std::net::SocketAddr;

use blitz_proto::proxy_protocol::{
    BINARY_BYTES_MAX, Progress, ProxiedAddresses, ProxyHeaderError, ProxyVersion, Receiver, encode,
};
use proptest::prelude::*;

/// The outcome for input in these pieces: the client and the length of the header.
fn read(
    bytes: &[u8],
    mut cuts: Vec<usize>,
) -> Result<Option<(Option<SocketAddr>, usize)>, ProxyHeaderError> {
    cuts.push(bytes.len());
    cuts.sort_unstable();
    let (mut receiver, mut start) = (Receiver::default(), 0);
    for cut in cuts {
        let piece = &bytes[start..cut.min(bytes.len())];
        if let Progress::Complete { source, consumed } = receiver.handle_input(piece)? {
            return Ok(Some((source, start + consumed)));
        }
        start += piece.len();
    }
    Ok(None)
}

/// Bytes near those of a header.
fn nearly_a_header() -> impl Strategy<Value = Vec<u8>> {
    let header = (any::<(SocketAddr, SocketAddr)>(), any::<bool>());
    let header = header.prop_map(|((source, destination), is_binary)| {
        let mut bytes = Vec::new();
        let version = if is_binary {
            ProxyVersion::V2
        } else {
            ProxyVersion::V1
        };
        let addresses = ProxiedAddresses {
            source,
            destination,
        };
        encode(version, Some(addresses), &mut bytes);
        bytes.extend_from_slice(&[7; 300]);
        bytes
    });
    let changed = (header, any::<prop::sample::Index>(), any::<u8>());
    changed.prop_map(|(mut bytes, at, byte)| {
        let at = at.index(60);
        bytes[at] = byte;
        bytes
    })
}

proptest! {
    #[test]
    fn written_headers_are_read_again(
        source: SocketAddr,
        destination: SocketAddr,
        is_binary: bool,
        rest: Vec<u8>,
        cuts in prop::collection::vec(0_usize..80, 0..6),
    ) {
        let version = if is_binary { ProxyVersion::V2 } else { ProxyVersion::V1 };
        let mut bytes = Vec::new();
        encode(version, Some(ProxiedAddresses { source, destination }), &mut bytes);
        let header = bytes.len();
        bytes.extend_from_slice(&rest);
        let canonical = SocketAddr::new(source.ip().to_canonical(), source.port());
        let cuts = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
        prop_assert_eq!(read(&bytes, cuts), Ok(Some((Some(canonical), header))));
    }

    #[test]
    fn cuts_do_not_matter(
        bytes in prop_oneof![nearly_a_header(), prop::collection::vec(any::<u8>(), 0..200)],
        cuts in prop::collection::vec(0_usize..200, 0..6),
    ) {
        let whole = read(&bytes, Vec::new());
        let cuts = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
        prop_assert_eq!(read(&bytes, cuts), whole);
        if let Ok(Some((_, header))) = whole {
            prop_assert!(header <= BINARY_BYTES_MAX.min(bytes.len()));
        }
    }
}
