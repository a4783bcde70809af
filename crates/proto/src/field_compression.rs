//! The common parts of the field compression of HTTP/2 (HPACK, RFC 7541) and of HTTP/3 (QPACK, RFC 9204): the integers
//! with a prefix, the Huffman code of strings, and the dynamic table.
//!
//! Each has a static table of its own: [`h2::hpack`](crate::h2::hpack), [`h3::qpack`](crate::h3::qpack).

pub(crate) mod huffman;
pub(crate) mod integer;
pub(crate) mod table;

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
