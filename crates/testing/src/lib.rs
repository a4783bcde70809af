//! Peers that the tests of Blitz share: an HTTP/1.1 client and an upstream made of plain blocking
//! sockets, with nothing of Blitz inside, so that they cannot share its mistakes; and tables of raw messages with what
//! has to become of them.
//!
//! They panic when something is not as the test says; every wait is bounded.

#![forbid(unsafe_code)]

mod alone;
mod client;
mod requests;
mod responses;
mod upstream;

pub use alone::is_alone;
pub use client::{Client, Response};
pub use requests::{REQUESTS, RequestRow};
pub use responses::{RESPONSES, ResponseRow};
pub use upstream::{Request, Upstream};

use std::time::Duration;

/// How long any read or write may take before the test fails.
pub const IO_TIMEOUT: Duration = Duration::from_secs(10);
