//! The memory that many sites take.

use std::alloc::System;

use blitz_site::matcher::{HostTable, RouteKey, RouteTable};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SITES: usize = 1_000;

/// 10,000 sites with ten routes each take 32 MB. Other tests allocate at the same time, but far less.
#[test]
fn ten_thousand_sites_fit_into_150_mib() {
    let region = Region::new(ALLOCATOR);
    let mut hosts = HostTable::default();
    let mut tables = Vec::new();
    for site in 0..SITES {
        hosts.insert_exact(&format!("www.tenant-{site}.example"), site);
        let keys = [
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
        let keys = keys.map(|key| RouteKey::parse(key).expect("it is a key"));
        tables.push(RouteTable::new(keys.to_vec()));
    }
    let change = region.change();
    let bytes = change.bytes_allocated - change.bytes_deallocated;
    assert!(
        bytes * 10_000 / SITES < 150 << 20,
        "{bytes} bytes for {SITES} sites"
    );
    assert_eq!(
        (hosts.find(Some("www.tenant-7.example")), tables.len()),
        (Some(&7), SITES)
    );
}
