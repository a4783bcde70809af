//! Requests take part in traces (W3C Trace Context), and the records of those that are recorded have what spans need.

use std::sync::{Arc, Mutex};

use blitz_gateway::access_log::{AccessLog, LogSettings, LogSink};
use blitz_gateway::{Options, OwnedRecord, RecordBatch, RecordSink, TraceEventKind, TraceSettings};
use blitz_http::IoChoice;
use blitz_testing::{Head, refusing_address};
use prost::Message;

use crate::access_log::Lines;
use crate::prometheus::{Exemplar, Family};
use crate::support::{Proxy, Upstream, eventually, held, ok};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// The records that left the cores.
#[derive(Debug, Default)]
struct Records(Mutex<Vec<RecordBatch>>);

impl RecordSink for Records {
    fn take(&self, batch: RecordBatch) -> Option<RecordBatch> {
        self.0.lock().unwrap().push(batch);
        None
    }
}

impl Records {
    /// The only record, once it is there.
    fn with_one<T>(&self, look: impl FnOnce(&OwnedRecord, &RecordBatch) -> T) -> T {
        eventually("a record is handed over", || {
            !self.0.lock().unwrap().is_empty()
        });
        let batches = std::mem::take(&mut *self.0.lock().unwrap());
        assert_eq!((batches.len(), batches[0].records.len()), (1, 1));
        look(&batches[0].records[0], &batches[0])
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

/// A gateway that records this share of new traces.
fn proxy(io: IoChoice, targets: &[&str], share: f64) -> (Proxy, Arc<Records>) {
    let records = Arc::<Records>::default();
    let options = Options {
        tracing: Some(TraceSettings::new(share, false)),
        record_sink: Some(Arc::clone(&records) as Arc<dyn RecordSink>),
        ..Options::default()
    };
    (Proxy::with(io, targets, options), records)
}

/// A request with these fields, and the status of its response.
fn send(proxy: &Proxy, fields: &str) -> u16 {
    let mut client = proxy.client();
    client.send(format!(
        "GET /a?token=secret HTTP/1.1\r\nHost: app.example\r\nUser-Agent: test\r\n{fields}\r\n"
    ));
    client.response().status
}

fn fields_of(flags: &str) -> String {
    format!(
        "traceparent: 00-{TRACE}-{PARENT}-{flags}\r\ntracestate: a=1,b=2\r\ntracestate: c=3\r\n"
    )
}

/// The parts of the `traceparent` that an upstream has received.
fn received(head: &Head) -> [String; 4] {
    let value = head.field("traceparent").expect("the upstream gets it");
    let parts: Vec<_> = value.split('-').map(str::to_owned).collect();
    parts.try_into().unwrap()
}

fn states(head: &Head) -> Vec<&str> {
    let fields = head.fields.iter();
    let states = fields.filter(|(name, _)| name == "tracestate");
    states.map(|(_, value)| value.as_str()).collect()
}

scenarios! {
    fn without_traces_both_fields_pass_unchanged(io) {
        let upstream = Upstream::with_text("hello");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        for fields in [&*fields_of("01"), "Traceparent: what\r\ntracestate: x\r\n", ""] {
            assert_eq!(send(&proxy, fields), 200);
        }
        let heads = upstream.heads();
        assert_eq!(received(&heads[0]), ["00", TRACE, PARENT, "01"]);
        assert_eq!(states(&heads[0]), ["a=1,b=2", "c=3"]);
        assert_eq!((heads[1].field("traceparent"), states(&heads[1])), (Some("what"), vec!["x"]));
        assert_eq!(heads[2].field("traceparent"), None);
    }

    fn the_upstream_gets_the_span_of_the_request_to_it(io) {
        let upstream = Upstream::with_text("hello");
        let (proxy, records) = proxy(io, &[&upstream.url()], 0.0);
        assert_eq!(send(&proxy, &fields_of("01")), 200);
        let head = upstream.head();
        assert_eq!(states(&head), ["a=1,b=2", "c=3"]);
        let [version, trace_id, span_id, flags] = received(&head);
        assert_eq!((&*version, &*trace_id, &*flags), ("00", TRACE, "01"));
        records.with_one(|record, batch| {
            let trace = record.trace.unwrap();
            assert_eq!(trace.trace_id.to_string(), TRACE);
            assert_eq!(trace.parent.map(|parent| parent.to_string()).as_deref(), Some(PARENT));
            assert_eq!(trace.client_span_id.to_string(), span_id);
            assert_ne!(trace.client_span_id, trace.span_id);
            assert_eq!((record.path(), record.query()), (&b"/a"[..], Some(&b"token=secret"[..])));
            let mut headers = batch.headers.iter();
            let user_agent = headers.position(|noted| noted.name.as_str() == "User-Agent");
            assert_eq!(record.header_at(user_agent.unwrap()), b"test");
            assert!(!record.is_logged && !record.is_exported);
            assert_eq!(record.trace_events(), []);
        });
    }

    fn the_decision_of_the_client_holds(io) {
        let upstream = Upstream::with_text("hello");
        let (proxy, records) = proxy(io, &[&upstream.url()], 1.0);
        assert_eq!(send(&proxy, &fields_of("00")), 200);
        let head = upstream.head();
        let [_, trace_id, span_id, flags] = received(&head);
        assert_eq!((&*trace_id, &*flags), (TRACE, "00"));
        assert_ne!(span_id, PARENT);
        // A request that is recorded comes later.
        assert_eq!(send(&proxy, &fields_of("01")), 200);
        records.with_one(|record, _| assert!(record.trace.unwrap().is_sampled()));
    }

    fn new_traces_begin_where_there_is_no_valid_one(io) {
        let upstream = Upstream::with_text("hello");
        let (proxy, records) = proxy(io, &[&upstream.url()], 0.0);
        let twice = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n").repeat(2);
        for fields in ["", "traceparent: 00-x\r\ntracestate: a=1\r\n", &twice] {
            assert_eq!(send(&proxy, fields), 200);
        }
        let mut ids: Vec<_> = upstream.heads().iter().map(|head| {
            assert_eq!(states(head), [""; 0]);
            let fields = head.fields.iter().filter(|(name, _)| name == "traceparent");
            assert_eq!(fields.count(), 1);
            let [version, trace_id, _, flags] = received(head);
            // Their ids are random (level 2), and they are not recorded.
            assert_eq!((&*version, &*flags), ("00", "02"));
            assert_ne!(trace_id, TRACE);
            trace_id
        }).collect();
        ids.dedup();
        assert_eq!(ids.len(), 3);
        assert!(records.is_empty());
    }

    fn retries_are_events_of_one_span(io) {
        let upstream = Upstream::scripted(|number, peer| {
            while peer.request().is_some() {
                if number == 0 {
                    return;
                }
                peer.send(ok("hello"));
            }
        });
        let (proxy, records) = proxy(io, &[&upstream.url()], 1.0);
        assert_eq!(send(&proxy, ""), 200);
        let spans: Vec<_> = upstream.heads().iter().map(|head| received(head)[2].clone()).collect();
        assert_eq!(spans.len(), 2);
        assert_eq!(spans[0], spans[1]);
        records.with_one(|record, _| {
            assert_eq!(record.trace.unwrap().client_span_id.to_string(), spans[0]);
            let kinds: Vec<_> = record.trace_events().iter().map(|event| event.kind).collect();
            assert_eq!(kinds, [TraceEventKind::Retry("connection_terminated")]);
            assert!(record.trace_events()[0].address.is_some());
            let events = record.trace_events();
            assert!(events.iter().all(|event| event.time >= record.started && event.time <= record.finished));
        });
    }

    fn addresses_that_refuse_are_events(io) {
        let upstream = Upstream::with_text("hello");
        let (mut proxy, records) = proxy(io, &[], 1.0);
        proxy.replace_sites(&format!(
            "[site.\"*\"]\nto = \"app\"\n[upstream.app]\nservers = [\"http://{}\", \"{}\"]\nbalance = \"round_robin\"",
            refusing_address(), upstream.url(),
        ));
        // One of them tries the server that refuses first.
        assert_eq!((send(&proxy, ""), send(&proxy, "")), (200, 200));
        let mut kinds = Vec::new();
        eventually("both records are handed over", || {
            let batches = std::mem::take(&mut *records.0.lock().unwrap());
            for record in batches.iter().flat_map(|batch| &batch.records) {
                kinds.push(record.trace_events().iter().map(|event| event.kind).collect::<Vec<_>>());
            }
            kinds.len() == 2
        });
        kinds.sort_by_key(Vec::len);
        assert_eq!(kinds, [vec![], vec![TraceEventKind::ConnectFailure("connection_refused")]]);
    }

    fn apps_get_the_span_of_the_request(io) {
        let (proxy, records) = proxy(io, &[], 0.0);
        let mut client = proxy.client();
        client.send(format!("GET /traceparent HTTP/1.1\r\nHost: a\r\n{}\r\n", fields_of("01")));
        let response = client.response();
        let got = response.text();
        records.with_one(|record, _| {
            assert_eq!(got, format!("00-{TRACE}-{}-01", record.trace.unwrap().span_id));
        });
    }

    fn lines_of_the_access_log_have_the_ids(io) {
        let upstream = Upstream::with_text("hello");
        let lines = Arc::<Lines>::default();
        let log = AccessLog::new(LogSettings::default(), Arc::clone(&lines) as Arc<dyn LogSink>);
        let mut proxy = Proxy::with(io, &[], Options {
            access_log: Some(Arc::new(log)),
            tracing: Some(TraceSettings::new(0.0, false)),
            ..Options::default()
        });
        let site = format!("[site.\"*\"]\nto = \"{}\"", upstream.url());
        proxy.replace_sites(&site);
        send(&proxy, &fields_of("00"));
        let line: serde_json::Value = serde_json::from_str(&lines.wait(1)[0]).unwrap();
        assert_eq!(line["trace_id"], TRACE);
        assert!(line["span_id"].as_str().is_some_and(|id| id.len() == 16 && id != PARENT));
        // A reload can turn traces off.
        proxy.replace(&site, |replacement| replacement.with_tracing(None));
        send(&proxy, &fields_of("01"));
        assert_eq!(received(&upstream.heads()[1])[2], PARENT);
        let line: serde_json::Value = serde_json::from_str(&lines.wait(2)[1]).unwrap();
        assert_eq!(line.get("trace_id"), None);
    }

    fn requests_are_exported_unless_their_route_has_no_log(io) {
        let upstream = Upstream::with_text("hello");
        let records = Arc::<Records>::default();
        let mut proxy = Proxy::with(io, &[], Options {
            tracing: Some(TraceSettings::new(0.0, true)),
            record_sink: Some(Arc::clone(&records) as Arc<dyn RecordSink>),
            ..Options::default()
        });
        proxy.replace_sites(&format!(
            "[site.\"*\"]\nto = \"{}\"\n\"/a\" = {{ access_log = false }}", upstream.url(),
        ));
        send(&proxy, "");
        let mut client = proxy.client();
        client.get("/b");
        records.with_one(|record, _| {
            assert_eq!((record.path(), record.is_exported, record.is_logged), (&b"/b"[..], true, false));
            assert!(!record.trace.unwrap().is_sampled());
        });
    }

    fn a_histogram_has_the_last_trace_as_an_example(io) {
        let upstream = Upstream::with_text("hello");
        let (proxy, _) = proxy(io, &[&upstream.url()], 0.0);
        assert_eq!(send(&proxy, ""), 200);
        let metrics = proxy.metrics();
        eventually("the request has ended", || metrics.read().open_metrics().contains("duration_seconds_bucket"));
        assert!(!metrics.read().open_metrics().contains(" # "));
        assert_eq!(send(&proxy, &fields_of("01")), 200);
        let example = format!(" # {{trace_id=\"{TRACE}\",span_id=\"");
        eventually("there is an example", || metrics.read().open_metrics().contains(&example));
        let read = metrics.read();
        let text = read.open_metrics();
        let lines: Vec<_> = text.lines().filter(|line| line.contains(" # ")).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("http_server_request_duration_seconds_bucket{"), "{lines:?}");
        let (sample, example) = lines[0].split_once(" # ").unwrap();
        let value: f64 = example.rsplit(' ').nth(1).unwrap().parse().unwrap();
        let bound = sample.split("le=\"").nth(1).unwrap().split('"').next().unwrap();
        assert!(bound.parse::<f64>().is_ok_and(|bound| value <= bound), "{lines:?}");
        assert_eq!(examples(&read.protobuf()), 2, "a bucket has it, and the native ones");
    }
}

/// A gateway in a chain is a part of the trace as well.
#[test]
fn gateways_in_a_chain_are_nested() {
    let (upstream, release) = held("hello");
    let (inner, inner_records) = proxy(IoChoice::Auto, &[&upstream.url()], 0.0);
    let url = format!("http://{}", inner.address);
    let (outer, outer_records) = proxy(IoChoice::Auto, &[&url], 1.0);
    release.send(()).unwrap();
    assert_eq!(send(&outer, ""), 200);
    let outer = outer_records.with_one(|record, _| record.trace.unwrap());
    let inner = inner_records.with_one(|record, _| record.trace.unwrap());
    assert_eq!(inner.trace_id, outer.trace_id);
    assert_eq!(inner.parent, Some(outer.client_span_id));
}

/// How many examples are of the trace.
fn examples(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let family = Family::decode_length_delimited(&mut bytes).unwrap();
        let histograms = family
            .metric
            .into_iter()
            .filter_map(|metric| metric.histogram);
        for histogram in histograms {
            let in_buckets = histogram
                .bucket
                .into_iter()
                .filter_map(|bucket| bucket.exemplar);
            let all = in_buckets.chain(histogram.exemplars);
            let of_trace = |one: &Exemplar| {
                one.label
                    .iter()
                    .any(|label| label.value.as_deref() == Some(TRACE))
            };
            count += all.filter(of_trace).count();
        }
    }
    count
}
