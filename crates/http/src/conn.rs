//! Framing drivers: one folder for each version of HTTP. No version is known outside.

pub(crate) mod h1;
pub(crate) mod h2;
