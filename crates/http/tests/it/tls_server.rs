use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use blitz_http::{
    ClientAuth, IoChoice, Limits, ServeOptions, ServerTls, TicketKeys, TlsSlot, ValidityProblem,
};
use blitz_testing::{Raw, read, read_head};
use rustls::client::ClientConnection;
use rustls::{HandshakeKind, NamedGroup, ProtocolVersion};

use crate::support::{BIG, SOON, Server, on_each_driver, options};
use crate::tls_support::{Authority, Outside, get, length};

/// Options of a listener with TLS.
pub(crate) fn with_tls(slot: &TlsSlot) -> ServeOptions {
    ServeOptions {
        tls: Some(slot.clone()),
        ..options()
    }
}

pub(crate) fn start(io: IoChoice, tls: ServerTls) -> (Server, TlsSlot) {
    let slot = TlsSlot::new(tls);
    let of_listener = slot.clone();
    (Server::with(io, move || with_tls(&of_listener)), slot)
}

#[test]
fn both_versions_are_negotiated_and_the_hybrid_key_exchange_is_preferred() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
            let client = authority.client_of(&[version], None);
            let (answer, mut stream) = client.get(server.address, "/hello");
            assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
            assert_eq!(stream.conn.protocol_version(), Some(version.version));
            let group = stream.conn.negotiated_key_exchange_group().unwrap().name();
            match version.version {
                ProtocolVersion::TLSv1_3 => assert_eq!(group, NamedGroup::X25519MLKEM768),
                _ => assert_eq!(group, NamedGroup::X25519),
            }
            for _ in 0..3 {
                assert!(get(&mut stream, "/hello").ends_with("hello"));
            }
        }
        let tls = server.counters().tls;
        assert_eq!(
            (tls.handshakes, tls.version_1_2, tls.version_1_3),
            (2, 1, 1)
        );
    });
}

#[test]
fn every_cipher_suite_decrypts_in_place() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let all = rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
        let ecdsa = |suite: &&rustls::SupportedCipherSuite| {
            !format!("{:?}", suite.suite()).contains("_RSA_")
        };
        for suite in all.iter().filter(ecdsa) {
            let mut provider = rustls::crypto::aws_lc_rs::default_provider();
            provider.cipher_suites = vec![*suite];
            let config = rustls::ClientConfig::builder_with_provider(provider.into())
                .with_protocol_versions(&[suite.version()])
                .unwrap()
                .with_root_certificates(authority.roots())
                .with_no_client_auth();
            let client = Outside {
                config: config.into(),
            };
            let before = server.counters().tls.records_in_place;
            let (answer, mut stream) = client.get(server.address, "/hello");
            assert!(answer.ends_with("hello"), "{suite:?}: {answer}");
            echo(&mut stream, 100_000);
            assert_eq!(stream.conn.negotiated_cipher_suite(), Some(*suite));
            assert!(server.counters().tls.records_in_place > before, "{suite:?}");
        }
        assert_eq!(server.counters().tls.failures, []);
    });
}

/// Sends this many varying bytes and expects them back.
fn echo<S: Read + Write>(stream: &mut S, bytes: usize) {
    let content: Vec<u8> = (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect();
    let head_text = format!("POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n");
    stream.write_all(head_text.as_bytes()).unwrap();
    stream.write_all(&content).unwrap();
    let head = read_head(stream);
    assert_eq!(length(&head), bytes, "{head}");
    let mut back = vec![0; bytes];
    let mut at = 0;
    while at < bytes {
        let n = read(stream, &mut back[at..]).unwrap();
        assert_ne!(n, 0, "ends after {at} bytes");
        at += n;
    }
    assert!(back == content, "the content returns unchanged");
}

#[test]
fn large_bodies_pass_in_both_directions() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let mut stream = authority.client().connect(server.address);
        echo(&mut stream, 1 << 20);
        let request = "GET /big HTTP/1.1\r\nHost: a\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        assert_eq!(length(&read_head(&mut stream)), BIG);
        let (mut left, mut bytes) = (BIG, vec![0; 1 << 16]);
        while left > 0 {
            let n = read(&mut stream, &mut bytes).unwrap();
            assert!(n > 0 && bytes[..n].iter().all(|&byte| byte == b'x'));
            left -= n;
        }
        assert!(get(&mut stream, "/hello").ends_with("hello"));
        let tls = server.counters().tls;
        assert!(tls.records_gathered > 0, "{tls:?}");
    });
}

