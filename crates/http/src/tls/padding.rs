//! Received packets without the padding at their end. QUIC's machine takes each byte of it for a frame, and clients
//! fill their first packets and their probes of the path with a thousand: that took a seventh of a handshake.

use blitz_quic::quinn_proto::crypto::{CryptoError, PacketKey};
use bytes::BytesMut;
use rustls::quic;

/// A key that cuts off the padding of what it decrypts.
pub(super) struct WithoutPadding(pub(super) Box<dyn quic::PacketKey>);

impl PacketKey for WithoutPadding {
    fn encrypt(&self, packet: u64, buffer: &mut [u8], header_len: usize) {
        PacketKey::encrypt(&self.0, packet, buffer, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        PacketKey::decrypt(&self.0, packet, header, payload)?;
        if payload.last() == Some(&PADDING) {
            payload.truncate(len_without_padding(payload));
        }
        Ok(())
    }

    fn tag_len(&self) -> usize {
        PacketKey::tag_len(&self.0)
    }

    fn confidentiality_limit(&self) -> u64 {
        PacketKey::confidentiality_limit(&self.0)
    }

    fn integrity_limit(&self) -> u64 {
        PacketKey::integrity_limit(&self.0)
    }
}

/// Types of frames (RFC 9000, section 19).
const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const ACK: u8 = 0x02;
const ACK_ECN: u8 = 0x03;
const CRYPTO: u8 = 0x06;
const PATH_CHALLENGE: u8 = 0x1a;
const PATH_RESPONSE: u8 = 0x1b;
/// Of the extension for acknowledgements, as `quinn` numbers it.
const IMMEDIATE_ACK: u8 = 0x1f;

/// The length of a payload without the PADDING frames at its end. One of these stays, because a packet needs a frame.
/// Only the frames of padded packets are known; behind another one zeros may be its content.
fn len_without_padding(payload: &[u8]) -> usize {
    let mut rest = payload;
    loop {
        let len = payload.len() - rest.len();
        match rest {
            [] => return len,
            [PADDING, ..] => match rest.iter().position(|&byte| byte != PADDING) {
                Some(padding) => rest = &rest[padding..],
                None => return len + 1,
            },
            _ => match skip_frame(rest) {
                Some(behind) => rest = behind,
                None => return payload.len(),
            },
        }
    }
}

/// What is behind a frame; `None` if the frame is of another type or incomplete.
fn skip_frame(frame: &[u8]) -> Option<&[u8]> {
    let (&kind, mut rest) = frame.split_first()?;
    match kind {
        PING | IMMEDIATE_ACK => {}
        PATH_CHALLENGE | PATH_RESPONSE => rest = rest.get(8..)?,
        ACK | ACK_ECN => {
            // Largest packet and delay, then the number of further ranges.
            integer(&mut rest)?;
            integer(&mut rest)?;
            let further = integer(&mut rest)?;
            integer(&mut rest)?;
            for _ in 0..further {
                integer(&mut rest)?;
                integer(&mut rest)?;
            }
            if kind == ACK_ECN {
                integer(&mut rest)?;
                integer(&mut rest)?;
                integer(&mut rest)?;
            }
        }
        CRYPTO => {
            integer(&mut rest)?;
            let len = usize::try_from(integer(&mut rest)?).ok()?;
            rest = rest.get(len..)?;
        }
        _ => return None,
    }
    Some(rest)
}

/// A variable-length integer (RFC 9000, section 16).
fn integer(rest: &mut &[u8]) -> Option<u64> {
    let first = *rest.first()?;
    let (bytes, behind) = rest.split_at_checked(1 << (first >> 6))?;
    *rest = behind;
    let value = bytes
        .iter()
        .fold(0, |value, &byte| value << 8 | u64::from(byte));
    Some(value & (u64::MAX >> (66 - 8 * bytes.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(frames: &[&[u8]]) -> usize {
        len_without_padding(&frames.concat())
    }

    #[test]
    fn padding_is_cut_off_behind_the_frames_of_padded_packets() {
        let padding: &[u8] = &[0; 1100];
        let ping: &[u8] = &[1];
        // Packet 7, no delay, one further range.
        let ack: &[u8] = &[2, 7, 0, 1, 2, 0, 0];
        let ack_ecn: &[u8] = &[3, 7, 0x40, 0, 0, 2, 0, 0, 0];
        // Four bytes at offset 0, two of which are zero.
        let crypto: &[u8] = &[6, 0, 4, 1, 2, 0, 0];
        assert_eq!(stripped(&[padding]), 1);
        assert_eq!(stripped(&[ping, padding]), 2);
        assert_eq!(stripped(&[ping, &[0x1f], padding]), 3);
        assert_eq!(stripped(&[&[0x1a, 1, 2, 3, 4, 0, 0, 0, 0], padding]), 10);
        assert_eq!(stripped(&[ack, padding]), 8);
        assert_eq!(stripped(&[ack_ecn, padding]), 10);
        assert_eq!(stripped(&[crypto, padding]), 8);
        assert_eq!(
            stripped(&[padding, crypto, &[0], ack, padding]),
            1100 + 7 + 1 + 7 + 1
        );
    }

    #[test]
    fn zeros_that_are_content_stay() {
        // The end of CRYPTO, of ACK, and of a STREAM frame without a length.
        for frames in [
            &[6, 0, 4, 1, 2, 0, 0][..],
            &[2, 7, 0, 1, 2, 0, 0],
            &[0, 1, 0x08, 0, 5, 0, 0, 0],
        ] {
            assert_eq!(len_without_padding(frames), frames.len());
        }
    }

    #[test]
    fn what_is_incomplete_stays_as_it_is() {
        let crypto: &[u8] = &[6, 0, 0x44, 0, 1, 0, 0];
        let ack: &[u8] = &[2, 7, 0, 0x80, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        for frames in [crypto, ack, &[6][..], &[2, 0xc0, 0]] {
            assert_eq!(len_without_padding(frames), frames.len());
        }
    }

    #[test]
    fn integers_of_each_length_are_read() {
        // RFC 9000, Appendix A.1.
        for (mut bytes, value) in [
            (&[0x25][..], 37),
            (&[0x7b, 0xbd], 15_293),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
                151_288_809_941_952_652,
            ),
        ] {
            assert_eq!(integer(&mut bytes), Some(value));
            assert!(bytes.is_empty());
        }
    }
}
