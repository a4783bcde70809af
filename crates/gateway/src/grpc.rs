//! gRPC and gRPC-Web: recognition of calls, the gateway's own responses to them, deadlines, and the
//! translation of browsers' calls (gRPC's documents PROTOCOL-HTTP2 and PROTOCOL-WEB).

mod base64;
mod call;
mod content_type;
mod respond;
mod status;
mod timeout;
mod web;

pub(crate) use call::{Call, poll_timer};
pub(crate) use respond::refusal;
pub(crate) use status::Code;
