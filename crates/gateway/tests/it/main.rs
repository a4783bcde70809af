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
mod names;
mod pooling;
mod retries;
mod routing;
mod smuggling;
mod streaming;
mod upgrade;
