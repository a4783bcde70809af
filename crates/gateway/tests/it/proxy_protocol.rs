//! The PROXY protocol: from proxies in front of Blitz, and to upstreams.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

use blitz_config::{Document, Environment, read};
use blitz_gateway::{Gateway, Options, compile};
use blitz_host::serving::ListenerConfig;
use blitz_http::{IoChoice, Limits, Status, TlsSlot};
use blitz_testing::{Client, H1Peer};

use crate::h2::result_of;
use crate::h2_peer::H2Peer;
use crate::site_rules::gateway_with;
use crate::support::{Proxy, SOON, Upstream, any_port, eventually, ok};
use crate::tls_support::Authority;

const LINE: &str = "PROXY TCP4 192.0.2.7 198.51.100.1 4660 80\r\n";

fn trusting(networks: &[&str]) -> Options {
    Options {
        trusted_proxies: networks.iter().map(|text| text.parse().unwrap()).collect(),
        ..Options::default()
    }
}

/// A gateway with a listener for proxies, and the sites of this file.
fn behind_proxy(io: IoChoice, options: Options, listener: ListenerConfig, text: &str) -> Proxy {
    let document = Document::new("blitz.toml", text);
    let (configuration, mut diagnostics) = read(&document, &Environment::default());
    let mut read_file = |_: &str| Err(("no file".to_owned(), String::new()));
    let sites = compile(&configuration, &mut read_file, &mut diagnostics);
    assert_eq!(diagnostics, [], "{text}");
    let gateway = Gateway::new()
        .listen(ListenerConfig {
            proxy_protocol: true,
            ..listener
        })
        .config(crate::support::config(io))
        .options(options);
    Proxy::start(sites.into_iter().fold(gateway, Gateway::site), &[])
}

fn site(upstream: &str) -> String {
    format!(
        "[site.\"*\"]\nto = \"{upstream}\"\n\"/office\" = {{ allow = [\"192.0.2.0/24\"] }}\n\
         \"/closed\" = {{ deny = [\"192.0.2.0/24\"] }}\n\"/who\" = {{ respond = \"200 {{client}}\" }}\n"
    )
}

/// The file of an upstream that gets headers.
fn announcing(url: &str, version: &str) -> String {
    format!(
        "[site.\"*\"]\nto = \"app\"\n[upstream.app]\nservers = [\"{url}\"]\nproxy_protocol = \"{version}\"\n"
    )
}

fn get(client: &mut Client, path: &str) -> (u16, String) {
    let response = client.get(path);
    (response.status, response.text().to_owned())
}

/// An upstream that responds with the PROXY line of its connection.
fn telling() -> Upstream {
    Upstream::scripted(|_, peer| {
        let Some(line) = peer.line() else { return };
        while peer.request().is_some() {
            peer.send(ok(&line));
        }
    })
}

/// The line for a client that has sent this request.
fn line_of(client: &H1Peer, proxy: &Proxy) -> String {
    let (own, port) = (client.writer().local_addr().unwrap(), proxy.address.port());
    format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {port}", own.port())
}

