//! Statistics for noisy machines: order, medians with intervals, comparisons, percentiles.
//!
//! Pure functions: equal values and seeds give equal results. A set of runs has rounds; in each round every
//! system runs once, so that two values of a round share the state of the machine and form a pair.
//!
//! | file | question |
//! |---|---|
//! | `order` | in which order do the systems of a round run? |
//! | `quartiles`, `median` | how large is a quantity, and how certain is that? |
//! | `compare` | do two systems differ? |
//! | `percentile` | which percentiles does a number of samples carry? |

mod compare;
mod median;
mod order;
mod percentile;
mod quartiles;
mod rank_sum;
mod signed_rank;

pub use crate::random::Random;
pub(crate) use compare::is_equal;
pub use compare::{Comparison, Difference, PAIRS_MIN, compare, compare_sets};
pub use median::{Interval, Median};
pub use order::order;
pub use percentile::{Percentile, Reading};
pub use quartiles::Quartiles;
