#![forbid(unsafe_code)]
//! Under construction.
