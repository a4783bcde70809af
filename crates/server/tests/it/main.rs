//! How the framework behaves, one file per behaviour.
#![allow(clippy::unwrap_used)] // clippy's own allowance does not reach the helpers of tests

mod a_service_runs_on_every_core;
mod arguments_are_taken_from_the_request;
mod built_in_endpoints_answer;
mod content_is_streamed_with_back_pressure;
mod handlers_of_every_shape_are_accepted;
mod https_is_served_from_files;
mod methods_are_answered_as_the_routes_say;
mod middleware_stands_around_handlers;
mod problems_come_in_the_form_the_client_accepts;
mod redirects_say_where_to;
mod routes_are_matched_like_a_naive_reading;
mod routes_that_cannot_work_are_refused;
mod server;
mod signals_end_the_server;
