//! Upstreams: their addresses, and which one is used next.

mod balancer;
mod cooldown;
mod resolve;
mod retry_budget;
mod set;

pub(crate) use balancer::{Balancer, Pick, Tried};
pub use resolve::look_up_once;
pub(crate) use resolve::{NameFailure, Resolver};
pub(crate) use retry_budget::Processed;
pub(crate) use set::{Identity, UpstreamConfig, UpstreamSet};
