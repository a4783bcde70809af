//! QPACK against the examples of RFC 9204, and against an encoder of the test that uses every instruction.

use blitz_proto::h3::qpack::{Decoder, Encoder};
use blitz_testing::field_compression::{prefixed_integer, string_literal};
use proptest::prelude::*;

type Field = (Vec<u8>, Vec<u8>);

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let value = |digit: u8| char::from(digit).to_digit(16).expect("a digit") as u8;
    digits
        .chunks(2)
        .map(|pair| value(pair[0]) << 4 | value(pair[1]))
        .collect()
}

/// Decodes a section that is not blocked; `None` if it is malformed.
fn decode(decoder: &Decoder, section: &[u8]) -> Option<Vec<Field>> {
    let prefix = decoder.prefix(section).ok()?;
    assert!(!decoder.is_blocked(&prefix));
    let mut fields = Vec::new();
    decoder
        .decode(&prefix, section, |name, value, _| {
            fields.push((name.to_vec(), value.to_vec()));
        })
        .ok()?;
    Some(fields)
}

fn text(fields: &[Field]) -> String {
    let line = |(name, value): &Field| {
        let (name, value) = (
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(value),
        );
        format!("{name}={value}")
    };
    fields.iter().map(line).collect::<Vec<_>>().join(" ")
}

/// The instructions of Appendix B.2 to B.5, in order.
const INSTRUCTIONS: [&str; 4] = [
    "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468",
    "4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565",
    "02",
    "810d 6375 7374 6f6d 2d76 616c 7565 32",
];

/// A section that refers to all four entries after the duplication, in the order of their insertion.
const ALL_AFTER_B_4: &str = "0500 83 82 81 80";

#[test]
fn the_examples_of_appendix_b() {
    let mut decoder = Decoder::new(220);
    let fields = decode(&decoder, &hex("0000 510b 2f69 6e64 6578 2e68 746d 6c"));
    assert_eq!(text(&fields.unwrap()), ":path=/index.html");

    let section = hex("0381 10 11");
    let mut out = Vec::new();
    let prefix = decoder.prefix(&section).unwrap();
    assert!(decoder.is_blocked(&prefix));
    decoder.handle_instructions(&hex(INSTRUCTIONS[0])).unwrap();
    assert_eq!(
        text(&decode(&decoder, &section).unwrap()),
        ":authority=www.example.com :path=/sample/path"
    );
    decoder.acknowledge(&prefix, 4, &mut out);
    decoder.acknowledge_insertions(&mut out);
    assert_eq!(
        out,
        hex("84"),
        "the acknowledged section needed all insertions"
    );

    out.clear();
    decoder.handle_instructions(&hex(INSTRUCTIONS[1])).unwrap();
    decoder.acknowledge_insertions(&mut out);
    assert_eq!(out, hex("01"));

    out.clear();
    decoder.handle_instructions(&hex(INSTRUCTIONS[2])).unwrap();
    assert_eq!(
        text(&decode(&decoder, &hex("0500 80 c1 81")).unwrap()),
        ":authority=www.example.com :path=/ custom-key=custom-value"
    );
    decoder.cancel(8, &mut out);
    assert_eq!(out, hex("48"));
    assert_eq!(
        text(&decode(&decoder, &hex(ALL_AFTER_B_4)).unwrap()),
        ":authority=www.example.com :path=/sample/path custom-key=custom-value \
         :authority=www.example.com"
    );

    decoder.handle_instructions(&hex(INSTRUCTIONS[3])).unwrap();
    assert_eq!(
        text(&decode(&decoder, &hex("0600 80")).unwrap()),
        "custom-key=custom-value2"
    );
    // The table has room for four: the first entry is gone.
    assert_eq!(decode(&decoder, &hex("0600 84")), None);
    assert!(decode(&decoder, &hex("0600 83")).is_some());
}

#[test]
fn instructions_may_come_in_any_pieces() {
    let all = INSTRUCTIONS.map(hex).concat();
    for split in 0..=all.len() {
        let mut decoder = Decoder::new(220);
        let (first, second) = all.split_at(split);
        decoder.handle_instructions(first).unwrap();
        decoder.handle_instructions(second).unwrap();
        let fields = decode(&decoder, &hex("0600 80")).unwrap();
        assert_eq!(text(&fields), "custom-key=custom-value2");
    }
    let mut decoder = Decoder::new(220);
    for byte in &all {
        decoder.handle_instructions(&[*byte]).unwrap();
    }
    assert!(decode(&decoder, &hex("0600 80 81 82 83")).is_some());
}

