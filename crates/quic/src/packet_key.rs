//! The content of received packets, as their keys see it: the state machine tells neither how much of a stream it holds
//! nor which streams a packet was for.
//!
//! Padding at the end of a packet is cut off. The machine takes each byte of it for a frame, and clients fill their
//! first packets and their probes of the path with a thousand: that took a seventh of a handshake. The rest of a packet
//! with much padding, and each packet of a handshake, gets memory of its own. Otherwise the machine would hold the
//! whole datagram with its content, including other packets in it, and count only the bytes that it sees.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{Buf, BytesMut};
use quinn_proto::crypto::{CryptoError, PacketKey};

/// A frame of a stream that has come (RFC 9000, section 19.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamFrame {
    /// The number of the stream.
    pub stream: u64,
    /// The offset in the stream where its content begins.
    pub offset: u64,
    /// The offset in the stream behind its content.
    pub end: u64,
    /// The number of its datagram in the connection, which begins again after 2³² of them.
    pub datagram: u32,
    /// Bytes of the datagram, or of the packet if it was copied. All of them are held as long as a part is.
    pub datagram_bytes: u16,
    /// Bytes of the decrypted packet without its padding, which QUIC counts as those of the datagram.
    pub packet_bytes: u16,
}

/// A frame of a packet that was decrypted.
#[derive(Debug)]
pub(crate) struct PacketFrame {
    pub(crate) stream: u64,
    pub(crate) content: Range<u64>,
    pub(crate) packet_bytes: u16,
    /// The packet has memory of its own.
    pub(crate) is_copied: bool,
}

thread_local! {
    /// The frames of streams in the packets that were decrypted last.
    static FRAMES: RefCell<Vec<PacketFrame>> = const { RefCell::new(Vec::new()) };
    /// One of these packets had too many CRYPTO frames.
    static IS_FLOODED: Cell<bool> = const { Cell::new(false) };
}

/// Forgets the frames of earlier packets.
pub(crate) fn forget_frames() {
    FRAMES.with_borrow_mut(Vec::clear);
    IS_FLOODED.set(false);
}

/// Whether a packet since [`forget_frames`] had too many CRYPTO frames.
pub(crate) fn is_flooded() -> bool {
    IS_FLOODED.get()
}

/// Calls `each` with each frame of the packets since [`forget_frames`].
pub(crate) fn for_each_frame(each: impl FnMut(&PacketFrame)) {
    FRAMES.with_borrow(|frames| frames.iter().for_each(each));
}

/// Packets with this much padding are copied without it.
const PADDING_COPIED_MIN: usize = 128;

/// CRYPTO frames of all packets whose keys share a count; beyond: the packet is ignored, and the connection ends. A
/// handshake has some tens of them.
const CRYPTO_FRAMES_MAX: u32 = 512;

/// The count of CRYPTO frames that have come. Its clones share it: the keys of a connection, including those after a
/// key update.
#[derive(Debug, Clone, Default)]
pub struct CryptoFrames(
    /// The library wants keys that threads can share; no other thread uses it.
    Arc<AtomicU32>,
);

impl CryptoFrames {
    /// Counts the CRYPTO frames of a packet. False if there are too many.
    fn count(&self, of_packet: u32) -> bool {
        let frames = self.0.load(Ordering::Relaxed) + of_packet;
        let is_fine = frames <= CRYPTO_FRAMES_MAX;
        if is_fine {
            self.0.store(frames, Ordering::Relaxed);
        }
        is_fine
    }
}

/// A key of received packets. It cuts off their padding, and notes their frames of streams for the endpoint.
#[derive(Debug)]
pub struct ReceivingKey<K> {
    key: K,
    crypto_frames: CryptoFrames,
}

impl<K> ReceivingKey<K> {
    /// A key of the TLS library, with the count of the keys of its connection.
    pub fn new(key: K, crypto_frames: &CryptoFrames) -> ReceivingKey<K> {
        ReceivingKey {
            key,
            crypto_frames: crypto_frames.clone(),
        }
    }
}