/// Sends the client's bytes to the server in pieces of `piece` bytes, and reads until there is a
/// response.
fn drip(client: &Outside, server: &Server, piece: usize, request: &str) -> String {
    let name = "localhost".try_into().unwrap();
    let mut session = ClientConnection::new(client.config.clone(), name).unwrap();
    let mut tcp = Raw::connect(server.address).0;
    session.writer().write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    loop {
        let mut wire = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut wire).unwrap();
        }
        for bytes in wire.chunks(piece) {
            tcp.write_all(bytes).unwrap();
        }
        session.read_tls(&mut tcp).unwrap();
        session.process_new_packets().unwrap();
        let _ = session.reader().read_to_end(&mut answer);
        if answer.windows(4).any(|four| four == b"\r\n\r\n") {
            return String::from_utf8(answer).unwrap();
        }
    }
}

#[test]
fn records_may_be_split_anywhere() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let request = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
        for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
            let client = authority.client_of(&[version], None);
            for piece in [1, 2, 3, 5, 7, 61, 1000] {
                let answer = drip(&client, &server, piece, request);
                assert!(answer.starts_with("HTTP/1.1 200 OK"), "{piece}: {answer}");
            }
        }
        let tls = server.counters().tls;
        assert!(tls.records_gathered > 0, "{tls:?}");
        assert_eq!(tls.failures, []);
    });
}

#[test]
fn records_of_one_byte_are_joined() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let mut stream = authority.client().connect(server.address);
        assert!(get(&mut stream, "/hello").ends_with("hello"));
        let bytes = 20_000;
        let head_text =
            format!("POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n");
        // Each byte is a separate record; a thousand are sent together.
        let content = head_text.bytes().chain(std::iter::repeat_n(b'y', bytes));
        let mut flood = Vec::new();
        for byte in content {
            stream.conn.writer().write_all(&[byte]).unwrap();
            stream.conn.write_tls(&mut flood).unwrap();
            if flood.len() > 22_000 {
                stream.sock.write_all(&flood).unwrap();
                flood.clear();
            }
        }
        stream.sock.write_all(&flood).unwrap();
        assert_eq!(length(&read_head(&mut stream)), bytes);
        let mut back = vec![0; bytes];
        stream.read_exact(&mut back).unwrap();
        assert!(back.iter().all(|&byte| byte == b'y'));
        let tls = server.counters().tls;
        assert!(tls.records_in_place > 18_000, "{tls:?}");
        assert!(tls.records_gathered < 2_000, "{tls:?}");
    });
}

#[test]
fn an_application_protocol_is_negotiated_or_the_handshake_fails() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let mut client = authority.client();
        client.change(|config| config.alpn_protocols = vec![b"x".to_vec(), b"http/1.1".to_vec()]);
        let (_, stream) = client.get(server.address, "/hello");
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        client.change(|config| config.alpn_protocols = vec![b"x".to_vec()]);
        let error = client
            .connect(server.address)
            .write_all(b"GET")
            .unwrap_err();
        assert!(
            error.to_string().contains("NoApplicationProtocol"),
            "{error}"
        );
        server.until("counted", |counters| {
            counters.tls.failed_for("no-application-protocol") == 1
        });
    });
}

#[test]
fn sessions_resume_on_other_cores_and_after_a_reload() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let keys = TicketKeys::new().unwrap();
        let (one, _) = start(io, authority.server_with(ClientAuth::None, &keys));
        let (two, slot) = start(io, authority.server_with(ClientAuth::None, &keys));
        for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
            let client = authority.client_of(&[version], None);
            let kind = |server: &Server| {
                let (_, stream) = client.get(server.address, "/hello");
                stream.conn.handshake_kind().unwrap()
            };
            assert_eq!(kind(&one), HandshakeKind::Full);
            assert_eq!(kind(&two), HandshakeKind::Resumed);
            let rotated = keys.rotated().unwrap();
            slot.replace(slot.current().with_ticket_keys(&rotated).unwrap());
            assert_eq!(kind(&two), HandshakeKind::Resumed);
            let again = rotated.rotated().unwrap().rotated().unwrap();
            slot.replace(slot.current().with_ticket_keys(&again).unwrap());
            assert_eq!(kind(&two), HandshakeKind::Full);
            slot.replace(slot.current().with_ticket_keys(&keys).unwrap());
        }
        assert_eq!(two.counters().tls.resumed, 4);
    });
}

