//! Shared by the tests of Blitz, without code of Blitz, so that they cannot have its errors: peers of HTTP/1.1 on
//! blocking sockets, from exact bytes ([`Raw`]) to whole messages ([`Client`], [`Upstream`]); frames of HTTP/2 and
//! HTTP/3 as bytes; with the feature `quic`, clients of HTTP/3 that send exact bytes; and tables of raw messages with
//! the expected results.
//!
//! The peers panic on unexpected input, and every wait is bounded.

#![forbid(unsafe_code)]

mod alone;
mod client;
pub mod field_compression;
pub mod h2;
pub mod h3;
mod log_lines;
mod peer;
#[cfg(feature = "quic")]
pub mod quic;
mod raw;
mod redis;
mod refusing;
mod requests;
mod responses;
mod silent;
mod upstream;

use std::time::Duration;

pub use alone::is_alone;
pub use client::{Client, Response};
pub use log_lines::{keep_log_lines, log_lines};
pub use peer::{H1Peer, Head, PeerStream};
pub use raw::{Raw, read, read_head};
pub use redis::{RedisMode, RedisPeer};
pub use refusing::{LateListener, refusing_address};
pub use requests::{REQUESTS, RequestRow};
pub use responses::{RESPONSES, ResponseRow};
pub use silent::silent_address;
pub use upstream::{Request, Upstream};

/// The timeout of a read or write.
pub const IO_TIMEOUT: Duration = Duration::from_secs(10);
