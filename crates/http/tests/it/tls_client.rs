use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use blitz_http::{
    Address, BodyError, BodyLength, CaSet, CertificateProblem, ClientError, ClientOptions,
    ClientTls, Connection, Limits, Pool, Protocol, TlsError, TlsVersion, Upstream, UpstreamTls,
};
use blitz_testing::read_head;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::client_exchange::get;
use crate::support::{on_each_driver, run, scripted};
use crate::tls_support::Authority;

type Peer = StreamOwned<ServerConnection, TcpStream>;

fn accept(listener: &TcpListener, config: &Arc<ServerConfig>) -> Peer {
    let tcp = listener.accept().unwrap().0;
    tcp.set_read_timeout(Some(crate::support::SOON)).unwrap();
    StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), tcp)
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn settings(authority: &Authority) -> ClientTls {
    ClientTls::builder()
        .authorities(authority.set())
        .build()
        .unwrap()
}

fn localhost(settings: &ClientTls) -> UpstreamTls {
    UpstreamTls::new(&settings.clone().into(), "localhost").unwrap()
}

async fn fetch(upstream: &Upstream) -> Result<String, ClientError> {
    receive(upstream.checkout().await?).await
}

async fn receive(connection: Connection) -> Result<String, ClientError> {
    let reused = if connection.is_reused() { " again" } else { "" };
    let resumed = connection.tls().is_some_and(|tls| tls.is_resumed);
    let (_, response) = connection.request(&get("/x"), BodyLength::Empty);
    let mut response = response.response().await?;
    let content = response.body.read_to_end(1 << 16).await;
    let content = content.map_or_else(|e| e.to_string(), |c| String::from_utf8_lossy(&c).into());
    let resumed = if resumed { " resumed" } else { "" };
    Ok(format!("{content}{reused}{resumed}"))
}

#[test]
fn connections_are_verified_pooled_and_resumed() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let pair = authority.pair(&["localhost"]);
        let config = authority.outside_server(&pair, |_| {});
        let (address, server) = scripted(move |listener| {
            for _ in 0..2 {
                let mut peer = accept(&listener, &config);
                for _ in 0..3 {
                    read_head(&mut peer);
                    peer.write_all(OK).unwrap();
                }
                assert_eq!(peer.conn.server_name(), Some("localhost"));
            }
        });
        run(io, async {
            let before = blitz_http::counters().tls;
            let pool = Pool::new(ClientOptions::default());
            let tls = settings(&authority);
            let upstream = pool.upstream_tls(&address, &localhost(&tls));
            assert_eq!(fetch(&upstream).await.unwrap(), "ok");
            assert_eq!(fetch(&upstream).await.unwrap(), "ok again");
            assert_eq!(upstream.idle(), 1);
            let plain = pool.upstream(&address);
            let other = pool.upstream_tls(&address, &localhost(&settings(&authority)));
            let name = UpstreamTls::new(&tls.clone().into(), "other.example").unwrap();
            let named = pool.upstream_tls(&address, &name);
            assert_eq!((plain.idle(), other.idle(), named.idle()), (0, 0, 0));
            assert_eq!(fetch(&upstream).await.unwrap(), "ok again");
            // The server has closed by now, or closes soon.
            while upstream.idle() > 0 {
                blitz_http::sleep(Duration::from_millis(1)).await;
            }
            for n in 0..3 {
                let again = if n > 0 { " again" } else { "" };
                let got = fetch(&upstream).await.unwrap();
                assert_eq!(got, format!("ok{again} resumed"));
            }
            let tls = blitz_http::counters().tls;
            let handshakes = tls.upstream_handshakes - before.upstream_handshakes;
            let resumed = tls.upstream_resumed - before.upstream_resumed;
            assert_eq!((handshakes, resumed), (2, 1));
        });
        server.join().unwrap();
    });
}

#[test]
fn negotiated_parameters_are_reported() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let pair = authority.pair(&["localhost"]);
        let config = authority.outside_server(&pair, |config| {
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        });
        let (address, server) = scripted(move |listener| {
            for _ in 0..2 {
                let mut peer = accept(&listener, &config);
                let _ = peer.read(&mut [0]);
            }
        });
        run(io, async {
            let options = Rc::new(ClientOptions::default());
            let pool = Pool::new(ClientOptions::default());
            let upstream = localhost(&settings(&authority));
            for chosen in ["http/1.1", "h2"] {
                let made = match chosen {
                    "h2" => pool.upstream_tls(&address, &upstream).checkout().await,
                    _ => Connection::connect_tls(&address, &upstream, &options).await,
                };
                let made = made.map_err(|error| error.to_string()).unwrap();
                let info = made.tls().unwrap();
                assert_eq!(info.alpn.as_deref(), Some(chosen.as_bytes()));
                assert_eq!(info.alpn.as_deref(), Some(chosen.as_bytes()));
                assert_eq!(made.protocol() == Protocol::Http2, chosen == "h2");
                assert_eq!(info.version, TlsVersion::V1_3);
                assert_eq!(info.key_exchange, Some("X25519MLKEM768"));
                assert!(
                    info.cipher_suite.starts_with("TLS_AES"),
                    "{}",
                    info.cipher_suite
                );
            }
        });
        server.join().unwrap();
    });
}

