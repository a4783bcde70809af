//! A malformed field name from the dynamic table is refused, too (RFC 9113, section 8.2.1;
//! CVE-2023-25725), and the table stays equal to the peer's.

use blitz_proto::Limits;
use proptest::prelude::*;

use crate::h2_frames::*;
use crate::h2_support::End;

/// Forbidden names, with the rule that refuses them.
const NAMES: [(&[u8], &str); 6] = [
    (b"", "field-name-malformed"),
    (b"a b", "field-name-malformed"),
    (b"a\0", "field-name-malformed"),
    (b"a\x80", "field-name-malformed"),
    (b"Abc", "field-name-uppercase"),
    (b":abc", "pseudo-header-unknown"),
];

/// The newest entry of the dynamic table, as a whole field and as the name of each kind of literal.
const REFERENCES: [&[u8]; 4] = [
    &[0xbe],
    &[0x7e, 1, b'v'],
    &[0x0f, 0x2f, 1, b'v'],
    &[0x1f, 0x2f, 1, b'v'],
];

/// A literal with indexing.
fn indexed(name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[0x40, name.len() as u8], name, &[value.len() as u8], value].concat()
}

#[test]
fn requests_with_a_malformed_name_from_the_table_are_reset() {
    for (name, rule) in NAMES {
        for (at, reference) in REFERENCES.into_iter().enumerate() {
            // A value may be malformed as well; the next literal brings another.
            let value: &[u8] = if at == 0 { b" " } else { b"1" };
            // The first request's valid field, behind the malformed ones.
            let good = if reference[0] == 0x7e { 0xc0 } else { 0xbf };
            let blocks = [
                indexed(b"good", b"1"),
                indexed(name, value),
                reference.to_vec(),
                vec![0xbe],
                vec![good],
            ];
            let frames: Vec<u8> = (1..)
                .step_by(2)
                .zip(blocks)
                .flat_map(|(id, more)| frame(HEADERS, END | EH, id, [block(GET), more].concat()))
                .collect();
            let expected = format!(
                "1 GET / @a [good: 1] | 1 end | 3 reset {rule} | 5 reset {rule} | 7 reset {rule} | \
                 9 GET / @a [good: 1] | 9 end => RST_STREAM 3 PROTOCOL_ERROR, \
                 RST_STREAM 5 PROTOCOL_ERROR, RST_STREAM 7 PROTOCOL_ERROR"
            );
            assert_eq!(server(&frames), expected, "{name:?} {reference:x?}");
        }
    }
}

#[test]
fn trailers_with_a_malformed_name_from_the_table_are_reset() {
    for (name, rule) in NAMES {
        for reference in REFERENCES {
            let frames = [
                frame(
                    HEADERS,
                    END | EH,
                    1,
                    [block(GET), indexed(name, b"1")].concat(),
                ),
                headers(EH, 3, POST),
                frame(HEADERS, END | EH, 3, reference),
            ]
            .concat();
            assert_eq!(
                server(&frames),
                format!(
                    "1 reset {rule} | 3 POST / @a [] =? | 3 reset {rule} \
                     => RST_STREAM 1 PROTOCOL_ERROR, RST_STREAM 3 PROTOCOL_ERROR"
                ),
                "{name:?} {reference:x?}"
            );
        }
    }
}

#[test]
fn responses_with_a_malformed_name_from_the_table_are_reset() {
    const OK: &[u8] = &[0x88];
    for (name, rule) in NAMES {
        for reference in REFERENCES {
            let mut client = End::client(&Limits::default());
            let streams = [client.get("/"), client.get("/")];
            client.receive(&frame(SETTINGS, 0, 0, []));
            for (id, more) in [(1, indexed(name, b"1")), (3, reference.to_vec())] {
                client.receive(&frame(HEADERS, END | EH, id, [OK, &more].concat()));
            }
            for stream in streams {
                let message = &client.messages[&stream];
                assert_eq!(message.reset, Some(rule), "{name:?} {reference:x?}");
                assert_eq!(message.start, "");
            }
            assert!(client.failure.is_none());
        }
    }
}

/// A field of a random block: a literal with a good or malformed name that enters the table or not,
/// or a reference to a recent entry.
fn field() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec!["", "a", "good", "B", "a b", ":x", "te", "\u{7f}"]);
    let value = prop::sample::select(vec!["", "1", " ", "trailers"]);
    (0_u8..6, name, value, 0_u8..4).prop_map(|(kind, name, value, age)| {
        let value = [&[value.len() as u8], value.as_bytes()].concat();
        let name = [&[name.len() as u8], name.as_bytes()].concat();
        match kind {
            0 => [vec![0x40], name, value].concat(),
            1 => [vec![0x00], name, value].concat(),
            2 => vec![0xbe + age],
            3 => [vec![0x7e], value].concat(),
            4 => [vec![0x0f, 0x2f + age], value].concat(),
            _ => [vec![0x1f, 0x2f + age], value].concat(),
        }
    })
}

proptest! {
    /// No message has a malformed name, whatever the table holds (`End` checks every message).
    #[test]
    fn no_block_produces_a_malformed_name(
        blocks in prop::collection::vec(prop::collection::vec(field(), 0..4), 1..12),
    ) {
        let mut server = End::server(&Limits::default());
        server.receive(PREFACE);
        server.receive(&frame(SETTINGS, 0, 0, []));
        // An entry for the first references.
        let first = [block(GET), [(); 4].map(|()| indexed(b"good", b"1")).concat()].concat();
        server.receive(&frame(HEADERS, END | EH, 1, first));
        for (id, fields) in (3..).step_by(4).zip(blocks) {
            let head = [block(GET), fields.concat()].concat();
            server.receive(&frame(HEADERS, END | EH, id, head));
            server.receive(&headers(EH, id + 2, POST));
            server.receive(&frame(HEADERS, END | EH, id + 2, fields.concat()));
            server.answer();
            server.take_out();
        }
        prop_assert!(server.failure.is_none());
    }
}
