//! The behaviour of the protocol machines, one topic per file.

mod support;

mod bodies_round_trip;
mod client_commands;
mod differential_h2;
mod differential_hyper;
mod fields_keep_order;
mod h2_attacks;
mod h2_conformity;
mod h2_exchanges;
mod h2_frames;
mod h2_malformed_names;
mod h2_messages;
mod h2_random;
mod h2_shared_upstreams;
mod h2_support;
mod h2_windows;
mod h3_conformity;
mod h3_exchanges;
mod h3_responses;
mod h3_support;
mod hostile_requests;
mod hpack_follows_its_rfc;
mod limits_are_enforced;
mod message_limits;
mod odd_responses;
mod paths_are_normalised;
mod proxy_headers;
mod qpack_follows_its_rfc;
mod server_commands;
