//! Upstreams over TLS: ALPN negotiates HTTP/2 or HTTP/1.1.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use blitz_http::{BodyLength, ClientTlsSlot, Limits, Method, Name, Status};
use blitz_proto::h2::Code;
use blitz_testing::{H1Peer, Raw};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::h2_client::Client;
use crate::h2_peer::H2Peer;
use crate::support::{Proxy, eventually, ok, trusting};
use crate::tls_support::Authority;

/// An upstream over TLS that runs a script for each connection, with its number from 0.
pub(crate) struct TlsUpstream {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    offers: Arc<Mutex<Vec<&'static str>>>,
    pub(crate) authority: Authority,
}

/// A connection with its negotiated protocol.
pub(crate) enum Accepted {
    H1(H1Peer),
    H2(Box<H2Peer>),
}

impl TlsUpstream {
    /// An upstream with these ALPN protocols.
    pub(crate) fn scripted(
        alpn: &[&'static str],
        script: impl Fn(usize, Accepted) + Send + Sync + 'static,
    ) -> TlsUpstream {
        let authority = Authority::new();
        let pair = authority.pair(&["localhost", "127.0.0.1"]);
        let config = authority.outside_server(&pair, |_| {});
        TlsUpstream::with_config(authority, config, alpn, script)
    }

    /// The same with this configuration, whose certificate the authority has issued.
    pub(crate) fn with_config(
        authority: Authority,
        config: Arc<ServerConfig>,
        alpn: &[&'static str],
        script: impl Fn(usize, Accepted) + Send + Sync + 'static,
    ) -> TlsUpstream {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let offers = Arc::new(Mutex::new(alpn.to_vec()));
        let (script, counter, present) =
            (Arc::new(script), Arc::clone(&accepted), Arc::clone(&offers));
        thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let number = counter.fetch_add(1, Ordering::SeqCst);
                let mut config = ServerConfig::clone(&config);
                let alpn = present.lock().unwrap();
                config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
                let script = Arc::clone(&script);
                thread::spawn(move || {
                    if let Some(accepted) = accept(tcp, config) {
                        script(number, accepted);
                    }
                });
            }
        });
        TlsUpstream {
            address,
            accepted,
            offers,
            authority,
        }
    }

    /// Responds to each request with protocol, scheme if it has one, method, path and content.
    pub(crate) fn echoing(alpn: &[&'static str]) -> TlsUpstream {
        TlsUpstream::scripted(alpn, |_, accepted| match accepted {
            Accepted::H1(mut peer) => {
                while let Some((head, content)) = peer.request() {
                    let content = String::from_utf8(content).unwrap();
                    let (received, _) = head.line.rsplit_once(' ').unwrap();
                    peer.send(ok(&format!("h1 {received} {content}")));
                }
            }
            Accepted::H2(mut peer) => {
                while let Some((stream, received)) = peer.request() {
                    let head = received.head;
                    let (method, path) = (head.method_str(), head.path_and_query());
                    let content = String::from_utf8(received.content).unwrap();
                    let scheme = head.scheme().unwrap_or_default();
                    peer.answer(
                        stream,
                        Status::OK,
                        &format!("h2 {scheme} {method} {path} {content}"),
                    );
                }
            }
        })
    }

    /// Sets the ALPN protocols for later connections.
    fn set_alpn(&self, alpn: &[&'static str]) {
        *self.offers.lock().unwrap() = alpn.to_vec();
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    pub(crate) fn proxy(&self, io: blitz_http::IoChoice) -> Proxy {
        Proxy::to_tls(io, &[&self.url()], &self.authority)
    }
}

/// Completes the handshake; `None` if the client fails it.
fn accept(tcp: TcpStream, config: ServerConfig) -> Option<Accepted> {
    let Raw(tcp) = Raw::over(tcp);
    let session = ServerConnection::new(Arc::new(config)).unwrap();
    let mut stream = Box::new(StreamOwned::new(session, tcp));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).ok()?;
    }
    Some(match stream.conn.alpn_protocol() {
        Some(b"h2") => Accepted::H2(Box::new(H2Peer::speaking(stream, &Limits::default()))),
        _ => Accepted::H1(H1Peer::new(*stream)),
    })
}

const UNKNOWN_ISSUER: &str =
    "blitz; error=tls_certificate_error; details=\"certificate-unknown-issuer\"";