#[test]
fn a_ticket_without_client_authentication_is_rejected_where_it_is_required() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let keys = TicketKeys::new().unwrap();
        let demanding = ClientAuth::Required(authority.set());
        let (open, _) = start(io, authority.server_with(ClientAuth::None, &keys));
        let (closed, _) = start(io, authority.server_with(demanding, &keys));
        for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
            let client = authority.client_of(&[version], None);
            let before = closed.counters().requests;
            client.get(open.address, "/hello");
            let mut stream = client.connect(closed.address);
            let request = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
            let mut byte = [0];
            let refused = stream
                .write_all(request)
                .and_then(|()| read(&mut stream, &mut byte));
            let error = refused.unwrap_err().to_string();
            assert!(
                error.contains("CertificateRequired") || error.contains("Handshake"),
                "{error}"
            );
            assert_eq!(closed.counters().requests, before);
        }
        closed.until("counted", |counters| {
            counters.tls.failed_for("certificate-missing") == 2
        });
        assert_eq!(closed.counters().tls.resumed, 0);
    });
}

#[test]
fn clients_authenticate_with_certificates() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let stranger = Authority::new().pair(&["eve"]);
        let own = authority.pair(&["client.example"]);
        let keys = TicketKeys::new().unwrap();
        for required in [false, true] {
            let auth = match required {
                true => ClientAuth::Required(authority.set()),
                false => ClientAuth::Optional(authority.set()),
            };
            let (server, _) = start(io, authority.server_with(auth, &keys));
            let known = authority.client_of(rustls::DEFAULT_VERSIONS, Some(&own));
            for resumed in [false, true] {
                let (answer, stream) = known.get(server.address, "/identity");
                let kind = stream.conn.handshake_kind() == Some(HandshakeKind::Resumed);
                assert_eq!(kind, resumed);
                let encoded = own
                    .certificate
                    .lines()
                    .filter(|line| !line.starts_with('-'));
                let wanted = format!(":{}:", encoded.collect::<String>());
                assert!(answer.ends_with(&format!("localhost {wanted}")), "{answer}");
            }
            let anonymous = authority.client();
            let mut stream = anonymous.connect(server.address);
            let request = b"GET /identity HTTP/1.1\r\nHost: a\r\n\r\n";
            let mut byte = [0];
            let sent = stream
                .write_all(request)
                .and_then(|()| read(&mut stream, &mut byte));
            assert_eq!(sent.is_err(), required);
            let eve = authority.client_of(rustls::DEFAULT_VERSIONS, Some(&stranger));
            let mut stream = eve.connect(server.address);
            let sent = stream
                .write_all(request)
                .and_then(|()| read(&mut stream, &mut byte));
            assert!(sent.is_err());
            server.until("counted", |counters| {
                counters.tls.failed_for("certificate-unknown-issuer") == 1
            });
        }
    });
}

#[test]
fn clear_text_is_answered_in_clear_text() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let mut raw = server.connect();
        raw.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(raw.head().starts_with("HTTP/1.1 400 Bad Request\r\n"));
        let mut content = String::new();
        raw.0.read_to_string(&mut content).unwrap();
        assert!(content.contains("this port speaks HTTPS"), "{content}");
        let counters = server.counters();
        assert_eq!(counters.tls.clear_text, 1);
        assert_eq!(counters.refused_for("clear-text-on-tls-port"), 1);
        server.until("closed", |counters| counters.connections == 0);
    });
}

