use std::io::{Read, Write};
use std::time::Duration;

use blitz_http::{
    BodyLength, ClientAuth, IoChoice, Limits, Method, Name, RequestHead, ServeOptions, ServerTls,
    TicketKeys, TlsSlot,
};
use blitz_proto::h2::{Connection, Event, Received};
use quinn::TransportConfig;
use rustls::pki_types::CertificateDer;

use crate::deadlines::limits;
use crate::h3_support::{
    Answer, Client, Quic, QuicServer, block_on, pause, soon, with_options, with_server,
};
use crate::support::{Server, on_each_driver, options};
use crate::tls_support::{Authority, Outside};

fn start(io: IoChoice, authority: Authority, tls: ServerTls) -> QuicServer {
    QuicServer::with_tls(io, 1, authority, tls, options)
}

async fn quic_as(server: &QuicServer, client: &Outside, name: &str) -> Quic {
    let connected = Quic::connect(
        &client.config,
        TransportConfig::default(),
        server.address,
        name,
    );
    connected.await.expect("connects")
}

async fn ask(server: &QuicServer, client: &Outside, path: &str) -> Answer {
    let quic = quic_as(server, client, "localhost").await;
    Client::over(quic).await.get(path).await
}

/// The certificate that the server has shown.
fn shown(quic: &Quic) -> CertificateDer<'static> {
    let identity = quic.connection.peer_identity().unwrap();
    let chain = identity.downcast::<Vec<CertificateDer<'static>>>().unwrap();
    chain[0].clone()
}

#[test]
fn clients_authenticate_with_certificates() {
    on_each_driver(|io| {
        for required in [false, true] {
            let authority = Authority::new();
            let own = authority.pair(&["client.example"]);
            let stranger = Authority::new().pair(&["eve"]);
            let auth = match required {
                true => ClientAuth::Required(authority.set()),
                false => ClientAuth::Optional(authority.set()),
            };
            let tls = authority.server_with(auth, &TicketKeys::new().unwrap());
            let of = |pair| {
                authority
                    .client_of(&[&rustls::version::TLS13], pair)
                    .of_h3()
            };
            let (known, eve) = (of(Some(&own)), of(Some(&stranger)));
            let anonymous = of(None);
            let server = start(io, authority, tls);
            block_on(async {
                let encoded = own.certificate.lines();
                let encoded = encoded.filter(|line| !line.starts_with('-'));
                let wanted = format!("localhost :{}:", encoded.collect::<String>());
                // The second one resumes the session of the first.
                for resumed in 0..2 {
                    let answer = ask(&server, &known, "/identity").await;
                    assert_eq!(String::from_utf8(answer.content).unwrap(), wanted);
                    assert_eq!(server.counters().tls.resumed, resumed);
                }
                if !required {
                    let answer = ask(&server, &anonymous, "/identity").await;
                    assert_eq!(answer.content, b"localhost anonymous");
                } else {
                    refused(&server, &anonymous, 116).await;
                    assert_eq!(failed(&server, "certificate-missing"), 1);
                }
                refused(&server, &eve, 48).await;
                assert_eq!(failed(&server, "certificate-unknown-issuer"), 1);
            });
        }
    });
}

fn failed(server: &QuicServer, rule: &str) -> u64 {
    server.counters().tls.failed_for(rule)
}

/// The server closes the connection with this alert (RFC 9001, section 4.8), in the handshake or behind it.
async fn refused(server: &QuicServer, client: &Outside, alert: u64) {
    let transport = TransportConfig::default();
    let error = match Quic::connect(&client.config, transport, server.address, "localhost").await {
        Ok(quic) => soon(quic.connection.closed()).await,
        Err(error) => error,
    };
    let quinn::ConnectionError::ConnectionClosed(close) = error else {
        panic!("{error:?}")
    };
    assert_eq!(u64::from(close.error_code), 0x100 + alert, "{close}");
}

#[test]
fn the_certificate_matches_the_server_name() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let other = authority.pair(&["www.example.com"]);
        let default = authority.pair(&["localhost"]);
        let tls = ServerTls::builder()
            .certificate(default.load())
            .certificate(other.load())
            .build()
            .unwrap();
        let server = start(io, authority, tls);
        block_on(async {
            let client = server.outside();
            for (name, pair) in [("localhost", &default), ("www.example.com", &other)] {
                let quic = quic_as(&server, &client, name).await;
                assert!(shown(&quic) == pair.chain()[0], "{name}");
                let answer = Client::over(quic).await.get("/identity").await;
                let wanted = format!("{name} anonymous");
                assert_eq!(String::from_utf8(answer.content).unwrap(), wanted);
            }
        });
    });
}

