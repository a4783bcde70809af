//! Spans and log records reach a collector, as OTLP over HTTP. The smoke test `traces` has real collectors, and gRPC.

mod dropped;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::{Client, IO_TIMEOUT, Upstream};
use prost::Message;

use crate::control_support::Place;
use crate::https::{Folder, Running};
use crate::{blitz, stderr};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// The exports that a collector has taken.
#[derive(Clone, Default)]
struct Taken(Arc<Mutex<Vec<Export>>>);

#[derive(Clone)]
struct Export {
    path: String,
    key: Option<String>,
    content: Request,
}

impl Taken {
    /// A collector that gives these responses first, and then takes all.
    fn collector(&self, first: &'static [&'static str]) -> Upstream {
        let taken = self.clone();
        let answered = Mutex::new(first.iter());
        Upstream::start(move |request| {
            if let Some(response) = answered.lock().unwrap().next() {
                return format!("HTTP/1.1 {response}\r\nContent-Length: 0\r\n\r\n").into_bytes();
            }
            assert_eq!(
                request.field("content-type"),
                Some("application/x-protobuf")
            );
            taken.0.lock().unwrap().push(Export {
                path: request.line.split(' ').nth(1).unwrap().to_owned(),
                key: request.field("x-api-key").map(str::to_owned),
                content: Request::decode(request.body.as_slice()).unwrap(),
            });
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
        })
    }

    /// All items that went to this path, once there are as many.
    fn wait(&self, path: &str, count: usize) -> Vec<Item> {
        let deadline = Instant::now() + IO_TIMEOUT;
        loop {
            let exports = self.0.lock().unwrap().clone();
            let of_path = exports.into_iter().filter(|export| export.path == path);
            let items: Vec<_> = of_path.flat_map(|export| export.content.items()).collect();
            if items.len() >= count {
                assert_eq!(items.len(), count, "{items:?}");
                return items;
            }
            assert!(Instant::now() < deadline, "{path}: {items:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

// Exports of spans and of log records, whose outer messages are alike.

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<OfResource>,
}

#[derive(Clone, PartialEq, Message)]
struct OfResource {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<OfScope>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct OfScope {
    #[prost(bytes = "vec", repeated, tag = "2")]
    items: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(int64, optional, tag = "3")]
    number: Option<i64>,
    #[prost(double, optional, tag = "4")]
    decimal: Option<f64>,
    #[prost(message, optional, tag = "5")]
    list: Option<List>,
}

#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct LogRecord {
    #[prost(fixed64, tag = "1")]
    time: u64,
    #[prost(int32, tag = "2")]
    severity: i32,
    #[prost(message, optional, tag = "5")]
    body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<KeyValue>,
    #[prost(bytes = "vec", tag = "9")]
    trace_id: Vec<u8>,
}

/// A span or a log record with its resource.
#[derive(Debug, Clone)]
struct Item {
    resource: BTreeMap<String, String>,
    bytes: Vec<u8>,
}

impl Request {
    fn items(self) -> impl Iterator<Item = Item> {
        self.resources.into_iter().flat_map(|of_resource| {
            let resource = texts(&of_resource.resource.unwrap().attributes);
            let scopes = of_resource.scopes.into_iter();
            let items = scopes.flat_map(|of_scope| of_scope.items);
            items.map(move |bytes| Item {
                resource: resource.clone(),
                bytes,
            })
        })
    }
}

impl Item {
    fn span(&self) -> Span {
        Span::decode(self.bytes.as_slice()).unwrap()
    }

    fn log_record(&self) -> LogRecord {
        LogRecord::decode(self.bytes.as_slice()).unwrap()
    }
}

/// Attributes as texts.
fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &AnyValue| -> String {
        let number = value.number.map(|number| number.to_string());
        let list = value.list.as_ref().map(|list| format!("{:?}", list.values));
        let decimal = value.decimal.map(|decimal| decimal.to_string());
        let texts = [value.text.clone(), number, decimal, list];
        texts.into_iter().flatten().next().unwrap_or_default()
    };
    let pairs = attributes.iter();
    let pairs = pairs.map(|pair| (pair.key.clone(), text(pair.value.as_ref().unwrap())));
    pairs.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn application() -> Upstream {
    Upstream::start(|request| {
        let status = if request.line.contains("/broken") {
            "500 Error"
        } else {
            "200 OK"
        };
        format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok").into_bytes()
    })
}

/// The file of a process with these traces.
fn text(tracing: &str, application: &Upstream) -> String {
    format!(
        "listen = [\"127.0.0.1:0\"]\n{tracing}\n[site.\"app.example\"]\nto = \"{}\"\n\"/api\" = {{}}\n\
         \"/closed\" = {{ allow = [\"192.0.2.0/24\"] }}\n",
        application.url()
    )
}

fn start(folder: &Folder, tracing: &str, application: &Upstream) -> Running {
    let file = folder.file("blitz.toml");
    fs::write(&file, text(tracing, application)).unwrap();
    let flags = ["--config", &file, "--control-listen", "127.0.0.1:0"];
    Running::announcing(folder, &flags, "http://")
}

fn wait_for_log(running: &Running, text: &str) {
    let deadline = Instant::now() + IO_TIMEOUT;
    while !running.log().contains(text) {
        assert!(Instant::now() < deadline, "{}", running.log());
        thread::sleep(Duration::from_millis(10));
    }
}

fn get(address: SocketAddr, path: &str, fields: &str) -> u16 {
    let mut client = Client::connect(address);
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: app.example:81\r\nUser-Agent: test\r\n{fields}\r\n"
    ));
    client.response().status
}

