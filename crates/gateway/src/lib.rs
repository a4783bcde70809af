#![forbid(unsafe_code)]
//! The reverse proxy of Blitz: routes, upstreams, relay.

mod admit;
mod connect;
mod core;
mod counters;
mod entrance;
mod finish;
mod forward;
mod gateway;
mod grpc;
mod options;
mod proxy_status;
mod relay;
mod request;
mod retry;
mod routes;
mod target;
mod trusted;
mod upstream;

pub use counters::{Counters, counters};
pub use gateway::{Gateway, OnCore, Running, StartError};
pub use options::Options;
pub use proxy_status::Failure;
pub use routes::{DuplicateRoute, Routes};
pub use target::{Origin, Prefix, Replaced, Target, TargetError};
pub use trusted::{TrustedProxies, TrustedProxy, TrustedProxyError};