#[test]
fn wrong_instructions_are_refused() {
    for (instructions, why) in [
        ("3fbe01", "more capacity than was announced"),
        ("3fffffffffffffffffff7f", "an integer that is too long"),
        ("c0 00", "an insertion without capacity"),
        ("3f11 ff7f 00", "there is no such static entry"),
        ("3f11 80 00", "there is no dynamic entry"),
        ("3f11 00", "there is no entry to duplicate"),
        (
            "3f11 c0 13 7777 7777 7777 7777 7777 7777 7777 7777 7777 77",
            "larger than the table",
        ),
        ("3f11 c0 7fffffff7f", "a text that cannot fit"),
        ("3f11 41 61 85 ffffffffff", "an invalid Huffman code"),
    ] {
        let instructions = hex(instructions);
        let whole = Decoder::new(220).handle_instructions(&instructions);
        assert!(whole.is_err(), "{why}");
        let mut decoder = Decoder::new(220);
        let in_pieces = instructions
            .iter()
            .try_for_each(|byte| decoder.handle_instructions(&[*byte]));
        assert!(in_pieces.is_err(), "in pieces: {why}");
    }
}

#[test]
fn wrong_sections_are_refused() {
    let mut decoder = Decoder::new(220);
    decoder.handle_instructions(&hex(INSTRUCTIONS[0])).unwrap();
    for (section, why) in [
        ("", "no prefix"),
        ("00", "no base"),
        ("0100", "a count that wraps to 0"),
        ("0d00", "a count beyond twice the table"),
        ("0380 82", "an entry before the first"),
        ("0300 10", "an entry behind the count"),
        ("0200 80 10", "an entry that the count does not cover"),
        ("0284", "a base below 0"),
        (
            "0000 80",
            "a dynamic entry that the count does not announce",
        ),
        ("0000 ff24", "there are 99 static entries"),
        ("0000 51", "no value"),
        ("0000 510b 2f69", "a value that is cut"),
        ("0000 27ff", "a name that is cut"),
        ("0000 51 82 ffff", "an invalid Huffman code"),
    ] {
        assert_eq!(decode(&decoder, &hex(section)), None, "{why}");
    }
    assert!(decode(&decoder, &hex("0200 80")).is_some());
}

#[test]
fn lines_that_repeat_are_encoded_the_same_until_their_value_changes() {
    let mut encoder = Encoder::default();
    let mut section = |second: &str| {
        let date = format!("Wed, 25 Nov 2026 09:00:{second} GMT");
        let lines = [
            ("date", date.as_str()),
            ("content-type", "text/plain; charset=utf-8"),
            ("content-type", "image/png"),
            ("content-type", second),
            ("server", &"s".repeat(100)),
            ("cache-control", "private, max-age=60"),
        ]
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (name, value) in &lines {
            encoder.encode(name, value, false, &mut out);
        }
        assert_eq!(decode(&Decoder::new(0), &out), Some(lines.to_vec()));
        out
    };
    let first = section("01");
    assert_eq!(section("01"), first);
    assert_ne!(section("02"), first);
    assert_eq!(section("01"), first);
}

#[test]
fn secrets_are_marked_and_fields_have_the_shortest_form() {
    let (mut encoder, mut out) = (Encoder::default(), Vec::new());
    encoder.begin(&mut out);
    for (name, value, never_indexed, bytes) in [
        (":method", "GET", false, 1),
        ("content-type", "application/json", false, 1),
        ("x-frame-options", "sameorigin", false, 2),
        ("authorization", "Bearer 0", true, 9),
        ("x-token", "0", true, 9),
        ("access-control-allow-credentials", "TRUE", false, 29),
    ] {
        let before = out.len();
        encoder.encode(name.as_bytes(), value.as_bytes(), never_indexed, &mut out);
        assert!(
            out.len() - before <= bytes,
            "{name}: {}",
            out.len() - before
        );
    }
    let decoder = Decoder::new(0);
    let prefix = decoder.prefix(&out).unwrap();
    let mut secrets = Vec::new();
    decoder
        .decode(&prefix, &out, |name, _, is_secret| {
            if is_secret {
                secrets.push(String::from_utf8_lossy(name).into_owned());
            }
        })
        .unwrap();
    assert_eq!(secrets, ["authorization", "x-token"]);
}