#[test]
fn bytes_other_than_a_handshake_get_an_alert() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let mut raw = server.connect();
        raw.send([0x16, 3, 1, 0xff, 0xff, 1, 2, 3]);
        let mut alert = [0; 7];
        raw.0.read_exact(&mut alert).unwrap();
        assert_eq!((alert[0], alert[5]), (21, 2), "{alert:?}");
        server.until("closed", |counters| counters.connections == 0);
        let mut raw = server.connect();
        raw.send(b"ssh-2.0 hello");
        server.until("counted", |counters| {
            let failed = |rule| counters.tls.failed_for(rule);
            (failed("bad-record"), failed("not-tls")) == (1, 1)
        });
    });
}

#[test]
fn a_handshake_has_a_deadline() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let slot = TlsSlot::new(authority.server());
        let server = Server::with(io, move || ServeOptions {
            limits: Limits {
                tls_handshake_timeout: Duration::from_millis(100),
                ..Limits::default()
            },
            ..with_tls(&slot)
        });
        // One client is silent, one sends the start of a record, and the third completes in time.
        let mut silent = server.connect();
        let mut slow = server.connect();
        slow.send([0x16, 3, 1, 1, 0, 1]);
        let (_, stream) = authority.client().get(server.address, "/hello");
        silent.expect_end();
        slow.expect_end();
        server.until("counted", |counters| {
            counters.tls.failed_for("handshake-timeout") == 2
        });
        drop(stream);
    });
}

#[test]
fn an_incomplete_record_has_a_deadline() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let slot = TlsSlot::new(authority.server());
        let server = Server::with(io, move || ServeOptions {
            limits: Limits {
                head_timeout: Duration::from_millis(100),
                ..Limits::default()
            },
            ..with_tls(&slot)
        });
        let (_, mut stream) = authority.client().get(server.address, "/hello");
        stream.sock.write_all(&[0x17, 3, 3, 1, 0, 1, 2]).unwrap();
        server.until("counted", |counters| counters.tls.record_timeouts == 1);
        server.until("closed", |counters| counters.connections == 0);
    });
}

#[test]
fn empty_lines_count_and_do_not_restart_the_idle_timeout() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let (_, mut stream) = authority.client().get(server.address, "/hello");
        for _ in 0..3 {
            stream.write_all(b"\r\n").unwrap();
            std::thread::sleep(Duration::from_millis(50));
            // An empty record between them makes no difference.
            stream.conn.refresh_traffic_keys().unwrap();
            let _ = stream.flush();
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 400 "));
        assert_eq!(server.counters().refused_for("empty-lines"), 1);

        let slot = TlsSlot::new(authority.server());
        let server = Server::with(io, move || ServeOptions {
            limits: Limits {
                idle_timeout: Duration::from_millis(1_000),
                empty_lines_max: 100,
                ..Limits::default()
            },
            ..with_tls(&slot)
        });
        // Records with an empty line, and key updates, which have no content.
        for is_line in [true, false] {
            let (_, mut stream) = authority.client().get(server.address, "/hello");
            let begun = std::time::Instant::now();
            for _ in 0..4 {
                std::thread::sleep(Duration::from_millis(150));
                match is_line {
                    true => stream.write_all(b"\r\n").unwrap(),
                    false => {
                        stream.conn.refresh_traffic_keys().unwrap();
                        stream.flush().unwrap();
                    }
                }
            }
            let _ = stream.read_to_end(&mut Vec::new());
            let took = begun.elapsed();
            assert!(took < Duration::from_millis(1_500), "{is_line}: {took:?}");
        }
        assert_eq!(server.counters().idle_timeouts, 2);
    });
}

#[test]
fn an_endless_handshake_message_is_refused() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let mut raw = server.connect();
        // A client hello of 60,000 bytes, in records of 16,000.
        let mut record = vec![0x16, 3, 1, 0x3e, 0x80];
        record.resize(5 + 16_000, 0);
        record[5..9].copy_from_slice(&[1, 0, 0xea, 0x60]);
        raw.send(&record);
        record[5..9].fill(0);
        raw.send(&record).send(&record);
        server.until("counted", |counters| {
            counters.tls.failed_for("handshake-too-large") == 1
        });
        server.until("closed", |counters| counters.connections == 0);
    });
}

