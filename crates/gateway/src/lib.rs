#![forbid(unsafe_code)]
//! The reverse proxy of Blitz: routes, upstreams, relay.

pub mod routes;
pub mod target;
