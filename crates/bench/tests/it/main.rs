#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
//! The laboratory, measured from outside.
#![allow(missing_docs)]

mod link;
mod link_accuracy;
mod link_support;
