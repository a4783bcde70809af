//! How the framework behaves, one file per behaviour.

mod handlers_of_every_shape_are_accepted;
mod routes_are_matched_like_a_naive_reading;
mod routes_that_cannot_work_are_refused;
