//! Metrics: the counts are those of the clients, to the last request, and no text comes from a client.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use blitz_gateway::{Gateway, MetricsReader, Options, ProcessFacts};
use blitz_http::{BodyLength, Config, IoChoice, Method, RequestHead, Status, read_clock};
use blitz_site::metrics::{HISTOGRAM_LINES, SERIES_BYTES, SERIES_MAX_DEFAULT, series};
use blitz_testing::h3::request;
use blitz_testing::refusing_address;
use prost::Message;

use crate::h2::h2;
use crate::h3_support::{QuicServer, block_on};
use crate::prometheus::Family;
use crate::sites::compiled;
use crate::support::{Proxy, Upstream, config, eventually, held, ok};

const SERVER: &str = "http_server_request_duration_seconds_count";
const CLIENT: &str = "http_client_request_duration_seconds_count";

/// The sum of the samples with this name and these labels.
pub(crate) fn sum(text: &str, name: &str, labels: &[&str]) -> f64 {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.filter_map(|line| line.rsplit_once(' '));
    let samples = samples.filter(|(series, _)| {
        let (found, of_series) = series.split_once('{').unwrap_or((series, ""));
        found == name && labels.iter().all(|label| of_series.contains(label))
    });
    samples
        .map(|(_, value)| value.parse::<f64>().unwrap())
        .sum()
}

fn read(reader: &MetricsReader) -> String {
    let text = reader.read().open_metrics();
    check_form(&text);
    text
}

/// Waits until so many requests have ended.
fn read_after(reader: &MetricsReader, requests: usize) -> String {
    let has_all = || sum(&read(reader), SERVER, &[]) >= requests as f64;
    eventually("all requests have ended", has_all);
    let text = read(reader);
    assert_eq!(sum(&text, SERVER, &[]), requests as f64, "{text}");
    text
}

/// Each family has its head, and no series is there twice.
fn check_form(text: &str) {
    assert!(text.ends_with("# EOF\n"));
    let (mut family, mut series) = ("", HashSet::new());
    for line in text.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(named) => family = named.split(' ').next().unwrap(),
            None if line.starts_with('#') => {}
            None => {
                let (name, _) = line.rsplit_once(' ').unwrap();
                assert!(name.starts_with(family), "{line} in {family}");
                assert!(series.insert(name), "{line} twice");
            }
        }
    }
}

fn gateway(io: IoChoice, text: &str) -> Gateway {
    let gateway = Proxy::gateway(io).config(Config {
        cores: 2,
        ..config(io)
    });
    compiled(text).into_iter().fold(gateway, Gateway::site)
}

fn send(proxy: &Proxy, request: &str) -> u16 {
    let mut client = proxy.client();
    client.send(request);
    client.response().status
}