async fn refusal(address: &Address, tls: &ClientTls, host: &str, limits: Limits) -> ClientError {
    let options = Rc::new(ClientOptions {
        limits,
        ..ClientOptions::default()
    });
    let upstream = UpstreamTls::new(&tls.clone().into(), host).unwrap();
    match Connection::connect_tls(address, &upstream, &options).await {
        Ok(_) => panic!("{host} is connected to"),
        Err(error) => error,
    }
}

#[test]
fn rejected_certificates_are_distinguished_by_cause() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let good = authority.pair(&["localhost"]);
        let old = authority.pair_with(&["localhost"], |params| {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        });
        let configs = [&good, &good, &old].map(|pair| authority.outside_server(pair, |_| {}));
        let (address, server) = scripted(move |listener| {
            for config in configs {
                let mut peer = accept(&listener, &config);
                let error = peer.read(&mut [0]).unwrap_err();
                assert!(
                    error.to_string().contains("received fatal alert"),
                    "{error}"
                );
            }
        });
        run(io, async {
            let known = settings(&authority);
            let unknown = settings(&Authority::new());
            let limits = Limits::default;
            let mut met = vec![refusal(&address, &unknown, "localhost", limits()).await];
            met.push(refusal(&address, &known, "elsewhere.example", limits()).await);
            met.push(refusal(&address, &known, "localhost", limits()).await);
            let problems: Vec<_> = met
                .iter()
                .map(|error| match error {
                    ClientError::TlsHandshake(TlsError::Certificate(problem)) => *problem,
                    other => panic!("{other}"),
                })
                .collect();
            use CertificateProblem::{Expired, UnknownIssuer, WrongName};
            assert_eq!(problems, [UnknownIssuer, WrongName, Expired]);
            assert!(met.iter().all(ClientError::is_connect));
            let tls = blitz_http::counters().tls;
            assert!(tls.upstream_failed_for("certificate-expired") > 0);
        });
        server.join().unwrap();
    });
}

#[test]
fn other_handshake_failures_are_reported_with_their_cause() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let pair = authority.pair(&["localhost"]);
        let config = authority.outside_server(&pair, |config| {
            config.alpn_protocols = vec![b"other".to_vec()];
        });
        let (address, server) = scripted(move |listener| {
            let mut peer = accept(&listener, &config);
            assert!(peer.read(&mut [0]).is_err());
            drop(peer);
            // A peer without TLS, a peer that closes, and a silent peer.
            let mut tcp = listener.accept().unwrap().0;
            tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            let mut rest = Vec::new();
            let _ = tcp.read_to_end(&mut rest);
            drop(listener.accept().unwrap());
            let silent = listener.accept().unwrap().0;
            let _ = (&silent).read_to_end(&mut rest);
        });
        run(io, async {
            let tls = settings(&authority);
            let limits = || Limits {
                tls_handshake_timeout: Duration::from_millis(100),
                ..Limits::default()
            };
            let mut met = Vec::new();
            for _ in 0..4 {
                match refusal(&address, &tls, "localhost", limits()).await {
                    ClientError::TlsHandshake(error) => met.push(error),
                    other => panic!("{other}"),
                }
            }
            let wanted = [
                TlsError::Alert(120),
                TlsError::NotTls,
                TlsError::Ended,
                TlsError::TimedOut,
            ];
            assert_eq!(met, wanted);
            assert_eq!(met[0].alert_name(), Some("NoApplicationProtocol"));
        });
        server.join().unwrap();
    });
}

#[test]
fn client_certificates_are_sent_to_servers_that_request_them() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let pair = authority.pair(&["localhost"]);
        let own = authority.pair(&["gateway.example"]);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let roots = Arc::new(authority.roots());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(pair.chain(), pair.key_der())
            .unwrap();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let config = Arc::new(config);
        let shown = own.chain();
        let (address, server) = scripted(move |listener| {
            let mut peer = accept(&listener, &config);
            read_head(&mut peer);
            assert!(peer.conn.peer_certificates().unwrap()[0] == shown[0]);
            peer.write_all(OK).unwrap();
            let mut peer = accept(&listener, &config);
            assert!(peer.read(&mut [0]).is_err());
            let _ = peer.sock.read_to_end(&mut Vec::new());
        });
        run(io, async {
            let options = Rc::new(ClientOptions::default());
            let builder = ClientTls::builder().authorities(authority.set());
            let tls = builder.certificate(own.load()).build().unwrap();
            let made = Connection::connect_tls(&address, &localhost(&tls), &options).await;
            let made = made.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(receive(made).await.unwrap(), "ok");
            // In TLS 1.3 the client's handshake is complete before the server can reject it.
            let anonymous = settings(&authority);
            let made = Connection::connect_tls(&address, &localhost(&anonymous), &options).await;
            let made = made.unwrap_or_else(|error| panic!("{error}"));
            let error = receive(made).await.unwrap_err();
            assert!(
                matches!(error, ClientError::Tls(TlsError::Alert(116))),
                "{error:?}"
            );
            assert!(!error.is_before_response());
        });
        server.join().unwrap();
    });
}

