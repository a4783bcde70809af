//! Instructions per look-up at 1, 10, 100 and 1,000 routes of an application, and of a host and a route among 10,000
//! sites of a gateway. The bench fails when one costs more than its limit.

#![allow(missing_docs, unused_qualifications)] // of the macros

use std::hint::black_box;

use blitz_http::Method;
use blitz_site::matcher::{HostTable, Pattern, RouteKey, RouteTable, Router, RouterBuilder};
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

const SITES: usize = 10_000;

/// The keys of each site.
const KEYS: [&str; 10] = [
    "/",
    "/api",
    "/api/v2/users/{id}",
    "=/health",
    "/assets/",
    "/static/img*",
    "POST /api/orders",
    "GET /api/orders/{order}/items/{item}",
    "/shop.v1.*",
    "/admin",
];

/// The hosts, and the routes of each of them: a look-up counts the same whether sites share them or not.
struct Sites {
    hosts: HostTable<usize>,
    routes: RouteTable,
}

/// A request that these sites get.
type Asked = (&'static Sites, &'static str, &'static str);

/// Every tenth site has a wildcard.
fn sites(authority: &'static str, path: &'static str) -> Asked {
    let mut hosts = HostTable::default();
    for site in 0..SITES {
        match site % 10 {
            0 => hosts.insert_wildcard(&format!("tenant-{site}.example"), site),
            _ => hosts.insert_exact(&format!("www.tenant-{site}.example"), site),
        };
    }
    let keys = KEYS.map(|key| RouteKey::parse(key).expect("it is a key"));
    let routes = RouteTable::new(keys.to_vec());
    (
        Box::leak(Box::new(Sites { hosts, routes })),
        authority,
        path,
    )
}

#[library_benchmark(setup = sites)]
#[bench::everything("www.tenant-9999.example", "/index.html")]
#[bench::text("www.tenant-9999.example", "/assets/css/site.css")]
#[bench::two_parameters("www.tenant-4321.example", "/api/orders/17/items/4711")]
#[bench::wildcard("photos.tenant-5000.example:8443", "/api/v2/users/12345/photos/7")]
#[bench::upper_case("WWW.TENANT-9999.EXAMPLE", "/shop.v1.Orders/Place")]
fn of_many_sites((sites, authority, path): Asked) {
    assert!(
        black_box(sites)
            .hosts
            .find(Some(black_box(authority)))
            .is_some()
    );
    let found = sites.routes.find(black_box(path), Method::Get, "");
    assert!(found.is_some());
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
library_benchmark_group!(
    name = site,
    config = at_most(2000),
    benchmarks = [of_many_sites]
);

main!(library_benchmark_groups = [short, long, site]);