/// The span of the server has these attributes.
fn has_server_attributes(found: &BTreeMap<String, String>) {
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("http.response.body.size", "2"),
        ("http.route", "/api"),
        ("blitz.site", "app.example"),
        ("url.scheme", "http"),
        ("url.path", "/api/1"),
        ("url.query", "token=***&***"),
        ("server.address", "app.example"),
        ("server.port", "81"),
        ("client.address", "127.0.0.1"),
        ("network.peer.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "test"),
    ] {
        assert_eq!(
            found.get(key).map(String::as_str),
            Some(value),
            "{key}: {found:?}"
        );
    }
    assert!(
        found["http.request.header.x-request-id"].contains("the-id"),
        "{found:?}"
    );
}

#[test]
fn spans_say_what_became_of_a_request() {
    let (folder, application, taken) = (Folder::new(), application(), Taken::default());
    let collector = taken.collector(&[]);
    let keys = format!(
        "tracing = {{ otlp = \"{}/base/\", protocol = \"http\", service = \"edge\", headers.X-Api-Key = \"k\" }}",
        collector.url()
    );
    let running = start(&folder, &keys, &application);
    let address = running.address("http://");
    let fields = format!(
        "traceparent: 00-{TRACE}-{PARENT}-01\r\ntracestate: a=1\r\ntracestate: b=2\r\nX-Request-Id: the-id\r\n"
    );
    assert_eq!(get(address, "/api/1?token=secret&x", &fields), 200);
    let items = taken.wait("/base/v1/traces", 2);
    assert_eq!(taken.0.lock().unwrap()[0].key.as_deref(), Some("k"));
    let resource = &items[0].resource;
    assert_eq!(resource["service.name"], "edge");
    assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
    assert!(!resource["host.name"].is_empty());
    let (server, client) = (items[0].span(), items[1].span());
    assert_eq!((server.kind, client.kind), (2, 3));
    assert_eq!((&*server.name, &*client.name), ("GET /api", "GET"));
    assert_eq!(hex(&server.trace_id), TRACE);
    assert_eq!(server.trace_id, client.trace_id);
    assert_eq!(hex(&server.parent_span_id), PARENT);
    assert_eq!(client.parent_span_id, server.span_id);
    // Sampled; the parent of the first one is remote.
    assert_eq!((server.flags, client.flags), (0x301, 0x101));
    assert!(server.start <= client.start && client.start <= client.end && client.end <= server.end);
    assert_eq!((server.status, client.status), (None, None));
    let states = (&*server.trace_state, &*client.trace_state);
    assert_eq!(states, ("a=1,b=2", "a=1,b=2"));
    has_server_attributes(&texts(&server.attributes));
    let found = texts(&client.attributes);
    let upstream = application.address();
    for (key, value) in [
        ("http.request.method", "GET".to_owned()),
        ("http.response.status_code", "200".to_owned()),
        ("server.address", upstream.ip().to_string()),
        ("server.port", upstream.port().to_string()),
        ("url.full", format!("http://{upstream}/api/1?token=***&***")),
        ("network.peer.port", upstream.port().to_string()),
    ] {
        assert_eq!(found.get(key), Some(&value), "{key}: {found:?}");
    }
}