fn get(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

scenarios! {
    fn each_request_is_counted_once(io) {
        let upstream = Upstream::with_text("hello");
        let (slow, release) = held("late");
        let refusing = refusing_address();
        let text = format!(
            "[site.\"a.example\"]\nto = \"{}\"\n\"/fixed\" = {{ respond = \"200 own\" }}\n\
             \"/slow\" = \"{}\"\n\"/gone\" = \"http://{refusing}\"\n\"POST /only\" = {{ respond = 204 }}\n",
            upstream.url(), slow.url(),
        );
        let proxy = Proxy::start(gateway(io, &text), &[]);
        for _ in 0..20 {
            assert_eq!(send(&proxy, &get("a.example", "/x")), 200);
        }
        for _ in 0..5 {
            assert_eq!(send(&proxy, &get("a.example", "/fixed")), 200);
        }
        for _ in 0..4 {
            assert_eq!(send(&proxy, &get("a.example", "/gone")), 502);
        }
        for _ in 0..3 {
            assert_eq!(send(&proxy, &get("client-host.example", "/client-path")), 404);
        }
        for _ in 0..2 {
            let mut peer = proxy.peer();
            peer.send("GET / HTTP/1.1\r\nHost: a.example\r\nContent-Length: x\r\n\r\n");
            assert!(peer.head().unwrap().line.contains(" 400 "));
        }
        let purge = "CLIENTWORD /x HTTP/1.1\r\nHost: a.example\r\nX-Client: client-field\r\n\r\n";
        assert_eq!(send(&proxy, purge), 200);
        let post = "POST /only HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(send(&proxy, post), 204);
        let mut client = h2(&proxy);
        for _ in 0..6 {
            let mut head = RequestHead::new(Method::Get, "/x");
            head.set_authority("a.example");
            let stream = client.send_head(&head, BodyLength::Empty);
            assert_eq!(client.answer(stream).status, Some(Status::OK));
        }
        let mut peer = proxy.peer();
        peer.send(get("a.example", "/slow"));
        eventually("the upstream has the head", || slow.heads().len() == 1);
        let reader = proxy.metrics();
        eventually("only this one is in flight", || {
            sum(&read(&reader), "blitz_requests_in_flight", &[]) == 1.0
        });
        peer.reset();
        let text = read_after(&reader, 43);
        drop(release);
        let cases: [(&[&str], f64); 9] = [
            (&["route=\"a.example/\"", "method=\"GET\"", "status=\"2xx\"", "version=\"1.1\""], 20.0),
            (&["route=\"a.example/\"", "method=\"GET\"", "status=\"2xx\"", "version=\"2\""], 6.0),
            (&["route=\"a.example/\"", "method=\"_OTHER\""], 1.0),
            (&["route=\"a.example/fixed\"", "status=\"2xx\"", "scheme=\"http\""], 5.0),
            (&["route=\"a.example/gone\"", "status=\"5xx\""], 4.0),
            (&["route=\"a.example/slow\"", "status=\"none\""], 1.0),
            (&["route=\"POST a.example/only\"", "status=\"2xx\""], 1.0),
            (&["route=\"_unrouted\"", "status=\"4xx\""], 5.0),
            (&["route=\"_other\""], 0.0),
        ];
        for (labels, count) in cases {
            assert_eq!(sum(&text, SERVER, labels), count, "{labels:?} {text}");
        }
        let of_upstream = format!("upstream=\"{}\"", upstream.url());
        let of_slow = format!("upstream=\"{}\"", slow.url());
        let of_refusing = format!("upstream=\"http://{refusing}\"");
        let cases: [(&[&str], f64); 5] = [
            (&[&of_upstream, "status=\"2xx\""], 27.0),
            (&[&of_upstream, "error_type"], 0.0),
            (&[&of_slow, "status=\"none\"", "error_type=\"abandoned\""], 1.0),
            (&[&of_refusing, "status=\"none\"", "error_type=\"connection_refused\""], 4.0),
            (&[], 32.0),
        ];
        for (labels, count) in cases {
            assert_eq!(sum(&text, CLIENT, labels), count, "{labels:?} {text}");
        }
        let sent = |labels: &[&str]| sum(&text, "blitz_response_content_bytes_total", labels);
        assert_eq!(sent(&["route=\"a.example/\"", "status=\"2xx\""]), 27.0 * 5.0);
        assert_eq!(sent(&["route=\"a.example/fixed\""]), 5.0 * 3.0);
        let cases: [(&str, &str, f64); 10] = [
            ("blitz_requests_rejected_total", "rule=\"unknown-host\"", 3.0),
            ("blitz_requests_refused_total", "rule=\"content-length-malformed\"", 2.0),
            ("blitz_upstream_failures_total", "cause=\"connection-refused\"", 4.0),
            ("blitz_upstream_responses_total", "status=\"2xx\"", 27.0),
            ("blitz_http_requests_total", "version=\"2\"", 6.0),
            ("blitz_cores", "", 2.0),
            ("blitz_cores_absent", "", 0.0),
            ("blitz_requests_in_flight", "", 0.0),
            ("blitz_configuration_generation", "", 1.0),
            ("blitz_upstream_addresses_avoided", &of_upstream, 0.0),
        ];
        for (name, label, count) in cases {
            assert_eq!(sum(&text, name, &[label]), count, "{name} {text}");
        }
        assert!(sum(&text, "blitz_upstream_connections", &[&of_upstream, "state=\"idle\""]) >= 1.0);
        assert!(sum(&text, "blitz_reactor_turns_total", &[]) > 0.0);
        assert!(sum(&text, "blitz_memory_available_bytes", &["core=\"1\""]) > 0.0);
        for word in ["CLIENTWORD", "client-host", "client-path", "client-field", "127.0.0.1\""] {
            assert!(!text.contains(word), "{word} in {text}");
        }
        check_protobuf(&proxy.metrics().read().protobuf(), 43);
        eventually("the address is avoided", || {
            send(&proxy, &get("a.example", "/gone"));
            sum(&read(&reader), "blitz_upstream_addresses_avoided", &[&of_refusing]) >= 1.0
        });
    }

    fn requests_over_quic_are_counted(io) {
        let upstream = Upstream::with_text("hello");
        let server = QuicServer::to(io, &upstream.url(), Options::default());
        block_on(async {
            let client = server.raw_client().await;
            for _ in 0..3 {
                client.ask(request("GET", "/x")).await.expect(200, "hello");
            }
        });
        let text = read_after(&server.proxy.metrics(), 3);
        let labels = ["route=\"/\"", "scheme=\"https\"", "version=\"3\"", "status=\"2xx\""];
        assert_eq!(sum(&text, SERVER, &labels), 3.0, "{text}");
        assert_eq!(sum(&text, "blitz_quic_handshakes_total", &[]), 1.0, "{text}");
    }

    fn requests_for_the_built_in_site_are_counted(io) {
        let proxy = Proxy::to(io, &["/api=http://127.0.0.1:9"]);
        for _ in 0..3 {
            assert_eq!(proxy.client().get("/x").status, 404);
        }
        let text = read_after(&proxy.metrics(), 3);
        assert_eq!(sum(&text, SERVER, &["route=\"_unrouted\"", "status=\"4xx\""]), 3.0, "{text}");
        assert_eq!(sum(&text, "blitz_requests_unrouted_total", &[]), 3.0, "{text}");
    }

    fn a_response_that_is_cut_off_has_a_status_and_an_error(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send(get("a", "/"));
        peer.rest();
        let text = read_after(&proxy.metrics(), 1);
        let error = "error_type=\"http_response_incomplete\"";
        assert_eq!(sum(&text, CLIENT, &["status=\"2xx\"", error]), 1.0, "{text}");
        assert_eq!(sum(&text, "blitz_responses_cut_off_total", &[]), 1.0, "{text}");
    }

    fn counts_outlive_configurations(io) {
        let upstream = Upstream::with_text("hello");
        let mut proxy = Proxy::start(gateway(io, "[site]\n\"*\" = { respond = \"200 first\" }\n"), &[]);
        let reader = proxy.metrics();
        assert_eq!(send(&proxy, &get("a", "/")), 200);
        proxy.replace_targets(&[&format!("/new={}", upstream.url())]);
        assert_eq!(send(&proxy, &get("a", "/new")), 200);
        let text = read_after(&reader, 2);
        assert_eq!(sum(&text, SERVER, &["route=\"*/\""]), 1.0, "{text}");
        assert_eq!(sum(&text, SERVER, &["route=\"*/new\""]), 1.0, "{text}");
        assert_eq!(sum(&text, "blitz_configuration_generation", &[]), 2.0, "{text}");
    }

    fn a_busy_core_is_told_and_its_counts_stay(io) {
        let proxy = Proxy::start(gateway(io, "[site]\n\"*\" = { respond = \"200 hello\" }\n"), &[]);
        let reader = proxy.metrics();
        for _ in 0..4 {
            assert_eq!(send(&proxy, &get("a", "/")), 200);
        }
        read_after(&reader, 4);
        proxy.post_all(|index| {
            if index == 0 {
                thread::sleep(Duration::from_millis(2_500));
            }
        });
        let text = read(&reader);
        assert_eq!(sum(&text, "blitz_cores_absent", &[]), 1.0, "{text}");
        assert_eq!(sum(&text, SERVER, &[]), 4.0, "{text}");
        thread::sleep(Duration::from_millis(2_500));
        assert_eq!(sum(&read(&reader), "blitz_cores_absent", &[]), 0.0);
    }
}

/// Sites of a large configuration.
const SITES: usize = 10_000;

/// More sites with requests than may have series.
const VISITED: usize = 1_200;

#[test]
fn many_sites_are_bounded_and_quickly_read() {
    let upstream = Upstream::with_response(ok("hello"));
    let mut text = String::from("[site]\n");
    for site in 0..SITES {
        writeln!(text, "\"s{site}.example\" = \"{}\"", upstream.url()).unwrap();
    }
    let proxy = Proxy::start(gateway(IoChoice::Auto, &text), &[]);
    let mut client = proxy.client();
    for site in 0..VISITED {
        client.send(get(&format!("s{site}.example"), "/client-path"));
        assert_eq!(client.response().status, 200);
    }
    let reader = proxy.metrics();
    let text = read_after(&reader, VISITED);
    let lines = text.lines().filter(|line| line.contains("route=\""));
    let lines = lines.count();
    assert!(lines <= SERIES_MAX_DEFAULT, "{lines}");
    assert!(lines > SERIES_MAX_DEFAULT * 9 / 10, "{lines}");
    assert_eq!(sum(&text, "blitz_metrics_series", &[]), lines as f64);
    let merged = sum(&text, SERVER, &["route=\"_other\""]);
    assert!(merged > 900.0, "{merged}");
    assert_eq!(
        sum(&text, "blitz_metrics_merged_requests_total", &[]),
        merged
    );
    assert!(!text.contains("client-path"));
    let started = Instant::now();
    let (open_metrics, protobuf) = (reader.read().open_metrics(), reader.read().protobuf());
    let took = started.elapsed();
    let (sender, held) = channel();
    proxy.post_all(move |_| {
        let started = read_clock();
        let copied = series(0, 256).series.len();
        sender.send((copied, read_clock() - started)).unwrap();
    });
    let (copied, held) = held.iter().take(2).max().unwrap();
    println!(
        "{lines} lines: {} bytes of text, {} of protobuf, both in {took:?}; a core copies {copied} series in {held:?} \
         and has at most {} bytes",
        open_metrics.len(),
        protobuf.len(),
        SERIES_MAX_DEFAULT / HISTOGRAM_LINES * SERIES_BYTES,
    );
    assert!(open_metrics.len() < 4 << 20 && took < Duration::from_secs(2));
    assert!(copied == 256 && held < Duration::from_millis(50));
    check_protobuf(&protobuf, VISITED as u64);
}

#[test]
fn without_room_all_requests_are_merged() {
    let options = Options {
        series_max: 1,
        ..Options::default()
    };
    let text = "[site]\n\"*\" = { respond = \"200 hello\" }\n";
    let proxy = Proxy::start(gateway(IoChoice::Auto, text).options(options), &[]);
    for _ in 0..3 {
        assert_eq!(send(&proxy, &get("a", "/")), 200);
    }
    let text = read_after(&proxy.metrics(), 3);
    let other = ["route=\"_other\"", "method=\"_OTHER\"", "status=\"2xx\""];
    assert_eq!(sum(&text, SERVER, &other), 3.0, "{text}");
}

#[test]
fn facts_of_the_process_are_exposed() {
    let proxy = Proxy::to(IoChoice::Auto, &[]);
    let facts = ProcessFacts {
        cpu_seconds: Some(1.5),
        open_files: Some(12),
        is_ready: Some(true),
        ..ProcessFacts::default()
    };
    let expiries = [("b", 20.0), ("a", 10.0), ("b", 5.0)].map(|(name, at)| (name.to_owned(), at));
    let reader = proxy.metrics().with_build("1.2.3", "abc");
    let reader = reader.with_process(move || facts);
    let reader = reader.with_certificates(move || expiries.to_vec());
    let text = read(&reader);
    assert_eq!(sum(&text, "process_cpu_seconds_total", &[]), 1.5);
    assert_eq!(sum(&text, "process_open_fds", &[]), 12.0);
    assert_eq!(sum(&text, "blitz_ready", &[]), 1.0);
    assert!(!text.contains("process_max_fds"));
    let build = ["version=\"1.2.3\"", "revision=\"abc\""];
    assert_eq!(sum(&text, "blitz_build_info", &build), 1.0);
    let expiry = "blitz_certificate_expiry_timestamp_seconds";
    assert_eq!(sum(&text, expiry, &["name=\"b\""]), 5.0);
}

/// Classic and native histograms have all requests.
fn check_protobuf(mut bytes: &[u8], requests: u64) {
    let mut counted = 0;
    while !bytes.is_empty() {
        let family = Family::decode_length_delimited(&mut bytes).unwrap();
        let histograms = family
            .metric
            .iter()
            .filter_map(|metric| metric.histogram.as_ref());
        for histogram in histograms {
            let count = histogram.sample_count.unwrap();
            let mut in_bucket = 0;
            let native: i64 = histogram
                .positive_delta
                .iter()
                .map(|delta| {
                    in_bucket += delta;
                    in_bucket
                })
                .sum();
            assert_eq!(
                histogram.zero_count.unwrap() + native as u64,
                count,
                "{histogram:?}"
            );
            let lengths = histogram
                .positive_span
                .iter()
                .filter_map(|span| span.length);
            assert_eq!(
                lengths.sum::<u32>() as usize,
                histogram.positive_delta.len()
            );
            let classic = histogram
                .bucket
                .iter()
                .filter_map(|bucket| bucket.cumulative_count);
            let classic: Vec<_> = classic.collect();
            assert!(classic.is_sorted() && classic.last().is_some_and(|last| *last <= count));
            assert_eq!((classic.len(), histogram.schema), (17, Some(2)));
            if family.name.as_deref() == Some("http_server_request_duration_seconds") {
                counted += count;
            }
        }
    }
    assert_eq!(counted, requests);
}
