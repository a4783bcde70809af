//! HTTP/1 over sockets: one [`Wire`] per connection with something to do.
//!
//! There is no task that pumps bytes. Whoever wants something of the connection drives it: a
//! reader of the body receives and steps the machine, a writer encodes and queues. On a server the
//! exchange's task stands behind them and watches for what nobody asks for: the client going away,
//! and deadlines. On a client nobody needs to.

mod client;
mod exchange;
mod inbound;
mod outbound;
#[cfg(test)]
mod pieces;
mod refusal;
mod server;
mod switch;
mod watch;
mod wire;

pub(crate) use exchange::{After, run_exchanges};
pub(crate) use switch::Switch;
pub(crate) use wire::{Shelf, Wire};