#[test]
fn errors_of_servers_and_clients_differ() {
    let (folder, application, taken) = (Folder::new(), application(), Taken::default());
    let collector = taken.collector(&[]);
    let keys = format!(
        "tracing = {{ otlp = \"{}\", protocol = \"http\" }}",
        collector.url()
    );
    let running = start(&folder, &keys, &application);
    let address = running.address("http://");
    // The upstream fails, and the client is refused.
    assert_eq!(get(address, "/broken", ""), 500);
    assert_eq!(get(address, "/closed", ""), 403);
    let items = taken.wait("/v1/traces", 3);
    let outcome = |item: &Item| {
        let span = item.span();
        let mut texts = texts(&span.attributes);
        let is_error = span.status.is_some_and(|status| status.code == 2);
        (
            span.kind,
            texts.remove("http.response.status_code").unwrap(),
            texts.remove("error.type"),
            is_error,
        )
    };
    let mut found: Vec<_> = items.iter().map(outcome).collect();
    found.sort();
    let text = str::to_owned;
    assert_eq!(
        found,
        [
            (2, text("403"), None, false),
            (2, text("500"), Some(text("500")), true),
            (3, text("500"), Some(text("500")), true),
        ]
    );
}

#[test]
fn requests_are_log_records_as_well() {
    let (folder, application, taken) = (Folder::new(), application(), Taken::default());
    let collector = taken.collector(&[]);
    let keys = format!(
        "tracing = {{ otlp = \"{}\", protocol = \"http\", sample = 0, logs = true }}",
        collector.url()
    );
    let running = start(&folder, &keys, &application);
    let address = running.address("http://");
    assert_eq!(
        get(address, "/api/1?token=secret", "Cookie: secret\r\n"),
        200
    );
    assert_eq!(get(address, "/broken", ""), 500);
    let items = taken.wait("/v1/logs", 2);
    assert_eq!(items[0].resource["service.name"], "blitz");
    let mut records: Vec<_> = items.iter().map(Item::log_record).collect();
    records.sort_by_key(|record| record.severity);
    assert_eq!([records[0].severity, records[1].severity], [9, 17]);
    let record = &records[0];
    let body = record.body.as_ref().unwrap();
    assert_eq!(body.text.as_deref(), Some("GET /api/1 200"));
    assert!(record.time > 0);
    let found = texts(&record.attributes);
    assert_eq!(hex(&record.trace_id), found["trace_id"]);
    for (key, value) in [
        ("status", "200"),
        ("path", "/api/1?token=***"),
        ("route", "/api"),
        ("client", "127.0.0.1"),
        ("user_agent", "test"),
        ("ended", "complete"),
    ] {
        assert_eq!(
            found.get(key).map(String::as_str),
            Some(value),
            "{key}: {found:?}"
        );
    }
    assert!(found["duration"].parse::<f64>().unwrap() > 0.0);
    assert!(!format!("{found:?}").contains("secret"), "{found:?}");
    // Not one of them is recorded in a trace.
    taken.wait("/v1/traces", 0);
}

#[test]
fn warnings_of_the_process_are_log_records() {
    let (folder, taken) = (Folder::new(), Taken::default());
    let application = Upstream::start(|_| b"no response".to_vec());
    let collector = taken.collector(&[]);
    let keys = format!(
        "tracing = {{ otlp = \"{}\", protocol = \"http\", sample = 0, logs = true }}",
        collector.url()
    );
    let running = start(&folder, &keys, &application);
    assert_eq!(get(running.address("http://"), "/", ""), 502);
    let items = taken.wait("/v1/logs", 2);
    let records: Vec<_> = items.iter().map(Item::log_record).collect();
    let of_request = |record: &&LogRecord| !record.trace_id.is_empty();
    assert_eq!(records.iter().filter(of_request).count(), 1);
    let warning = records
        .iter()
        .find(|record| record.trace_id.is_empty())
        .unwrap();
    assert_eq!(warning.severity, 13);
    let found = texts(&warning.attributes);
    assert!(found["target"].starts_with("blitz"), "{found:?}");
}

