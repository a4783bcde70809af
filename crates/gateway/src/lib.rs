#![forbid(unsafe_code)]
//! The reverse proxy of Blitz: routes, upstreams, relay.

#[allow(dead_code)] // until requests are relayed
mod forward;
pub mod routes;
pub mod target;
pub mod trusted;
#[allow(dead_code)] // until requests are relayed
mod upstream;
