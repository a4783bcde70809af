//! Connections that their owner keeps: the same for every version, in clear text and over TLS.

use std::cell::Cell;
use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

use blitz_http::{
    Address, BodyLength, CertificateProblem, ClientConnection, ClientError, ClientOptions,
    ClientTls, ConnectOptions, IoChoice, Limits, Method, Pool, Protocol, RequestHead, Response,
    Status, TlsError, UpstreamTls,
};
use blitz_proto::h2::Code;
use blitz_testing::{Raw, read_head};
use rustls::{ServerConnection, StreamOwned};

use crate::client_exchange::get;
use crate::h2_peer::H2Peer;
use crate::support::{SOON, Server, on_each_driver, run, scripted};
use crate::tls_server::start;
use crate::tls_support::Authority;

const STREAM_PROTOCOLS: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

pub(crate) fn trusting(authority: &Authority) -> UpstreamTls {
    let tls = ClientTls::builder().authorities(authority.set()).build();
    UpstreamTls::new(&tls.unwrap().into(), "localhost").unwrap()
}

pub(crate) fn options(protocol: Protocol, tls: Option<&UpstreamTls>) -> ConnectOptions {
    ConnectOptions {
        protocol,
        tls: tls.cloned(),
        ..ConnectOptions::default()
    }
}

pub(crate) async fn connect(address: &Address, options: &ConnectOptions) -> ClientConnection {
    let connected = ClientConnection::connect(address, options).await;
    connected.unwrap_or_else(|error| panic!("{:?}: {error}", options.protocol))
}

pub(crate) async fn refused(address: &Address, options: &ConnectOptions) -> ClientError {
    match ClientConnection::connect(address, options).await {
        Ok(_) => panic!("{:?} connects", options.protocol),
        Err(error) => error,
    }
}

pub(crate) async fn ask(
    connection: &ClientConnection,
    path: &str,
) -> Result<Response, ClientError> {
    let (_, response) = connection.request(&get(path), BodyLength::Empty)?;
    response.response().await
}

pub(crate) async fn fetch(
    connection: &ClientConnection,
    path: &str,
) -> Result<String, ClientError> {
    let mut response = ask(connection, path).await?;
    assert_eq!(response.head.status, Status::OK);
    let content = response.body.read_to_end(1 << 24).await;
    Ok(String::from_utf8_lossy(&content.unwrap()).into_owned())
}

pub(crate) async fn pause() {
    blitz_http::sleep(Duration::from_millis(20)).await;
}

/// Waits for what happens soon.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    let waited = blitz_http::timeout(SOON, async {
        while !holds() {
            blitz_http::sleep(Duration::from_millis(1)).await;
        }
    });
    waited.await.expect("it happens");
}

/// Runs clients with a connection of each protocol, in clear text and over TLS, to our own server.
fn with_each(client: impl AsyncFn(IoChoice, ClientConnection)) {
    on_each_driver(|io| {
        for is_secure in [false, true] {
            let authority = Authority::new();
            let (server, tls) = match is_secure {
                false => (Server::start(io), None),
                true => (start(io, authority.server()).0, Some(trusting(&authority))),
            };
            let address = Address::Tcp(server.address);
            run(io, async {
                for protocol in STREAM_PROTOCOLS {
                    let options = options(protocol, tls.as_ref());
                    let connection = connect(&address, &options).await;
                    assert_eq!(connection.protocol(), protocol);
                    assert_eq!(connection.tls().is_some(), is_secure);
                    client(io, connection).await;
                }
            });
        }
    });
}

#[test]
fn requests_follow_each_other_on_one_connection() {
    with_each(async |_, connection| {
        let before = blitz_http::counters().upstream_connects;
        for path in ["/hello", "/slow", "/hello"] {
            assert_eq!(fetch(&connection, path).await.unwrap(), path[1..]);
            assert!(connection.is_open());
        }
        let mut head = RequestHead::new(Method::Post, "/echo");
        head.set_authority("a");
        let (mut send, response) = connection.request(&head, BodyLength::Known(6)).unwrap();
        send.data("ec").await.unwrap();
        send.data("hoed").await.unwrap();
        send.finish(None).unwrap();
        let mut response = response.response().await.unwrap();
        let content = response.body.read_to_end(100).await.unwrap();
        assert_eq!(&content[..], b"echoed");
        assert_eq!(fetch(&connection, "/hello").await.unwrap(), "hello");
        assert_eq!(blitz_http::counters().upstream_connects, before);
    });
}

