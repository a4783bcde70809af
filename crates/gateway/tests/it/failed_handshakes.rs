//! A failed handshake has a line in the access log, and is no request.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use blitz_gateway::Options;
use blitz_gateway::access_log::{
    AccessLog, LogFilter, LogFormat, LogSettings, LogSink, LoggedStatus,
};
use blitz_http::{ClientAuth, IoChoice, Limits, TicketKeys, TlsSlot};
use blitz_testing::quic::Quic;
use blitz_testing::{H1Peer, Raw};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use serde_json::Value;

use crate::access_log::{Lines, json, values};
use crate::h3_support::block_on;
use crate::metrics::sum;
use crate::support::{Proxy, Upstream, eventually};
use crate::tls_support::{Authority, Outside, get};

/// As long as the header of a record.
const NOT_TLS: &[u8] = b"\0 not TLS";

/// A listener with TLS that has a short timeout for handshakes.
struct Server {
    proxy: Proxy,
    lines: Arc<Lines>,
    authority: Authority,
    upstream: Upstream,
}

impl Server {
    fn start(io: IoChoice, settings: LogSettings, has_client_auth: bool) -> Server {
        let (authority, upstream) = (Authority::new(), Upstream::with_text("hello"));
        let client_auth = match has_client_auth {
            true => ClientAuth::Required(authority.set()),
            false => ClientAuth::None,
        };
        let tls = authority.server_with(client_auth, &TicketKeys::new().unwrap());
        let lines = Arc::<Lines>::default();
        let log = AccessLog::new(settings, Arc::clone(&lines) as Arc<dyn LogSink>);
        let options = Options {
            access_log: Some(Arc::new(log)),
            limits: Limits {
                tls_handshake_timeout: Duration::from_millis(300),
                ..Limits::default()
            },
            ..Options::default()
        };
        let proxy = Proxy::over_tls_with(io, &[&upstream.url()], TlsSlot::new(tls), options);
        Server {
            proxy,
            lines,
            authority,
            upstream,
        }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.proxy.address).unwrap()
    }

    /// Sends bytes and waits until the server closes.
    fn send(&self, bytes: &[u8]) {
        let mut peer = H1Peer::new(self.connect());
        peer.send(bytes);
        peer.rest();
    }

    /// Fails to shake hands over TCP.
    fn fail(&self, client: &Outside) {
        let mut stream = client.connect(self.proxy.address);
        // In TLS 1.3 a client is told after its own handshake that its certificate is missing.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(stream.read_to_end(&mut Vec::new()).is_err());
    }

    /// The same over QUIC.
    fn fail_quic(&self, mut client: Outside, protocol: &str) {
        client.change(|config| config.alpn_protocols = vec![protocol.into()]);
        block_on(async {
            let to = self.proxy.address;
            let connected = Quic::connect(&client.config, Default::default(), to, "localhost");
            assert!(connected.await.is_err());
        });
    }

    /// The line of the next failed handshake.
    fn line(&self, count: usize) -> Value {
        let line = json(&self.lines.wait(count)[count - 1]);
        assert_eq!(
            values(
                &line,
                &["ended", "scheme", "method", "path", "status", "client"]
            ),
            [
                "handshake".into(),
                "https".into(),
                Value::Null,
                Value::Null,
                Value::Null,
                "127.0.0.1".into()
            ],
            "{line}"
        );
        line
    }

    fn omitted(&self) -> u64 {
        self.proxy.counters().handshakes_omitted
    }
}

/// A client of another authority.
fn distrusting() -> Outside {
    Authority::new().client_of(&[&rustls::version::TLS13], None)
}

/// The first flight of a client.
fn hello(client: &Outside) -> Vec<u8> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(Arc::clone(&client.config), name).unwrap();
    let mut bytes = Vec::new();
    session.write_tls(&mut bytes).unwrap();
    bytes
}

