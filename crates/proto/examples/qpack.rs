//! QPACK as a program, for tests with other implementations. Each line of the input is a command, and each
//! line of the output its result, with all bytes in hexadecimal digits:
//!
//! ```text
//! i BYTES           instructions of the peer's encoder; the decoder's output
//! s STREAM BYTES    a field section; "blocked", or the decoder's output and its fields
//! c STREAM          the sections of a stream are not decoded; the decoder's output
//! e FIELD...        a field section with these fields
//! ```
//!
//! A field is `NAME:VALUE`. The result of what is malformed is "error".

use std::fmt::Write as _;
use std::io::{BufRead, Write, stdin, stdout};

use blitz_proto::h3::qpack::{Decoder, Encoder};

/// The capacity of the dynamic table, in bytes.
const CAPACITY: usize = 4_096;

fn main() -> std::io::Result<()> {
    let mut decoder = Decoder::new(CAPACITY);
    let mut results = stdout().lock();
    for line in stdin().lock().lines() {
        let line = line?;
        let result = run(&mut decoder, &line).unwrap_or_else(|| "error".to_owned());
        writeln!(results, "{result}")?;
        results.flush()?;
    }
    Ok(())
}

/// The result of a command; `None` if something is malformed.
fn run(decoder: &mut Decoder, line: &str) -> Option<String> {
    let mut words = line.split(' ');
    let mut out = Vec::new();
    match words.next()? {
        "i" => {
            decoder.handle_instructions(&bytes(words.next()?)?).ok()?;
            decoder.acknowledge_insertions(&mut out);
        }
        "s" => {
            let (stream, section) = (words.next()?.parse().ok()?, bytes(words.next()?)?);
            let prefix = decoder.prefix(&section).ok()?;
            if decoder.is_blocked(&prefix) {
                return Some("blocked".to_owned());
            }
            let mut fields = String::new();
            decoder
                .decode(&prefix, &section, |name, value, _| {
                    let _ = write!(fields, " {}:{}", digits(name), digits(value));
                })
                .ok()?;
            decoder.acknowledge(&prefix, stream, &mut out);
            return Some(format!("{}{fields}", digits(&out)));
        }
        "c" => decoder.cancel(words.next()?.parse().ok()?, &mut out),
        "e" => {
            let mut encoder = Encoder::default();
            encoder.begin(&mut out);
            for field in words {
                let (name, value) = field.split_once(':')?;
                encoder.encode(&bytes(name)?, &bytes(value)?, false, &mut out);
            }
        }
        _ => return None,
    }
    Some(digits(&out))
}

fn digits(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let value = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(value).collect()
}
