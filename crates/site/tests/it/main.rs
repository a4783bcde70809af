//! Tests of the router, one file per behaviour.

mod keys_match_like_a_naive_search;
mod routes_match_like_a_naive_search;
