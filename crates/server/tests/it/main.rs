//! Tests of the framework, one file per behaviour.
#![allow(clippy::unwrap_used)] // clippy's own allowance does not reach the helpers of tests

mod access_policies_decide;
mod arguments_are_extracted_from_requests;
mod built_in_endpoints_answer;
mod content_is_streamed_with_back_pressure;
mod errors_are_logged;
mod files_are_sent;
mod handlers_of_every_shape_are_accepted;
mod https_is_served_from_files;
mod invalid_routes_are_refused;
mod methods_follow_the_routes;
mod middleware_wraps_handlers;
mod policies_decide_before_handlers;
mod problems_have_the_accepted_format;
mod redirects_have_a_location;
mod server;
mod signals_end_the_server;
