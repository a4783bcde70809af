#![forbid(unsafe_code)]
//! The laboratory: load, measuring, statistics and reports.
//!
//! Four things are separate: the plan of the requests, the client that sends them, the recorder of their
//! times, and the rule that ends a run.

mod board;
mod command;
mod comparison;
mod descriptors;
mod differences;
mod distribution;
mod fixed_response;
mod goals;
mod group;
mod invocation;
pub mod link;
pub mod load;
mod load_result;
mod load_tool;
mod machine;
mod measure;
mod member;
mod noise;
mod not_run;
mod number;
mod output;
mod peer;
mod probe;
mod process;
mod programs;
mod random;
pub mod report;
mod result_file;
mod results;
mod rounds;
mod run_folder;
mod scenario;
mod shell_words;
mod sites;
pub mod stats;
mod study;
mod supervised;
mod system;
mod tls_files;
mod tuning;

pub use command::{BenchArguments, run};
pub use distribution::{Distribution, Recorder};
