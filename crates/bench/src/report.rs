//! Reports.

pub(crate) mod number;
