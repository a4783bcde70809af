//! The framing driver of HTTP/2: one [`Conn`] per connection, with a task while any of its streams is
//! open.
//!
//! The connection's task receives for all streams and sends what they have queued, all of a turn
//! together. On a server each exchange has a task of its own; on a client those who wait for a
//! response watch its deadlines themselves. A connection without streams is a parked socket and the
//! state of its machine.

mod client;
mod drive;
mod driver;
mod receive;
mod send;
mod server;
mod shortage;

pub(crate) use client::{ClientRole, Fitness, WINDOW_WAIT};
pub(crate) use drive::{Disposition, begins_like_http2, may_begin_like_http2};
pub(crate) use driver::{Conn, Shared};
pub(crate) use server::{IncomingRequest, ServerRole};
