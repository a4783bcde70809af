#![forbid(unsafe_code)]
//! The reverse proxy of Blitz: routes, upstreams, relay.

mod compile;
mod counters;
mod error_page;
mod flow;
mod forward;
mod gateway;
mod grpc;
mod options;
mod phases;
mod proxy_status;
mod reconnecting;
mod record;
mod rejection;
mod replay;
mod request;
mod request_kind;
mod routes;
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

pub use compile::compile;
pub use counters::{Counters, counters};
pub use forward::{InvalidLoopId, LoopId};
pub use gateway::{Gateway, OnCore, Running};
pub use options::Options;
pub use proxy_status::Failure;
pub use record::{Ended, Record, RecordHook};
pub use rejection::Rejection;
pub use routes::{RouteConflict, Routes};
pub use sites::{Site, SiteRoutes, Sites};
pub use snapshot::Reloading;
pub use start_error::StartError;
pub use target::{Origin, Prefix, Target, TargetError};
pub use trusted::{TrustedProxies, TrustedProxy, TrustedProxyError};
pub use upgrade::{UpgradeProtocol, UpgradeProtocolError};
pub use upstream::look_up_once;
