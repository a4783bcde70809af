//! The address of a client.

use std::net::IpAddr;

/// The client of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAddress {
    /// An address, which a trusted proxy may have told.
    Address(IpAddr),
    /// A process of this machine.
    Unix,
    /// Someone behind a trusted proxy whose field says no address.
    Unknown,
}
