#![forbid(unsafe_code)]
//! The reverse proxy of Blitz: routes, upstreams, relay.

mod answer;
mod compile;
mod counters;
mod error_page;
mod explain;
mod flow;
mod forward;
mod gateway;
mod grpc;
mod options;
mod phases;
mod proxy_status;
mod readings;
mod reconnecting;
mod record;
mod rejection;
mod replay;
mod request;
mod request_kind;
mod route;
mod routes;
mod rules;
mod service;
mod sites;
mod snapshot;
mod start_error;
mod summary;
mod target;
mod translate;
mod trusted;
mod upgrade;
mod upload;
mod upstream;
mod websocket;

pub use compile::{ReadFile, compile};
pub use counters::{Counters, counters};
pub use explain::{Explanation, Outcome, explain};
pub use forward::{InvalidLoopId, LoopId};
pub use gateway::{Gateway, OnCore, Running};
pub use options::Options;
pub use proxy_status::Failure;
pub use record::{Ended, Record, RecordHook};
pub use rejection::Rejection;
pub use route::Route;
pub use routes::{RouteConflict, Routes};
pub use rules::LoadedFile;
pub use sites::{Site, SiteRoutes, Sites};
pub use snapshot::{NewSites, Reloading, SteppedReloads};
pub use start_error::StartError;
pub use target::{Origin, Prefix, Target, TargetError};
pub use trusted::{TrustedProxies, TrustedProxy, TrustedProxyError};
pub use upgrade::{UpgradeProtocol, UpgradeProtocolError};

pub use blitz_site::matcher::Verdict;
