//! The framing driver of HTTP/1.1.
//!
//! There is no task that pumps bytes. Whoever wants something of the connection drives it: a
//! reader of the body receives and steps the machine, a writer encodes and queues. On a server the
//! exchange's task stands behind them and notices what nobody asks for: the client going away,
//! and deadlines. On a client nobody needs to.

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
