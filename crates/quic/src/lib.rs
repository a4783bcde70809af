//! QUIC over the reactor (RFC 9000), with the state machine of `quinn-proto`.
//!
//! Each core has an [`Endpoint`] with one of the UDP sockets of the address. It receives batches of datagrams, gives
//! them to connections, and sends their datagrams: one task for all connections, so that an idle one is an entry of a
//! table. The connections carry a [`Protocol`].
//!
//! An endpoint of a client has a socket of its own, and connects to servers.

#![forbid(unsafe_code)]

mod accept;
mod congestion;
mod connect;
mod connection;
mod counters;
mod endpoint;
mod handshakes;
mod ids;
mod keys;
mod limits;
mod migration;
mod packet_key;
mod timers;

pub use accept::EndpointOptions;
pub use connect::ConnectError;
pub use connection::Connection;
pub use counters::Counters;
pub use endpoint::{Endpoint, Protocol};
pub use keys::{Keys, KeysError};
pub use limits::Limits;
pub use packet_key::{CryptoFrames, ReceivingKey, StreamFrame};
pub use quinn_proto;