scenarios! {
    fn each_failed_handshake_has_a_line_with_its_cause(io) {
        let server = Server::start(io, LogSettings::default(), false);
        let facts = ["cause", "sni", "tls_version", "protocol"];
        server.fail(&distrusting());
        let line = server.line(1);
        assert_eq!(values(&line, &facts), [
            "unknown_ca".into(), "localhost".into(), "TLSv1.3".into(), Value::Null,
        ]);
        assert!(line["tls_cipher"].as_str().unwrap().starts_with("TLS_"), "{line}");

        server.fail_quic(distrusting(), "h3");
        assert_eq!(values(&server.line(2), &facts), ["unknown_ca", "localhost", "TLSv1.3", "HTTP/3"].map(Value::from));

        let mut without_protocol = server.authority.client();
        without_protocol.change(|config| config.alpn_protocols = vec![b"hq".to_vec()]);
        server.fail(&without_protocol);
        assert_eq!(values(&server.line(3), &facts[..2]), ["no-application-protocol", "localhost"].map(Value::from));
        server.fail_quic(server.authority.client_of(&[&rustls::version::TLS13], None), "hq");
        assert_eq!(server.line(4)["cause"], "no-application-protocol");

        server.send(NOT_TLS);
        let line = server.line(5);
        assert_eq!(values(&line, &facts), ["not-tls".into(), Value::Null, Value::Null, Value::Null]);

        let hello = hello(&server.authority.client());
        let mut part = Raw::over(server.connect());
        part.send(&hello[..hello.len() / 2]);
        drop(part);
        assert_eq!(server.line(6)["cause"], "handshake-cut-off");

        // The server has answered, and knows the name.
        let mut whole = Raw::over(server.connect());
        whole.send(&hello);
        whole.expect([22, 3, 3]);
        whole.fin();
        let line = server.line(7);
        assert_eq!(values(&line, &facts[..3]), ["handshake-cut-off", "localhost", "TLSv1.3"].map(Value::from));
        drop(whole);

        let silent = server.connect();
        let line = server.line(8);
        assert_eq!(line["cause"], "handshake-timeout");
        assert!(line["duration"].as_f64().unwrap() >= 0.3, "{line}");
        drop(silent);

        // The counts agree, and none of these is a request.
        let text = server.proxy.metrics().read().open_metrics();
        assert_eq!(sum(&text, "blitz_tls_failures_total", &[]), 8.0, "{text}");
        assert_eq!(sum(&text, "http_server_request_duration_seconds_count", &[]), 0.0);
        assert_eq!(server.proxy.counters().in_flight, 0);
    }

    fn a_client_that_sends_nothing_and_leaves_has_no_line(io) {
        let server = Server::start(io, LogSettings::default(), false);
        drop(server.connect());
        // A handshake without a request has none either.
        let mut stream = server.authority.client().connect(server.proxy.address);
        stream.conn.complete_io(&mut stream.sock).unwrap();
        drop(stream);
        eventually("both are closed", || server.proxy.http_counters().connections == 0);
        let mut stream = server.authority.client().connect(server.proxy.address);
        get(&mut stream, "/");
        assert_eq!(json(&server.lines.wait(1)[0])["ended"], "complete");
        assert_eq!(server.upstream.accepted(), 1);
    }

    fn a_client_without_the_certificate_has_a_line(io) {
        let server = Server::start(io, LogSettings::default(), true);
        server.fail(&server.authority.client());
        assert_eq!(server.line(1)["cause"], "certificate-missing");
    }

    // It gets a response, so it is a request.
    fn http_in_clear_text_is_a_refused_request(io) {
        let server = Server::start(io, LogSettings::default(), false);
        server.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let line = json(&server.lines.wait(1)[0]);
        assert_eq!(values(&line, &["ended", "cause", "status", "scheme", "bytes_out", "path"]), [
            Value::from("refused"), "clear-text-on-tls-port".into(), 400.into(), "http".into(), 83.into(), Value::Null,
        ]);
        let text = server.proxy.metrics().read().open_metrics();
        let name = "http_server_request_duration_seconds_count";
        assert_eq!(sum(&text, name, &["status=\"4xx\""]), 1.0, "{text}");
    }

    // More than ten of a second are counted, and told by the next line.
    fn a_flood_has_few_lines(io) {
        let server = Server::start(io, LogSettings::default(), false);
        for _ in 0..100 {
            server.send(NOT_TLS);
        }
        eventually("all have ended", || server.proxy.http_counters().tls.failed_for("not-tls") == 100);
        thread::sleep(Duration::from_millis(1100));
        let omitted = server.omitted();
        // The connections may have taken more than a second.
        assert!((50..=90).contains(&omitted), "{omitted}");
        server.send(NOT_TLS);
        let lines = 101 - omitted as usize;
        let told = server.lines.wait(lines);
        let told = told.iter().map(|line| json(line)["omitted"].as_u64().unwrap_or_default());
        assert_eq!(told.sum::<u64>(), omitted);
        // Another cause has lines of its own.
        server.fail(&distrusting());
        assert_eq!(server.line(lines + 1)["cause"], "unknown_ca");
    }

    fn lines_of_handshakes_can_be_switched_off(io) {
        let off = LogSettings {
            handshakes: false,
            ..LogSettings::default()
        };
        let only_failures = LogSettings {
            filter: LogFilter {
                statuses: vec![LoggedStatus::Class(5)],
                ..LogFilter::default()
            },
            ..LogSettings::default()
        };
        for settings in [off, only_failures] {
            let is_off = !settings.handshakes;
            let server = Server::start(io, settings, false);
            for _ in 0..20 {
                server.send(NOT_TLS);
            }
            assert_eq!(server.omitted(), 0);
            if is_off {
                get(&mut server.authority.client().connect(server.proxy.address), "/");
                assert_eq!(json(&server.lines.wait(1)[0])["ended"], "complete");
            }
        }
    }

    fn the_combined_format_has_no_request_line(io) {
        let settings = LogSettings {
            format: LogFormat::Combined,
            ..LogSettings::default()
        };
        let server = Server::start(io, settings, false);
        server.send(NOT_TLS);
        let line = &server.lines.wait(1)[0];
        assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
        assert!(line.ends_with("] \"-\" 499 0 \"-\" \"-\""), "{line}");
    }
}
