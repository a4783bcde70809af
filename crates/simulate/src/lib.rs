#![forbid(unsafe_code)]
//! Whole gateways on a simulated machine, checked by peers that do not use our protocol machines.
//!
//! A run follows from its seed: conditions of the network, limits of the gateway, clients, upstreams,
//! and faults. Every request carries a number and content that follow from the
//! plan; the peers compare both byte by byte.

mod access_log;
mod check;
mod client;
mod content;
mod count;
mod http3;
mod io;
mod ledger;
mod outcome;
mod plan;
mod random;
mod raw;
mod raw_client;
mod raw_http2;
mod raw_upstream;
mod reload;
mod sets;
mod shrink;
mod tls;
mod tunnel;
mod upstream;

pub use check::{run, run_and_shrink, run_set};
pub use count::{kinds, serve};
pub use outcome::{RunFailure, RunSummary};