#[test]
fn a_replaced_snapshot_applies_to_new_handshakes_only() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, slot) = start(io, authority.server());
        let client = authority.client();
        let (_, mut old) = client.get(server.address, "/hello");
        slot.replace(authority.server());
        assert!(get(&mut old, "/hello").ends_with("hello"));
        let (_, new) = client.get(server.address, "/hello");
        let shown = |stream: &crate::tls_support::Stream| {
            stream.conn.peer_certificates().unwrap()[0].clone()
        };
        assert_ne!(shown(&old), shown(&new));
        assert!(get(&mut old, "/hello").ends_with("hello"));
    });
}

#[test]
fn close_notify_is_sent_before_fin() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let mut stream = authority.client().connect(server.address);
        let request = b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        // Without close_notify rustls returns an error here.
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.ends_with(b"hello"));
        let (_, mut idle) = authority.client().get(server.address, "/hello");
        server.drain(SOON);
        idle.read_to_end(&mut answer).unwrap();
    });
}

#[test]
fn a_half_closed_client_still_gets_its_response() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        for says_so in [true, false] {
            let mut stream = authority.client().connect(server.address);
            let request = b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";
            stream.write_all(request).unwrap();
            if says_so {
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            }
            stream.sock.shutdown(Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            assert!(answer.ends_with(b"slow"));
        }
        server.until("closed", |counters| counters.connections == 0);
        let (_, mut stream) = authority.client().get(server.address, "/hello");
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        assert_eq!(read(&mut stream, &mut [0]).unwrap(), 0);
        server.until("closed", |counters| counters.connections == 0);
    });
}

#[test]
fn a_changed_record_ends_the_connection_with_an_alert() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let (_, mut stream) = authority.client().get(server.address, "/hello");
        stream.sock.write_all(&[0x17, 3, 3, 0, 20]).unwrap();
        stream.sock.write_all(&[7; 20]).unwrap();
        let error = read(&mut stream, &mut [0]).unwrap_err();
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
        server.until("counted", |counters| {
            counters.tls.failed_for("bad-record") == 1
        });
        server.until("closed", |counters| counters.connections == 0);
    });
}

#[test]
fn tunnels_pass_through_tls() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let mut stream = authority.client().connect(server.address);
        let request = "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\
             Upgrade: websocket\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 101"));
        for _ in 0..3 {
            stream.write_all(b"ping").unwrap();
            let mut back = [0; 4];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(&back, b"ping");
        }
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"bye");
    });
}

/// A deterministic random generator (xorshift, Marsaglia 2003).
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    /// Changes a few bytes, and sometimes removes the end or repeats a part.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len());
            bytes[at] = self.below(256) as u8;
        }
        match self.below(4) {
            0 => bytes.truncate(1 + self.below(bytes.len())),
            1 => bytes.extend_from_within(self.below(bytes.len())..),
            _ => {}
        }
    }
}

#[test]
fn corrupted_bytes_close_only_their_connection() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let auth = ClientAuth::Optional(authority.set());
        let keys = TicketKeys::new().unwrap();
        let (server, _) = start(io, authority.server_with(auth, &keys));
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
        for round in 0..400 {
            let version = match round % 2 {
                0 => &rustls::version::TLS13,
                _ => &rustls::version::TLS12,
            };
            let name = "localhost".try_into().unwrap();
            let config = authority.client_of(&[version], None).config;
            let mut session = ClientConnection::new(config, name).unwrap();
            let mut tcp = Raw::connect(server.address).0;
            let spoiled_flight = chance.below(3);
            for flight in 0..=spoiled_flight {
                let mut wire = Vec::new();
                while session.wants_write() {
                    session.write_tls(&mut wire).unwrap();
                }
                if flight == spoiled_flight && !wire.is_empty() {
                    chance.spoil(&mut wire);
                }
                if tcp.write_all(&wire).is_err() || flight == spoiled_flight {
                    break;
                }
                let heard = session.read_tls(&mut tcp);
                if heard.is_err() || session.process_new_packets().is_err() {
                    break;
                }
                let _ = session
                    .writer()
                    .write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
            }
            let _ = tcp.shutdown(Shutdown::Write);
            let _ = read(&mut tcp, &mut [0; 4096]);
        }
        let (answer, _) = authority.client().get(server.address, "/hello");
        assert!(answer.ends_with("hello"));
        let panics = server.ask(|| blitz_http::reactor::counters().task_panics);
        assert_eq!(panics, 0);
        server.until("closed", |counters| counters.connections <= 1);
    });
}