#[test]
fn a_response_delimited_by_close_is_distinguished_from_a_truncated_one() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let pair = authority.pair(&["localhost"]);
        let config = authority.outside_server(&pair, |_| {});
        let (address, server) = scripted(move |listener| {
            for says_so in [true, false] {
                let mut peer = accept(&listener, &config);
                read_head(&mut peer);
                peer.write_all(b"HTTP/1.1 200 OK\r\n\r\nall of it").unwrap();
                if says_so {
                    peer.conn.send_close_notify();
                }
                peer.flush().unwrap();
            }
        });
        run(io, async {
            let options = Rc::new(ClientOptions::default());
            let tls = localhost(&settings(&authority));
            for whole in [true, false] {
                let made = Connection::connect_tls(&address, &tls, &options).await;
                let made = made.unwrap_or_else(|error| panic!("{error}"));
                let (_, response) = made.request(&get("/x"), BodyLength::Empty);
                let mut response = response.response().await.unwrap();
                match response.body.read_to_end(1 << 16).await {
                    Ok(content) => assert!(whole && content.as_slice() == b"all of it"),
                    Err(error) => assert!(!whole && matches!(error, BodyError::Truncated)),
                }
            }
        });
        server.join().unwrap();
    });
}

#[test]
fn a_response_before_its_request_is_discarded() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let pair = authority.pair(&["localhost"]);
        let config = authority.outside_server(&pair, |config| config.send_half_rtt_data = true);
        let (address, server) = scripted(move |listener| {
            let mut peer = accept(&listener, &config);
            // The response is sent together with the server's handshake messages.
            peer.conn.writer().write_all(OK).unwrap();
            let _ = peer.flush();
            let _ = peer.read_to_end(&mut Vec::new());
        });
        run(io, async {
            let pool = Pool::new(ClientOptions::default());
            let upstream = pool.upstream_tls(&address, &localhost(&settings(&authority)));
            let error = fetch(&upstream).await;
            assert!(
                matches!(error, Err(ClientError::Reset { reused: false })),
                "{error:?}"
            );
            assert_eq!(pool.idle(), 0);
        });
        server.join().unwrap();
    });
}

#[test]
fn late_tickets_do_not_remove_the_connection_from_the_pool() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let pair = authority.pair(&["localhost"]);
        let config = authority.outside_server(&pair, |_| {});
        let (address, server) = scripted(move |listener| {
            let mut peer = accept(&listener, &config);
            read_head(&mut peer);
            peer.write_all(OK).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            peer.conn.refresh_traffic_keys().unwrap();
            peer.flush().unwrap();
            read_head(&mut peer);
            peer.write_all(OK).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            // Unsolicited content removes the connection.
            peer.write_all(OK).unwrap();
            let _ = peer.sock.read_to_end(&mut Vec::new());
        });
        run(io, async {
            let before = blitz_http::counters().upstream_idle_lost;
            let pool = Pool::new(ClientOptions::default());
            let upstream = pool.upstream_tls(&address, &localhost(&settings(&authority)));
            assert_eq!(fetch(&upstream).await.unwrap(), "ok");
            blitz_http::sleep(Duration::from_millis(60)).await;
            assert_eq!(upstream.idle(), 1);
            assert_eq!(fetch(&upstream).await.unwrap(), "ok again");
            blitz_http::sleep(Duration::from_millis(60)).await;
            assert_eq!((upstream.idle(), pool.idle()), (0, 0));
            assert_eq!(blitz_http::counters().upstream_idle_lost, before + 1);
        });
        server.join().unwrap();
    });
}

#[test]
fn well_known_authorities_exist_and_names_are_checked_before_use() {
    assert!(CaSet::well_known().len() > 100);
    let tls = ClientTls::builder().build().unwrap().into();
    for host in ["", "a b", "[::1]", "-", "a..b"] {
        assert!(UpstreamTls::new(&tls, host).is_err(), "{host}");
    }
    for host in ["localhost", "127.0.0.1", "::1", "www.example.com"] {
        assert!(UpstreamTls::new(&tls, host).is_ok(), "{host}");
    }
}
