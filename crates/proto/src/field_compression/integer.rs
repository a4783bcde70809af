//! Integers with a prefix (RFC 7541, section 5.1; RFC 9204, section 4.1.1).

use super::Malformed;

/// Reads an integer whose first byte gives its low `prefix_bits` bits, and moves `rest` behind it.
///
/// `BITS` bounds the part beyond the prefix, and with it the length of the encoding: HPACK needs
/// 28 bits, and QPACK has to decode 62.
#[inline]
pub(crate) fn read<const BITS: u32>(rest: &mut &[u8], prefix_bits: u32) -> Result<u64, Malformed> {
    let [first, after @ ..] = *rest else {
        return Err(Malformed);
    };
    let mask = (1 << prefix_bits) - 1;
    let value = u64::from(*first) & mask;
    *rest = after;
    if value < mask {
        return Ok(value);
    }
    read_more::<BITS>(rest, value)
}

fn read_more<const BITS: u32>(rest: &mut &[u8], prefix: u64) -> Result<u64, Malformed> {
    const { assert!(BITS <= 62, "the sum with the prefix fits 63 bits") };
    let mut value = prefix;
    for shift in (0..BITS).step_by(7) {
        let [byte, after @ ..] = *rest else {
            return Err(Malformed);
        };
        *rest = after;
        value += u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let fits = BITS.is_multiple_of(7) || (value - prefix) >> BITS == 0;
            return if fits { Ok(value) } else { Err(Malformed) };
        }
    }
    Err(Malformed)
}

/// Appends an integer; `first` holds the bits of the first byte above the prefix.
#[inline]
pub(crate) fn write(value: u64, prefix_bits: u32, first: u8, out: &mut Vec<u8>) {
    let mask = (1 << prefix_bits) - 1;
    if value < mask {
        out.push(first | value as u8);
    } else {
        out.push(first | mask as u8);
        write_more(value - mask, out);
    }
}

#[inline(never)]
fn write_more(mut rest: u64, out: &mut Vec<u8>) {
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    const HPACK: u32 = 28;

    /// RFC 9204, section 4.1.1: "QPACK implementations MUST be able to decode integers up to and
    /// including 62 bits long."
    const QPACK: u32 = 62;

    fn read_all<const BITS: u32>(mut bytes: &[u8], prefix_bits: u32) -> Result<u64, Malformed> {
        let value = read::<BITS>(&mut bytes, prefix_bits)?;
        assert!(bytes.is_empty());
        Ok(value)
    }

    #[test]
    fn the_examples_of_appendix_c_1() {
        for (value, prefix_bits, bytes) in [
            (10, 5, &[0b0000_1010][..]),
            (1337, 5, &[0b0001_1111, 0b1001_1010, 0b0000_1010]),
            (42, 8, &[0b0010_1010]),
        ] {
            let mut out = Vec::new();
            write(value, prefix_bits, 0, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(read_all::<HPACK>(bytes, prefix_bits), Ok(value));
            assert_eq!(read_all::<QPACK>(bytes, prefix_bits), Ok(value));
        }
    }

    #[test]
    fn every_prefix_round_trips_around_its_boundaries() {
        for prefix_bits in 1..=8 {
            let mask = (1 << prefix_bits) - 1;
            for value in (0..600).chain([mask - 1, mask, mask + 1, mask + 127, mask + 128]) {
                let mut out = Vec::new();
                write(value, prefix_bits, 0, &mut out);
                assert_eq!(read_all::<HPACK>(&out, prefix_bits), Ok(value));
            }
            for shift in 0..62 {
                for value in [(1 << shift) - 1, 1 << shift, (1 << 62) - 1] {
                    let mut out = Vec::new();
                    write(value, prefix_bits, 0, &mut out);
                    assert_eq!(read_all::<QPACK>(&out, prefix_bits), Ok(value));
                }
            }
        }
    }

    #[test]
    fn too_long_and_truncated_integers_are_refused() {
        assert_eq!(read_all::<HPACK>(&[], 7), Err(Malformed));
        assert_eq!(read_all::<HPACK>(&[0x7f], 7), Err(Malformed));
        assert_eq!(read_all::<HPACK>(&[0x7f, 0x80, 0x80], 7), Err(Malformed));
        assert_eq!(
            read_all::<HPACK>(&[0x7f, 0xff, 0xff, 0xff, 0x7f], 7),
            Ok((1 << 28) - 1 + 0x7f)
        );
        assert_eq!(
            read_all::<HPACK>(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0x00], 7),
            Err(Malformed)
        );
        let mut out = Vec::new();
        write((1 << 62) + 0x7f, 7, 0, &mut out);
        assert_eq!(read_all::<QPACK>(&out, 7), Err(Malformed));
        let endless = [0xff; 10];
        assert_eq!(read_all::<QPACK>(&endless, 7), Err(Malformed));
    }
}
