#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
//! The connection loops over real sockets, with raw byte scripts as peers, on every I/O driver that
//! this machine supports.
#![allow(missing_docs)]

mod support;

mod allocations;
mod body_limits;
mod client_allocations;
mod client_connection;
mod client_exchange;
mod deadlines;
mod drain;
mod early_response;
mod eviction;
mod expect_continue;
mod h2_client;
mod h2_long_heads;
#[allow(dead_code, reason = "tests of other crates use the rest")]
mod h2_peer;
mod h2_server;
mod h2_shortage;
mod h2_stalled;
mod h2_upstream;
mod h2c_upgrade;

mod h3_allocations;
mod h3_client;
mod h3_client_failures;
mod h3_deadlines;
mod h3_drain;
mod h3_failure_log;
mod h3_hostile;
mod h3_merged;
mod h3_peer;
mod h3_raw;
mod h3_relay;
mod h3_server;
mod h3_streams;
mod h3_support;
mod h3_tls;
mod h3_unread;
mod h3_windows;
mod half_close_and_reset;
mod keep_alive;
mod lingering;
mod pieces;
mod pool;
mod proxy_protocol;
mod refusals;
mod tls_certificate_choice;
mod tls_client;
mod tls_server;
mod tls_support;
mod upgrade;
mod upstream_queue;
