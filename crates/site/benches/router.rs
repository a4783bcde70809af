//! Instructions per look-up at 1, 10, 100 and 1,000 routes. The bench fails when one costs more than
//! 400, or more than 310 where the route has no second parameter.

#![allow(missing_docs, unused_qualifications)] // of the macros

use std::hint::black_box;

use blitz_site::matcher::{Pattern, Router, RouterBuilder};
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};

/// Words of an ordinary API, so that names share prefixes as in real ones.
const NOUNS: [&str; 10] = [
    "accounts",
    "articles",
    "comments",
    "customers",
    "files",
    "invoices",
    "orders",
    "payments",
    "products",
    "users",
];

/// Five routes for each resource of each version, as in a large REST service.
fn routes(count: usize) -> Router<usize> {
    let mut builder = RouterBuilder::default();
    for index in 0..count {
        let noun = NOUNS[index / 5 % 10];
        let version = index / 50;
        let below = [
            "",
            "/{id:u64}",
            "/{id:u64}/history",
            "/{id:u64}/{field}",
            "/search",
        ];
        let text = format!("/api/v{version}/{noun}{}", below[index % 5]);
        *builder.entry(&Pattern::parse(&text).expect("a good pattern")) = index;
    }
    builder.build()
}

/// A router of `count` routes, and a path of its last resource. Both are leaked, so that nothing
/// but the look-up is counted.
fn setup(count: usize, below: &str) -> (&'static Router<usize>, &'static str) {
    let last = count - 1;
    let path = format!("/api/v{}/{}{below}", last / 50, NOUNS[last / 5 % 10]);
    (Box::leak(Box::new(routes(count))), path.leak())
}

#[library_benchmark(setup = setup)]
#[bench::literal_of_1(1, "")]
#[bench::literal_of_10(10, "/search")]
#[bench::literal_of_100(100, "/search")]
#[bench::literal_of_1000(1000, "/search")]
#[bench::typed_of_10(10, "/12345")]
#[bench::typed_of_100(100, "/12345")]
#[bench::typed_of_1000(1000, "/12345")]
fn hit((router, path): (&'static Router<usize>, &'static str)) {
    assert!(black_box(router).find(black_box(path)).is_some());
}

#[library_benchmark(setup = setup)]
#[bench::of_10(10, "/12345/address")]
#[bench::of_100(100, "/12345/address")]
#[bench::of_1000(1000, "/12345/address")]
fn hit_with_two_params((router, path): (&'static Router<usize>, &'static str)) {
    assert!(black_box(router).find(black_box(path)).is_some());
}

#[library_benchmark(setup = setup)]
#[bench::of_1000(1000, "/12345/address/more")]
fn miss((router, path): (&'static Router<usize>, &'static str)) {
    assert!(black_box(router).find(black_box(path)).is_none());
}

fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([(EventKind::Ir, instructions)]));
    config
}

library_benchmark_group!(name = short, config = at_most(310), benchmarks = [hit]);
library_benchmark_group!(
    name = long,
    config = at_most(400),
    benchmarks = [hit_with_two_params, miss]
);

main!(library_benchmark_groups = [short, long]);
