//! The facts of a record that metrics are made of.

use std::time::Instant;

use super::{Ended, Record, RouteName};
use crate::metrics::{Contact, ContactError, EndedRequest, RouteLabel};

/// Counts a request in the metrics of its core.
#[inline]
pub(crate) fn measure(record: &Record<'_>) {
    let now = blitz_http::now();
    crate::metrics::measure(&EndedRequest {
        label: record.route.map_or(RouteLabel::UNROUTED, RouteName::label),
        method: record.method,
        scheme: record.client.scheme,
        version: record.version,
        status: record.response.status,
        duration: now.saturating_duration_since(record.started),
        request_bytes: record.request_bytes,
        response_bytes: record.response.bytes,
        contact: contact(record, now),
        trace: record.trace.as_ref().filter(|trace| trace.is_sampled()),
    });
}

#[inline(always)]
fn contact(record: &Record<'_>, now: Instant) -> Option<Contact> {
    let is_contacted = record.attempts > 0 || record.connect_failures > 0;
    // Without a connection the time is that of the attempts to make one.
    let from = record.connected.unwrap_or(record.started);
    let to = record.responded.unwrap_or(now);
    is_contacted.then(|| Contact {
        duration: to.saturating_duration_since(from),
        has_responded: record.responded.is_some(),
        error: match record.response.ended {
            Ended::Complete => ContactError::None,
            Ended::Failed(failure) | Ended::CutOff(failure) => ContactError::Failure(failure),
            // The upstream is not the cause.
            _ if record.responded.is_some() => ContactError::None,
            _ => ContactError::Abandoned,
        },
    })
}
