//! What the field compression of HTTP/2 (HPACK, RFC 7541) and of HTTP/3 (QPACK, RFC 9204) share:
//! the integers with a prefix and the Huffman code of strings.
//!
//! The tables are not here: QPACK numbers its static table differently and updates its dynamic table
//! on streams of its own. HPACK's are in [`h2::hpack`](crate::h2::hpack).

pub(crate) mod huffman;
pub(crate) mod integer;

/// A field section that its compression format cannot decode. Final for the connection, because the
/// tables of both ends no longer agree (RFC 7541, section 2.3.3; RFC 9204, section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the compressed field section cannot be decoded")
    }
}

impl std::error::Error for Malformed {}
