//! The framing driver of HTTP/1.1.
//!
//! No task copies bytes. The users of the connection drive it: a reader of the body receives and steps
//! the machine, a writer encodes and queues. On a server the exchange's task also notices deadlines and
//! a client that leaves. A client has no such task.

mod client;
mod driver;
#[cfg(test)]
mod pieces;
mod read_ahead;
mod run;
mod server;
mod switch;

pub(crate) use client::ClientConn;
pub(crate) use run::{Disposition, run_exchanges};
pub(crate) use server::ServerConn;
pub(crate) use switch::Switch;
