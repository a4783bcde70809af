//! The access log, the metrics and the clients agree to the last request: over all versions and on both drivers, with
//! clients that leave, streams that are reset, refusals, timeouts, upstreams that fail, reloads under load, and a drain at
//! the end.

mod http1;
mod http2;
mod http3;
mod ledger;
mod upstream;

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use blitz_testing::{H1Peer, IO_TIMEOUT, refusing_address};
use rustls::ClientConfig;
use serde_json::Value;

use self::ledger::Ledger;
use crate::control_support::Place;
use crate::https::{Folder, Running, config};

/// How often each client repeats its requests.
const ROUNDS: usize = 6;

/// Handshakes of each kind that fail. More in a second would have no lines.
const FAILED_HANDSHAKES: usize = 5;

/// Counts of requests by version of HTTP and class of status.
type Counts = BTreeMap<(String, String), u64>;

#[test]
fn log_metrics_and_clients_agree_on_uring() {
    agree("auto");
}

#[test]
fn log_metrics_and_clients_agree_on_epoll() {
    agree("epoll");
}

/// A gateway, its upstream and its clients.
struct Setting {
    folder: Folder,
    running: Running,
    upstream: SocketAddr,
    ledger: Arc<Ledger>,
    trusted: Arc<ClientConfig>,
}

fn agree(io: &str) {
    let mut setting = Setting::start(io);
    setting.serve_under_reloads();
    setting.fail_handshakes();
    setting.compare_with_metrics();
    setting.drain();
    setting.compare_with_clients();
}

impl Setting {
    fn start(io: &str) -> Setting {
        let folder = Folder::new();
        folder.certificate("localhost");
        let ledger = Arc::<Ledger>::default();
        let upstream = upstream::start(&ledger);
        fs::write(folder.file("blitz.toml"), text(upstream, 0)).unwrap();
        let flags = [
            "--io",
            io,
            "--config",
            &folder.file(""),
            "--control-listen",
            "127.0.0.1:0",
        ];
        let running = Running::start_with(&folder, &flags);
        Setting {
            upstream,
            trusted: config(Path::new(&folder.file("ca.pem")), None),
            running,
            ledger,
            folder,
        }
    }

    /// All clients at once, while the file is read again and again.
    fn serve_under_reloads(&self) {
        let clear = self.running.address("http://");
        let secure = self.running.address("https://");
        let (ledger, trusted) = (&*self.ledger, &self.trusted);
        thread::scope(|scope| {
            let clients = [
                scope.spawn(|| http1::leave_slowly(ledger, clear)),
                scope.spawn(|| http1::upload_slowly(ledger, clear)),
                scope.spawn(|| http2::upload_slowly(ledger, clear)),
                scope.spawn(|| http3::upload_slowly(ledger, secure, trusted)),
                scope.spawn(|| http1::run(ledger, clear, ROUNDS)),
                scope.spawn(|| http2::run(ledger, clear, ROUNDS)),
                scope.spawn(|| http3::run(ledger, secure, trusted, ROUNDS)),
            ];
            let mut generation = 0;
            while !clients.iter().all(ScopedJoinHandle::is_finished) {
                generation += 1;
                let file = self.folder.file("blitz.toml");
                fs::write(file, text(self.upstream, generation)).unwrap();
                self.running.reload("the configuration was read again");
                thread::sleep(Duration::from_millis(300));
            }
            assert!(generation >= 10, "{generation} reloads");
        });
    }

    /// Connections without a request, and one with a request that nobody reads.
    fn fail_handshakes(&self) {
        let secure = self.running.address("https://");
        for _ in 0..FAILED_HANDSHAKES {
            for bytes in [&b"\0 no TLS"[..], b"\x16\x03\x01"] {
                let mut peer = H1Peer::new(TcpStream::connect(secure).unwrap());
                peer.send(bytes);
                peer.finish();
                peer.rest();
            }
        }
        let mut peer = H1Peer::new(TcpStream::connect(secure).unwrap());
        peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(peer.rest().0.starts_with(b"HTTP/1.1 400 "));
    }

    fn control(&self) -> Place {
        Place::Address(self.running.control_address().expect("it has an address"))
    }

    /// The lines once no request is in flight.
    fn compare_with_metrics(&self) {
        let metrics = || self.control().get("/metrics").content;
        let deadline = Instant::now() + IO_TIMEOUT;
        let (lines, text) = loop {
            let text = metrics();
            let lines = self.lines();
            let counted: u64 = counts(&text).values().sum();
            let of_requests = requests(&lines).count();
            let is_quiet = sum(&text, "blitz_requests_in_flight", "") == 0;
            // Clients see the end of their handshakes before these are counted and have their lines.
            let failed = lines.iter().filter(|line| line["ended"] == "handshake");
            let failed = failed.count() as u64;
            let failures = sum(&text, "blitz_tls_failures_total", "");
            let has_failures = [failed, failures] == [2 * FAILED_HANDSHAKES as u64; 2];
            if is_quiet && has_failures && of_requests as u64 == counted {
                break (lines, text);
            }
            assert!(
                Instant::now() < deadline,
                "{of_requests} requests and {failed} handshakes have lines, {counted} and {failures} were counted: \
                 {:#?}\n{}",
                counts(&text),
                self.running.log()
            );
            thread::sleep(Duration::from_millis(50));
        };
        let mut logged = Counts::new();
        for line in requests(&lines) {
            let version = line["protocol"].as_str().unwrap();
            let version = version.strip_prefix("HTTP/").unwrap();
            let class = match line["status"].as_u64() {
                Some(status) => format!("{}xx", status / 100),
                None => "none".to_owned(),
            };
            *logged.entry((version.to_owned(), class)).or_default() += 1;
        }
        assert_eq!(logged, counts(&text));
        assert_eq!(sum(&text, "blitz_access_log_lines_dropped_total", ""), 0);
    }

