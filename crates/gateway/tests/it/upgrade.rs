//! WebSockets are the only upgrade that is forwarded (rule 15 and rule 16).

use std::time::Duration;

use blitz_gateway::{Options, Target};
use blitz_http::IoChoice;

use crate::site_rules::gateway_with;
use crate::support::{Proxy, Upstream, eventually, ok};

const REQUEST: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                      Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A gateway with a target that allows these protocols.
fn allowing(io: IoChoice, upstream: &Upstream, protocols: &[&str]) -> Proxy {
    let mut target: Target = upstream.url().parse().unwrap();
    let protocols = protocols.iter().map(|protocol| protocol.parse().unwrap());
    target.upgrades.extend(protocols);
    Proxy::start(Proxy::gateway(io).to(target), &[])
}

/// A request to switch to this protocol, as `docker exec` sends it.
fn exec(protocol: &str) -> String {
    format!(
        "POST /exec/1/start HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\
         Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    )
}

/// An upstream that switches to this protocol after the content, and then echoes, until FIN. Without
/// `Upgrade` it answers with the names of the fields.
fn docker(protocol: &'static str) -> Upstream {
    Upstream::scripted(move |_, peer| {
        while let Some((head, content)) = peer.request() {
            assert_eq!(content, b"{}");
            if head.field("upgrade").is_none() {
                let names: Vec<_> = head.fields.iter().map(|(name, _)| name.as_str()).collect();
                peer.send(ok(&names.join(" ")));
                continue;
            }
            peer.send(format!(
                "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n\
                 Connection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
            ));
            while let Some(byte) = peer.exactly(1) {
                peer.send(byte);
            }
            peer.send("bye");
            peer.finish();
            return;
        }
    })
}

/// An upstream that switches and then echoes, until FIN.
fn echo() -> Upstream {
    Upstream::scripted(|_, peer| {
        peer.head();
        peer.send(SWITCHING);
        while let Some(byte) = peer.exactly(1) {
            peer.send(byte);
        }
        peer.send("bye");
    })
}

scenarios! {
    fn protocols_that_the_target_allows_are_tunnels_in_both_directions(io) {
        for protocol in ["tcp", "SPDY/3.1"] {
            let upstream = docker(protocol);
            let proxy = allowing(io, &upstream, &["tcp", "SPDY/3.1"]);
            let mut peer = proxy.peer();
            // Bytes of the protocol may follow at once.
            peer.send(format!("{}\0early", exec(protocol)));
            let answer = peer.head().unwrap();
            assert_eq!(answer.line, "HTTP/1.1 101 Switching Protocols");
            assert_eq!(answer.field("upgrade"), Some(protocol));
            assert_eq!(answer.field("content-type"), Some("application/vnd.docker.raw-stream"));
            assert_eq!(peer.exactly(6).unwrap(), b"\0early");
            let head = upstream.head();
            assert_eq!(head.field("upgrade"), Some(protocol));
            assert_eq!(head.field("connection").map(str::to_ascii_lowercase).as_deref(), Some("upgrade"));
            for message in ["one", "two"] {
                peer.send(message);
                assert_eq!(peer.exactly(3).unwrap(), message.as_bytes());
            }
            peer.send("last");
            peer.finish();
            assert_eq!(peer.rest(), (b"lastbye".to_vec(), true), "the other direction goes on");
            assert_eq!(proxy.counters().tunnels, 1);
            eventually("the tunnel ends", || proxy.http_counters().connections == 0);
        }
    }

    fn other_protocols_are_not_forwarded(io) {
        for (allowed, requested) in [(&[][..], "tcp"), (&["tcp"], "SPDY/3.1"), (&["tcp"], "h2c"), (&["tcp"], "HTTP/2.0")] {
            let upstream = docker("tcp");
            let proxy = allowing(io, &upstream, allowed);
            let mut client = proxy.client();
            client.send(exec(requested));
            let answer = client.response();
            assert_eq!(answer.status, 200);
            assert!(!answer.text().split(' ').any(|name| name == "upgrade"), "{}", answer.text());
            assert_eq!(proxy.counters().tunnels, 0);
        }
    }

    fn a_route_says_which_protocols_its_clients_may_switch_to(io) {
        let (docker, echo) = (docker("tcp"), echo());
        let text = format!(
            "[site.\"*\"]\nto = \"{}\"\nupgrade = [\"tcp\"]\n\"/none\".upgrade = false\n\
             \"/chat\" = {{ to = \"{}\", upgrade = [\"WebSocket\"] }}\n",
            docker.url(),
            echo.url()
        );
        let proxy = gateway_with(io, Options::default(), &text);
        for (path, is_allowed) in [("/exec/1/start", true), ("/none/exec/1/start", false)] {
            let mut peer = proxy.peer();
            peer.send(exec("tcp").replace("/exec/1/start", path));
            let line = peer.head().unwrap().line;
            assert_eq!(line.contains(" 101 "), is_allowed, "{path}: {line}");
        }
        let mut peer = proxy.peer();
        peer.send(REQUEST);
        assert!(peer.head().unwrap().line.contains(" 101 "));
        // The upstream gets a plain request, and asserts that it has content.
        let mut client = proxy.client();
        client.send(REQUEST.replace("/chat", "/none").replace("\r\n\r\n", "\r\nContent-Length: 2\r\n\r\n{}"));
        let answer = client.response();
        assert_eq!(answer.status, 200);
        assert!(!answer.text().split(' ').any(|name| name == "upgrade"), "{}", answer.text());
        assert_eq!(proxy.counters().tunnels, 2);
    }

    fn a_switch_to_another_protocol_than_the_requested_one_is_a_bad_gateway(io) {
        let upstream = docker("vnc");
        let proxy = allowing(io, &upstream, &["tcp", "vnc"]);
        let mut client = proxy.client();
        client.send(exec("tcp"));
        let answer = client.response();
        assert_eq!(answer.status, 502);
        assert_eq!(answer.field("proxy-status"), Some("blitz; error=http_upgrade_failed"));
    }

    fn bytes_flow_in_both_directions_after_101(io) {
        let upstream = echo();
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send(REQUEST);
        let answer = peer.head().unwrap();
        assert_eq!(answer.line, "HTTP/1.1 101 Switching Protocols");
        assert_eq!(answer.field("upgrade"), Some("websocket"));
        assert_eq!(answer.field("connection").map(str::to_ascii_lowercase).as_deref(), Some("upgrade"));
        assert_eq!(answer.field("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        let head = upstream.head();
        assert_eq!(head.field("upgrade"), Some("websocket"));
        assert_eq!(head.field("sec-websocket-key"), Some("dGhlIHNhbXBsZSBub25jZQ=="));
        for message in ["one", "two"] {
            peer.send(message);
            assert_eq!(peer.exactly(3).unwrap(), message.as_bytes());
        }
        assert_eq!(proxy.counters().tunnels, 1);
    }

    fn fin_is_forwarded_per_direction(io) {
        let upstream = echo();
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send(REQUEST);
        peer.head();
        peer.send("last");
        peer.finish();
        assert_eq!(peer.rest(), (b"lastbye".to_vec(), true), "the other direction goes on");
    }

    fn the_upstreams_fin_leaves_the_clients_direction_open(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            peer.send(SWITCHING);
            peer.send("hello");
            peer.finish();
            assert_eq!(peer.rest(), (b"still here".to_vec(), true));
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send(REQUEST);
        peer.head();
        assert_eq!(peer.exactly(5).unwrap(), b"hello");
        assert!(peer.is_closed_by_peer());
        peer.send("still here");
        peer.finish();
        eventually("the tunnel ends", || proxy.http_counters().connections == 0);
    }

    fn bytes_sent_before_the_response_are_kept_for_the_tunnel(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            std::thread::sleep(Duration::from_millis(50));
            peer.send(SWITCHING);
            let early = peer.exactly(5).unwrap();
            peer.send(early);
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send(format!("{REQUEST}early"));
        assert_eq!(peer.head().unwrap().line, "HTTP/1.1 101 Switching Protocols");
        assert_eq!(peer.exactly(5).unwrap(), b"early");
    }

    fn a_refused_upgrade_with_bytes_pending_is_answered_and_closed(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while peer.head().is_some() {
                peer.send(ok("no"));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send(format!("{REQUEST}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(peer.head().unwrap().line.starts_with("HTTP/1.1 200 "));
        assert_eq!(peer.rest().0, b"no");
        assert_eq!(upstream.heads().len(), 1, "the pending bytes were no request");
    }

    fn an_unrequested_protocol_is_a_bad_gateway(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
            assert!(peer.is_closed_by_peer());
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send(REQUEST);
        let answer = client.response();
        assert_eq!(answer.status, 502);
        assert_eq!(answer.field("proxy-status"), Some("blitz; error=http_upgrade_failed"));
    }

    fn a_switch_that_is_not_an_option_of_the_connection_is_a_bad_gateway(io) {
        for connection in ["", "Connection: keep-alive\r\n"] {
            let upstream = Upstream::scripted(move |_, peer| {
                peer.head();
                peer.send(format!("HTTP/1.1 101 Switching Protocols\r\n{connection}Upgrade: websocket\r\n\r\n"));
                assert!(peer.is_closed_by_peer());
            });
            let proxy = Proxy::to(io, &[&upstream.url()]);
            let mut client = proxy.client();
            client.send(REQUEST);
            let answer = client.response();
            assert_eq!(answer.status, 502);
            let expected = "blitz; error=http_upgrade_failed; details=\"switching-unrequested\"";
            assert_eq!(answer.field("proxy-status"), Some(expected));
        }
    }

    fn an_upgrade_to_h2c_is_not_forwarded(io) {
        for (settings, granted) in [("AAMAAABkAAQAAP__", true), ("AAMA=", false)] {
            let upstream = Upstream::with_text("plain");
            let options = Options { h2c_upgrade: true, ..Options::default() };
            let proxy = Proxy::with(io, &[&upstream.url()], options);
            let mut client = proxy.peer();
            client.send(format!(
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, X-Mine\r\n\
                 Upgrade: h2c\r\nHTTP2-Settings: {settings}\r\nX-Mine: 1\r\nX-Other: 2\r\n\r\n",
            ));
            let answer = client.head().unwrap();
            if granted {
                assert!(answer.line.starts_with("HTTP/1.1 101 "), "{}", answer.line);
                assert_eq!(answer.field("upgrade"), Some("h2c"));
            } else {
                assert!(answer.line.starts_with("HTTP/1.1 200 "), "{}", answer.line);
            }
            // The 101 comes first.
            eventually("received", || upstream.heads().len() == 1);
            let head = upstream.head();
            for name in ["upgrade", "http2-settings", "x-mine"] {
                assert_eq!(head.field(name), None, "{granted}");
            }
            assert_eq!(head.field("x-other"), Some("2"));
        }
    }

    fn a_client_that_resets_closes_its_tunnel(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            peer.send(SWITCHING);
            assert!(peer.is_closed_by_peer());
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send(REQUEST);
        peer.head();
        peer.reset();
        eventually("the tunnel ends", || proxy.http_counters().connections == 0);
    }

    fn a_tunnel_times_out_only_if_both_directions_are_silent(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            peer.send(SWITCHING);
            for _ in 0..8 {
                std::thread::sleep(Duration::from_millis(50));
                peer.send("tick");
            }
            assert!(peer.is_closed_by_peer());
        });
        let mut options = Options::default();
        options.limits.stream_idle_timeout = Duration::from_millis(200);
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let mut peer = proxy.peer();
        peer.send(REQUEST);
        peer.head();
        assert_eq!(peer.rest().0, b"tick".repeat(8));
        eventually("the tunnel ends", || proxy.http_counters().connections == 0);
        assert_eq!(proxy.http_counters().tunnel_timeouts, 1);
    }

    // It may be longer than that of the listener, and not shorter.
    fn a_tunnel_has_the_idle_time_of_its_route(io) {
        let upstream = Upstream::scripted(|_, peer| {
            let Some(head) = peer.head() else { return };
            peer.send(SWITCHING);
            let pause = if head.line.contains("/patient") { 800 } else { 50 };
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(pause));
                peer.send("tick");
            }
            assert!(pause == 800 || peer.is_closed_by_peer());
        });
        let mut options = Options::default();
        options.limits.stream_idle_timeout = Duration::from_millis(300);
        let proxy = gateway_with(io, options, &format!(
            "[site.\"a\"]\nto = \"{}\"\ntimeout.idle = \"10ms\"\n\"/patient\".timeout.idle = \"8s\"\n",
            upstream.url(),
        ));
        for path in ["/chat", "/patient"] {
            let mut peer = proxy.peer();
            peer.send(REQUEST.replace("/chat", path));
            peer.head();
            assert_eq!(peer.rest().0, b"tick".repeat(3), "{path}");
        }
        assert_eq!(proxy.http_counters().tunnel_timeouts, 1);
    }

    fn a_stopped_receiver_stops_the_sender_of_a_tunnel(io) {
        let (sender, progress) = std::sync::mpsc::channel();
        let upstream = Upstream::scripted(move |_, peer| {
            peer.head();
            peer.send(SWITCHING);
            while peer.send([b'x'; 65536]) {
                let _ = sender.send(65536);
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send(REQUEST);
        peer.head();
        let mut sent = 0;
        while let Ok(bytes) = progress.recv_timeout(Duration::from_millis(500)) {
            sent += bytes;
        }
        assert!(sent < 64 << 20, "{sent} bytes were taken for a client that reads none");
    }
}
