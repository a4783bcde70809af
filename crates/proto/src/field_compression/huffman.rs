//! The Huffman code of HPACK and QPACK (RFC 7541, section 5.2 and Appendix B).
//!
//! The code is canonical, that is, sorted by length and then by symbol, so the lengths are all
//! there is to write down: the tables below are computed from them while compiling.

use super::Malformed;

/// Most bytes that this many bytes of code can stand for: the shortest code has five bits.
#[inline]
pub(crate) fn decoded_len_max(len: usize) -> usize {
    len * 8 / 5
}

/// Bytes that `text` has in the code.
#[inline]
pub(crate) fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text
        .iter()
        .map(|&byte| usize::from(LENGTHS[usize::from(byte)]))
        .sum();
    bits.div_ceil(8)
}

/// Appends `text` in the code, filled up with ones. `len` is its [`encoded_len`].
pub(crate) fn encode(text: &[u8], len: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + len, 0);
    let out = &mut out[start..];
    let (mut bits, mut count, mut at) = (0u64, 0, 0);
    for &byte in text {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(CODES[usize::from(byte)]);
        count += length;
        if count >= 32 {
            count -= 32;
            out[at..at + 4].copy_from_slice(&((bits >> count) as u32).to_be_bytes());
            at += 4;
        }
    }
    let missing = count.wrapping_neg() % 8;
    let last = (bits << missing | ((1 << missing) - 1)) << ((64 - count - missing) % 64);
    out[at..].copy_from_slice(&last.to_be_bytes()[..((count + missing) / 8) as usize]);
}

/// Appends what `code` stands for.
///
/// # Errors
/// RFC 7541, section 5.2: "A padding strictly longer than 7 bits MUST be treated as a decoding
/// error. A padding not corresponding to the most significant bits of the code for the EOS symbol
/// MUST be treated as a decoding error. A Huffman-encoded string literal containing the EOS symbol
/// MUST be treated as a decoding error."
pub(crate) fn decode(code: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let start = out.len();
    out.resize(start + decoded_len_max(code.len()) + RUN, 0);
    let len = decode_into(code, &mut out[start..])?;
    out.truncate(start + len);
    Ok(())
}

/// Symbols that are read from one word of code: after a shift by up to 7 bits it has 57 left, and
/// each of them has at most 8.
const RUN: usize = 6;

/// One table lookup of eight bits decodes nearly every symbol of a field; longer codes are decoded
/// separately.
fn decode_into(code: &[u8], out: &mut [u8]) -> Result<usize, Malformed> {
    let (mut position, mut at) = (0, 0);
    while let Some(word) = code.get(position / 8..).and_then(<[u8]>::first_chunk)
        && let Some(slots) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<RUN>)
    {
        let mut bits = u64::from_be_bytes(*word) << (position % 8);
        let mut is_long = false;
        for slot in slots {
            let entry = SHORT[(bits >> 56) as usize];
            let length = usize::from(entry >> 8);
            is_long = length == 0;
            if is_long {
                break;
            }
            *slot = entry as u8;
            at += 1;
            bits <<= length;
            position += length;
        }
        if is_long {
            if code.len() * 8 - position < LENGTH_MAX {
                break;
            }
            let (symbol, length) = long_code(peek(code, position)).ok_or(Malformed)?;
            out[at] = symbol;
            (at, position) = (at + 1, position + length);
        }
    }
    decode_end(code, position, out, at)
}