    /// Requests that end while the process does, and some that are cut off.
    fn drain(&mut self) {
        let clear = self.running.address("http://");
        let secure = self.running.address("https://");
        let (ledger, trusted) = (&*self.ledger, &self.trusted);
        thread::scope(|scope| {
            scope.spawn(|| http1::be_drained(ledger, clear));
            scope.spawn(|| http2::be_drained(ledger, clear));
            scope.spawn(|| http3::be_drained(ledger, secure, trusted));
            ledger.wait_drainable(3);
            self.running.signal("TERM");
        });
        assert_eq!(self.running.wait(), Some(0), "{}", self.running.log());
    }

    /// Each request has one line, with the status that its client got.
    fn compare_with_clients(&self) {
        let lines = self.lines();
        let mut by_path = BTreeMap::<&str, Vec<&Value>>::new();
        for line in requests(&lines) {
            let path = line["path"].as_str().unwrap_or_default();
            by_path.entry(path).or_default().push(line);
        }
        // Their heads were not read: one in clear text, and malformed ones over HTTP/2 and HTTP/3.
        let unread = by_path.remove("").unwrap_or_default();
        let causes = unread.iter().map(|line| line["cause"].as_str().unwrap());
        let causes = causes.filter(|cause| *cause != "field-name-uppercase");
        assert_eq!(
            causes.collect::<Vec<_>>(),
            ["clear-text-on-tls-port"],
            "{unread:?}"
        );
        let mut wrong = Vec::new();
        for (path, sent) in self.ledger.sent() {
            let lines = by_path.remove(&*path).unwrap_or_default();
            let is_right = match lines.as_slice() {
                [] => sent.status.is_none() && !sent.has_arrived,
                [line] => sent
                    .status
                    .is_none_or(|status| line["status"] == u64::from(status)),
                _ => false,
            };
            if !is_right {
                wrong.push(format!("{path}: {sent:?}, and {lines:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(by_path.is_empty(), "nobody has sent {by_path:?}");
        self.ledger.check_variety();
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.file("access.log")).unwrap_or_default();
        // The last one may be written just now.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }
}

/// The lines of requests.
fn requests(lines: &[Value]) -> impl Iterator<Item = &Value> {
    let is_request =
        |line: &&Value| line["ended"] != "handshake" && line["ended"] != "incomplete-head";
    lines.iter().filter(is_request)
}

/// The file, which differs in each generation.
fn text(upstream: SocketAddr, generation: usize) -> String {
    format!(
        "listen = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\ncertificates = [\"localhost.pem\"]\n\
         log.access = \"access.log\"\nserver.drain_timeout = \"1s\"\n\
         [site.\"localhost\"]\nto = \"http://{upstream}\"\ntimeout = {{ response = \"500ms\", connect = \"500ms\" }}\n\
         \"/closed\" = {{ allow = [\"192.0.2.0/24\"], respond = 204 }}\n\
         \"/down\" = \"http://{}\"\n\
         \"/fixed\" = {{ respond = \"410 generation {generation}\" }}\n",
        refusing_address(),
    )
}

/// The counts of `http_server_request_duration_seconds`.
fn counts(metrics: &str) -> Counts {
    let mut counts = Counts::new();
    for line in metrics.lines() {
        let Some(series) = line.strip_prefix("http_server_request_duration_seconds_count{") else {
            continue;
        };
        let (labels, count) = series.rsplit_once("} ").unwrap();
        let label = |name: &str| {
            let mut labels = labels.split("\",");
            let of_name = |label: &str| {
                label
                    .strip_prefix(name)?
                    .strip_prefix("=\"")
                    .map(str::to_owned)
            };
            let value = labels.find_map(of_name).expect("it has this label");
            value.trim_end_matches('"').to_owned()
        };
        let key = (label("version"), label("status"));
        *counts.entry(key).or_default() += whole(count);
    }
    counts
}

/// The sum of the samples of a metric that have these labels.
fn sum(metrics: &str, name: &str, labels: &str) -> u64 {
    let samples = metrics.lines().filter_map(|line| line.rsplit_once(' '));
    let samples = samples.filter(|(series, _)| {
        let (found, of_series) = series.split_once('{').unwrap_or((series, ""));
        found == name && of_series.contains(labels)
    });
    samples.map(|(_, value)| whole(value)).sum()
}

fn whole(value: &str) -> u64 {
    value.parse::<f64>().unwrap() as u64
}