#[test]
fn a_replaced_snapshot_applies_to_the_next_connection() {
    with_server(async |server| {
        let first = server.connect().await;
        let before = shown(&first.quic);
        let pair = server.authority.pair(&["localhost"]);
        let tls = ServerTls::builder().certificate(pair.load()).build();
        server.slot.replace(tls.unwrap());
        let second = server.connect().await;
        assert!(shown(&second.quic) == pair.chain()[0]);
        assert!(shown(&second.quic) != before);
        for client in [&first, &second] {
            assert_eq!(client.get("/hello").await.content, b"hello");
        }
    });
}

#[test]
fn sessions_resume_also_on_other_cores_and_after_a_reload() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let keys = TicketKeys::new().unwrap();
        let tls = authority.server_with(ClientAuth::None, &keys);
        let server = QuicServer::with_tls(io, 2, authority, tls, options);
        block_on(async {
            let client = server.outside();
            let resumed = || -> u64 {
                let cores = server.counters_of_cores();
                cores.iter().map(|core| core.tls.resumed).sum()
            };
            ask(&server, &client, "/hello").await;
            for number in 1..=8 {
                ask(&server, &client, "/hello").await;
                assert_eq!(resumed(), number);
            }
            let rotated = keys.rotated().unwrap();
            let current = server.slot.current();
            server
                .slot
                .replace(current.with_ticket_keys(&rotated).unwrap());
            ask(&server, &client, "/hello").await;
            assert_eq!(resumed(), 9);
            let others = TicketKeys::new().unwrap();
            server
                .slot
                .replace(current.with_ticket_keys(&others).unwrap());
            ask(&server, &client, "/hello").await;
            assert_eq!(resumed(), 9);
            let handshakes: u64 = server
                .counters_of_cores()
                .iter()
                .map(|core| core.tls.handshakes)
                .sum();
            assert_eq!(handshakes, 11);
        });
    });
}

/// RFC 9001, section 8.1: a client without a protocol in common is refused with alert 120.
#[test]
fn http3_is_negotiated_or_the_handshake_fails() {
    with_server(async |server| {
        let mut number = 0;
        for protocols in [vec![], vec![b"hq".to_vec()], vec![b"h2".to_vec()]] {
            let mut client = server.outside();
            client.change(|config| config.alpn_protocols = protocols);
            refused(server, &client, 120).await;
            number += 1;
            assert_eq!(failed(server, "no-application-protocol"), number);
        }
        let mut client = server.outside();
        client.change(|config| config.alpn_protocols.insert(0, b"h3-29".to_vec()));
        assert_eq!(ask(server, &client, "/hello").await.content, b"hello");
        let counters = server.counters();
        assert_eq!((counters.accepted, counters.tls.handshakes), (1, 1));
    });
}

#[test]
fn a_client_that_rejects_the_certificate_is_counted() {
    with_server(async |server| {
        let stranger = Authority::new()
            .client_of(&[&rustls::version::TLS13], None)
            .of_h3();
        let transport = TransportConfig::default();
        let connected =
            Quic::connect(&stranger.config, transport, server.address, "localhost").await;
        assert!(connected.is_err());
        server
            .when("counted", |counters| {
                counters.tls.failed_for("alert-received") == 1
            })
            .await;
        assert_eq!(server.counters().accepted, 0);
    });
}

#[test]
fn a_handshake_has_a_deadline() {
    let options = || limits(|l| l.tls_handshake_timeout = Duration::from_millis(200));
    with_options(options, async |server| {
        let trap = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = trap.local_addr().unwrap();
        trap.set_nonblocking(true).unwrap();
        let client = server.outside();
        let connecting = Quic::connect(
            &client.config,
            TransportConfig::default(),
            address,
            "localhost",
        );
        let connecting = tokio::time::timeout(Duration::from_millis(100), connecting);
        assert!(connecting.await.is_err());
        let mut datagram = [0; 2_000];
        while let Ok(len) = trap.recv(&mut datagram) {
            trap.send_to(&datagram[..len], server.address).unwrap();
        }
        server
            .when("counted", |counters| {
                counters.tls.failed_for("handshake-timeout") == 1
            })
            .await;
    });
}

const ALT_SVC: &str = "h3=\":443\"; ma=86400";

fn alternative() -> ServeOptions {
    ServeOptions {
        alt_svc: Some(ALT_SVC.into()),
        ..options()
    }
}