const BOTH: &[&str] = &["h2", "http/1.1"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

scenarios! {
    fn alpn_decides_the_protocol(io) {
        for (alpn, version) in [
            (BOTH, "h2 https"),
            (&["h2"], "h2 https"),
            (&["http/1.1"], "h1"),
            (&["http/1.1", "h2"], "h1"),
            (&[], "h1"),
        ] {
            let upstream = TlsUpstream::echoing(alpn);
            let proxy = upstream.proxy(io);
            let mut one = proxy.client();
            let mut two = Client::connect(proxy.address);
            for round in 0..3 {
                let path = format!("/{round}");
                assert_eq!(one.get(&path).text(), format!("{version} GET {path} "), "{alpn:?}");
                let stream = two.request(Method::Post, &path, BodyLength::Known(2));
                two.send(stream, b"hi", true);
                let answer = two.answer(stream);
                assert_eq!(text(&answer.content), format!("{version} POST {path} hi"), "{alpn:?}");
            }
            assert_eq!(upstream.accepted(), 1, "{alpn:?}");
        }
    }

    fn simultaneous_first_requests_share_one_http2_connection(io) {
        let upstream = TlsUpstream::echoing(BOTH);
        let proxy = upstream.proxy(io);
        let mut client = Client::connect(proxy.address);
        let streams: Vec<_> = (0..80)
            .map(|n| (n, client.request(Method::Get, &format!("/{n}"), BodyLength::Empty)))
            .collect();
        for (n, stream) in streams {
            assert_eq!(text(&client.answer(stream).content), format!("h2 https GET /{n} "));
        }
        assert_eq!(upstream.accepted(), 1);
    }

    fn simultaneous_first_requests_use_several_http1_connections(io) {
        let upstream = TlsUpstream::scripted(&["http/1.1"], |_, accepted| {
            let Accepted::H1(mut peer) = accepted else {
                panic!("ALPN did not negotiate HTTP/2")
            };
            while peer.request().is_some() {
                thread::sleep(Duration::from_millis(100));
                peer.send(ok("slow"));
            }
        });
        let proxy = upstream.proxy(io);
        let mut client = Client::connect(proxy.address);
        let began = std::time::Instant::now();
        let streams: Vec<_> = (0..20)
            .map(|n| client.request(Method::Get, &format!("/{n}"), BodyLength::Empty))
            .collect();
        for stream in streams {
            assert_eq!(text(&client.answer(stream).content), "slow");
        }
        assert_eq!(upstream.accepted(), 20);
        assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
    }

    fn a_change_of_the_negotiated_protocol_applies_to_new_connections(io) {
        // A connection ends after a request for `/last`.
        let upstream = TlsUpstream::scripted(BOTH, |_, accepted| match accepted {
            Accepted::H1(mut peer) => {
                while let Some((head, _)) = peer.request() {
                    peer.send(ok("h1"));
                    if head.line.contains("last") {
                        break;
                    }
                }
            }
            Accepted::H2(mut peer) => {
                while let Some((stream, received)) = peer.request() {
                    peer.answer(stream, Status::OK, "h2");
                    if received.head.path() == "/last" {
                        return peer.fin_and_wait();
                    }
                }
            }
        });
        let proxy = upstream.proxy(io);
        let mut client = Client::connect(proxy.address);
        let orders: [(&[&str], &str); 4] =
            [(&["http/1.1"], "h1"), (BOTH, "h2"), (&[], "h1"), (&["h2"], "h2")];
        assert_eq!(client.get("/last").content, b"h2");
        for (order, (alpn, version)) in orders.into_iter().enumerate() {
            upstream.set_alpn(alpn);
            eventually("the pool is empty", || proxy.http_counters().upstream_idle == 0);
            let streams: Vec<_> = (0..10)
                .map(|_| client.request(Method::Get, "/some", BodyLength::Empty))
                .collect();
            for stream in streams {
                assert_eq!(text(&client.answer(stream).content), version, "{order}");
            }
            // Idle HTTP/1.1 connections remain. They must not be used after the next connection
            // negotiates HTTP/2.
            while proxy.http_counters().upstream_idle > 0 {
                let before = proxy.http_counters().upstream_idle;
                assert_eq!(text(&client.get("/last").content), version);
                eventually("it closes", || proxy.http_counters().upstream_idle < before);
            }
        }
    }

    fn http1_connections_in_use_are_not_pooled_after_http2_is_negotiated(io) {
        let (sender, receiver) = std::sync::mpsc::channel();
        let receiver = Mutex::new(receiver);
        let upstream = TlsUpstream::scripted(&["http/1.1"], move |_, accepted| match accepted {
            Accepted::H1(mut peer) => {
                while let Some((head, _)) = peer.request() {
                    if head.line.contains("held") {
                        receiver.lock().unwrap().recv().unwrap();
                    }
                    peer.send(ok("h1"));
                }
            }
            Accepted::H2(mut peer) => {
                while let Some((stream, _)) = peer.request() {
                    peer.answer(stream, Status::OK, "h2");
                }
            }
        });
        let proxy = upstream.proxy(io);
        let mut held = proxy.client();
        held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("a connection is made", || upstream.accepted() == 1);
        thread::sleep(Duration::from_millis(50));
        upstream.set_alpn(BOTH);
        let mut client = proxy.client();
        assert_eq!(client.get("/").text(), "h2");
        sender.send(()).unwrap();
        assert_eq!(held.response().text(), "h1");
        for _ in 0..3 {
            assert_eq!(client.get("/").text(), "h2");
        }
        assert_eq!(upstream.accepted(), 2);
    }

    fn a_request_refused_over_http2_is_retried_with_its_content(io) {
        let upstream = TlsUpstream::scripted(BOTH, |number, accepted| {
            let Accepted::H2(mut peer) = accepted else {
                panic!("HTTP/2 was offered")
            };
            while let Some((stream, received)) = peer.request() {
                match number {
                    0 => peer.reset(stream, Code::REFUSED_STREAM),
                    _ => peer.answer(stream, Status::OK, &text(&received.content)),
                }
            }
        });
        let proxy = upstream.proxy(io);
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(client.response().text(), "hello");
        assert_eq!((upstream.accepted(), proxy.counters().retries), (2, 1));
    }

    fn one_failed_handshake_fails_all_waiting_requests(io) {
        let upstream = TlsUpstream::echoing(BOTH);
        let proxy = Proxy::to_tls(io, &[&upstream.url()], &Authority::new());
        let mut client = Client::connect(proxy.address);
        let streams: Vec<_> = (0..20)
            .map(|_| client.request(Method::Get, "/", BodyLength::Empty))
            .collect();
        for stream in streams {
            let answer = client.answer(stream);
            assert_eq!(answer.status, Some(Status::BAD_GATEWAY));
            let proxy_status = answer.fields.get_str(Name::ProxyStatus);
            assert_eq!(proxy_status, Some(UNKNOWN_ISSUER));
        }
        assert!(upstream.accepted() < 20, "{}", upstream.accepted());
    }

    fn a_refused_certificate_is_described_among_the_failures(io) {
        let upstream = TlsUpstream::echoing(&["http/1.1"]);
        let proxy = Proxy::to_tls(io, &[&upstream.url()], &Authority::new());
        assert_eq!(proxy.client().get("/").status, 502);
        let failures = proxy.failures();
        let certificate = failures[0].last.certificate.as_deref().unwrap();
        assert!(certificate.starts_with("for "), "{certificate}");
        assert!(certificate.contains("; issued by "), "{certificate}");
        assert!(certificate.contains("; valid for "), "{certificate}");
    }

    fn connections_made_with_old_settings_get_no_more_requests(io) {
        let other = Authority::new();
        for alpn in [BOTH, &["http/1.1"]] {
            let (sender, receiver) = std::sync::mpsc::channel();
            let receiver = Mutex::new(receiver);
            let upstream = TlsUpstream::scripted(alpn, move |number, accepted| match accepted {
                Accepted::H1(mut peer) => {
                    while let Some((head, _)) = peer.request() {
                        if head.line.contains("/held") {
                            receiver.lock().unwrap().recv().unwrap();
                        }
                        peer.send(ok(&number.to_string()));
                    }
                }
                Accepted::H2(mut peer) => {
                    while let Some((stream, head)) = peer.next() {
                        if head.path() == "/held" {
                            receiver.lock().unwrap().recv().unwrap();
                        }
                        peer.answer(stream, Status::OK, &number.to_string());
                    }
                }
            });
            let slot = ClientTlsSlot::from(trusting(&upstream.authority));
            let gateway = Proxy::gateway(io).upstream_tls(slot.clone());
            let proxy = Proxy::start(gateway, &[&upstream.url()]);
            let mut client = proxy.client();
            for _ in 0..2 {
                assert_eq!(client.get("/").text(), "0");
            }
            // One connection is idle when the settings change, the other is not.
            let mut held = proxy.client();
            held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
            thread::sleep(Duration::from_millis(50));
            slot.replace(trusting(&upstream.authority));
            assert_eq!(client.get("/").text(), "1");
            sender.send(()).unwrap();
            assert_eq!(held.response().text(), "0", "its request continues");
            for client in [&mut client, &mut held] {
                assert_eq!(client.get("/").text(), "1");
            }
            eventually("the old one is closed", || proxy.http_counters().upstream_retired == 1);
            slot.replace(trusting(&other));
            let answer = client.get("/");
            assert_eq!(answer.status, 502);
            assert_eq!(answer.field("proxy-status"), Some(UNKNOWN_ISSUER));
            slot.replace(trusting(&upstream.authority));
            eventually("it rests no more", || client.get("/").status == 200);
        }
    }
}
