//! Integers and strings of HPACK and QPACK, written byte by byte (RFC 7541, section 5; RFC 9204, section 4.1).

/// Appends an integer whose first byte has these `bits` for it, behind those of `first`.
pub fn prefixed_integer(first: u8, bits: u32, value: usize, out: &mut Vec<u8>) {
    let max = (1 << bits) - 1;
    let Some(mut left) = value.checked_sub(max) else {
        return out.push(first | value as u8);
    };
    out.push(first | max as u8);
    while left >= 128 {
        out.push(left as u8 | 128);
        left >>= 7;
    }
    out.push(left as u8);
}

/// Appends a string without Huffman code, whose length has these `bits` behind those of `first`.
pub fn string_literal(first: u8, bits: u32, text: impl AsRef<[u8]>, out: &mut Vec<u8>) {
    let text = text.as_ref();
    prefixed_integer(first, bits, text.len(), out);
    out.extend_from_slice(text);
}
