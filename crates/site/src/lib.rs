#![forbid(unsafe_code)]
//! Sites: the common part of framework and gateway, between a listener and the code that answers a request.
//!
//! Each response is sent through the [`Responder`], which makes the site's changes of the head and fills the [`Record`]
//! of the request.

pub mod access_log;
mod client;
mod client_shares;
mod coding;
pub mod compress;
mod content_sender;
mod cookies;
mod counters;
pub mod decompress;
mod edit;
mod emit;
mod endpoint;
mod error_page;
mod failure;
mod failures;
pub mod files;
pub mod folder;
pub mod matcher;
pub mod metrics;
mod network_set;
mod networks;
mod owned_record;
mod pages;
mod policy;
pub mod rate;
mod record;
mod recorder;
mod rejection;
mod responder;
mod trace;
mod transform;

pub use access_log::RecordBatch;
pub use client::ClientAddress;
pub use coding::{AcceptedCodings, ContentCoding};
pub use content_sender::ContentSender;
pub use cookies::cookies;
pub use counters::{Counters, count, count_rejection, counters};
pub use edit::{Edit, EditName, FieldChange, ResponseEdits, apply, apply_to_request};
pub use emit::{emit, emit_handshake, emit_incomplete_head, emit_refused};
pub use endpoint::{AppClient, Endpoint, EndpointMaker, Exchange, HandedOver};
pub use error_page::page as error_page;
pub use failure::Failure;
pub use failures::{FAILURES_MAX, Occurrence, RecentFailure, Unauthorized, recent_failures};
pub use network_set::{NetworkSet, NetworkSetBuilder};
pub use networks::{NetworksError, add_networks, parse_network, read_networks};
pub use owned_record::{OwnedRecord, TlsFacts};
pub use pages::{LoadedFile, Pages, RequestPages};
pub use policy::{
    Algorithm, AnyOf, ApiKey, ApiKeys, AuthCacheSettings, Authorizer, AuthorizerAnswer,
    AuthorizerAttempt, AuthorizerQuestion, BasicAuth, Claim, ClaimDemand, Concurrency, CoreLimits,
    Cors, CorsSettings, EarlyHints, FetchedKeys, ForwardAuth, ForwardAuthSettings, Identities,
    Identity, Jwt, JwtKey, JwtSettings, KeyFetches, KeySource, NoDecision, Notes, OnStoreFailure,
    Origin, Permit, Policies, Policy, PolicyRequest, PolicyResponse, Prover, RateKey, RateLimit,
    RateLimitSettings, SecurityHeaders, SharedLimits, StoreUse, TokenFacts, TokenSource, Users,
    api_keys, fetched_keys_in_use, key_fetches, key_set, preflight_method, users,
};
pub use record::{
    CoreObservers, Ended, Observers, Record, RecordHook, ResponseRecord, RouteName, ToldClient,
};
pub use recorder::RecordSink;
pub use rejection::Rejection;
pub use responder::{AppParts, Responder, SentContent};
pub use trace::{SpanId, TraceContext, TraceEvent, TraceEventKind, TraceId, TraceSettings};
pub use transform::{Transform, TransformError};
