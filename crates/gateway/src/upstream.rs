//! Upstreams: their addresses, and which one is used next.

mod balancer;
mod cooldown;
mod resolve;
mod retry_budget;

pub(crate) use balancer::{Balancer, Connector, Pick, Tried};
pub use resolve::look_up_once;
pub(crate) use resolve::{NameFailure, RefreshRequests, ResolvedName, start as start_resolving};
pub(crate) use retry_budget::Processed;
