//! The facts of a request that metrics are made of.

use std::time::Duration;

use blitz_http::{Method, Scheme, Status, Version};

use super::key::RouteLabel;
use crate::failure::Failure;
use crate::trace::TraceContext;

/// A request that has ended.
pub(crate) struct EndedRequest<'a> {
    pub(crate) label: RouteLabel,
    pub(crate) method: Method,
    /// That of the client's connection.
    pub(crate) scheme: Scheme,
    /// The same.
    pub(crate) version: Version,
    /// `None` if the client got no response.
    pub(crate) status: Option<Status>,
    /// Since its start.
    pub(crate) duration: Duration,
    /// Content received from the client.
    pub(crate) request_bytes: u64,
    /// Content sent to the client.
    pub(crate) response_bytes: u64,
    /// `None` if no upstream was contacted.
    pub(crate) contact: Option<Contact>,
    /// `None` if it is not recorded.
    pub(crate) trace: Option<&'a TraceContext>,
}

/// The contact with an upstream, in the last attempt.
pub(crate) struct Contact {
    /// From the connection to the head of the response, or to the end.
    pub(crate) duration: Duration,
    pub(crate) has_responded: bool,
    pub(crate) error: ContactError,
}

/// Why there is no complete response of the upstream.
pub(crate) enum ContactError {
    /// There is one.
    None,
    /// The upstream.
    Failure(Failure),
    /// The client caused the end of the request.
    Abandoned,
}
