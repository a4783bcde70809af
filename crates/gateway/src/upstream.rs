//! Upstreams: their addresses, and which one is used next.

mod balancer;
mod cooldown;
mod resolve;

pub(crate) use balancer::{Balancer, Connector, Pick, Tried};
pub use resolve::look_up_once;
pub(crate) use resolve::{NameFailure, RefreshRequests, ResolvedName, start as start_resolving};
