//! The generator: requests to a server, and the times of its responses.

mod result;

pub use result::{
    Affects, Connects, Counts, GeneratorFacts, Interval, LoadResult, PlanFacts, Problem,
    RESULT_VERSION, TargetFacts, Times,
};