#[test]
fn errors_of_unusable_files_name_the_problem() {
    let authority = Authority::new();
    let one = authority.pair(&["one.example"]);
    let two = authority.pair(&["two.example"]);
    let load = |certificate: &str, key: &str| {
        let error = blitz_http::Certificate::from_pem(certificate.as_bytes(), key.as_bytes())
            .expect_err("is refused");
        format!("{error} | {}", error.remedy())
    };
    let mixed = load(&one.certificate, &two.key);
    assert!(
        mixed.contains("the private key does not belong to the certificate"),
        "{mixed}"
    );
    let swapped = load(&one.key, &one.certificate);
    assert!(
        swapped.contains("has no certificate: it has a private key"),
        "{swapped}"
    );
    let empty = load("", &one.key);
    assert!(empty.contains("it is empty"), "{empty}");
    let no_key = load(&one.certificate, &one.certificate);
    assert!(
        no_key.contains("has no private key: it has a certificate"),
        "{no_key}"
    );
    let locked = one.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let encrypted = load(&one.certificate, &locked);
    assert!(encrypted.contains("openssl pkey"), "{encrypted}");
    let cut = load(&one.certificate[..one.certificate.len() / 2], &one.key);
    assert!(
        cut.contains("the line -----END CERTIFICATE----- is missing"),
        "{cut}"
    );
    let begin = "-----BEGIN RSA PRIVATE KEY-----\n";
    let headers = format!("{begin}Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n");
    let traditional = one.key.replace("-----BEGIN PRIVATE KEY-----\n", &headers);
    let traditional = traditional.replace("END PRIVATE", "END RSA PRIVATE");
    let encrypted = load(&one.certificate, &traditional);
    assert!(
        encrypted.contains("its key is encrypted") && encrypted.contains("openssl pkey"),
        "{encrypted}"
    );
    let bad = one
        .certificate
        .replace("CERTIFICATE-----\n", "CERTIFICATE\n");
    let bad = load(&bad, &one.key);
    assert!(bad.contains("-----BEGIN is incomplete"), "{bad}");
    let absent = blitz_http::Certificate::load("/no/such/file.pem", "/no/such.key").unwrap_err();
    assert!(
        absent
            .to_string()
            .contains("/no/such/file.pem: cannot be read"),
        "{absent}"
    );
    assert_eq!(absent.remedy(), "Check the path.");
}

#[test]
fn certificates_report_their_names_and_validity() {
    let authority = Authority::new();
    let pair = authority.pair_with(&["a.example", "*.B.example"], |params| {
        params.not_before = rcgen::date_time_ymd(2024, 1, 1);
        params.not_after = rcgen::date_time_ymd(2024, 3, 1);
    });
    let certificate = pair.load();
    assert_eq!(certificate.names(), ["a.example", "*.b.example"]);
    assert!(certificate.covers("x.b.example") && !certificate.covers("b.example"));
    let day = Duration::from_secs(24 * 60 * 60);
    let start = certificate.not_before();
    assert_eq!(
        certificate.not_after().duration_since(start).unwrap(),
        60 * day
    );
    let problem = |at| certificate.validity_problem(at);
    assert_eq!(problem(start), None);
    assert_eq!(
        problem(start - day),
        Some(ValidityProblem::NotYetValid(day))
    );
    assert_eq!(
        problem(start + 31 * day),
        Some(ValidityProblem::ExpiresSoon(29 * day))
    );
    assert_eq!(
        problem(start + 61 * day),
        Some(ValidityProblem::Expired(day))
    );
    assert_eq!(
        ValidityProblem::Expired(day).to_string(),
        "expired 1 days ago"
    );
}

#[test]
fn a_listener_without_tls_serves_clear_text() {
    on_each_driver(|io| {
        let server = Server::with(io, options);
        let mut raw: Raw = server.connect();
        raw.send("GET /identity HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(raw.head().starts_with("HTTP/1.1 200"));
        raw.expect("clear text");
    });
}
