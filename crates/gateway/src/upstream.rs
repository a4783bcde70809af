//! Where requests are sent: endpoints and their addresses.

mod endpoint;
mod resolve;

pub(crate) use endpoint::{Connections, Endpoint, Pick, Tried};
pub(crate) use resolve::{NameFailure, Resolved, start as start_resolving};