#[test]
fn a_collector_that_comes_back_gets_what_it_did_not_take() {
    let (folder, application, taken) = (Folder::new(), application(), Taken::default());
    let collector = taken.collector(&["503 Busy\r\nRetry-After: 0", "429 Slow\r\nRetry-After: 0"]);
    let keys = format!(
        "tracing = {{ otlp = \"{}\", protocol = \"http\" }}",
        collector.url()
    );
    let running = start(&folder, &keys, &application);
    get(running.address("http://"), "/", "");
    let started = Instant::now();
    taken.wait("/v1/traces", 2);
    // Zero is no pause that the collector could have chosen.
    assert!(started.elapsed() >= Duration::from_secs(3));
    wait_for_log(&running, "takes spans again");
    let gone = running.log().matches("does not take spans").count();
    assert_eq!(gone, 1, "{}", running.log());
}

#[test]
fn an_export_outlives_any_retry_after() {
    let (folder, application) = (Folder::new(), application());
    let collector = Upstream::start(|_| {
        thread::sleep(Duration::from_millis(1200));
        let after = u64::MAX;
        format!("HTTP/1.1 503 Busy\r\nRetry-After: {after}\r\nContent-Length: 0\r\n\r\n")
            .into_bytes()
    });
    let keys = format!(
        "tracing = {{ otlp = \"{}\", protocol = \"http\" }}",
        collector.url()
    );
    let mut running = start(&folder, &keys, &application);
    get(running.address("http://"), "/", "");
    wait_for_log(&running, "does not take spans: it responds with status 503");
    running.signal("TERM");
    assert_eq!(running.wait(), Some(0));
    assert!(!running.log().contains("panicked"), "{}", running.log());
}

