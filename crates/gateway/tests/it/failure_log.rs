//! The log line of each failure and rejection has the request's id, the upstream and the cause.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use blitz_gateway::{Failure, Options};
use blitz_http::{BodyLength, IoChoice, Limits, Method, RequestHead, Status};
use blitz_proto::h2::Code;
use blitz_testing::h2::kind::{GOAWAY, HEADERS};
use blitz_testing::h2::{PREFACE, frame as h2_frame};
use blitz_testing::{H1Peer, keep_log_lines, log_lines, refusing_address, silent_address};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::h2::{H2Upstream, h2};
use crate::site_rules::gateway;
use crate::support::{Proxy, Upstream, eventually, held, trusting};
use crate::tls_support::Authority;
use crate::upstream_tls::TlsUpstream;

pub(crate) fn keep_lines() {
    keep_log_lines(&[
        "blitz_site::record",
        "blitz_http::exchange::refusal",
        "blitz_gateway::health",
    ]);
}

/// The line of this level that has the id. Waits for it.
pub(crate) fn line_of(level: &str, id: &str) -> String {
    let field = format!("request_id=\"{id}\"");
    let mut found = None;
    eventually(&field, || {
        let lines = log_lines();
        let is_it = |line: &&String| line.contains(&field) && line.contains(level);
        found = lines.iter().find(is_it).cloned();
        found.is_some()
    });
    found.unwrap()
}

/// A case: it makes the upstream fail, and gives the upstream's URL.
type Case = fn(IoChoice, &str) -> String;

/// A request with this id, after which the connection is read to its end.
fn send(proxy: &Proxy, method: &str, fields: &str, id: &str) -> String {
    let mut peer = proxy.peer();
    peer.send(format!(
        "{method} /x HTTP/1.1\r\nHost: a\r\nX-Request-Id: {id}\r\nConnection: close\r\n{fields}\r\n"
    ));
    String::from_utf8_lossy(&peer.rest().0).into_owned()
}

/// Sends a POST to this upstream.
fn post(io: IoChoice, url: String, id: &str) -> String {
    post_with(io, url, id, Options::default())
}

fn post_with(io: IoChoice, url: String, id: &str, options: Options) -> String {
    let proxy = Proxy::with(io, &[&url], options);
    send(&proxy, "POST", "Content-Length: 0\r\n", id);
    url
}

/// The upstream sends these bytes after the request, and closes.
fn post_to(io: IoChoice, response: &'static str, id: &str) -> String {
    let upstream = Upstream::scripted(move |_, peer| {
        peer.request();
        peer.send(response);
    });
    post(io, upstream.url(), id)
}

/// An upstream that reads requests and never responds.
fn silent() -> Upstream {
    Upstream::scripted(|_, peer| {
        peer.request();
        peer.is_closed_by_peer();
    })
}

/// The HTTP/2 upstream sends these bytes as soon as it has a request.
fn h2_upstream_sends(bytes: Vec<u8>) -> String {
    let upstream = Upstream::scripted(move |_, peer| {
        peer.send(h2_frame(4, 0, 0, []));
        peer.exactly(PREFACE.len());
        while next_frame(peer).is_some_and(|kind| kind != HEADERS) {}
        peer.send(&bytes);
        peer.rest();
    });
    upstream.url().replace("http://", "h2c://")
}

fn next_frame(peer: &mut H1Peer) -> Option<u8> {
    let head = peer.exactly(9)?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    peer.exactly(usize::try_from(length).unwrap())?;
    Some(head[3])
}

fn flood(io: IoChoice, id: &str, count: usize, frame: &[u8]) -> String {
    post(io, h2_upstream_sends(frame.repeat(count)), id)
}

/// A response has begun before the flood.
fn flood_in_response(io: IoChoice, id: &str, count: usize, frame: &[u8]) -> String {
    const STATUS_200: u8 = 0x88;
    let mut bytes = h2_frame(1, 4, 1, [STATUS_200]);
    bytes.extend(frame.repeat(count));
    post(io, h2_upstream_sends(bytes), id)
}