/// An encoder that changes the table at random, with a table of its own.
struct Peer {
    capacity: usize,
    /// The entries, the oldest first, and how many were evicted.
    entries: Vec<Field>,
    evicted: usize,
}

fn size((name, value): &Field) -> usize {
    name.len() + value.len() + 32
}

const CAPACITY_MAX: usize = 600;

impl Peer {
    fn inserted(&self) -> usize {
        self.evicted + self.entries.len()
    }

    fn fit(&mut self) {
        while self.entries.iter().map(size).sum::<usize>() > self.capacity {
            self.entries.remove(0);
            self.evicted += 1;
        }
    }

    /// One instruction for a choice; none where it would be wrong.
    fn instruct(&mut self, choice: &Choice, out: &mut Vec<u8>) {
        let field = choice.field();
        let entries = self.entries.len();
        let at = |seed: usize| (entries > 0).then(|| seed % entries);
        match choice.kind % 5 {
            0 => {
                self.capacity = choice.seed % (CAPACITY_MAX + 1);
                prefixed_integer(0x20, 5, self.capacity, out);
                self.fit();
            }
            1 if size(&field) <= self.capacity => {
                string_literal(0x40, 5, &field.0, out);
                string_literal(0, 7, &field.1, out);
                self.insert(field);
            }
            2 => {
                // Of the static table: 0 is `:authority`, 95 `user-agent`.
                let (index, name) = [(0, ":authority"), (95, "user-agent")][choice.seed % 2];
                let field = (name.as_bytes().to_vec(), field.1);
                if size(&field) <= self.capacity {
                    prefixed_integer(0xc0, 6, index, out);
                    string_literal(0, 7, &field.1, out);
                    self.insert(field);
                }
            }
            3 => {
                if let Some(at) = at(choice.seed) {
                    let field = (self.entries[at].0.clone(), field.1);
                    if size(&field) <= self.capacity {
                        prefixed_integer(0x80, 6, entries - 1 - at, out);
                        string_literal(0, 7, &field.1, out);
                        self.insert(field);
                    }
                }
            }
            4 => {
                if let Some(at) = at(choice.seed) {
                    prefixed_integer(0, 5, entries - 1 - at, out);
                    self.insert(self.entries[at].clone());
                }
            }
            _ => {}
        }
    }

    fn insert(&mut self, field: Field) {
        self.entries.push(field);
        self.fit();
    }

    /// A section for the present table, and its fields.
    fn section(&self, choices: &[Choice]) -> (Vec<u8>, Vec<Field>) {
        let required = self.inserted();
        let base = choices
            .first()
            .map_or(required, |choice| choice.seed % (required + 3));
        let (mut out, mut fields) = (Vec::new(), Vec::new());
        let encoded = match required {
            0 => 0,
            _ => required % (2 * (CAPACITY_MAX / 32)) + 1,
        };
        prefixed_integer(0, 8, encoded, &mut out);
        match base.checked_sub(required) {
            Some(delta) => prefixed_integer(0, 7, delta, &mut out),
            None => prefixed_integer(0x80, 7, required - base - 1, &mut out),
        }
        for choice in choices {
            let field = choice.field();
            let entry = (!self.entries.is_empty()).then(|| choice.seed % self.entries.len());
            match (choice.kind % 3, entry) {
                (0, Some(at)) => {
                    match base.checked_sub(self.evicted + at + 1) {
                        Some(index) => prefixed_integer(0x80, 6, index, &mut out),
                        None => prefixed_integer(0x10, 4, self.evicted + at - base, &mut out),
                    }
                    fields.push(self.entries[at].clone());
                }
                (1, Some(at)) => {
                    match base.checked_sub(self.evicted + at + 1) {
                        Some(index) => prefixed_integer(0x40, 4, index, &mut out),
                        None => prefixed_integer(0x00, 3, self.evicted + at - base, &mut out),
                    }
                    string_literal(0, 7, &field.1, &mut out);
                    fields.push((self.entries[at].0.clone(), field.1));
                }
                _ => {
                    string_literal(0x20, 3, &field.0, &mut out);
                    string_literal(0, 7, &field.1, &mut out);
                    fields.push(field);
                }
            }
        }
        (out, fields)
    }
}

