//! The binary `blitz`.
fn main() {}
