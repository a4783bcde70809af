//! The framing driver of HTTP/3: one [`Conn`] per QUIC connection.
//!
//! A connection has no task. The endpoint's task reports the events of its streams. Exchanges write at once to QUIC,
//! which has the flow control, the order of sending and the liveness. Content stays in QUIC until its reader takes it,
//! so that a peer sends no faster than its content is read. On a client, the task that waits for a response watches the
//! deadlines of the request.

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

pub(crate) use client::ClientRole;
pub(crate) use driver::{Conn, Shared};
pub(crate) use listener::shared;
pub(crate) use protocol::{Http3, NO_ERROR};
pub(crate) use server::ServerRole;