#[derive(Debug, Clone)]
struct Choice {
    kind: u8,
    seed: usize,
}

impl Choice {
    fn field(&self) -> Field {
        let name = ["x-a", "accept", "x-longer-name", ":path"][self.seed % 4];
        (name.into(), vec![b'v'; self.seed % 90])
    }
}

fn choices(max: usize) -> impl Strategy<Value = Vec<Choice>> {
    let choice = (any::<u8>(), 0..10_000_usize).prop_map(|(kind, seed)| Choice { kind, seed });
    prop::collection::vec(choice, 0..max)
}

proptest! {
    /// Instructions come in pieces, and sections before the instructions that they need.
    #[test]
    fn random_tables_and_sections_decode(
        rounds in prop::collection::vec((choices(12), choices(8), 0..200_usize), 1..12),
    ) {
        let mut peer = Peer { capacity: 0, entries: Vec::new(), evicted: 0 };
        let mut decoder = Decoder::new(CAPACITY_MAX);
        for (instructions, lines, split) in rounds {
            let mut stream = Vec::new();
            for choice in &instructions {
                peer.instruct(choice, &mut stream);
            }
            let (section, fields) = peer.section(&lines);
            let prefix = decoder.prefix(&section);
            let (first, second) = stream.split_at(split.min(stream.len()));
            decoder.handle_instructions(first).unwrap();
            decoder.handle_instructions(second).unwrap();
            let now = decoder.prefix(&section).unwrap();
            // The wrapped count is unambiguous while fewer entries are missing than fit into the table.
            if instructions.len() < CAPACITY_MAX / 32 {
                prop_assert_eq!(prefix, Ok(now));
            }
            prop_assert_eq!(decode(&decoder, &section), Some(fields));
            let mut out = Vec::new();
            decoder.acknowledge(&now, 4, &mut out);
            decoder.acknowledge_insertions(&mut out);
            prop_assert!(out.len() <= 12);
        }
    }

    #[test]
    fn what_we_encode_decodes_to_the_same(
        fields in prop::collection::vec(("[a-z-]{1,20}", "[ -~]{0,60}", any::<bool>()), 0..20),
    ) {
        let (mut encoder, mut section) = (Encoder::default(), Vec::new());
        encoder.begin(&mut section);
        for (name, value, never_indexed) in &fields {
            encoder.encode(name.as_bytes(), value.as_bytes(), *never_indexed, &mut section);
        }
        let decoder = Decoder::new(0);
        let prefix = decoder.prefix(&section).unwrap();
        let mut decoded = Vec::new();
        decoder.decode(&prefix, &section, |name, value, never_indexed| {
            decoded.push((
                String::from_utf8_lossy(name).into_owned(),
                String::from_utf8_lossy(value).into_owned(),
                never_indexed,
            ));
        }).unwrap();
        let all_secret_marks_kept = fields.iter().zip(&decoded).all(|(sent, got)| !sent.2 || got.2);
        prop_assert!(all_secret_marks_kept);
        let texts = |fields: &[(String, String, bool)]| -> Vec<_> {
            fields.iter().map(|(name, value, _)| (name.clone(), value.clone())).collect()
        };
        prop_assert_eq!(texts(&fields), texts(&decoded));
    }

    #[test]
    fn garbage_never_panics(
        instructions in prop::collection::vec(any::<u8>(), 0..200),
        section in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut decoder = Decoder::new(4_096);
        decoder.handle_instructions(&hex("3fe11f")).unwrap();
        let _ = decoder.handle_instructions(&instructions);
        if let Ok(prefix) = decoder.prefix(&section) && !decoder.is_blocked(&prefix) {
            let _ = decoder.decode(&prefix, &section, |_, _, _| {});
        }
        prop_assert!(decoder.memory() < 64 * 1024);
    }
}
