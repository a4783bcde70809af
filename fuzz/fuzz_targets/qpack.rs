//! Any instructions and field sections: the table must not depend on how the instructions are cut, and what is
//! decoded is encoded and decoded to the same.
#![no_main]

use blitz_proto::h3::qpack::{Decoder, Encoder};
use libfuzzer_sys::fuzz_target;

type Line = (Vec<u8>, Vec<u8>, bool);

fuzz_target!(|input: (u8, &[u8], &[u8])| {
    let (piece, instructions, section) = input;
    let whole = run(instructions, usize::MAX, section);
    let pieces = run(instructions, usize::from(piece) + 1, section);
    assert_eq!(whole, pieces);
    let Some(lines) = whole else { return };
    let (mut encoder, mut again) = (Encoder::default(), Vec::new());
    encoder.begin(&mut again);
    for (name, value, never_indexed) in &lines {
        encoder.encode(name, value, *never_indexed, &mut again);
    }
    assert_eq!(decode(&Decoder::new(0), &again), Some(lines));
});

fn run(instructions: &[u8], piece: usize, section: &[u8]) -> Option<Vec<Line>> {
    const CAPACITY: &[u8] = &[0x3f, 0xe1, 0x1f];
    let mut decoder = Decoder::new(4_096);
    decoder
        .handle_instructions(CAPACITY)
        .expect("a valid capacity");
    for bytes in instructions.chunks(piece) {
        decoder.handle_instructions(bytes).ok()?;
    }
    assert!(decoder.memory() < 128 << 10);
    decode(&decoder, section)
}

fn decode(decoder: &Decoder, section: &[u8]) -> Option<Vec<Line>> {
    let prefix = decoder.prefix(section).ok()?;
    if decoder.is_blocked(&prefix) {
        return None;
    }
    let mut lines = Vec::new();
    decoder
        .decode(&prefix, section, |name, value, never_indexed| {
            lines.push((name.to_vec(), value.to_vec(), never_indexed));
        })
        .ok()?;
    Some(lines)
}
