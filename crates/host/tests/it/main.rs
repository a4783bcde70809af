//! Tests of the process, one file per behaviour.
#![allow(clippy::unwrap_used)] // clippy's own allowance does not reach the helpers of tests

mod a_service_runs_on_every_core;
mod listeners_come_and_go;
