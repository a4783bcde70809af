#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
//! The laboratory, seen from outside.
#![allow(missing_docs)]

mod intervals_cover;
mod link;
mod link_accuracy;
mod link_support;
mod noise_of_a_machine;
mod order_is_balanced;
mod percentiles_need_samples;
mod significance_holds_its_level;
