//! HTTP/1 over sockets.
#![allow(unused_variables, clippy::todo)] // signatures first

mod wire;
pub(crate) use wire::Wire;
