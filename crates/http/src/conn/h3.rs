//! The framing driver of HTTP/3: one [`Conn`] per QUIC connection.
//!
//! A connection has no task. The endpoint's task reports what happens to its streams, and what exchanges send is
//! written at once to QUIC, which has the flow control, the order of sending and the liveness. Content stays in QUIC
//! until its reader wants it, so that a client sends no more than is read.

mod close;
mod driver;
mod protocol;
mod receive;
mod send;
mod server;
mod unread;

pub(crate) use driver::{STREAMS_FIRST, Shared};
pub(crate) use protocol::{Http3, NO_ERROR, shared};
