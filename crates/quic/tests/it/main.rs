#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
//! Endpoints with clients of `quinn`.
#![allow(missing_docs)]

mod attacks;
mod clients;
mod connects;
mod echo;
mod echoes;
mod moves;
mod relay;
mod server;
