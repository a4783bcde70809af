//! Upstreams: their servers and addresses, and which one is used next.

mod balancer;
mod check;
mod choice;
mod cookie;
mod cooldown;
mod ejection;
mod figures;
mod group;
mod latency;
mod member;
mod name_failure;
mod outlier;
mod retry_budget;
mod selector;
mod set;
mod shared_retries;
mod shed;
#[cfg(test)]
mod tests;
mod weights;

pub(crate) use balancer::{AddressState, Balancer, Pick, States, Tried, UpstreamState};
pub use check::CheckState;
pub(crate) use check::{Check, CheckSubject, Checks, GroupChecks, Outcome};
pub(crate) use choice::Choice;
pub(crate) use cookie::{CookieKey, GroupTokens};
pub use figures::{AddressFigures, ResponseTimes};
pub(crate) use group::{Group, GroupConfig};
pub(crate) use member::{Member, Members};
pub(crate) use name_failure::failure_of_name;
pub(crate) use retry_budget::{Processed, RetryBudget, RetryShare};
pub(crate) use selector::ClientValue;
pub(crate) use set::{ConnectionSettings, Identity, UpstreamConfig, UpstreamSet};
pub(crate) use shed::{Admission, Permit, SharedShed, SharedSheds, ShedState};
