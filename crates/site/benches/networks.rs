//! Instructions per look-up of an address among a million networks, IPv4 and IPv6. The bench fails when one costs more
//! than its limit.

#![allow(missing_docs, unused_qualifications)] // of the macros

use std::hint::black_box;
use std::net::{IpAddr, Ipv6Addr};

use blitz_site::{NetworkSet, NetworkSetBuilder};
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};

const NETWORKS: u128 = 1_000_000;

/// Multiplied with a number, it spreads small numbers over 64 bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A set of a million networks, leaked, so that nothing but the look-up is counted.
fn set(network: impl Fn(u64) -> (u128, u128)) -> &'static NetworkSet {
    let mut builder = NetworkSetBuilder::default();
    for number in 0..NETWORKS as u64 {
        let (first, last) = network(number);
        let bounds = (Ipv6Addr::from_bits(first), Ipv6Addr::from_bits(last));
        assert!(builder.add(Some(bounds)));
    }
    Box::leak(Box::new(builder.build()))
}

/// Addresses of IPv4 at random.
fn v4(address: &str) -> (&'static NetworkSet, IpAddr) {
    let network = |number: u64| {
        let address = 0xffff_0000_0000 | u128::from((number.wrapping_mul(SPREAD) >> 32) as u32);
        (address, address)
    };
    (set(network), address.parse().expect("it is an address"))
}

/// Networks of IPv6 that all share their first bits.
fn v6(address: &str) -> (&'static NetworkSet, IpAddr) {
    let network = |number: u64| {
        let first = 0x2001 << 112 | u128::from(number.wrapping_mul(SPREAD) >> 16) << 64;
        (first, first | u128::from(u64::MAX))
    };
    (set(network), address.parse().expect("it is an address"))
}

#[library_benchmark]
#[bench::v4_outside(args = ("192.0.2.7"), setup = v4)]
#[bench::v4_mapped(args = ("::ffff:192.0.2.7"), setup = v4)]
#[bench::v6_outside(args = ("2001:db8:1:2::3"), setup = v6)]
#[bench::v6_inside(args = ("2001:0::1"), setup = v6)]
fn find((set, client): (&'static NetworkSet, IpAddr)) -> bool {
    black_box(set).contains(black_box(Some(client)))
}

fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([(EventKind::Ir, instructions)]));
    config
}

library_benchmark_group!(name = networks, config = at_most(300), benchmarks = [find]);

main!(library_benchmark_groups = [networks]);
