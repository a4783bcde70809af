//! gRPC and gRPC-Web: which requests are calls, answers of the gateway that their clients
//! understand, deadlines, and the translation of browsers' calls (gRPC's documents PROTOCOL-HTTP2
//! and PROTOCOL-WEB).

mod answer;
mod base64;
mod call;
mod content_type;
mod status;
mod timeout;
mod web;

pub(crate) use answer::refusal;
pub(crate) use call::{Call, poll_deadline, poll_timer};
pub(crate) use status::Code;
