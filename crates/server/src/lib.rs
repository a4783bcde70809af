#![forbid(unsafe_code)]
//! Blitz, the server framework: typed routes, streaming bodies, one reactor per core.

pub mod router;