#[test]
fn the_parts_of_connecting_are_timed() {
    with_each(async |_, connection| {
        let timings = connection.timings();
        assert!(timings.connect.unwrap() > Duration::ZERO);
        assert!(timings.connect.unwrap() < SOON);
        assert_eq!(timings.handshake.is_some(), connection.tls().is_some());
        assert!(
            timings
                .handshake
                .is_none_or(|took| took > Duration::from_micros(50))
        );
        assert!(timings.began <= blitz_http::read_clock());
        assert!(!timings.is_resumed);
    });
}

#[test]
fn a_busy_connection_says_so_until_it_is_ready() {
    with_each(async |_, connection| {
        if connection.protocol() != Protocol::Http1 {
            return;
        }
        assert_eq!(connection.requests_available(), 1);
        let running = ask(&connection, "/slow");
        let mut running = std::pin::pin!(running);
        let polled = blitz_http::timeout(Duration::from_millis(10), running.as_mut()).await;
        assert!(polled.is_err(), "it is slow");
        assert_eq!(connection.requests_available(), 0);
        let error = ask(&connection, "/hello").await.err().unwrap();
        assert!(matches!(error, ClientError::Busy), "{error}");
        let mut waiting = Vec::new();
        let order = Rc::new(Cell::new(0));
        for number in 0..3 {
            let (connection, order) = (connection.clone(), Rc::clone(&order));
            waiting.push(async move {
                connection.ready().await.unwrap();
                assert_eq!(order.replace(number + 1), number);
                fetch(&connection, "/slow").await.unwrap()
            });
        }
        let done = Rc::new(Cell::new(0));
        for task in waiting {
            let done = Rc::clone(&done);
            blitz_http::spawn(async move {
                assert_eq!(task.await, "slow");
                done.set(done.get() + 1);
            });
        }
        let mut response = running.await.unwrap();
        response.body.read_to_end(100).await.unwrap();
        until(|| done.get() == 3).await;
    });
}

#[test]
fn a_connection_that_the_server_closes_between_requests_takes_none() {
    on_each_driver(|io| {
        let (address, server) = scripted(|listener| {
            let mut peer = Raw::accept(&listener);
            peer.head();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            drop(peer);
            let mut peer = H2Peer::accept(&listener);
            let (stream, _) = peer.request().unwrap();
            peer.answer(stream, Status::OK, "ok");
            peer.fin_and_wait();
        });
        run(io, async {
            for protocol in STREAM_PROTOCOLS {
                let connection = connect(&address, &options(protocol, None)).await;
                assert_eq!(fetch(&connection, "/x").await.unwrap(), "ok");
                until(|| !connection.is_open()).await;
                assert_eq!(connection.requests_available(), 0);
                let error = ask(&connection, "/x").await.err().unwrap();
                assert!(matches!(error, ClientError::Unprocessed), "{error}");
                let error = connection.ready().await.unwrap_err();
                assert!(matches!(error, ClientError::Unprocessed), "{error}");
            }
        });
        server.join().unwrap();
    });
}

#[test]
fn bytes_that_no_request_asked_for_close_the_connection() {
    on_each_driver(|io| {
        let (address, server) = scripted(|listener| {
            let mut peer = Raw::accept(&listener);
            peer.head();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            std::thread::sleep(Duration::from_millis(20));
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong");
            peer.expect_end_or_reset();
        });
        run(io, async {
            let connection = connect(&address, &options(Protocol::Http1, None)).await;
            assert_eq!(fetch(&connection, "/x").await.unwrap(), "ok");
            until(|| !connection.is_open()).await;
        });
        server.join().unwrap();
    });
}

