//! Field compression for HTTP/2 (RFC 7541).
//!
//! `static_table` and the dynamic table hold the fields that blocks refer to; [`Decoder`] and [`Encoder`] use
//! them, each for one direction of a connection. QPACK shares the dynamic table, the integers, the Huffman
//! code and the names of lines: see `field_compression` and `field_section`.

mod decoder;
mod encoder;
mod static_table;

use crate::field_compression::integer;

pub use crate::field_compression::Malformed;
pub(crate) use decoder::BlockLines;
pub use decoder::Decoder;
pub use encoder::Encoder;

/// Bits of the largest integer beyond its prefix. All valid lengths and indices are far smaller (RFC
/// 7541, section 7.4).
const INTEGER_BITS: u32 = 28;

#[inline]
fn read_integer(rest: &mut &[u8], prefix_bits: u32) -> Result<usize, Malformed> {
    integer::read::<INTEGER_BITS>(rest, prefix_bits).map(|value| value as usize)
}

#[inline]
fn write_integer(value: usize, prefix_bits: u32, first: u8, out: &mut Vec<u8>) {
    integer::write(value as u64, prefix_bits, first, out);
}
