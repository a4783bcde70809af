//! Tests of the router, one file per behaviour.

mod keys_are_checked;
mod keys_match_like_a_naive_search;
mod memory;
mod regexes_are_tried_by_rank;
mod routes_match_like_a_naive_search;