#[test]
fn a_response_that_ends_with_the_connection_is_the_last() {
    on_each_driver(|io| {
        let (address, server) = scripted(|listener| {
            let mut peer = Raw::accept(&listener);
            peer.head();
            peer.send("HTTP/1.1 200 OK\r\n\r\nuntil the end");
        });
        run(io, async {
            let connection = connect(&address, &options(Protocol::Http1, None)).await;
            assert_eq!(fetch(&connection, "/x").await.unwrap(), "until the end");
            assert!(!connection.is_open());
            assert!(connection.ready().await.is_err());
        });
        server.join().unwrap();
    });
}

#[test]
fn requests_in_progress_complete_after_the_server_has_announced_its_end() {
    on_each_driver(|io| {
        let (address, server) = scripted(|listener| {
            let mut peer = H2Peer::accept(&listener);
            let (stream, _) = peer.request().unwrap();
            peer.send_go_away(stream.get());
            std::thread::sleep(Duration::from_millis(50));
            peer.answer(stream, Status::OK, "ok");
            peer.expect_end();
        });
        run(io, async {
            let connection = connect(&address, &options(Protocol::Http2, None)).await;
            let running = fetch(&connection, "/x");
            let ended = async {
                until(|| !connection.is_open()).await;
                connection.ready().await
            };
            let mut running = std::pin::pin!(running);
            assert!(
                blitz_http::timeout(Duration::from_millis(20), running.as_mut())
                    .await
                    .is_err()
            );
            assert!(matches!(ended.await, Err(ClientError::Unprocessed)));
            assert_eq!(running.await.unwrap(), "ok");
        });
        server.join().unwrap();
    });
}

#[test]
fn a_request_that_the_server_did_not_process_may_be_repeated() {
    on_each_driver(|io| {
        let (address, server) = scripted(|listener| {
            let mut peer = H2Peer::accept(&listener);
            let (stream, _) = peer.request().unwrap();
            peer.reset(stream, Code::REFUSED_STREAM);
            let _ = peer.next();
            peer.send_go_away(0);
            peer.expect_end();
        });
        run(io, async {
            let connection = connect(&address, &options(Protocol::Http2, None)).await;
            // A second stream, so that the limit does not become zero.
            let first = ask(&connection, "/x");
            let error = first.await.err().unwrap();
            assert!(error.is_unprocessed(), "{error}");
        });
        server.join().unwrap();
    });
}

#[test]
fn the_limit_of_streams_is_respected() {
    const LIMIT: u32 = 3;
    on_each_driver(|io| {
        let limits = || Limits {
            concurrent_streams_max: LIMIT,
            ..Limits::default()
        };
        let server = Server::with(io, move || blitz_http::ServeOptions {
            limits: limits(),
            ..crate::support::options()
        });
        let address = Address::Tcp(server.address);
        run(io, async {
            let connection = connect(&address, &options(Protocol::Http2, None)).await;
            let done = Rc::new(Cell::new(0));
            for _ in 0..20 {
                let (connection, done) = (connection.clone(), Rc::clone(&done));
                blitz_http::spawn(async move {
                    loop {
                        connection.ready().await.unwrap();
                        match fetch(&connection, "/slow").await {
                            Err(ClientError::Busy) => {}
                            answer => break assert_eq!(answer.unwrap(), "slow"),
                        }
                    }
                    done.set(done.get() + 1);
                });
            }
            pause().await;
            assert_eq!(connection.requests_available(), 0);
            until(|| done.get() == 20).await;
            until(|| connection.requests_available() == LIMIT as usize).await;
        });
    });
}

#[test]
fn a_closed_connection_fails_its_requests() {
    with_each(async |_, connection| {
        assert_eq!(fetch(&connection, "/hello").await.unwrap(), "hello");
        let (_, response) = connection
            .request(&get("/never"), BodyLength::Empty)
            .unwrap();
        pause().await;
        connection.close();
        assert!(!connection.is_open());
        assert!(response.response().await.is_err());
        assert!(matches!(
            ask(&connection, "/hello").await,
            Err(ClientError::Unprocessed)
        ));
        connection.close();
    });
}

#[test]
fn an_idle_connection_is_closed_gracefully() {
    with_each(async |_, connection| {
        assert_eq!(fetch(&connection, "/hello").await.unwrap(), "hello");
        connection.close();
        assert!(!connection.is_open());
        assert!(connection.ready().await.is_err());
    });
}