/// The last few symbols, and the padding behind them.
fn decode_end(
    code: &[u8],
    mut position: usize,
    out: &mut [u8],
    mut at: usize,
) -> Result<usize, Malformed> {
    loop {
        let mut left = code.len() * 8 - position;
        let mut bits = peek(code, position);
        for _ in 0..RUN {
            let entry = SHORT[(bits >> 56) as usize];
            let length = usize::from(entry >> 8);
            if length == 0 || length > left {
                break;
            }
            out[at] = entry as u8;
            at += 1;
            bits <<= length;
            left -= length;
        }
        position = code.len() * 8 - left;
        let bits = peek(code, position);
        let entry = SHORT[(bits >> 56) as usize];
        let (symbol, length) = match entry >> 8 {
            0 => long_code(bits).unwrap_or((0, LENGTH_MAX)),
            length => (entry as u8, usize::from(length)),
        };
        if length > left {
            let is_padding = left < 8 && bits == !(u64::MAX >> left);
            return if is_padding { Ok(at) } else { Err(Malformed) };
        }
        // Only EOS has no symbol, and that is no padding either if it is complete.
        if length == LENGTH_MAX && long_code(bits).is_none() {
            return Err(Malformed);
        }
        out[at] = symbol;
        (at, position) = (at + 1, position + length);
    }
}

/// The code from a position on, aligned to the left, zeros behind its end.
fn peek(code: &[u8], position: usize) -> u64 {
    let rest = &code[position / 8..];
    let mut word = [0; 8];
    let len = rest.len().min(8);
    word[..len].copy_from_slice(&rest[..len]);
    u64::from_be_bytes(word) << (position % 8)
}

/// Symbol and length of the code at the head of `bits`, which is longer than eight bits; `None`
/// for EOS.
fn long_code(bits: u64) -> Option<(u8, usize)> {
    let head = (bits >> 32) as u32;
    let mut length = 9;
    while length < LENGTH_MAX && head >= LIMITS[length] {
        length += 1;
    }
    let above = head.wrapping_sub(LIMITS[length - 1]) >> (32 - length);
    let rank = usize::from(RANKS[length]) + above as usize;
    SYMBOLS.get(rank).map(|&symbol| (symbol, length))
}

const LENGTH_MAX: usize = 30;

/// Bits of the code of each byte.
static LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// The code of each byte, aligned to the right.
static CODES: [u32; 256] = {
    let mut codes = [0; 256];
    let (mut code, mut rank) = (0, 0);
    while rank < 256 {
        let symbol = SYMBOLS[rank] as usize;
        codes[symbol] = code;
        if rank < 255 {
            let next = LENGTHS[SYMBOLS[rank + 1] as usize] - LENGTHS[symbol];
            code = (code + 1) << next;
        }
        rank += 1;
    }
    codes
};

