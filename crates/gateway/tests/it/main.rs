//! The proxy over real sockets, on both drivers, between clients and upstreams that know nothing
//! of Blitz.

#![allow(clippy::unwrap_used)] // clippy's own allowance does not reach the helpers of tests

#[macro_use]
mod support;

mod allocations;
mod closing;
mod expect;
mod failures;
mod fields;
mod h2;
#[path = "../../../http/tests/it/h2_client.rs"]
#[allow(dead_code, reason = "it is for the tests of several crates")]
mod h2_client;
#[path = "../../../http/tests/it/h2_peer.rs"]
#[allow(dead_code, reason = "it is for the tests of several crates")]
mod h2_peer;
mod names;
mod pooling;
mod retries;
mod routing;
mod smuggling;
mod streaming;
mod upgrade;
