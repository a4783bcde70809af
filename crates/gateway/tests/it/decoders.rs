//! Decoders of compressed content that share no code with the encoders of the gateway.

use std::io::Read;

use miniz_oxide::DataFormat;
use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{MZFlush, MZStatus};

/// The header of gzip without optional parts (RFC 1952, section 2.3).
const GZIP_HEADER: usize = 10;

/// The checksum and the length behind gzip's content.
const GZIP_TRAILER: usize = 8;

/// The content of a complete response with this `Content-Encoding`.
pub(crate) fn decoded(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let (content, is_complete) = begun(coding, bytes);
    assert!(
        is_complete,
        "{coding} has no end after {} bytes",
        content.len()
    );
    content
}

/// The content of the first bytes of a response, and whether they are all of it.
pub(crate) fn begun(coding: &str, bytes: &[u8]) -> (Vec<u8>, bool) {
    match coding {
        "gzip" => gzip(bytes),
        "br" => all_of(brotli_decompressor::Decompressor::new(bytes, 4096)),
        "zstd" => zstd(bytes),
        other => panic!("no decoder of {other}"),
    }
}

fn all_of(mut decoder: impl Read) -> (Vec<u8>, bool) {
    let mut content = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match decoder.read(&mut piece) {
            Ok(0) => return (content, true),
            Ok(bytes) => content.extend_from_slice(&piece[..bytes]),
            Err(_) => return (content, false),
        }
    }
}

/// The decoder without C withholds the window until the end; the one with C does not.
fn zstd(bytes: &[u8]) -> (Vec<u8>, bool) {
    if let Ok(decoder) = ruzstd::decoding::StreamingDecoder::new(bytes) {
        let (content, is_complete) = all_of(decoder);
        if is_complete {
            return (content, true);
        }
    }
    let decoder = zstd::stream::read::Decoder::with_buffer(bytes).unwrap();
    all_of(decoder)
}

fn gzip(bytes: &[u8]) -> (Vec<u8>, bool) {
    if bytes.len() < GZIP_HEADER {
        return (Vec::new(), false);
    }
    assert_eq!(bytes[..4], [0x1f, 0x8b, 8, 0], "magic, method, flags");
    let mut input = &bytes[GZIP_HEADER..];
    let mut state = InflateState::new(DataFormat::Raw);
    let mut content = Vec::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        let step = inflate(&mut state, input, &mut piece, MZFlush::None);
        input = &input[step.bytes_consumed..];
        content.extend_from_slice(&piece[..step.bytes_written]);
        match step.status {
            Ok(MZStatus::StreamEnd) => break,
            Ok(_) if step.bytes_consumed + step.bytes_written > 0 => {}
            _ => return (content, false),
        }
    }
    if input.len() < GZIP_TRAILER {
        return (content, false);
    }
    let length = (content.len() as u32).to_le_bytes();
    assert_eq!(input, [checksum(&content).to_le_bytes(), length].concat());
    (content, true)
}

/// CRC-32, bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    let mut sum = !0;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0xEDB8_8320 & 0_u32.wrapping_sub(sum & 1));
        }
    }
    !sum
}
