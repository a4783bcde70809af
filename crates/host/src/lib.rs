#![forbid(unsafe_code)]
//! The process of a server: its listeners and cores, certificates, the names that it looks up, the log, and the
//! service manager.

pub mod certificates;
mod control_thread;
pub mod log;
pub mod names;
pub mod service_manager;
pub mod serving;
mod sleeper;

pub use sleeper::Sleeper;
