//! The facts of a record that leave its core.

use std::time::Instant;

use blitz_http::Upstream;

use super::{Ended, Record};
use crate::owned_record::{OwnedRecord, Text, TlsFacts};

/// Copies the facts of a request that ends now.
#[inline]
pub(crate) fn copy(record: &Record<'_>, finished: Instant, owned: &mut OwnedRecord) {
    let (client, response) = (&*record.client, &record.response);
    owned.started = record.started;
    owned.finished = finished;
    owned.connected = record.connected;
    owned.responded = record.responded;
    owned.method = record.method;
    owned.version = record.version;
    owned.scheme = client.scheme;
    owned.remote = client.remote;
    owned.forwarded_client = record.forwarded_client;
    owned.status = response.status;
    owned.request_bytes = record.request_bytes;
    owned.response_bytes = response.bytes;
    owned.attempts = record.attempts;
    owned.connect_failures = record.connect_failures;
    owned.is_connection_reused = record.is_connection_reused;
    owned.grpc_status = record.grpc_status;
    owned.ended = response.ended.as_str();
    owned.cause = response.ended.cause();
    owned.rule = match response.ended {
        Ended::Failed(_) | Ended::CutOff(_) => record.rule.or_else(|| response.ended.rule()),
        _ => None,
    };
    owned.is_handshake = matches!(response.ended, Ended::Handshake(_));
    owned.is_request = !matches!(
        response.ended,
        Ended::Handshake(_) | Ended::IncompleteHead(_)
    );
    owned.omitted = record.omitted;
    owned.trace = record.trace;
    owned.trace_events = record.trace_events.clone();
    owned.upstream = record.upstream.as_ref().map(Upstream::address).cloned();
    owned.is_upstream_tls = record.upstream.as_ref().is_some_and(Upstream::is_tls);
    if let Some(site) = record.site {
        owned.set_text(Text::Site, site.as_bytes());
    }
    if let Some(route) = record.route {
        owned.set_text(Text::Route, route.name().as_bytes());
    }
    owned.tls = client.tls.as_ref().map(|tls| {
        let name = tls.server_name.as_deref().unwrap_or_default();
        owned.set_text(Text::ServerName, name.as_bytes());
        owned.set_text(Text::Alpn, tls.alpn.as_deref().unwrap_or_default());
        TlsFacts {
            version: tls.version,
            cipher_suite: tls.cipher_suite,
            key_exchange: tls.key_exchange,
        }
    });
}
