//! HTTP/2 over sockets: one [`Wire`] per connection, with a task while any of its streams is open.
//!
//! The connection's task receives for everybody and sends what they have queued, all of a turn
//! together. On a server it hands requests to tasks of their own, which watch their exchanges as
//! in HTTP/1; on a client those who wait for a response watch it themselves. A connection without
//! streams is a parked socket and the state of its machine.

mod client;
mod drive;
mod exchange;
mod inbound;
mod liveness;
mod outbound;
mod shortage;
mod stream;
mod wire;

pub(crate) use drive::{
    After, Request, begins_like_http2, may_begin_like_http2, run_client, run_connection,
};
pub(crate) use wire::{Shared, Wire};