fn limited(io: IoChoice, id: &str, waiting_max: usize) -> String {
    let upstream = silent();
    let mut options = Options::default();
    options.client.limits = Limits {
        upstream_connections_max: 1,
        upstream_waiting_max: waiting_max,
        upstream_wait_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let proxy = Proxy::with(io, &[&upstream.url()], options);
    let mut first = proxy.peer();
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the first is sent", || upstream.heads().len() == 1);
    send(&proxy, "GET", "", id);
    upstream.url()
}

/// The name server answers every query with this code (RFC 1035, section 4.1.1) and no record.
fn answered(io: IoChoice, id: &str, code: u8) -> String {
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, client)) = server.recv_from(&mut query) {
            (query[2], query[3]) = (0x81, 0x80 + code);
            let _ = server.send_to(&query[..length], client);
        }
    });
    named(io, id, address)
}

/// Makes a path for a unix socket, and removes what is there in the end.
fn with_path(io: IoChoice, case: impl FnOnce(&Path) -> String) -> String {
    let name = format!("blitz-log-{io:?}-{}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _ = std::fs::remove_file(&path);
    let url = case(&path);
    std::fs::remove_file(path).unwrap();
    url
}

/// A name that this server is asked for.
fn named(io: IoChoice, id: &str, server: SocketAddr) -> String {
    let mut options = Options {
        name_servers: vec![server],
        ..Options::default()
    };
    options.client.limits.connect_timeout = Duration::from_millis(100);
    post_with(io, "http://app.internal.example:80".to_owned(), id, options)
}

fn tls_to(io: IoChoice, id: &str, url: String) -> String {
    trusted(io, id, url, &Authority::new())
}

/// An upstream whose certificates this authority has issued.
fn trusted(io: IoChoice, id: &str, url: String, authority: &Authority) -> String {
    let proxy = Proxy::to_tls(io, &[&url], authority);
    send(&proxy, "GET", "", id);
    url
}

/// An upstream over TLS sends these bytes after the first message of the handshake.
fn answering_tls(io: IoChoice, id: &str, bytes: &'static str) -> String {
    tls_to(io, id, answering(bytes).replace("http://", "https://"))
}

/// An upstream with a certificate for this name, of a trusted authority.
fn certified(
    io: IoChoice,
    id: &str,
    name: &str,
    change: impl FnOnce(&mut CertificateParams),
) -> String {
    let authority = Authority::new();
    let config = authority.outside_server(&authority.pair_with(&[name], change), |_| {});
    let upstream = TlsUpstream::with_config(authority, config, &[], |_, _| {});
    trusted(io, id, upstream.url(), &upstream.authority)
}

/// An upstream that requires a client certificate. With TLS 1.3 the gateway has sent its request when
/// the upstream refuses.
fn requiring_certificate(alpn: &[&'static str]) -> TlsUpstream {
    let authority = Authority::new();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let roots = Arc::new(authority.roots());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
    let pair = authority.pair(&["127.0.0.1"]);
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(pair.chain(), pair.key_der())
        .unwrap();
    TlsUpstream::with_config(authority, Arc::new(config), alpn, |_, _| {})
}

const CASES: &[(Failure, Case)] = &[
    (Failure::DnsError, |io, id| {
        const NOT_IMPLEMENTED: u8 = 4;
        answered(io, id, NOT_IMPLEMENTED)
    }),
    (Failure::DnsNoSuchName, |io, id| answered(io, id, 3)),
    (Failure::DnsNoAddress, |io, id| answered(io, id, 0)),
    (Failure::DnsServerFailed, |io, id| answered(io, id, 2)),
    (Failure::DnsServerRefused, |io, id| answered(io, id, 5)),
    (Failure::DnsUnreachable, |io, id| {
        // The kernel refuses to send there.
        named(io, id, SocketAddr::from((Ipv4Addr::BROADCAST, 53)))
    }),
    (Failure::DnsTimeout, |io, id| {
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        named(io, id, silent.local_addr().unwrap())
    }),
    (Failure::ConnectionRefused, |io, id| {
        post(io, format!("http://{}", refusing_address()), id)
    }),
    (Failure::UnixSocketMissing, |io, id| {
        post(io, "unix:/nowhere/app.sock".to_owned(), id)
    }),
    (Failure::UnixSocketNone, |io, id| {
        with_path(io, |path| {
            std::fs::write(path, "not a socket").unwrap();
            post(io, format!("unix:{}", path.display()), id)
        })
    }),
    (Failure::UnixSocketRefused, |io, id| {
        with_path(io, |path| {
            drop(UnixListener::bind(path).unwrap());
            post(io, format!("unix:{}", path.display()), id)
        })
    }),
    (Failure::UnixSocketQueueFull, |io, id| {
        with_path(io, |path| {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            socket.bind(&SockAddr::unix(path).unwrap()).unwrap();
            socket.listen(0).unwrap();
            let _waiting = UnixStream::connect(path).unwrap();
            let target = format!("unix:{}", path.display());
            post_with(io, target, id, with_connect_timeout())
        })
    }),
    (Failure::ConnectionTimeout, |io, id| {
        let options = with_connect_timeout();
        post_with(io, format!("http://{}", silent_address()), id, options)
    }),
    (Failure::ConnectionTerminated, |io, id| post_to(io, "", id)),
    (Failure::DestinationUnavailable, |io, id| {
        with_path(io, |path| {
            let _datagrams = UnixDatagram::bind(path).unwrap();
            post(io, format!("unix:{}", path.display()), id)
        })
    }),
    (Failure::TlsHandshakeTimeout, |io, id| {
        let mut options = Options::default();
        options.client.limits.tls_handshake_timeout = Duration::from_millis(50);
        let url = answering("").replace("http://", "https://");
        let tls = trusting(&Authority::new());
        let gateway = Proxy::gateway(io).options(options).upstream_tls(tls);
        send(&Proxy::start(gateway, &[&url]), "GET", "", id);
        url
    }),
    (Failure::TlsCertificateExpired, |io, id| {
        certified(io, id, "127.0.0.1", |params| {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        })
    }),
    (Failure::TlsCertificateNotYetValid, |io, id| {
        certified(io, id, "127.0.0.1", |params| {
            params.not_before = rcgen::date_time_ymd(4000, 1, 1);
        })
    }),
    (Failure::TlsCertificateWrongName, |io, id| {
        certified(io, id, "elsewhere.example", |_| {})
    }),
    (Failure::TlsCertificateUnknownIssuer, |io, id| {
        tls_to(io, id, TlsUpstream::echoing(&[]).url())
    }),
    (Failure::TlsCertificateOfAuthority, |io, id| {
        certified(io, id, "127.0.0.1", |params| {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        })
    }),
    (Failure::TlsCertificateError, |io, id| {
        certified(io, id, "127.0.0.1", |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }),
    (Failure::TlsClientCertificateRequired, |io, id| {
        let upstream = requiring_certificate(&[]);
        trusted(io, id, upstream.url(), &upstream.authority)
    }),
    (Failure::TlsClientCertificateRejected, |io, id| {
        answering_tls(io, id, "\x15\x03\x03\x00\x02\x02\x30")
    }),
    (Failure::TlsHandshakeFailure, |io, id| {
        answering_tls(io, id, "\x15\x03\x03\x00\x02\x02\x28")
    }),
    (Failure::TlsAlertReceived, |io, id| {
        answering_tls(io, id, "\x15\x03\x03\x00\x02\x02\x70")
    }),
    (Failure::TlsUnsupported, |io, id| {
        answering_tls(io, id, "HTTP/1.1 400 Bad Request\r\n\r\n")
    }),
    (Failure::TlsProtocolError, |io, id| {
        let upstream = Upstream::scripted(|_, peer| drop(peer.exactly(1)));
        tls_to(io, id, upstream.url().replace("http://", "https://"))
    }),
    (Failure::ConnectionLimitReached, |io, id| limited(io, id, 1)),
    (Failure::LoadShed, shedding),
    (Failure::UpstreamQueueFull, |io, id| limited(io, id, 0)),
    (Failure::RequestHeadTooLarge, |io, id| {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            // SETTINGS_MAX_HEADER_LIST_SIZE of 256.
            peer.out.extend(h2_frame(4, 0, 0, [0, 6, 0, 0, 1, 0]));
            while let Some((stream, _)) = peer.next() {
                peer.answer(stream, Status::OK, "small enough");
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        proxy.client().get("/");
        let field = format!("X-Large: {}\r\n", "x".repeat(1_000));
        send(&proxy, "GET", &field, id);
        upstream.url
    }),
    (Failure::DeadlineExceeded, |io, id| {
        let url = silent().url();
        let proxy = Proxy::to(io, &[&url]);
        let fields = "Content-Type: application/grpc-web+proto\r\nGrpc-Timeout: 50m\r\n\
                      Content-Length: 5\r\n\r\n\0\0\0\0\0";
        send(&proxy, "POST", fields, id);
        url
    }),
    (Failure::RequestTimeout, |io, id| {
        let url = silent().url();
        let keys = "timeout.request = \"50ms\"";
        let proxy = gateway(io, &format!("[site.\"*\"]\nto = \"{url}\"\n{keys}\n"));
        send(&proxy, "GET", "", id);
        url
    }),
    (Failure::RequestUnprocessed, |io, id| {
        post(io, h2_upstream_sends(h2_frame(GOAWAY, 0, 0, [0; 8])), id)
    }),
    (Failure::DrainEnded, |io, id| {
        let (arrived, arrives) = mpsc::channel();
        let upstream = Upstream::scripted(move |_, peer| {
            peer.request();
            arrived.send(()).unwrap();
            peer.is_closed_by_peer();
        });
        let proxy = Proxy::with(io, &[&upstream.url()], Options::default());
        let mut peer = proxy.peer();
        peer.send(format!(
            "GET /x HTTP/1.1\r\nHost: a\r\nX-Request-Id: {id}\r\n\r\n"
        ));
        arrives.recv().unwrap();
        proxy.drain(Duration::ZERO);
        upstream.url()
    }),
    (Failure::HttpResponseTimeout, |io, id| {
        let mut options = Options::default();
        options.client.response_timeout = Duration::from_millis(50);
        post_with(io, silent().url(), id, options)
    }),
    (Failure::HttpResponseStalled, |io, id| {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
            peer.is_closed_by_peer();
        });
        let mut options = Options::default();
        options.client.body_timeout = Duration::from_millis(50);
        options.client.limits.body_idle_timeout = Duration::from_millis(50);
        post_with(io, upstream.url(), id, options)
    }),
    (Failure::HttpResponseIncomplete, |io, id| {
        post_to(io, "HTTP/1.1 200 OK\r\nA: b", id)
    }),
    (Failure::HttpResponseHeaderSectionSize, |io, id| {
        let fields = "A: b\r\n".repeat(500);
        let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n").leak();
        post_to(io, head, id)
    }),
    (Failure::HttpResponseTrailerSectionSize, |io, id| {
        let fields = "A: b\r\n".repeat(500);
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
        post_to(io, format!("{chunked}{fields}\r\n").leak(), id)
    }),
    (Failure::HttpProtocolError, |io, id| {
        post_to(io, "SSH-2.0-OpenSSH_9.6\r\n\r\n", id)
    }),
    (Failure::PriorKnowledgeUnsupported, |io, id| {
        let url = answering("HTTP/1.1 400 Bad Request\r\n\r\n");
        post(io, url.replace("http://", "h2c://"), id)
    }),
    (Failure::HttpUpgradeFailed, |io, id| {
        let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";
        post_to(io, switch, id)
    }),
    (Failure::NoExtendedConnect, |io, id| {
        let url = h2_upstream_sends(Vec::new());
        let proxy = Proxy::to(io, &[&url]);
        let upgrade = "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        send(&proxy, "GET", upgrade, id);
        url
    }),
    (Failure::GrpcUnsupported, |io, id| {
        let url = Upstream::with_text("hello").url();
        let proxy = Proxy::to(io, &[&url]);
        let mut head = RequestHead::new(Method::Post, "/x");
        head.set_authority("a");
        for (name, value) in [("content-type", "application/grpc"), ("x-request-id", id)] {
            head.fields.append(name, value);
        }
        let mut client = h2(&proxy);
        let stream = client.send_head(&head, BodyLength::Empty);
        client.answer(stream);
        url
    }),
    (Failure::ProxyLoopDetected, |io, id| {
        let url = silent().url();
        let options = Options {
            loop_id: Some("edge-1".parse().unwrap()),
            ..Options::default()
        };
        let proxy = Proxy::with(io, &[&url], options);
        send(&proxy, "GET", "CDN-Loop: edge-1\r\n", id);
        url
    }),
    (Failure::ContinuationFlood, |io, id| {
        let mut bytes = h2_frame(1, 0, 1, [0x88]);
        bytes.extend(h2_frame(9, 0, 1, [0x88]).repeat(100));
        post(io, h2_upstream_sends(bytes), id)
    }),
    (Failure::SettingsFlood, |io, id| {
        flood(io, id, 200, &h2_frame(4, 0, 0, []))
    }),
    (Failure::PingFlood, |io, id| {
        flood(io, id, 2_000, &h2_frame(6, 0, 0, [0; 8]))
    }),
    (Failure::PingAckFlood, |io, id| {
        flood(io, id, 2_000, &h2_frame(6, 1, 0, [0; 8]))
    }),
    (Failure::GoAwayFlood, |io, id| {
        let frame = h2_frame(7, 0, 0, [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        flood(io, id, 50, &frame)
    }),
    (Failure::EmptyFrameFlood, |io, id| {
        flood_in_response(io, id, 300, &h2_frame(0, 0, 1, []))
    }),
    (Failure::SmallDataFlood, |io, id| {
        flood_in_response(io, id, 20_000, &h2_frame(0, 0, 1, b"x"))
    }),
    (Failure::WindowUpdateFlood, |io, id| {
        flood(io, id, 4_000, &h2_frame(8, 0, 0, [0, 0, 0, 1]))
    }),
    (Failure::PriorityFlood, |io, id| {
        flood(io, id, 1_000, &h2_frame(2, 0, 1, [0, 0, 0, 3, 1]))
    }),
    (Failure::UnknownFrameFlood, |io, id| {
        flood(io, id, 1_000, &h2_frame(0xfa, 0, 0, []))
    }),
];

/// A request that is shed while another one is under way.
fn shedding(io: IoChoice, id: &str) -> String {
    let (upstream, _release) = held("late");
    let url = upstream.url();
    let proxy = gateway(
        io,
        &format!(
            "[site.\"*\"]\nto = \"app\"\n[upstream.app]\nservers = [\"{url}\"]\nshed = {{ max = 1, wait = \"0\" }}\n"
        ),
    );
    let mut first = proxy.peer();
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the first reaches the upstream", || {
        upstream.heads().len() == 1
    });
    send(&proxy, "GET", "", id);
    url
}

/// An upstream that sends these bytes to each connection, and waits for its end.
fn answering(bytes: &'static str) -> String {
    let upstream = Upstream::scripted(move |_, peer| {
        peer.send(bytes);
        peer.rest();
    });
    upstream.url()
}

/// These do not happen here: root has every permission; routes, descriptors, ports and memory are those
/// of the machine or of all tests (one of `blitz run` has few descriptors); and the last is a bug.
const NOT_MADE: [Failure; 6] = [
    Failure::UnixSocketDenied,
    Failure::DestinationIpUnroutable,
    Failure::NoFreeSockets,
    Failure::NoFreePorts,
    Failure::NoSocketMemory,
    Failure::ProxyInternalError,
];

fn with_connect_timeout() -> Options {
    let mut options = Options::default();
    options.client.limits.connect_timeout = Duration::from_millis(100);
    options
}

scenarios! {
    fn each_failure_has_a_line(io) {
        keep_lines();
        for (failure, case) in CASES {
            let id = format!("{failure:?}-{io:?}");
            let upstream = case(io, &id);
            let line = line_of("WARN", &id);
            let has_cause = |failure: Failure| line.contains(&format!("cause=\"{}\"", failure.detail()));
            assert!(has_cause(*failure), "{id}: {line}");
            assert!(line.contains(&format!("upstream=\"{upstream}\"")), "{id}: {line}");
            let is_refused = failure.token() == "tls_certificate_error";
            assert_eq!(line.contains("certificate=\"for "), is_refused, "{id}: {line}");
            assert!(line.contains("path=/x") && line.contains("phase="), "{id}: {line}");
            assert!(line.contains("client=127.0.0.1:") && line.contains("host=\"a\""), "{id}: {line}");
        }
        let causes: HashSet<_> = Failure::ALL.iter().map(|failure| failure.detail()).collect();
        assert_eq!(causes.len(), Failure::ALL.len(), "each failure has its own text");
        let is_made = |failure: &&Failure| !CASES.iter().any(|(made, _)| made == *failure);
        let missing: Vec<_> = Failure::ALL.iter().filter(is_made).copied().collect();
        assert_eq!(missing, NOT_MADE);
    }

    fn the_line_names_the_violated_rule(io) {
        keep_lines();
        for (response, rule) in [
            ("SSH-2.0-OpenSSH_9.6\r\n\r\n", "status-line-malformed"),
            ("HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n", "bare-lf"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx", "chunk-size-malformed"),
        ] {
            let id = format!("{rule}-{io:?}");
            post_to(io, response, &id);
            let line = line_of("WARN", &id);
            assert!(line.contains(Failure::HttpProtocolError.detail()), "{line}");
            assert!(line.contains(&format!("rule=\"{rule}\"")), "{line}");
        }
    }

    fn an_alert_after_the_handshake_is_named_on_http2_as_well(io) {
        keep_lines();
        let upstream = requiring_certificate(&["h2"]);
        let id = format!("h2-alert-{io:?}");
        trusted(io, &id, upstream.url(), &upstream.authority);
        let line = line_of("WARN", &id);
        assert!(line.contains(Failure::TlsClientCertificateRequired.detail()), "{line}");
        assert!(line.contains("rule=\"CertificateRequired\""), "{line}");
    }

    fn the_line_of_a_call_has_its_grpc_status(io) {
        keep_lines();
        let id = format!("call-{io:?}");
        let proxy = Proxy::to(io, &[&format!("h2c://{}", refusing_address())]);
        let fields = "Content-Type: application/grpc-web+proto\r\nContent-Length: 5\r\n\r\n\0\0\0\0\0";
        send(&proxy, "POST", fields, &id);
        let line = line_of("WARN", &id);
        assert!(line.contains(" status=200 grpc_status=14 "), "{line}");
    }

    fn the_response_has_the_id_of_the_line(io) {
        keep_lines();
        let upstream = silent();
        let dead = format!("/dead=http://{}", refusing_address());
        let proxy = Proxy::to(io, &[&dead, &upstream.url()]);
        let mut client = proxy.client();
        let failed = client.get("/dead");
        let line = line_of("WARN", failed.field("x-request-id").unwrap());
        assert!(line.contains("request failed") && line.contains("status=502"), "{line}");
        assert!(line.contains("route=\"/dead\"") && line.contains("phase=\"connect\""), "{line}");
        assert!(line.contains("protocol=\"HTTP/1.1\""), "{line}");
        // Rejections are the client's fault, and have no warning.
        client.send("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n");
        let rejected = client.response();
        let line = line_of("DEBUG", rejected.field("x-request-id").unwrap());
        assert!(line.contains("ended=\"rejected\" cause=\"method-not-forwarded\"") && line.contains("status=405"), "{line}");
        assert!(line.contains("protocol=\"HTTP/1.1\""), "{line}");
        client.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
        let refused = client.response();
        let line = line_of("DEBUG", refused.field("x-request-id").unwrap());
        assert!(line.contains("cause=\"host-repeated\""), "{line}");
        assert!(line.contains("protocol=\"HTTP/1.1\""), "{line}");
        let mut head = RequestHead::new(Method::Get, "/");
        head.set_authority("a");
        head.fields.append("x-long", "~".repeat(70 << 10));
        let mut client = h2(&proxy);
        let failed = client.request(Method::Get, "/dead", BodyLength::Empty);
        let answer = client.answer(failed);
        let line = line_of("DEBUG", answer.fields.get_str("x-request-id").unwrap());
        assert!(line.contains("request ended") && line.contains("protocol=\"HTTP/2\""), "{line}");
        let stream = client.send_head(&head, BodyLength::Empty);
        let answer = client.answer(stream);
        assert_eq!(answer.status, Some(Status::REQUEST_HEADER_FIELDS_TOO_LARGE));
        assert!(answer.content.is_empty() && answer.fields.get("content-type").is_none());
        let line = line_of("DEBUG", answer.fields.get_str("x-request-id").unwrap());
        assert!(line.contains("cause=\"head-too-large\"") && line.contains("protocol=\"HTTP/2\""), "{line}");
    }

    fn localhost_without_a_listener_is_reported_as_ipv4(io) {
        keep_lines();
        let address = refusing_address();
        let upstream = format!("http://localhost:{}", address.port());
        let proxy = Proxy::to(io, &[&upstream]);
        let id = format!("localhost-{io:?}");
        send(&proxy, "GET", "", &id);
        let line = line_of("WARN", &id);
        assert!(line.contains(&format!("address=\"{address}\"")), "{line}");
    }

    fn a_slow_upload_has_a_line(io) {
        keep_lines();
        let upstream = silent();
        let mut options = Options::default();
        options.limits.body_rate_grace = Duration::from_millis(50);
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let id = format!("slow-{io:?}");
        let answer = send(&proxy, "POST", "Content-Length: 9\r\n", &id);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        let line = line_of("DEBUG", &id);
        assert!(line.contains("ended=\"request-content\" cause=\"request-body-too-slow\""), "{line}");
    }

    fn a_cut_off_response_has_a_line(io) {
        keep_lines();
        let part = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
        let id = format!("cut-off-{io:?}");
        let upstream = post_to(io, part, &id);
        let line = line_of("WARN", &id);
        assert!(line.contains("response cut off") && line.contains("phase=\"relay\""), "{line}");
        assert!(line.contains(&upstream), "{line}");
    }

    fn the_end_of_a_tunnel_has_a_line(io) {
        keep_lines();
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            peer.send(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: s3pPLBMiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
            );
            peer.send("bye");
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let id = format!("tunnel-{io:?}");
        let mut peer = proxy.peer();
        peer.send(format!(
            "GET /x HTTP/1.1\r\nHost: a\r\nX-Request-Id: {id}\r\nConnection: upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ));
        assert!(peer.head().unwrap().line.contains(" 101 "));
        assert_eq!(peer.exactly(3).unwrap(), b"bye");
        drop(peer);
        let line = line_of("DEBUG", &id);
        assert!(line.contains("status=101") && line.contains("path=/x"), "{line}");
        assert!(line.contains("response_bytes=3"), "{line}");
    }

    fn a_long_host_is_cut(io) {
        keep_lines();
        let upstream = answering("x\r\n\r\n");
        let proxy = Proxy::with(io, &[&upstream], Options::default());
        let id = format!("long-host-{io:?}");
        let mut peer = proxy.peer();
        let host = "h".repeat(400);
        peer.send(format!("GET /x HTTP/1.1\r\nHost: {host}\r\nX-Request-Id: {id}\r\nConnection: close\r\n\r\n"));
        peer.rest();
        let line = line_of("WARN", &id);
        assert!(line.contains(&format!("host=\"{}\"", "h".repeat(255))), "{line}");
    }

    fn a_large_head_leaves_its_path_and_id(io) {
        keep_lines();
        let upstream = silent();
        let mut options = Options::default();
        options.client.response_timeout = Duration::from_millis(50);
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let id = format!("large-{io:?}");
        let fields = format!("X-Large: {}\r\nContent-Length: 0\r\n", "x".repeat(20_000));
        let answer = send(&proxy, "POST", &fields, &id);
        assert!(answer.contains(&id), "{answer}");
        let line = line_of("WARN", &id);
        assert!(line.contains("path=/x") && line.contains("method=\"POST\""), "{line}");
    }

    fn the_lines_of_a_cause_and_route_are_limited(io) {
        keep_lines();
        let url = format!("http://{}", refusing_address());
        let other = format!("/other=http://{}", refusing_address());
        let proxy = Proxy::to(io, &[&url, &other]);
        let mut client = proxy.client();
        let begun = std::time::Instant::now();
        for _ in 0..100 {
            assert_eq!(client.get("/").status, 502);
        }
        let failed = client.get("/other");
        line_of("WARN", failed.field("x-request-id").unwrap());
        // The hundredth may come in a later second.
        let windows = usize::try_from(begun.elapsed().as_secs()).unwrap() + 1;
        let of_this_upstream = format!("upstream=\"{url}\"");
        let lines = log_lines();
        let is_it = |line: &&String| line.contains("WARN") && line.contains(&of_this_upstream);
        let written = lines.iter().filter(is_it).count();
        assert!((10..=10 * windows).contains(&written), "{written} in {windows} s");
    }
}

#[test]
fn memory_for_heads_that_ran_out_has_a_line() {
    keep_lines();
    let upstream = silent();
    let mut options = Options::default();
    options.limits.heads_bytes_max = 50_000;
    let proxy = Proxy::with(IoChoice::Epoll, &[&upstream.url()], options);
    let large = "x".repeat(20_000);
    let request = format!("GET /x HTTP/1.1\r\nHost: a\r\nX-Large: {large}\r\n\r\n");
    let mut first = proxy.peer();
    first.send(&request);
    eventually("the first is sent", || upstream.heads().len() == 1);
    let mut client = proxy.client();
    client.send(&request);
    let refused = client.response();
    assert_eq!(refused.status, 503);
    let line = line_of("WARN", refused.field("x-request-id").unwrap());
    assert!(line.contains("cause=\"heads-memory\""), "{line}");
}

#[test]
fn a_stream_beyond_the_limit_has_a_line() {
    keep_lines();
    let upstream = silent();
    let mut options = Options::default();
    options.limits.concurrent_streams_max = 2;
    let proxy = Proxy::with(IoChoice::Epoll, &[&upstream.url()], options);
    let mut client = h2(&proxy);
    // The limit is not known yet.
    let streams = [(); 3].map(|()| client.request(Method::Get, "/", BodyLength::Empty));
    let refused = client.until(streams[2], |answer| answer.reset.is_some());
    assert_eq!(refused.reset, Some(Code::REFUSED_STREAM));
    let from = client.stream.local_addr().unwrap();
    let field = format!("stream refused cause=\"stream-limit\" client={from}");
    eventually(&field, || {
        let lines = log_lines();
        lines
            .iter()
            .any(|line| line.contains(&field) && line.contains("DEBUG"))
    });
}
