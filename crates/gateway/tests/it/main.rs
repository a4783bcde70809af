//! The proxy over real sockets, on both drivers, between clients and upstreams that share no code
//! with it.

#![allow(clippy::unwrap_used)] // clippy's own allowance does not reach the helpers of tests

#[macro_use]
mod support;

mod access;
mod access_log;
mod age;
mod allocations;
mod api_keys;
mod app_parity;
mod app_policies;
mod apps;
mod authorizer_log;
mod authorizer_open;
mod balance;
mod basic_auth;
mod board;
#[path = "../../../../boards/httparena/app.rs"]
#[allow(missing_docs, dead_code, reason = "it is for a program")]
mod board_app;
mod body_max;
mod buffer_request;
mod claims;
mod client_certificates;
mod client_paths;
mod closing;
mod compressed_responses;
mod compression;
mod concurrency;
mod cors;
mod credential_spellings;
mod decoders;
mod decompress;
mod drained;
mod early_hints;
mod expect;
mod explained;
mod failed_handshakes;
mod failure_log;
mod failures;
mod fields;
mod file_listing;
mod files;
mod files_before_upstream;
mod forward_auth;
mod grpc;
mod grpc_web;
mod h2;
#[path = "../../../http/tests/it/h2_client.rs"]
#[allow(dead_code, reason = "it is for the tests of several crates")]
mod h2_client;
mod h2_neighbours;
#[path = "../../../http/tests/it/h2_peer.rs"]
#[allow(dead_code, reason = "it is for the tests of several crates")]
mod h2_peer;
mod h2c_upgrade;
mod h3_support;
mod health;
mod hedging;
mod idle_upstreams;
mod incomplete_heads;
mod interop;
mod jwt;
mod limits;
mod liveness;
mod long_answers;
mod message_limits;
mod metrics;
mod mirror;
mod misdirected;
mod name_server;
mod names;
mod own_compression;
mod pooling;
mod prometheus;
mod proxy_protocol;
mod rate_limit;
mod reconnect;
mod records;
mod refusal_log;
mod regexes;
mod reload;
mod retries;
mod retry_settings;
mod routing;
mod satisfy;
mod security_headers;
mod services;
mod shed;
mod site_limits;
mod site_rules;
mod sites;
mod smuggling;
mod stalled_downloads;
mod streaming;
mod timeouts;
#[path = "../../../http/tests/it/tls_support.rs"]
#[allow(dead_code, reason = "it is for the tests of several crates")]
mod tls_support;
mod traces;
mod unprocessed;
mod unread_content;
mod upgrade;
mod upstream_report;
mod upstream_tls;
mod variants;
mod websocket;
mod websocket_ends;