impl<K: PacketKey> PacketKey for ReceivingKey<K> {
    fn encrypt(&self, packet: u64, buffer: &mut [u8], header_len: usize) {
        self.key.encrypt(packet, buffer, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.key.decrypt(packet, header, payload)?;
        let before = FRAMES.with_borrow(Vec::len);
        let mut crypto_frames = 0;
        let is_copied = FRAMES.with_borrow_mut(|frames| {
            let len = read_frames(payload, |frame| match frame {
                TrackedFrame::Stream(stream, content) => frames.push(PacketFrame {
                    stream,
                    content,
                    packet_bytes: 0,
                    is_copied: false,
                }),
                TrackedFrame::Crypto => crypto_frames += 1,
            });
            let is_copied = crypto_frames > 0 || payload.len() - len >= PADDING_COPIED_MIN;
            payload.truncate(len);
            let packet_bytes = short(len);
            for frame in frames.iter_mut().skip(before) {
                (frame.packet_bytes, frame.is_copied) = (packet_bytes, is_copied);
            }
            is_copied
        });
        if crypto_frames > 0 && !self.crypto_frames.count(crypto_frames) {
            FRAMES.with_borrow_mut(|frames| frames.truncate(before));
            IS_FLOODED.set(true);
            return Err(CryptoError);
        }
        if is_copied {
            *payload = BytesMut::from(&payload[..]);
        }
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

/// The length of a datagram, or of a part of it.
pub(crate) fn short(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

/// A frame whose content the machine may hold.
#[derive(Debug, PartialEq, Eq)]
enum TrackedFrame {
    /// The stream, and the offsets of the content in it.
    Stream(u64, Range<u64>),
    Crypto,
}

/// Calls `each` for each frame of a stream or of CRYPTO. Returns the length of the payload without the PADDING at its
/// end. One PADDING frame stays, because a packet needs a frame. Malformed frames stay as they are: the machine rejects
/// them.
fn read_frames(payload: &[u8], mut each: impl FnMut(TrackedFrame)) -> usize {
    let mut rest = payload;
    loop {
        let len = payload.len() - rest.len();
        match rest {
            [] => return len,
            [0, ..] => match rest.iter().position(|&byte| byte != 0) {
                Some(padding) => rest = &rest[padding..],
                None => return len + 1,
            },
            _ => match read_frame(&mut rest) {
                Some(Some(frame)) => each(frame),
                Some(None) => {}
                None => return payload.len(),
            },
        }
    }
}

/// A frame of a stream or of CRYPTO, if it is one. `None` if it is malformed or unknown (RFC 9000, section 19).
#[inline]
fn read_frame(rest: &mut &[u8]) -> Option<Option<TrackedFrame>> {
    let kind = integer(rest)?;
    match kind {
        // PING, HANDSHAKE_DONE, and IMMEDIATE_ACK as `quinn` numbers it.
        0x01 | 0x1e | 0x1f => {}
        // ACK: the largest packet, the delay, the number of further ranges, and the first. Then there may be ECN.
        0x02 | 0x03 => {
            integers(rest, 2)?;
            let further = integer(rest)?;
            integer(rest)?;
            for _ in 0..further {
                integers(rest, 2)?;
            }
            integers(rest, if kind == 0x03 { 3 } else { 0 })?;
        }
        // STREAM, with bits for an offset and for a length.
        0x08..=0x0f => {
            let stream = integer(rest)?;
            let offset = if kind & 0x04 != 0 { integer(rest)? } else { 0 };
            let len = match kind & 0x02 {
                0 => rest.len() as u64,
                _ => integer(rest)?,
            };
            skip(rest, len)?;
            return Some(Some(TrackedFrame::Stream(stream, offset..offset + len)));
        }
        // CRYPTO, and NEW_TOKEN.
        0x06 => {
            integer(rest)?;
            skip_counted(rest)?;
            return Some(Some(TrackedFrame::Crypto));
        }
        0x07 => skip_counted(rest)?,
        // RESET_STREAM; STOP_SENDING, MAX_STREAM_DATA and STREAM_DATA_BLOCKED; and those with one number.
        0x04 => integers(rest, 3)?,
        0x05 | 0x11 | 0x15 => integers(rest, 2)?,
        0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => integers(rest, 1)?,
        // NEW_CONNECTION_ID, with a token of 16 bytes.
        0x18 => {
            integers(rest, 2)?;
            let len = *rest.first()?;
            skip(rest, 1 + u64::from(len) + 16)?;
        }
        // PATH_CHALLENGE and PATH_RESPONSE.
        0x1a | 0x1b => skip(rest, 8)?,
        // CONNECTION_CLOSE, of QUIC and of the application.
        0x1c | 0x1d => {
            integers(rest, if kind == 0x1c { 2 } else { 1 })?;
            skip_counted(rest)?;
        }
        // ACK_FREQUENCY.
        0xaf => integers(rest, 4)?,
        _ => return None,
    }
    Some(None)
}

fn skip(rest: &mut &[u8], len: u64) -> Option<()> {
    *rest = rest.get(usize::try_from(len).ok()?..)?;
    Some(())
}

fn skip_counted(rest: &mut &[u8]) -> Option<()> {
    let len = integer(rest)?;
    skip(rest, len)
}

fn integers(rest: &mut &[u8], count: usize) -> Option<()> {
    (0..count).try_for_each(|_| integer(rest).map(drop))
}

/// A variable-length integer (RFC 9000, section 16).
#[inline]
fn integer(rest: &mut &[u8]) -> Option<u64> {
    let first = *rest.first()?;
    let value = match first >> 6 {
        0 => {
            rest.advance(1);
            return Some(first.into());
        }
        1 => rest.try_get_u16().ok()?.into(),
        2 => rest.try_get_u32().ok()?.into(),
        _ => rest.try_get_u64().ok()?,
    };
    Some(value & (u64::MAX >> (66 - (8 << (first >> 6)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decrypts nothing.
    #[derive(Debug)]
    struct Clear;

    impl PacketKey for Clear {
        fn encrypt(&self, _: u64, _: &mut [u8], _: usize) {}

        fn decrypt(&self, _: u64, _: &[u8], _: &mut BytesMut) -> Result<(), CryptoError> {
            Ok(())
        }

        fn tag_len(&self) -> usize {
            0
        }

        fn confidentiality_limit(&self) -> u64 {
            u64::MAX
        }

        fn integrity_limit(&self) -> u64 {
            u64::MAX
        }
    }

    /// CRYPTO with a byte.
    const CRYPTO: [u8; 4] = [6, 5, 1, 7];

    #[test]
    fn a_packet_without_its_padding_does_not_hold_its_datagram() {
        let key = ReceivingKey::new(Clear, &CryptoFrames::default());
        let mut datagram = BytesMut::from(&[&CRYPTO[..], &[0; 1_100]].concat()[..]);
        let mut payload = datagram.split_off(0);
        key.decrypt(0, &[], &mut payload).unwrap();
        // A byte of it stays.
        assert_eq!(payload[..4], CRYPTO);
        assert!(payload.capacity() < 100);
    }

    /// Another packet may be most of the datagram.
    #[test]
    fn a_packet_of_a_handshake_does_not_hold_its_datagram() {
        let key = ReceivingKey::new(Clear, &CryptoFrames::default());
        let mut datagram = BytesMut::with_capacity(1_472);
        datagram.extend_from_slice(&CRYPTO);
        let mut payload = datagram.split_to(CRYPTO.len());
        key.decrypt(0, &[], &mut payload).unwrap();
        assert_eq!(payload[..], CRYPTO);
        drop(payload);
        // Nobody else holds it.
        assert!(datagram.try_reclaim(1_472));
    }

    #[test]
    fn packets_with_too_many_crypto_frames_are_a_flood() {
        let count = CryptoFrames::default();
        let key = ReceivingKey::new(Clear, &count);
        forget_frames();
        let stream: &[u8] = &[0x0a, 0, 1, 7];
        let packet = [stream, &CRYPTO.repeat(128)].concat();
        let mut decrypted = (0..6).map(|number| {
            let decrypted = key.decrypt(number, &[], &mut BytesMut::from(&packet[..]));
            decrypted.is_ok()
        });
        assert!(decrypted.by_ref().take(4).all(|is_ok| is_ok));
        assert!(!is_flooded());
        assert!(!decrypted.any(|is_ok| is_ok));
        assert!(is_flooded());
        let mut frames = 0;
        for_each_frame(|_| frames += 1);
        assert_eq!(frames, 4);
        // Others are not, and neither is the packet of another connection; that of the same one with new keys is.
        assert!(key.decrypt(7, &[], &mut BytesMut::from(stream)).is_ok());
        for (count, is_ok) in [(&count, false), (&CryptoFrames::default(), true)] {
            let key = ReceivingKey::new(Clear, count);
            let decrypted = key.decrypt(8, &[], &mut BytesMut::from(&packet[..]));
            assert_eq!(decrypted.is_ok(), is_ok);
        }
    }

    fn stripped(frames: &[&[u8]]) -> usize {
        read_frames(&frames.concat(), |_| {})
    }

    #[test]
    fn frames_of_streams_are_found_among_others() {
        let payload = [
            // ACK, STREAM with offset and length, the same without content, MAX_DATA, NEW_CONNECTION_ID.
            &[2, 7, 0, 1, 2, 0, 0, 0x0e, 4, 10, 3, 0, 0, 0][..],
            &[0x0f, 4, 13, 0, 0x10, 5],
            &[0x18, 1, 0, 4, 1, 2, 3, 4],
            &[9; 16],
            // RESET_STREAM, and STREAM without either, whose content ends with the packet.
            &[4, 8, 1, 20, 0x09, 0x40, 12, 1, 2, 3, 0, 0],
        ];
        let payload = payload.concat();
        let mut found = Vec::new();
        let len = read_frames(&payload, |frame| found.push(frame));
        assert_eq!(len, payload.len());
        let expected = [(4, 10..13), (4, 13..13), (12, 0..5)];
        assert_eq!(
            found,
            expected.map(|(id, content)| TrackedFrame::Stream(id, content))
        );
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
            assert_eq!(read_frames(frames, |_| {}), frames.len());
        }
    }

    #[test]
    fn what_is_incomplete_stays_as_it_is() {
        let crypto: &[u8] = &[6, 0, 0x44, 0, 1, 0, 0];
        let ack: &[u8] = &[2, 7, 0, 0x80, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        let stream: &[u8] = &[0x0a, 4, 9, 1, 0];
        for frames in [crypto, ack, stream, &[6][..], &[2, 0xc0, 0], &[0x21, 0]] {
            assert_eq!(read_frames(frames, |_| {}), frames.len());
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