#[test]
fn without_a_handle_a_connection_ends_after_its_requests() {
    on_each_driver(|io| {
        let (address, server) = scripted(|listener| {
            let mut peer = Raw::accept(&listener);
            peer.head();
            std::thread::sleep(Duration::from_millis(50));
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            peer.expect_end();
            let mut peer = H2Peer::accept(&listener);
            let (stream, _) = peer.request().unwrap();
            std::thread::sleep(Duration::from_millis(50));
            peer.answer(stream, Status::OK, "ok");
            peer.expect_end();
        });
        run(io, async {
            for protocol in STREAM_PROTOCOLS {
                let connection = connect(&address, &options(protocol, None)).await;
                let (_, response) = connection.request(&get("/x"), BodyLength::Empty).unwrap();
                drop(connection);
                let mut response = response.response().await.unwrap();
                let content = response.body.read_to_end(100).await.unwrap();
                assert_eq!(&content[..], b"ok");
            }
            pause().await;
        });
        server.join().unwrap();
    });
}

#[test]
fn pools_resume_sessions_by_choice() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let address = Address::Tcp(server.address);
        let tls = trusting(&authority);
        run(io, async {
            let mut resumed = Vec::new();
            for resume in [false, true, true, false] {
                let options = ClientOptions {
                    resume,
                    ..ClientOptions::default()
                };
                let upstream = Pool::new(options).upstream_tls(&address, &tls);
                let connection = upstream.connect().await.unwrap();
                resumed.push(connection.tls().unwrap().is_resumed);
                // The tickets come with the first response.
                let mut head = RequestHead::new(Method::Get, "/hello");
                head.set_authority("localhost");
                let (_, stream) = connection.request(&head, BodyLength::Empty);
                let mut response = stream.response().await.unwrap();
                assert_eq!(&*response.body.read_to_end(100).await.unwrap(), b"hello");
                drop(response);
                pause().await;
            }
            assert_eq!(resumed, [false, false, true, false]);
        });
    });
}

#[test]
fn sessions_are_resumed_by_choice() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let address = Address::Tcp(server.address);
        let tls = trusting(&authority);
        run(io, async {
            for protocol in STREAM_PROTOCOLS {
                let may = options(protocol, Some(&tls));
                let may_not = ConnectOptions {
                    resume: false,
                    ..may.clone()
                };
                let mut resumed = Vec::new();
                for options in [&may_not, &may_not, &may, &may, &may_not] {
                    let connection = connect(&address, options).await;
                    // The tickets come with the first response.
                    assert_eq!(fetch(&connection, "/hello").await.unwrap(), "hello");
                    let info = connection.tls().unwrap();
                    assert!(info.alpn.is_some());
                    assert_eq!(info.is_resumed, connection.timings().is_resumed);
                    resumed.push(info.is_resumed);
                    drop(connection);
                    pause().await;
                }
                let had_session = protocol != Protocol::Http1;
                assert_eq!(resumed, [false, false, had_session, true, false]);
            }
        });
    });
}

#[test]
fn only_the_wanted_protocol_is_offered_and_accepted() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let pair = authority.pair(&["localhost"]);
        let tls = trusting(&authority);
        for (server_protocols, wanted, error) in [
            (
                &[][..],
                Protocol::Http2,
                Some(TlsError::NoApplicationProtocol),
            ),
            (&[], Protocol::Http1, None),
            (&["http/1.1"], Protocol::Http2, Some(TlsError::Alert(120))),
            (&["h2"], Protocol::Http1, Some(TlsError::Alert(120))),
        ] {
            let config = authority.outside_server(&pair, |config| {
                let names = server_protocols
                    .iter()
                    .map(|name: &&str| name.as_bytes().to_vec());
                config.alpn_protocols = names.collect();
            });
            let (address, server) = scripted(move |listener| {
                let tcp = listener.accept().unwrap().0;
                let mut peer = StreamOwned::new(ServerConnection::new(config).unwrap(), tcp);
                let _ = peer.read(&mut [0]);
            });
            run(io, async {
                let options = options(wanted, Some(&tls));
                match (ClientConnection::connect(&address, &options).await, error) {
                    (Ok(connection), None) => assert!(connection.tls().unwrap().alpn.is_none()),
                    (Err(ClientError::TlsHandshake(got)), Some(wanted)) => assert_eq!(got, wanted),
                    (Ok(_), Some(_)) => panic!("{wanted:?} was negotiated"),
                    (Err(got), _) => panic!("{got:?}"),
                }
            });
            server.join().unwrap();
        }
    });
}

