//! A head that its client leaves incomplete has a line in the access log, and is no request.

use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use blitz_gateway::Options;
use blitz_gateway::access_log::{AccessLog, LogFilter, LogSettings, LogSink, LoggedStatus};
use blitz_http::{IoChoice, TicketKeys, TlsSlot};
use blitz_testing::Raw;
use serde_json::Value;

use crate::access_log::{Lines, json, values};
use crate::metrics::sum;
use crate::support::{Proxy, Upstream, eventually};
use crate::tls_support::{Authority, Outside};

const PART: &[u8] = b"GET /a?b=c HTTP/1.1\r\nHost: shop.example\r\nX-Slow: ";

struct Server {
    proxy: Proxy,
    lines: Arc<Lines>,
    upstream: Upstream,
}

impl Server {
    fn start(io: IoChoice, settings: LogSettings) -> Server {
        let upstream = Upstream::with_text("hello");
        let (options, lines) = options(settings);
        Server {
            proxy: Proxy::with(io, &[&upstream.url()], options),
            lines,
            upstream,
        }
    }

    /// Sends bytes, and waits until the server is done with them.
    fn leave(&self, bytes: &[u8]) {
        let before = self.proxy.http_counters().accepted;
        let mut client = Raw::over(TcpStream::connect(self.proxy.address).unwrap());
        client.send(bytes);
        client.fin();
        eventually("the server has closed", || {
            let counters = self.proxy.http_counters();
            counters.accepted > before && counters.connections == 0
        });
    }

    fn abandoned(&self) -> u64 {
        self.proxy.http_counters().heads_abandoned
    }
}

fn options(settings: LogSettings) -> (Options, Arc<Lines>) {
    let lines = Arc::<Lines>::default();
    let log = AccessLog::new(settings, Arc::clone(&lines) as Arc<dyn LogSink>);
    let options = Options {
        access_log: Some(Arc::new(log)),
        ..Options::default()
    };
    (options, lines)
}

const FACTS: [&str; 7] = [
    "ended", "cause", "method", "host", "path", "status", "protocol",
];

scenarios! {
    fn a_client_that_leaves_within_its_head_has_a_line(io) {
        let server = Server::start(io, LogSettings::default());
        server.leave(PART);
        let line = json(&server.lines.wait(1)[0]);
        assert_eq!(values(&line, &FACTS), [
            "incomplete-head".into(), "client-gone".into(), "GET".into(), "shop.example".into(), "/a".into(), Value::Null,
            "HTTP/1.1".into(),
        ]);
        assert_eq!(line["client"], "127.0.0.1");
        // A part of the request line may be a part of the path.
        server.leave(b"GET /secr");
        let line = json(&server.lines.wait(2)[1]);
        assert_eq!(values(&line, &FACTS[..5]), [
            "incomplete-head".into(), "client-gone".into(), Value::Null, Value::Null, Value::Null,
        ]);

        // The counts agree, and neither is a request.
        let text = server.proxy.metrics().read().open_metrics();
        assert_eq!(sum(&text, "blitz_heads_incomplete_total", &["cause=\"client-gone\""]), 2.0, "{text}");
        assert_eq!(sum(&text, "http_server_request_duration_seconds_count", &[]), 0.0);
        assert_eq!((server.proxy.counters().in_flight, server.upstream.accepted()), (0, 0));
    }

    fn a_request_before_it_has_its_own_line(io) {
        let server = Server::start(io, LogSettings::default());
        let request = b"GET /first HTTP/1.1\r\nHost: a\r\n\r\n";
        server.leave(&[&request[..], PART].concat());
        let lines: Vec<_> = server.lines.wait(2).iter().map(|line| json(line)["ended"].clone()).collect();
        assert_eq!(lines, ["complete", "incomplete-head"]);
    }

    fn connections_that_wait_for_the_rest_of_a_head_are_counted(io) {
        let server = Server::start(io, LogSettings::default());
        let reading = || server.proxy.http_counters().reading_head;
        let clients: Vec<_> = (0..5).map(|_| {
            let mut client = Raw::over(TcpStream::connect(server.proxy.address).unwrap());
            client.send(PART);
            client
        }).collect();
        // It is idle, and waits for nothing.
        let silent = TcpStream::connect(server.proxy.address).unwrap();
        eventually("all have sent a part", || reading() == 5);
        for (number, mut client) in clients.into_iter().enumerate() {
            if number > 0 {
                client.send("1\r\n\r\n").head();
            }
        }
        eventually("none waits", || reading() == 0);
        drop(silent);
        assert_eq!(server.abandoned(), 1);
    }

    fn an_idle_connection_has_no_line(io) {
        let server = Server::start(io, LogSettings::default());
        server.leave(b"");
        server.leave(b"\r\n");
        server.leave(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\r\n");
        assert_eq!(json(&server.lines.wait(1)[0])["ended"], "complete");
        assert_eq!(server.abandoned(), 0);
    }

    // More than ten of a second are counted, and told by the next line.
    fn a_flood_has_few_lines(io) {
        let server = Server::start(io, LogSettings::default());
        for _ in 0..60 {
            server.leave(PART);
        }
        assert_eq!(server.abandoned(), 60);
        thread::sleep(Duration::from_millis(1100));
        let omitted = server.proxy.counters().heads_omitted;
        assert!((1..=50).contains(&omitted), "{omitted}");
        server.leave(PART);
        let told = server.lines.wait(61 - omitted as usize);
        let told = told.iter().map(|line| json(line)["omitted"].as_u64().unwrap_or_default());
        assert_eq!(told.sum::<u64>(), omitted);
    }

    fn a_log_of_other_statuses_has_no_lines(io) {
        let server = Server::start(io, LogSettings {
            filter: LogFilter {
                statuses: vec![LoggedStatus::Class(5)],
                ..LogFilter::default()
            },
            ..LogSettings::default()
        });
        for _ in 0..12 {
            server.leave(PART);
        }
        assert_eq!((server.abandoned(), server.proxy.counters().heads_omitted), (12, 0));
    }

    fn a_head_over_tls_has_a_line(io) {
        let (authority, upstream) = (Authority::new(), Upstream::with_text("hello"));
        let tls = authority.server_with(blitz_http::ClientAuth::None, &TicketKeys::new().unwrap());
        let (options, lines) = options(LogSettings::default());
        let proxy = Proxy::over_tls_with(io, &[&upstream.url()], TlsSlot::new(tls), options);
        let client: Outside = authority.client();
        let mut stream = client.connect(proxy.address);
        std::io::Write::write_all(&mut stream, PART).unwrap();
        stream.conn.send_close_notify();
        let _ = stream.conn.complete_io(&mut stream.sock);
        drop(stream);
        let line = json(&lines.wait(1)[0]);
        assert_eq!(values(&line, &["ended", "scheme", "path", "sni"]), [
            "incomplete-head", "https", "/a", "localhost",
        ].map(Value::from));
    }
}
