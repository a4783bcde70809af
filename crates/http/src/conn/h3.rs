//! The framing driver of HTTP/3: one [`Conn`] per QUIC connection.
//!
//! A connection has no task. The endpoint's task reports what happens to its streams, and what exchanges send is
//! written at once to QUIC, which has the flow control, the order of sending and the liveness. Content stays in QUIC
//! until its reader wants it, so that a peer sends no more than is read. On a client those who wait for a response
//! watch its deadlines themselves.

mod client;
mod close;
mod driver;
mod held;
mod listener;
mod protocol;
mod receive;
mod role;
mod send;
mod server;
mod server_deadlines;
mod unread;

pub(crate) use client::Client;
pub(crate) use driver::{Conn, Shared};
pub(crate) use listener::shared;
pub(crate) use protocol::{Http3, NO_ERROR};
pub(crate) use server::Server;
