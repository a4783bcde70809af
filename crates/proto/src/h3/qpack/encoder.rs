//! Encoding field sections (RFC 9204, section 4.5).

use super::repeated::RepeatedLines;
use super::static_table;
use crate::field_compression::{huffman, integer};
use crate::field_section::send::{LineEncoder, pseudo};
use crate::field_section::{LineName, Pseudo};
use crate::message::{Method, Status};

/// Appends field lines. A section refers to the static table only.
#[derive(Debug, Default)]
pub struct Encoder {
    repeated: RepeatedLines,
}

/// Entries of the static table (RFC 9204, Appendix A).
const PATH: u8 = 1;
const GET: u8 = 17;
const POST: u8 = 20;
const HTTP: u8 = 22;
const HTTPS: u8 = 23;

impl Encoder {
    /// Begins a section: it needs no entry of the dynamic table (RFC 9204, section 4.5.1).
    #[inline]
    pub fn begin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0, 0]);
    }

    /// Appends a field: a name in lower case and a value, as text. For tools and tests.
    pub fn encode(&mut self, name: &[u8], value: &[u8], never_indexed: bool, out: &mut Vec<u8>) {
        let (line_name, _) = LineName::parse(name);
        let name_text = if line_name.known_text().is_empty() {
            name
        } else {
            b""
        };
        if never_indexed {
            self.never_indexed_line(line_name, name_text, value, out);
        } else {
            self.line(line_name, name_text, value, out);
        }
    }

    /// RFC 9204, section 4.5.2, with `T`.
    #[inline]
    fn static_entry(index: u8, out: &mut Vec<u8>) {
        integer::write(index.into(), 6, 0b1100_0000, out);
    }
}

impl LineEncoder for Encoder {
    #[inline]
    fn method(&mut self, method: Method, token: &str, out: &mut Vec<u8>) {
        match method {
            Method::Get => Encoder::static_entry(GET, out),
            Method::Post => Encoder::static_entry(POST, out),
            _ => pseudo(self, Pseudo::Method, token, out),
        }
    }

    #[inline]
    fn scheme(&mut self, scheme: &'static str, out: &mut Vec<u8>) {
        Encoder::static_entry(if scheme == "https" { HTTPS } else { HTTP }, out);
    }

    #[inline]
    fn path(&mut self, path: &str, out: &mut Vec<u8>) {
        match path {
            "/" => Encoder::static_entry(PATH, out),
            path => pseudo(self, Pseudo::Path, path, out),
        }
    }

    #[inline]
    fn status(&mut self, status: Status, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        pseudo(self, Pseudo::Status, digits.format(status.code()), out);
    }

    #[inline]
    fn line(&mut self, name: LineName, name_text: &[u8], value: &[u8], out: &mut Vec<u8>) {
        if let Some(encoded) = self.repeated.get(name, value) {
            return out.extend_from_slice(encoded);
        }
        let first = static_table::index_of_name(name);
        match first.and_then(|first| static_table::find(first, value)) {
            Some(index) => Encoder::static_entry(index, out),
            None => {
                let start = out.len();
                literal(first, name, name_text, value, false, out);
                self.repeated.keep(name, value, &out[start..]);
            }
        }
    }

    fn never_indexed_line(
        &mut self,
        name: LineName,
        name_text: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        let index = static_table::index_of_name(name);
        literal(index, name, name_text, value, true, out);
    }
}

/// RFC 9204, sections 4.5.4 and 4.5.6.
fn literal(
    index: Option<u8>,
    name: LineName,
    name_text: &[u8],
    value: &[u8],
    never_indexed: bool,
    out: &mut Vec<u8>,
) {
    match index {
        Some(index) => {
            let never_indexed = u8::from(never_indexed) << 5;
            integer::write(index.into(), 4, 0b0101_0000 | never_indexed, out);
        }
        None => {
            let known = name.known_text().as_bytes();
            let text = if known.is_empty() { name_text } else { known };
            let never_indexed = u8::from(never_indexed) << 4;
            string(text, 3, 0b0010_0000 | never_indexed, out);
        }
    }
    string(value, 7, 0, out);
}

/// Appends a string literal (RFC 9204, section 4.1.2) in whichever form is shorter.
fn string(text: &[u8], prefix_bits: u32, first: u8, out: &mut Vec<u8>) {
    let len = huffman::encoded_len(text);
    if len < text.len() {
        integer::write(len as u64, prefix_bits, first | 1 << prefix_bits, out);
        huffman::encode(text, len, out);
    } else {
        integer::write(text.len() as u64, prefix_bits, first, out);
        out.extend_from_slice(text);
    }
}
