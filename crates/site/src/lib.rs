#![forbid(unsafe_code)]
//! Sites: what framework and gateway have in common between a listener and what answers a request.

pub mod matcher;
