//! HTTP/2 over sockets: one [`Wire`] per connection, with a task while any of its streams is open.
//!
//! The connection's task receives for everybody, hands requests to tasks of their own, and sends
//! what they have queued, all of a turn together. Each exchange is watched by its own task, as in
//! HTTP/1. A connection without streams is a parked socket and the state of its machine.

mod drive;
mod exchange;
mod inbound;
mod outbound;
mod stream;
mod wire;

pub(crate) use drive::{After, begins_like_http2, run_connection};
pub(crate) use wire::{Shared, Wire};
