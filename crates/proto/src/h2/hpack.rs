//! Field compression for HTTP/2 (RFC 7541).
//!
//! `integer` and `huffman` are the primitives, `label` names what a field is, `static_table` and
//! `table` keep fields to refer to; [`Decoder`] and [`Encoder`] put them together for one
//! direction of a connection.

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod label;
mod static_table;
mod table;

pub use decoder::Decoder;
pub(crate) use decoder::{Block, Line, Overflow};
pub use encoder::Encoder;
pub(crate) use label::{Label, Pseudo};

/// A block that is no HPACK. Final for the connection, because the tables of both ends no longer
/// agree (RFC 7541, section 2.3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the header block is not valid HPACK")
    }
}

impl std::error::Error for Malformed {}
