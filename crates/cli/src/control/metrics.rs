//! `/metrics`, in the form that the client prefers.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use blitz::extract::{Headers, State};
use blitz::{Peer, Response, Status};
use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::access::Reach;
use super::negotiation::{Format, metrics_format};
use super::rendering::{Pace, Rendering};
use super::state::ControlState;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// The renderings of each form, for both places: those of the socket do not wait for those of the address.
#[derive(Default)]
pub(super) struct Renderings {
    of_socket: [Rendering; 3],
    of_address: [Rendering; 3],
}

pub(super) async fn metrics(
    State(state): State<Arc<ControlState>>,
    peer: Peer,
    headers: Headers,
) -> Result<Response, Response> {
    let format = metrics_format(&headers);
    let Some(reader) = state.observed().map(|observed| observed.metrics.clone()) else {
        let text = "there are no metrics yet: the process starts\n  ask again in a second\n";
        return Err(Response::text(text).with_status(Status::SERVICE_UNAVAILABLE));
    };
    let reach = Reach::of(&peer);
    let permit = state.admission.read_metrics(reach)?;
    let (renderings, pace) = match reach {
        Reach::Socket => (&state.renderings.of_socket, Pace::Immediate),
        Reach::Loopback(_) | Reach::Network(_) => (&state.renderings.of_address, Pace::Paused),
    };
    let render = move || {
        let metrics = reader.read();
        match format {
            Format::OpenMetrics => metrics.open_metrics().into_bytes(),
            Format::Text => classic_text(&metrics.open_metrics()).into_bytes(),
            Format::Protobuf => metrics.protobuf(),
        }
    };
    let (number, kind) = match format {
        Format::OpenMetrics => (0, OPEN_METRICS),
        Format::Text => (1, TEXT),
        Format::Protobuf => (2, PROTOBUF),
    };
    let content = renderings[number].next(pace, render).await;
    let content = content.ok_or_else(|| Response::new(Status::INTERNAL_SERVER_ERROR))?;
    let content = Bytes::from_owner(SharedContent {
        content,
        _permit: permit,
    });
    let response = Response::bytes(content).content_type(kind);
    Ok(response.header("Vary", "Accept"))
}

/// The content of a response, which others share; at its end another request may be answered.
struct SharedContent {
    content: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for SharedContent {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

/// The same metrics in the text of Prometheus 0.0.4: without units, exemplars and the last line, and with the names of
/// samples in place of those of families.
fn classic_text(text: &str) -> String {
    let types: HashMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        // Writing to a text does not fail.
        let _ = match metadata(line) {
            Some(("HELP", family, rest)) => {
                let suffix = suffix(types.get(family).copied());
                writeln!(out, "# HELP {family}{suffix} {rest}")
            }
            Some(("TYPE", family, rest)) => {
                let kind = match rest {
                    "info" | "stateset" => "gauge",
                    "unknown" => "untyped",
                    kind => kind,
                };
                writeln!(out, "# TYPE {family}{} {kind}", suffix(Some(rest)))
            }
            None if !line.starts_with('#') => writeln!(out, "{}", without_exemplar(line)),
            _ => Ok(()),
        };
    }
    out
}

/// The keyword, the family and the rest of a line about a family.
fn metadata(line: &str) -> Option<(&str, &str, &str)> {
    let (keyword, rest) = line.strip_prefix("# ")?.split_once(' ')?;
    let (family, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((keyword, family, rest))
}

/// How the names of the samples of a family end, if all end alike.
fn suffix(kind: Option<&str>) -> &'static str {
    match kind {
        Some("counter") => "_total",
        Some("info") => "_info",
        _ => "",
    }
}

/// A sample without what is behind its value and timestamp. Labels may have any text, in quotes.
fn without_exemplar(line: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b'#' if !is_quoted => return line[..at].trim_end(),
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_told_in_the_older_text() {
        let text = "\
# HELP http_requests Requests.
# TYPE http_requests counter
http_requests_total{route=\"a # \\\" b\"} 3 # {trace_id=\"1\"} 1 2
# TYPE request_seconds histogram
# UNIT request_seconds seconds
# HELP request_seconds Times.
request_seconds_bucket{le=\"0.1\"} 2 # {trace_id=\"2\"} 0.05
request_seconds_sum 0.1
# TYPE blitz_build info
blitz_build_info{version=\"1\"} 1
# TYPE other unknown
other 4
# EOF
";
        let expected = "\
# HELP http_requests_total Requests.
# TYPE http_requests_total counter
http_requests_total{route=\"a # \\\" b\"} 3
# TYPE request_seconds histogram
# HELP request_seconds Times.
request_seconds_bucket{le=\"0.1\"} 2
request_seconds_sum 0.1
# TYPE blitz_build_info gauge
blitz_build_info{version=\"1\"} 1
# TYPE other untyped
other 4
";
        assert_eq!(classic_text(text), expected);
    }
}
