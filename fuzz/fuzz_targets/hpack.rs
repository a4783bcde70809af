//! HPACK against another implementation: both decode an accepted block to the same fields, and both
//! decode the blocks that Blitz encodes.
#![no_main]

use arbitrary::Arbitrary;
use blitz_proto::h2::hpack::{Decoder, Encoder};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    blocks: Vec<&'a [u8]>,
    lists: Vec<List<'a>>,
}

#[derive(Debug, Arbitrary)]
struct List<'a> {
    table_size: Option<u16>,
    fields: Vec<(&'a [u8], &'a [u8], bool)>,
}

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Option<Fields> {
    let mut fields = Vec::new();
    let on_field = |name: &[u8], value: &[u8], _| fields.push((name.to_vec(), value.to_vec()));
    decoder.decode(block, on_field).ok()?;
    Some(fields)
}

fuzz_target!(|input: Input<'_>| {
    let (mut ours, mut theirs) = (Decoder::new(4096), fluke_hpack::Decoder::new());
    theirs.set_max_allowed_table_size(4096);
    for block in input.blocks {
        // The other implementation panics at some truncated blocks, which Blitz refuses.
        let Some(ours) = decode(&mut ours, block) else {
            break;
        };
        let Ok(theirs) = theirs.decode(block) else {
            break;
        };
        assert_eq!(ours, theirs);
    }

    let mut encoder = Encoder::new(4096);
    let (mut ours, mut theirs) = (Decoder::new(4096), fluke_hpack::Decoder::new());
    theirs.set_max_allowed_table_size(4096);
    for list in input.lists {
        if let Some(size) = list.table_size {
            encoder.set_peer_size(usize::from(size));
        }
        let mut block = Vec::new();
        encoder.begin(&mut block);
        let mut expected = Vec::new();
        for (name, value, never_indexed) in
            list.fields.into_iter().filter(|field| !field.0.is_empty())
        {
            encoder.encode(name, value, never_indexed, &mut block);
            expected.push((name.to_vec(), value.to_vec()));
        }
        assert_eq!(decode(&mut ours, &block).as_ref(), Some(&expected));
        if !expected.is_empty() {
            assert_eq!(theirs.decode(&block).ok(), Some(expected));
        }
    }
});
