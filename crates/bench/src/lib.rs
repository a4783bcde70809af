#![forbid(unsafe_code)]
//! The laboratory: load, measuring, statistics and reports.
//!
//! Four things are separate: the plan of the requests, the client that sends them, the recorder of their
//! times, and the rule that ends a run.

mod distribution;
pub mod load;
pub mod report;

pub use distribution::{Distribution, Recorder};
