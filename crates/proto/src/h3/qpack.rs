//! Field compression for HTTP/3 (RFC 9204).
//!
//! A field section travels on the stream of its message, and refers to a table that instructions on a stream
//! of their own change. It may arrive before the instructions that it needs: then it waits, and
//! [`Decoder::is_blocked`] says so. The [`Encoder`] refers to the static table only, so that nothing that it
//! sends can wait.

mod decoder;
mod encoder;
mod repeated;
mod static_table;

use crate::field_compression::{Malformed, integer};

pub(crate) use decoder::SectionLines;
pub use decoder::{Decoder, Prefix};
pub use encoder::Encoder;

/// RFC 9204, section 4.1.1: "QPACK implementations MUST be able to decode integers up to and including 62 bits
/// long."
const INTEGER_BITS: u32 = 62;

#[inline]
fn read_integer(rest: &mut &[u8], prefix_bits: u32) -> Result<u64, Malformed> {
    integer::read::<INTEGER_BITS>(rest, prefix_bits)
}
