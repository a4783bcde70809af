//! The place of a request in a distributed trace: W3C Trace Context, level 2.

mod event;
mod traceparent;

use std::fmt;
use std::num::NonZeroU64;

use blitz_http::{Fields, Name};

use traceparent::Traceparent;

pub use event::{TraceEvent, TraceEventKind};

pub(crate) use event::TraceEvents;

/// The trace is recorded (`sampled`).
const SAMPLED: u8 = 1;

/// The last seven bytes of the id of the trace are random (`random-trace-id`).
const RANDOM: u8 = 2;

/// The bits of the id of a trace that are random, and decide whether it is recorded.
const RANDOM_BITS: u32 = 56;

/// The identity of a trace, which is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId {
    high: u64,
    low: u64,
}

/// The identity of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanId(NonZeroU64);

/// The trace of a request, and the gateway's spans in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span of the client; `None` if the trace begins here.
    pub parent: Option<SpanId>,
    /// The span of the request.
    pub span_id: SpanId,
    /// The span of the request to the upstream, with all its attempts.
    pub client_span_id: SpanId,
    /// The flags of `traceparent`.
    pub flags: u8,
}

/// How requests take part in traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceSettings {
    /// Traces whose random bits are less are not recorded.
    threshold: u64,
    /// Whether requests have log records beside their spans.
    pub logs: bool,
}

impl TraceSettings {
    /// Records this share, from 0 to 1, of the traces that begin here. Of others their client decides.
    #[must_use]
    pub fn new(share: f64, logs: bool) -> TraceSettings {
        let all = (1_u64 << RANDOM_BITS) as f64;
        TraceSettings {
            threshold: ((1.0 - share.clamp(0.0, 1.0)) * all) as u64,
            logs,
        }
    }

    /// The trace of a request with these fields: that of its client, or a new one.
    #[inline(never)]
    pub(crate) fn begin(self, fields: &Fields) -> TraceContext {
        let (span_id, client_span_id) = (SpanId::random(), SpanId::random());
        match Traceparent::of(fields) {
            Some(parent) => TraceContext {
                trace_id: parent.trace_id,
                parent: Some(parent.span_id),
                span_id,
                client_span_id,
                flags: parent.flags,
            },
            None => {
                let trace_id = TraceId::random();
                let is_sampled = trace_id.random_bits() >= self.threshold;
                TraceContext {
                    trace_id,
                    parent: None,
                    span_id,
                    client_span_id,
                    flags: RANDOM | if is_sampled { SAMPLED } else { 0 },
                }
            }
        }
    }
}

impl TraceContext {
    /// Whether its spans are recorded.
    #[inline]
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Makes an upstream's spans children of the request to it.
    #[inline]
    pub fn pass_to_upstream(&self, fields: &mut Fields) {
        self.pass(self.client_span_id, fields);
    }

    /// Makes the spans of an app children of the request.
    pub(crate) fn pass_to_app(&self, fields: &mut Fields) {
        self.pass(self.span_id, fields);
    }

    fn pass(&self, parent: SpanId, fields: &mut Fields) {
        let value = traceparent::write(self.trace_id, parent, self.flags);
        fields.set(Name::Traceparent, value);
        if self.parent.is_none() {
            // Section 3.3: "If the vendor failed to parse traceparent, it MUST NOT attempt to parse tracestate."
            fields.remove(Name::Tracestate);
        }
    }
}

impl TraceId {
    fn random() -> TraceId {
        TraceId {
            high: blitz_http::random_u64(),
            // Not zero, also if all random bits are.
            low: blitz_http::random_u64() | 1 << 63,
        }
    }

    fn random_bits(self) -> u64 {
        self.low & ((1 << RANDOM_BITS) - 1)
    }

    /// Its bytes, in the order in which they are written.
    #[must_use]
    pub fn bytes(self) -> [u8; 16] {
        let number = u128::from(self.high) << 64 | u128::from(self.low);
        number.to_be_bytes()
    }
}

impl SpanId {
    fn random() -> SpanId {
        let random = NonZeroU64::new(blitz_http::random_u64());
        SpanId(random.unwrap_or(NonZeroU64::MIN))
    }

    /// Its bytes, in the order in which they are written.
    #[must_use]
    pub fn bytes(self) -> [u8; 8] {
        self.0.get().to_be_bytes()
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.high, self.low)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn on_core<T>(run: impl FnOnce() -> T) -> T {
        blitz_http::block_on(&blitz_http::Config::default(), async { run() }).unwrap()
    }

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.append(*name, value);
        }
        fields
    }

    #[test]
    fn the_clients_trace_goes_on_and_its_decision_holds() {
        on_core(|| {
            for (settings, flags) in [(0.0, "01"), (1.0, "00"), (1.0, "02")] {
                let parent = format!("{}{flags}", &PARENT[..PARENT.len() - 2]);
                let mut fields = fields(&[("traceparent", &parent), ("tracestate", "a=b")]);
                let trace = TraceSettings::new(settings, false).begin(&fields);
                assert_eq!(trace.is_sampled(), flags == "01");
                assert_eq!(
                    trace.parent.map(|span| span.to_string()),
                    Some("00f067aa0ba902b7".to_owned())
                );
                trace.pass_to_upstream(&mut fields);
                let sent = fields.get_str(Name::Traceparent).unwrap();
                let id = &PARENT[..36];
                assert_eq!(sent, format!("{id}{}-{flags}", trace.client_span_id));
                assert_eq!(fields.get_str(Name::Tracestate), Some("a=b"));
                trace.pass_to_app(&mut fields);
                let sent = fields.get_str(Name::Traceparent).unwrap();
                assert_eq!(sent, format!("{id}{}-{flags}", trace.span_id));
            }
        });
    }

    #[test]
    fn an_invalid_parent_begins_a_new_trace_without_a_state() {
        on_core(|| {
            let mut fields = fields(&[("traceparent", "00-x"), ("tracestate", "a=b")]);
            let trace = TraceSettings::new(1.0, false).begin(&fields);
            assert_eq!((trace.parent, trace.flags), (None, SAMPLED | RANDOM));
            trace.pass_to_upstream(&mut fields);
            assert_eq!(fields.len(), 1);
            let sent = fields.get_str(Name::Traceparent).unwrap();
            assert_eq!(
                sent,
                format!("00-{}-{}-03", trace.trace_id, trace.client_span_id)
            );
        });
    }

    #[test]
    fn a_share_of_new_traces_is_recorded() {
        on_core(|| {
            let sampled = |share| {
                let settings = TraceSettings::new(share, false);
                let traces = (0..10_000).map(|_| settings.begin(&Fields::new()));
                traces.filter(TraceContext::is_sampled).count()
            };
            assert_eq!((sampled(0.0), sampled(1.0)), (0, 10_000));
            let tenth = sampled(0.1);
            assert!((800..1200).contains(&tenth), "{tenth}");
        });
    }

    #[test]
    fn ids_have_their_bytes_in_the_order_of_their_text() {
        let trace = Traceparent::parse(PARENT.as_bytes()).unwrap();
        let hex = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        assert_eq!(hex(&trace.trace_id.bytes()), trace.trace_id.to_string());
        assert_eq!(hex(&trace.span_id.bytes()), trace.span_id.to_string());
        assert_eq!(size_of::<Option<TraceContext>>(), 48);
    }
}
