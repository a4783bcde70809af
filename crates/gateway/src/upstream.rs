//! Upstreams: their addresses, and which one is used next.

mod balancer;
mod cooldown;
mod name_failure;
mod retry_budget;
mod set;

pub(crate) use balancer::{Balancer, Pick, Tried};
pub(crate) use name_failure::failure_of_name;
pub(crate) use retry_budget::Processed;
pub(crate) use set::{Identity, UpstreamConfig, UpstreamSet};