fn over_tls(slot: &TlsSlot) -> ServeOptions {
    let mut options = alternative();
    options.tls = Some(slot.clone());
    options
}

/// `Alt-Svc` of a response of HTTP/2 over TLS.
fn alt_svc_of_http2(client: &Outside, server: &Server) -> Option<String> {
    let mut client = client.clone();
    client.change(|config| config.alpn_protocols = vec![b"h2".to_vec()]);
    let mut stream = client.connect(server.address);
    let mut machine = Connection::client(&Limits::default(), false);
    let (mut out, mut input) = (Vec::new(), Vec::new());
    let mut received = Received::default();
    machine.start(&mut out);
    let mut head = RequestHead::new(Method::Get, "/hello");
    head.set_authority("localhost");
    machine
        .send_request(&head, BodyLength::Empty, &mut out)
        .unwrap();
    loop {
        stream.write_all(&std::mem::take(&mut out)).unwrap();
        let mut bytes = [0; 4096];
        let len = stream.read(&mut bytes).unwrap();
        assert!(len > 0, "it ends early");
        input.extend_from_slice(&bytes[..len]);
        loop {
            let step = machine
                .handle_input(&input, Duration::ZERO, &mut received, &mut out)
                .unwrap();
            input.drain(..step.consumed);
            match step.event {
                Event::NeedMore => break,
                Event::Head { .. } => {
                    let fields = &received.response.fields;
                    return fields.get_str(Name::AltSvc).map(str::to_owned);
                }
                _ => {}
            }
        }
    }
}

fn alt_svc_of_http1(answer: &str) -> Option<&str> {
    let mut lines = answer.lines();
    lines.find_map(|line| line.strip_prefix("Alt-Svc: "))
}

#[test]
fn http3_is_announced_over_tls_only() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let slot = TlsSlot::new(authority.server());
        let (of_tcp, client) = (slot.clone(), authority.client());
        let secure = Server::with(io, move || over_tls(&of_tcp));
        let (answer, mut stream) = client.get(secure.address, "/hello");
        assert_eq!(alt_svc_of_http1(&answer), Some(ALT_SVC), "{answer}");
        let again = crate::tls_support::get(&mut stream, "/nowhere");
        assert_eq!(alt_svc_of_http1(&again), Some(ALT_SVC), "{again}");
        let of_http2 = alt_svc_of_http2(&client, &secure);
        assert_eq!(of_http2.as_deref(), Some(ALT_SVC));
        let plain = Server::with(io, alternative);
        let mut raw = plain.connect();
        raw.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = raw.head();
        assert_eq!(alt_svc_of_http1(&head), None, "{head}");
        let mut multiplexed = crate::h2_client::Client::connect(plain.address);
        let answer = multiplexed.get("/hello");
        assert_eq!(answer.fields.get_str(Name::AltSvc), None);
        let server = QuicServer::start(io, 1, alternative);
        block_on(async {
            let answer = server.connect().await.get("/hello").await;
            assert!(!answer.fields.contains_key("alt-svc"), "{answer:?}");
        });
    });
}

#[test]
fn http3_is_not_announced_to_clients_that_it_is_withheld_from() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let slot = TlsSlot::new(authority.server());
        let client = authority.client();
        for withheld in [false, true] {
            let slot = slot.clone();
            let server = Server::with(io, move || {
                let mut options = over_tls(&slot);
                options.alt_svc_withheld = Some(std::rc::Rc::new(move |peer| {
                    withheld && peer.remote.is_some_and(|remote| remote.ip().is_loopback())
                }));
                options
            });
            let (answer, _) = client.get(server.address, "/hello");
            assert_eq!(alt_svc_of_http1(&answer).is_none(), withheld, "{answer}");
            assert_eq!(alt_svc_of_http2(&client, &server).is_none(), withheld);
        }
    });
}

/// One certificate may be replaced again and again while clients connect.
#[test]
fn connections_survive_replaced_certificates() {
    with_server(async |server| {
        let client = server.connect().await;
        for _ in 0..5 {
            let pair = server.authority.pair(&["localhost"]);
            let tls = ServerTls::builder().certificate(pair.load()).build();
            server.slot.replace(tls.unwrap());
            let next = server.connect().await;
            assert!(shown(&next.quic) == pair.chain()[0]);
            assert_eq!(next.get("/hello").await.content, b"hello");
            assert_eq!(client.get("/hello").await.content, b"hello");
            pause(1).await;
        }
    });
}