#[test]
fn a_signal_that_is_not_supported_is_told_once() {
    let (folder, application) = (Folder::new(), application());
    let paths = Arc::<Mutex<Vec<String>>>::default();
    let found = Arc::clone(&paths);
    let collector = Upstream::start(move |request| {
        let is_log = request.line.contains("/v1/logs");
        found.lock().unwrap().push(request.line.clone());
        let status = if is_log { "404 Not Found" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let keys = format!(
        "tracing = {{ otlp = \"{}\", protocol = \"http\", logs = true }}",
        collector.url()
    );
    let running = start(&folder, &keys, &application);
    let exported = |part: &str| {
        let paths = paths.lock().unwrap();
        paths.iter().filter(|path| path.contains(part)).count()
    };
    let deadline = Instant::now() + IO_TIMEOUT;
    while exported("/v1/traces") < 3 {
        assert!(Instant::now() < deadline, "{}", running.log());
        get(running.address("http://"), "/", "");
        thread::sleep(Duration::from_millis(100));
    }
    let log = running.log();
    assert_eq!(exported("/v1/logs"), 1, "{log}");
    assert_eq!(log.matches("the collector ").count(), 1, "{log}");
    assert!(
        log.contains("does not take log records: it responds with status 404"),
        "{log}"
    );
}

#[test]
fn the_last_spans_are_exported_before_the_process_ends() {
    let (folder, application, taken) = (Folder::new(), application(), Taken::default());
    let collector = taken.collector(&[]);
    let keys = format!(
        "tracing = {{ otlp = \"{}\", protocol = \"http\" }}",
        collector.url()
    );
    let mut running = start(&folder, &keys, &application);
    get(running.address("http://"), "/", "");
    running.signal("TERM");
    assert_eq!(running.wait(), Some(0));
    assert_eq!(taken.0.lock().unwrap().len(), 1);
    taken.wait("/v1/traces", 2);
}

/// A collector that does not answer holds up no end.
#[test]
fn an_end_without_a_collector_takes_little_time() {
    let (folder, application) = (Folder::new(), application());
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = silent.local_addr().unwrap();
    let keys = format!("tracing = {{ otlp = \"http://{address}\", logs = true }}");
    let mut running = start(&folder, &keys, &application);
    get(running.address("http://"), "/", "");
    running.signal("TERM");
    let started = Instant::now();
    assert_eq!(running.wait(), Some(0));
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn a_reload_changes_the_export() {
    let (folder, application) = (Folder::new(), application());
    let (first, second) = (Taken::default(), Taken::default());
    let collectors = (first.collector(&[]), second.collector(&[]));
    let keys = |collector: &Upstream| {
        format!(
            "tracing = {{ otlp = \"{}\", protocol = \"http\" }}",
            collector.url()
        )
    };
    let running = start(&folder, &keys(&collectors.0), &application);
    let address = running.address("http://");
    get(address, "/", "");
    first.wait("/v1/traces", 2);
    fs::write(
        folder.file("blitz.toml"),
        text(&keys(&collectors.1), &application),
    )
    .unwrap();
    running.reload("~ traces");
    get(address, "/", "");
    second.wait("/v1/traces", 2);
    // The export before has left all records to the one that has replaced it.
    let control = Place::Address(running.control_address().expect("it has an address"));
    let deadline = Instant::now() + IO_TIMEOUT;
    let metrics = loop {
        let metrics = control.get("/metrics").content;
        // They count when the collector has responded.
        if metrics.contains("\nblitz_trace_spans_exported_total 4\n") {
            break metrics;
        }
        assert!(Instant::now() < deadline, "{metrics}");
        thread::sleep(Duration::from_millis(10));
    };
    assert!(!metrics.contains("blitz_trace_spans_dropped"), "{metrics}");
    // Without the key requests take part in no trace, and those before it are exported.
    get(address, "/", "");
    fs::write(folder.file("blitz.toml"), text("", &application)).unwrap();
    running.reload("~ traces");
    get(address, "/", "");
    second.wait("/v1/traces", 4);
    thread::sleep(Duration::from_millis(1500));
    first.wait("/v1/traces", 2);
    second.wait("/v1/traces", 4);
}

#[test]
fn mistakes_have_their_repairs() {
    let folder = Folder::new();
    let file = folder.file("blitz.toml");
    let cases = [
        ("otlp = \"collector:4317\"", "http://127.0.0.1:4317"),
        ("otlp = \"http://a:0\"", "a port from 1 to 65535"),
        (
            "otlp = \"http://user:secret@a:4317\"",
            "credentials as `headers`",
        ),
        ("otlp = \"http://a:4317/otlp\"", "protocol = \"http\""),
        ("otlp = \"http://a:4318/v1/traces\"", "leave out /v1/traces"),
        ("sample = 0.5", "`otlp` is missing"),
        ("otlp = \"http://a\", sample = 2", "a number from 0 to 1"),
        (
            "otlp = \"http://a\", protocol = \"thrift\"",
            "\"grpc\", \"http\"",
        ),
        (
            "otlp = \"http://a\", headers.Te = \"x\"",
            "belongs to the connection",
        ),
        (
            "otlp = \"http://a\", headers.X-A = \" x\"",
            "spaces at its ends",
        ),
    ];
    for (keys, remedy) in cases {
        let text = format!("tracing = {{ {keys} }}\n[site.\"a\"]\nrespond = 204\n");
        fs::write(&file, text).unwrap();
        let output = blitz(&["check", &file]);
        assert_eq!(output.status.code(), Some(1), "{keys}: {}", stderr(&output));
        assert!(
            stderr(&output).contains(remedy),
            "{keys}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn credentials_are_not_shown() {
    let folder = Folder::new();
    let file = folder.file("blitz.toml");
    let keys = "otlp = \"http://a\", headers = { X-Team = \"hidden\" }";
    fs::write(
        &file,
        format!("tracing = {{ {keys} }}\n[site.\"a\"]\nrespond = 204\n"),
    )
    .unwrap();
    let output = blitz(&["config", "show", &file]);
    let shown = crate::stdout(&output);
    assert!(
        shown.contains("tracing.headers") && !shown.contains("hidden"),
        "{shown}"
    );
}
