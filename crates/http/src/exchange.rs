//! One request and its response, for every version of HTTP and for both sides.
//!
//! The rules of an exchange are only here: receiving and sending its messages, its deadlines, its
//! outcome, and the responses that the core generates. A connection of some version is a framing driver
//! ([`Framing`]): it turns messages into bytes and back. Services and the gateway see handles
//! ([`RecvBody`], [`SendBody`], [`Responder`], [`ResponseStream`]), which name an exchange by its
//! connection and its number there.

mod carrier;
mod deadline;
mod framing;
mod handle;
mod outcome;
mod pace;
mod peer;
mod receive;
mod recv_body;
mod refusal;
mod request;
mod respond;
mod responder;
mod response;
mod send;
mod send_body;
mod service;
mod state;

pub use peer::{Peer, Scheme};
pub use recv_body::{Part, RecvBody, Tunnel};
pub use responder::Responder;
pub use response::{Response, ResponseEvent, ResponseStream};
pub use send_body::SendBody;
pub use service::{Exchange, Service, ServiceFn, service_fn};

pub(crate) use carrier::{Carrier, OpenCarrier};
pub(crate) use framing::{
    ClientFraming, Fill, Framing, ReceivedHead, ReceivedKind, Sent, ServerFraming,
};
pub(crate) use framing::{ClientSide, ExchangeId, ServerSide, Side, Transmission};
pub(crate) use handle::Link;
pub(crate) use outcome::{Conclusion, ExchangeOutcome, conclude, poll_outcome};
pub(crate) use pace::ReceivedContent;
pub(crate) use refusal::{
    LoggedRefusal, refusal_of, refuse, refuse_request, refuse_stream, tell_reset_head,
};
pub(crate) use respond::send_response;
pub(crate) use send::{complete_message, conclude_sent};
pub(crate) use state::{BodyState, ExchangeState, MessageState, note, wake};
