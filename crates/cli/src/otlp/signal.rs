//! The two kinds of items that are exported.

use super::protobuf::{Attribute, Message};

/// The name of this program's spans and log records.
const SCOPE: &str = "blitz";

/// A kind of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Spans,
    Logs,
}

impl Signal {
    /// The path of its method of gRPC.
    pub(super) fn method(self) -> &'static str {
        match self {
            Signal::Spans => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }

    /// Its path over HTTP.
    pub(super) fn path(self) -> &'static str {
        match self {
            Signal::Spans => "/v1/traces",
            Signal::Logs => "/v1/logs",
        }
    }

    /// Its items, for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Signal::Spans => "spans",
            Signal::Logs => "log records",
        }
    }

    /// The request that exports these items of a resource. Both kinds have the same form.
    pub(super) fn request(self, resource: &[(String, String)], items: &[Vec<u8>]) -> Vec<u8> {
        let mut request = Message::default();
        request.message(1, |of_resource| {
            of_resource.message(1, |out| {
                for (key, value) in resource {
                    out.attribute(1, key, Attribute::Text(value));
                }
            });
            of_resource.message(2, |of_scope| {
                of_scope.message(1, |scope| {
                    scope.bytes(1, SCOPE.as_bytes());
                    scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
                });
                for item in items {
                    of_scope.bytes(2, item);
                }
            });
        });
        request.into_bytes()
    }
}