#[test]
fn certificates_are_verified_unless_that_is_switched_off() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        let address = Address::Tcp(server.address);
        run(io, async {
            for protocol in STREAM_PROTOCOLS {
                let stranger = trusting(&Authority::new());
                let error = refused(&address, &options(protocol, Some(&stranger))).await;
                let ClientError::TlsHandshake(TlsError::Certificate(problem)) = error else {
                    panic!("{error:?}")
                };
                assert_eq!(problem, CertificateProblem::UnknownIssuer);
                let any = ClientTls::builder().danger_accept_any_certificate();
                let any = UpstreamTls::new(&any.build().unwrap().into(), "other.example");
                let connection = connect(&address, &options(protocol, Some(&any.unwrap()))).await;
                assert_eq!(fetch(&connection, "/hello").await.unwrap(), "hello");
            }
        });
    });
}

#[test]
fn a_malformed_response_ends_the_connection() {
    on_each_driver(|io| {
        let (address, server) = scripted(|listener| {
            let mut peer = Raw::accept(&listener);
            peer.head();
            peer.send("HTTP/1.1 200 OK\nbroken\r\n\r\n");
            peer.expect_end_or_reset();
        });
        run(io, async {
            let connection = connect(&address, &options(Protocol::Http1, None)).await;
            let error = ask(&connection, "/x").await.err().unwrap();
            assert!(matches!(error, ClientError::Malformed(_)), "{error}");
            assert!(!connection.is_open());
        });
        server.join().unwrap();
    });
}

#[test]
fn handles_of_an_earlier_request_do_not_disturb_the_next() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let address = Address::Tcp(server.address);
        run(io, async {
            let connection = connect(&address, &options(Protocol::Http1, None)).await;
            let mut head = RequestHead::new(Method::Post, "/whole");
            head.set_authority("a");
            let (mut send, response) = connection.request(&head, BodyLength::Known(2)).unwrap();
            send.data("ok").await.unwrap();
            send.finish(None).unwrap();
            let mut response = response.response().await.unwrap();
            let content = response.body.read_to_end(100).await.unwrap();
            assert_eq!(&content[..], b"ok");
            let next = connection.request(&get("/slow"), BodyLength::Empty);
            let (_, next) = next.unwrap();
            drop(response);
            let mut next = next.response().await.unwrap();
            let content = next.body.read_to_end(100).await.unwrap();
            assert_eq!(&content[..], b"slow");
        });
    });
}

#[test]
fn connections_with_the_same_options_share_their_limits() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let address = Address::Tcp(server.address);
        run(io, async {
            let client = Rc::new(ClientOptions::default());
            let options = ConnectOptions {
                client: Rc::clone(&client),
                ..options(Protocol::Http2, None)
            };
            let connections = [
                connect(&address, &options).await,
                connect(&address, &options).await,
            ];
            for connection in &connections {
                assert_eq!(fetch(connection, "/hello").await.unwrap(), "hello");
            }
            drop((connections, options));
            // The tasks of the connections end, and what they share goes with the last.
            until(|| Rc::strong_count(&client) == 1).await;
        });
    });
}

#[test]
fn requests_over_tls_to_an_outside_server() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let config = authority.outside_server(&authority.pair(&["localhost"]), |_| {});
        let (address, server) = scripted(move |listener| {
            let tcp = listener.accept().unwrap().0;
            let mut peer = StreamOwned::new(ServerConnection::new(config).unwrap(), tcp);
            for _ in 0..3 {
                read_head(&mut peer);
                peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .unwrap();
            }
        });
        run(io, async {
            let tls = trusting(&authority);
            let connection = connect(&address, &options(Protocol::Http1, Some(&tls))).await;
            for _ in 0..3 {
                assert_eq!(fetch(&connection, "/x").await.unwrap(), "ok");
            }
            until(|| !connection.is_open()).await;
        });
        server.join().unwrap();
    });
}
