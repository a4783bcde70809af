#![forbid(unsafe_code)]
//! The reverse proxy of Blitz: routes, upstreams, relay.

mod answer;
mod clients;
mod compile;
mod explain;
mod files;
mod flow;
mod forward;
mod gateway;
mod grpc;
mod health;
mod https_redirect;
mod metrics;
mod mirror;
mod options;
mod phases;
mod proxy_header;
mod readings;
mod reconnecting;
mod reloading;
mod replay;
mod request;
mod request_kind;
mod request_limits;
mod rewriting;
mod route;
mod routes;
mod rules;
mod service;
mod site_changes;
mod sites;
mod snapshot;
mod start_error;
mod stepped_reloads;
mod summary;
mod target;
mod trusted;
mod upgrade;
mod upload;
mod upstream;
mod upstream_report;
mod variants;
mod websocket;

pub use compile::{ReadFile, compile};
pub use explain::{Explanation, RequestOutcome, explain};
pub use forward::{InvalidLoopId, LoopId};
pub use gateway::{Gateway, OnCore, Running};
pub use health::HealthChecker;
pub use metrics::{ConfigurationStatus, ExportFacts, Exposition, MetricsReader, ProcessFacts};
pub use options::Options;
pub use reloading::{Reloading, Replacement};
pub use route::Route;
pub use routes::{RouteConflict, Routes};
pub use site_changes::{Change, SiteChange, site_changes};
pub use sites::{AccessGap, Site, SiteRoutes, SiteTls, Sites, tls_policies};
pub use start_error::StartError;
pub use stepped_reloads::{NewSites, ServerOnCore, SteppedReloads};
pub use target::{Origin, Prefix, Target, TargetError};
pub use trusted::{TrustedProxies, TrustedProxy, TrustedProxyError};
pub use upstream::{AddressFigures, CheckState, ResponseTimes};
pub use upstream_report::{
    AddressOnCore, AddressReport, CheckReport, CoreCounters, DrainError, StateReader,
    UpstreamReport,
};

pub use blitz_site::access_log;
pub use blitz_site::matcher::Verdict;
pub use blitz_site::rate::{RateStore, RateStoreFacts, StoreDemand};
pub use blitz_site::{
    ApiKey, Counters, Ended, Failure, FetchedKeys, LoadedFile, NetworkSet, NetworksError,
    Occurrence, OwnedRecord, RecentFailure, Record, RecordBatch, RecordHook, RecordSink, Rejection,
    RouteName, SpanId, TlsFacts, TraceContext, TraceEvent, TraceEventKind, TraceId, TraceSettings,
    Unauthorized, api_keys, counters, fetched_keys_in_use, read_networks,
};
