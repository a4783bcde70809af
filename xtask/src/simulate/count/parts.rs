//! Where the instructions of a request are: the parts of the program, by source file.

use std::collections::HashMap;

use super::profile::{CodeLocation, add};

/// The parts, with patterns of source files that belong to them, in this order.
const PARTS: &[(&str, &[&str])] = &[
    (
        "cryptography: AEAD, header protection, TLS",
        &[
            "/aws-lc-",
            "/rustls-0",
            "/rustls-pki",
            "/rustls-webpki",
            "/zeroize-",
        ],
    ),
    ("QUIC: quinn-proto", &["/quinn-proto-"]),
    (
        "what QUIC holds: `packet_key`",
        &["crates/quic/src/packet_key.rs"],
    ),
    (
        "what QUIC holds: `held`",
        &["crates/http/src/conn/h3/held.rs"],
    ),
    (
        "what QUIC holds: `unread`",
        &["crates/http/src/conn/h3/unread.rs"],
    ),
    ("endpoint: blitz-quic", &["crates/quic/src/"]),
    (
        "HTTP/3: frames, QPACK, streams",
        &[
            "crates/http/src/conn/h3/",
            "crates/http/src/conn/datagrams",
            "crates/http/src/conn/streams",
            "crates/http/src/serve/datagrams.rs",
            "crates/http/src/quic_limits.rs",
            "crates/proto/src/h3",
            "crates/proto/src/field_",
        ],
    ),
    (
        "HTTP/1.1 and HTTP/2",
        &[
            "crates/http/src/conn/",
            "crates/proto/src/h1",
            "crates/proto/src/h2",
        ],
    ),
    (
        "exchange: service, gateway, heads",
        &[
            "crates/http/src/",
            "crates/proto/src/",
            "crates/server/src/",
            "crates/site/src/",
            "crates/gateway/src/",
        ],
    ),
    ("driver: blitz-reactor", &["crates/reactor/src/"]),
];

const CRYPTOGRAPHY: &str = PARTS[0].0;
const ALLOCATOR: &str = "allocator: malloc and free";
const COPIES: &str = "copies and comparisons: memcpy, memset, memcmp";
const REST: &str = "other";

/// Functions of the C library.
const COPYING: [&str; 5] = ["memcpy", "memmove", "memset", "memcmp", "bcmp"];
const ALLOCATING: [&str; 7] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "memalign",
    "unlink_chunk",
    "sysmalloc",
];

/// Prints a table of the parts, and the functions with the most instructions.
pub(super) fn print(kind: &str, each: &HashMap<CodeLocation, f64>) {
    const FUNCTIONS: usize = 25;
    let total: f64 = each.values().sum();
    let (mut parts, mut functions) = (HashMap::new(), HashMap::new());
    for (place, instructions) in each {
        add(&mut parts, &part(place), *instructions);
        add(&mut functions, &place.function, *instructions);
    }
    println!("| {kind} | instructions | part |\n|---|---|---|");
    for (part, instructions) in sorted(parts) {
        let percent = instructions / total * 100.0;
        println!("| {part} | {instructions:.0} | {percent:.1} % |");
    }
    println!("| all | {total:.0} | |\n");
    for (function, instructions) in sorted(functions).into_iter().take(FUNCTIONS) {
        println!("{instructions:>12.0}  {function}");
    }
}

fn sorted<K>(all: HashMap<K, f64>) -> Vec<(K, f64)> {
    let mut all: Vec<(K, f64)> = all.into_iter().collect();
    all.sort_by(|one, other| other.1.total_cmp(&one.1));
    all
}

/// The part that instructions belong to. Generic code of the standard library and of other crates belongs to the
/// function that it is inlined into.
fn part(place: &CodeLocation) -> &'static str {
    let of_files = of_file(&place.file).or_else(|| of_file(&place.function_file));
    of_files.unwrap_or_else(|| of_function(&place.function))
}

fn of_file(file: &str) -> Option<&'static str> {
    let is_of = |(_, patterns): &&(&str, &[&str])| patterns.iter().any(|part| file.contains(part));
    PARTS.iter().find(is_of).map(|(part, _)| *part)
}

/// The part of a function without a known source file.
fn of_function(function: &str) -> &'static str {
    let has = |names: &[&str]| names.iter().any(|name| function.contains(name));
    // A path of Rust names its crate; assembly and C of cryptography have none.
    let is_rust = function.contains("::");
    if !is_rust && has(&COPYING) {
        return COPIES;
    }
    if !is_rust && has(&ALLOCATING) {
        return ALLOCATOR;
    }
    match is_rust {
        false => CRYPTOGRAPHY,
        true => {
            let crates = [
                ("aws_lc", CRYPTOGRAPHY),
                ("rustls", CRYPTOGRAPHY),
                ("quinn_proto", PARTS[1].0),
                ("blitz_quic::packet_key", PARTS[2].0),
                ("blitz_http::conn::h3::held", PARTS[3].0),
                ("blitz_http::conn::h3::unread", PARTS[4].0),
                ("blitz_quic", PARTS[5].0),
                ("blitz_http::conn::h3", PARTS[6].0),
                ("blitz_proto::h3", PARTS[6].0),
                ("blitz_http::conn", PARTS[7].0),
                ("blitz_http", PARTS[8].0),
                ("blitz_proto", PARTS[8].0),
                ("blitz_gateway", PARTS[8].0),
                ("blitz::", PARTS[8].0),
                ("blitz_reactor", PARTS[9].0),
            ];
            let known = crates.iter().find(|(name, _)| function.contains(name));
            known.map_or(REST, |(_, part)| part)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part_of(file: &str, function_file: &str, function: &str) -> &'static str {
        part(&CodeLocation {
            file: file.to_owned(),
            function_file: function_file.to_owned(),
            function: function.to_owned(),
        })
    }

    #[test]
    fn inlined_code_of_the_standard_library_belongs_to_its_function() {
        let library = "/rustc/1/library/core/src/option.rs";
        let quic = "/registry/quinn-proto-0.11.19/src/connection/mod.rs";
        let held = "/checkout/crates/http/src/conn/h3/held.rs";
        assert_eq!(part_of(library, quic, "poll"), "QUIC: quinn-proto");
        assert_eq!(part_of(held, quic, "poll"), "what QUIC holds: `held`");
        let function = "core::ptr::drop_in_place<quinn_proto::Connection>";
        assert_eq!(part_of(library, library, function), "QUIC: quinn-proto");
        assert_eq!(part_of(library, library, "core::fmt::write"), REST);
        assert_eq!(part_of("malloc.c", "malloc.c", "_int_malloc"), ALLOCATOR);
        let copy = "__memcpy_avx_unaligned_erms";
        assert_eq!(part_of("???", "???", copy), COPIES);
        let cipher = "aes_gcm_enc_update_vaes_avx2";
        assert_eq!(part_of("???", "???", cipher), CRYPTOGRAPHY);
    }
}