/// All bytes in the order of their codes.
static SYMBOLS: [u8; 256] = {
    let mut symbols = [0; 256];
    let (mut rank, mut length) = (0, 1);
    while length <= LENGTH_MAX {
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as usize == length {
                symbols[rank] = symbol as u8;
                rank += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    symbols
};

/// Byte and, above it, length of the code that eight bits begin with; length 0 if it is longer.
static SHORT: [u16; 256] = {
    let mut table = [0; 256];
    let mut symbol = 0;
    while symbol < 256 {
        let length = LENGTHS[symbol];
        if length <= 8 {
            let first = (CODES[symbol] as usize) << (8 - length);
            let mut index = first;
            while index < first + (1 << (8 - length)) {
                table[index] = (length as u16) << 8 | symbol as u16;
                index += 1;
            }
        }
        symbol += 1;
    }
    table
};

/// For each length: the first value, aligned to the left in 32 bits, that no code up to this
/// length begins with. Codes of the next length start there.
static LIMITS: [u32; LENGTH_MAX + 1] = {
    let mut limits = [0; LENGTH_MAX + 1];
    let (mut limit, mut length) = (0u64, 1);
    while length <= LENGTH_MAX {
        limit += count_of(length) << (32 - length);
        // The last code is all ones, and no code is greater.
        limits[length] = if limit > u32::MAX as u64 {
            u32::MAX
        } else {
            limit as u32
        };
        length += 1;
    }
    limits
};

/// For each length: how many codes are shorter.
static RANKS: [u16; LENGTH_MAX + 1] = {
    let mut ranks = [0; LENGTH_MAX + 1];
    let (mut rank, mut length) = (0, 1);
    while length <= LENGTH_MAX {
        ranks[length] = rank as u16;
        rank += count_of(length);
        length += 1;
    }
    ranks
};

/// How many codes have this length, the one for the end of a string (EOS) included.
const fn count_of(length: usize) -> u64 {
    let mut count = (length == LENGTH_MAX) as u64;
    let mut symbol = 0;
    while symbol < 256 {
        count += (LENGTHS[symbol] as usize == length) as u64;
        symbol += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(code: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut out = b"before".to_vec();
        decode(code, &mut out)?;
        Ok(out.split_off(6))
    }

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(text, encoded_len(text), &mut out);
        assert_eq!(out.len(), encoded_len(text));
        out
    }

    #[test]
    fn codes_of_appendix_b() {
        for (symbol, code, length) in [
            (b'0', 0x0, 5),
            (b'a', 0x3, 5),
            (b' ', 0x14, 6),
            (b':', 0x5c, 7),
            (b'&', 0xf8, 8),
            (b'!', 0x3f8, 10),
            (b'\\', 0x7fff0, 19),
            (0, 0x1ff8, 13),
            (22, 0x3fff_fffe, 30),
            (255, 0x3ff_ffee, 26),
        ] {
            assert_eq!(CODES[usize::from(symbol)], code, "{symbol}");
            assert_eq!(LENGTHS[usize::from(symbol)], length, "{symbol}");
        }
    }

    #[test]
    fn every_pair_of_bytes_round_trips() {
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                let text = [first, second, b'0'];
                assert_eq!(decoded(&encoded(&text)).as_deref(), Ok(&text[..]));
            }
        }
    }

    /// Bit by bit, too simple to be wrong.
    fn decoded_slowly(code: &[u8]) -> Option<Vec<u8>> {
        let bits = code
            .iter()
            .flat_map(|byte| (0..8).rev().map(move |at| u32::from(byte >> at & 1)));
        let (mut out, mut value, mut length) = (Vec::new(), 0, 0);
        for bit in bits {
            (value, length) = (value << 1 | bit, length + 1);
            let is_it = |&symbol: &usize| LENGTHS[symbol] == length && CODES[symbol] == value;
            if let Some(symbol) = (0..256).find(is_it) {
                out.push(symbol as u8);
                (value, length) = (0, 0);
            }
        }
        (length < 8 && value == (1 << length) - 1).then_some(out)
    }

    #[test]
    fn any_bytes_are_decoded_like_bit_by_bit() {
        let mut random = 1u64;
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as usize
        };
        for _ in 0..3_000 {
            // Ones are where the long codes are.
            let ones = next() % 4;
            let byte = |next: &mut dyn FnMut() -> usize| {
                if next() % 4 < ones {
                    0xff
                } else {
                    next() as u8
                }
            };
            let code: Vec<u8> = (0..next() % 20).map(|_| byte(&mut next)).collect();
            assert_eq!(decoded(&code).ok(), decoded_slowly(&code), "{code:?}");
        }
    }

    #[test]
    fn wrong_ends_are_refused() {
        assert_eq!(decoded(&[]), Ok(vec![]));
        // "0" is 00000, padded by three ones.
        assert_eq!(decoded(&[0b0000_0111]).as_deref(), Ok(&b"0"[..]));
        assert_eq!(decoded(&[0b0000_0110]), Err(Malformed));
        assert_eq!(decoded(&[0b0000_0000]), Err(Malformed));
        assert_eq!(decoded(&[0b0000_0111, 0xff]), Err(Malformed));
        assert_eq!(decoded(&[0xff]), Err(Malformed));
        for len in 2..12 {
            assert_eq!(decoded(&vec![0xff; len]), Err(Malformed));
        }
        // EOS in the middle: thirty ones, then "0".
        assert_eq!(
            decoded(&[0xff, 0xff, 0xff, 0xfc, 0b0000_1111]),
            Err(Malformed)
        );
    }
}