/// The line that a connection begins with, and nothing behind it.
fn line_before(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// The content of a response.
fn content(peer: &mut H1Peer) -> String {
    let head = peer.head().expect("a response");
    let length = head.field("content-length").expect("its length");
    String::from_utf8(peer.exactly(length.parse().unwrap()).unwrap()).unwrap()
}

scenarios! {
    fn the_client_of_the_header_is_that_of_rules_and_fields(io) {
        let upstream = Upstream::with_text("in");
        let text = site(&upstream.url());
        let proxy = behind_proxy(io, trusting(&["127.0.0.0/8"]), any_port().into(), &text);
        let mut client = proxy.client();
        client.send(LINE);
        assert_eq!(get(&mut client, "/who"), (200, "192.0.2.7".to_owned()));
        assert_eq!(get(&mut client, "/office").0, 200);
        assert_eq!(get(&mut client, "/closed").0, 403);
        // It is no trusted proxy itself, so that what it says of others is not believed.
        client.send("GET /x HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.9.9.9\r\nForwarded: for=10.9.9.9\r\n\r\n");
        assert_eq!(client.response().status, 200);
        let head = upstream.heads().pop().unwrap();
        assert_eq!(head.field("x-forwarded-for"), Some("192.0.2.7"));
        assert_eq!(head.field("forwarded").map(|value| value.starts_with("for=192.0.2.7;")), Some(true));
        // Another client of the same proxy.
        let mut client = proxy.client();
        client.send("PROXY TCP6 2001:db8::7 2001:db8::1 4660 80\r\n");
        assert_eq!(get(&mut client, "/who"), (200, "2001:db8::7".to_owned()));
        assert_eq!(get(&mut client, "/office").0, 403);
    }

    fn a_client_that_is_a_trusted_proxy_tells_its_own_clients(io) {
        let upstream = Upstream::with_text("in");
        let options = trusting(&["127.0.0.0/8", "192.0.2.7"]);
        let proxy = behind_proxy(io, options, any_port().into(), &site(&upstream.url()));
        let mut client = proxy.client();
        client.send(LINE);
        client.send("GET /who HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.9\r\n\r\n");
        assert_eq!(client.response().text(), "198.51.100.9");
    }

    fn peers_without_trust_and_without_header_get_nothing(io) {
        let upstream = Upstream::with_text("in");
        let text = site(&upstream.url());
        for (networks, sent, rule) in [
            (&["192.0.2.7"][..], LINE, "proxy-header-untrusted"),
            (&[], LINE, "proxy-header-untrusted"),
            (&["127.0.0.1"], "", "proxy-header-missing"),
        ] {
            let proxy = behind_proxy(io, trusting(networks), any_port().into(), &text);
            let mut peer = proxy.peer();
            peer.send([sent, GET].concat());
            assert!(peer.is_closed_by_peer());
            eventually("counted", || proxy.http_counters().refused_for(rule) == 1);
        }
        assert_eq!(upstream.heads(), []);
    }

    fn a_tls_listener_with_headers_serves_no_http3(io) {
        let upstream = Upstream::with_text("in");
        let listener = ListenerConfig::secure(any_port(), TlsSlot::new(Authority::new().server()));
        let text = site(&upstream.url());
        let mut proxy = behind_proxy(io, trusting(&["127.0.0.1"]), listener, &text);
        let running = proxy.take();
        let mut listeners = running.listeners();
        assert!(listeners.next().is_some_and(|listener| listener.proxy_protocol && !listener.http3));
        drop(listeners);
        running.drain(std::time::Duration::ZERO);
        running.join().unwrap();
    }

    fn an_upstream_gets_the_client_in_front_of_its_connections(io) {
        let upstream = telling();
        let proxy = gateway_with(io, Options::default(), &announcing(&upstream.url(), "v1"));
        let (mut first, mut second) = (proxy.peer(), proxy.peer());
        for _ in 0..2 {
            for peer in [&mut first, &mut second] {
                peer.send(GET);
                assert_eq!(content(peer), line_of(peer, &proxy));
            }
        }
        // Each client has its own connection, which its requests share.
        assert_eq!(upstream.accepted(), 2);
    }

    fn a_client_behind_a_trusted_proxy_is_told_without_a_port(io) {
        let upstream = telling();
        let options = trusting(&["127.0.0.1"]);
        let proxy = gateway_with(io, options, &announcing(&upstream.url(), "v1"));
        let mut peer = proxy.peer();
        for client in ["192.0.2.7", "192.0.2.8"] {
            peer.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\n\r\n"));
            let port = proxy.address.port();
            assert_eq!(content(&mut peer), format!("PROXY TCP4 {client} 127.0.0.1 0 {port}"));
        }
        peer.send("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: unknown\r\n\r\n");
        assert_eq!(content(&mut peer), "PROXY UNKNOWN");
    }

    fn version_2_is_binary(io) {
        let (send, received) = channel();
        let upstream = Upstream::scripted(move |_, peer| {
            let header = peer.exactly(28).unwrap();
            let _ = send.send(header);
            while peer.request().is_some() {
                peer.send(ok("in"));
            }
        });
        let proxy = gateway_with(io, Options::default(), &announcing(&upstream.url(), "v2"));
        let mut peer = proxy.peer();
        peer.send(GET);
        assert_eq!(content(&mut peer), "in");
        let header = result_of(&received);
        assert_eq!(header[..16], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c");
        assert_eq!(header[16..24], [127, 0, 0, 1, 127, 0, 0, 1]);
        let own = peer.writer().local_addr().unwrap().port();
        assert_eq!(header[24..26], own.to_be_bytes());
        assert_eq!(header[26..], proxy.address.port().to_be_bytes());
    }

    fn the_limit_of_connections_is_that_of_all_clients(io) {
        let (send, released) = channel::<()>();
        let released = Mutex::new(released);
        let upstream = Upstream::scripted(move |_, peer| {
            let Some(line) = peer.line() else { return };
            while let Some((head, _)) = peer.request() {
                if head.line.contains("/slow") {
                    let _ = released.lock().unwrap().recv_timeout(SOON);
                }
                peer.send(ok(&line));
            }
        });
        let mut options = Options::default();
        options.client.limits.upstream_connections_max = 1;
        let proxy = gateway_with(io, options, &announcing(&upstream.url(), "v1"));
        let (mut first, mut second) = (proxy.peer(), proxy.peer());
        first.send(GET.replace("GET /", "GET /slow"));
        eventually("sent", || upstream.accepted() == 1);
        second.send(GET);
        let refused = second.head().unwrap();
        assert_eq!(refused.line, "HTTP/1.1 503 Service Unavailable");
        second.exactly(refused.field("content-length").unwrap().parse().unwrap()).unwrap();
        send.send(()).unwrap();
        assert_eq!(content(&mut first), line_of(&first, &proxy));
        second.send(GET);
        assert_eq!(content(&mut second), line_of(&second, &proxy));
        assert_eq!(proxy.http_counters().upstream_queue_full, 1);
    }

    fn connections_of_http2_are_not_shared_by_clients(io) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("h2c://{}", listener.local_addr().unwrap());
        let (send, received) = channel();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let send = send.clone();
                thread::spawn(move || {
                    let line = line_before(&mut stream);
                    let _ = send.send(line.clone());
                    let mut peer = H2Peer::over(stream, &Limits::default());
                    while let Some((stream, _)) = peer.request() {
                        peer.answer(stream, Status::OK, &line);
                    }
                });
            }
        });
        let proxy = gateway_with(io, Options::default(), &announcing(&url, "v1"));
        let (mut first, mut second) = (proxy.peer(), proxy.peer());
        for _ in 0..2 {
            for peer in [&mut first, &mut second] {
                peer.send(GET);
                assert_eq!(content(peer), line_of(peer, &proxy));
            }
        }
        assert_eq!(received.try_iter().count(), 2);
    }
}
