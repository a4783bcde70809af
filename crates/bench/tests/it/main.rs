//! The statistics of the laboratory, seen from outside.

mod intervals_cover;
mod noise_of_a_machine;
mod order_is_balanced;
mod percentiles_need_samples;
mod significance_holds_its_level;
