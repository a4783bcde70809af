//! The client of HTTP/3 with our own server, and with those of `h3` and `quinn`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use blitz_http::{
    Address, BodyError, BodyLength, ClientConnection, ClientError, ConnectOptions, Fields,
    IoChoice, Method, Part, Protocol, RequestHead, Response, ResponseEvent, Status,
};
use blitz_testing::h3::{frame, headers};

use crate::client_connection::{ask, connect, fetch, options, pause, trusting, until};
use crate::client_exchange::get;
use crate::h3_peer::{OK, Peer, accept, data, incoming};
use crate::h3_support::{QuicServer, pattern, soon};
use crate::support::{
    BIG, BLOCK_BYTES, BLOCKS_BYTES, block, on_each_driver, options as serve_options, run,
};

/// Runs a client with options for our own server.
#[allow(
    clippy::needless_pass_by_value,
    reason = "closures are passed as they are written"
)]
pub(crate) fn with_server(client: impl AsyncFn(&QuicServer, Address, ConnectOptions)) {
    on_each_driver(|io| {
        let server = QuicServer::start(io, 1, serve_options);
        run(io, async {
            let tls = trusting(&server.authority);
            let options = options(Protocol::Http3, Some(&tls));
            client(&server, Address::Tcp(server.address), options).await;
        });
    });
}

/// Runs a client with options for an outside server that plays a script.
pub(crate) fn with_peer<S>(
    mut peer: Peer,
    io: IoChoice,
    script: S,
    client: impl AsyncFnOnce(Address, ConnectOptions),
) where
    S: AsyncFnOnce(quinn::Endpoint) + Send + 'static,
{
    let tls = trusting(&peer.authority);
    let (address, thread) = peer.play(script);
    run(io, async {
        client(address, options(Protocol::Http3, Some(&tls))).await;
        // The bytes that were queued last leave.
        pause().await;
    });
    thread.join().unwrap();
}

pub(crate) fn post(path: &str) -> RequestHead {
    let mut head = RequestHead::new(Method::Post, path);
    head.set_authority("localhost");
    head
}

async fn content(response: &mut Response) -> Result<Vec<u8>, BodyError> {
    Ok(response.body.read_to_end(1 << 27).await?.to_vec())
}

/// Sends content in pieces while the response comes.
async fn echo(connection: &ClientConnection, bytes: Vec<u8>) -> Vec<u8> {
    connection.ready().await.unwrap();
    let length = BodyLength::Known(bytes.len() as u64);
    let (mut send, response) = connection.request(&post("/echo"), length).unwrap();
    let sending = blitz_http::spawn({
        let bytes = bytes.clone();
        async move {
            for piece in bytes.chunks(10_000) {
                send.data(piece.to_vec()).await.unwrap();
            }
            send.finish(None).unwrap();
        }
    });
    let _ = sending;
    let mut response = response.response().await.unwrap();
    assert_eq!(response.body.length(), length);
    content(&mut response).await.unwrap()
}

#[test]
fn requests_of_every_kind_follow_each_other() {
    with_server(async |_, address, options| {
        let connection = connect(&address, &options).await;
        assert_eq!(connection.protocol(), Protocol::Http3);
        let info = connection.tls().unwrap();
        assert_eq!(info.alpn.as_deref(), Some(&b"h3"[..]));
        assert_eq!(info.server_name.as_deref(), Some("localhost"));
        let timings = connection.timings();
        assert!(timings.handshake.unwrap() > Duration::from_micros(50));
        assert!(timings.connect.is_none() && !timings.is_resumed);
        for path in ["/hello", "/slow", "/hello"] {
            assert_eq!(fetch(&connection, path).await.unwrap(), path[1..]);
        }
        let mut response = ask(&connection, "/missing").await.unwrap();
        assert_eq!(response.head.status, Status::NOT_FOUND);
        assert_eq!(content(&mut response).await.unwrap(), b"nothing here");
        assert_eq!(echo(&connection, pattern(1, 5)).await, pattern(1, 5));
        let mut head = RequestHead::new(Method::Head, "/hello");
        head.set_authority("localhost");
        let (_, response) = connection.request(&head, BodyLength::Empty).unwrap();
        let response = response.response().await.unwrap();
        assert!(response.body.is_done());
        assert_eq!(response.body.length(), BodyLength::Known(5));
        assert!(connection.is_open());
    });
}

#[test]
fn interim_responses_and_trailers_are_passed_on() {
    with_server(async |_, address, options| {
        let connection = connect(&address, &options).await;
        let (_, mut response) = connection
            .request(&get("/hints"), BodyLength::Empty)
            .unwrap();
        let ResponseEvent::Informational(hints) = response.next().await.unwrap() else {
            panic!("the hints come first")
        };
        assert_eq!(hints.status, Status::EARLY_HINTS);
        assert!(hints.fields.get("link").is_some());
        let mut response = response.response().await.unwrap();
        assert_eq!(content(&mut response).await.unwrap(), b"hinted");

        let (mut send, response) = connection
            .request(&post("/echo"), BodyLength::Unknown)
            .unwrap();
        send.data("content").await.unwrap();
        let mut trailers = Fields::default();
        trailers.append("x-sum", "7");
        send.finish(Some(&trailers)).unwrap();
        let mut response = response.response().await.unwrap();
        let mut received = Vec::new();
        loop {
            match response.body.next().await.unwrap() {
                Some(Part::Data(slice)) => received.extend_from_slice(&slice),
                Some(Part::Trailers(trailers)) => {
                    assert_eq!(trailers.get("x-sum"), Some(&b"7"[..]));
                }
                None => break,
            }
        }
        assert_eq!(received, b"content");
    });
}

#[test]
fn only_content_of_one_frame_is_taken_whole() {
    let head = headers(&[(":status", "200"), ("content-length", "5")]);
    let answers = [
        (data(b"hello"), Some("hello"), Ok("")),
        ([data(b"he"), data(b"llo")].concat(), None, Ok("hello")),
        (
            [frame(0x21, b"x"), data(b"hello")].concat(),
            None,
            Ok("hello"),
        ),
        (
            [data(b"hello"), headers(&[("a", "b")])].concat(),
            None,
            Ok("hello"),
        ),
        (data(b"hell"), None, Err(())),
        (data(b"hello!"), None, Err(())),
        (data(b""), None, Err(())),
    ];
    on_each_driver(|io| {
        let script = {
            let (head, answers) = (head.clone(), answers.clone());
            async move |endpoint: quinn::Endpoint| {
                let raw = accept(&endpoint).await;
                for (frames, _, _) in answers {
                    let (mut send, _) = raw.whole_request().await;
                    send.write_all(&[&head[..], &frames].concat())
                        .await
                        .unwrap();
                    send.finish().unwrap();
                }
                assert_eq!(raw.close_code().await, 0x100);
            }
        };
        with_peer(Peer::new(), io, script, async |address, options| {
            let connection = connect(&address, &options).await;
            for (frames, whole, rest) in &answers {
                let mut response = ask(&connection, "/").await.unwrap();
                let taken = response.body.take_whole();
                assert_eq!(taken.as_deref(), whole.map(str::as_bytes), "{frames:?}");
                assert_eq!(response.body.is_done(), taken.is_some(), "{frames:?}");
                let rest = rest.map(|rest| rest.as_bytes().to_vec());
                let read = content(&mut response).await.map_err(|_| ());
                assert_eq!(read, rest, "{frames:?}");
            }
            connection.close();
        });
    });
}

#[test]
fn many_streams_carry_different_content_in_both_directions() {
    const STREAMS: usize = 100;
    with_server(async |_, address, options| {
        let connection = connect(&address, &options).await;
        let done = Rc::new(Cell::new(0));
        for number in 0..STREAMS {
            let (connection, done) = (connection.clone(), Rc::clone(&done));
            blitz_http::spawn(async move {
                let bytes = pattern(number as u64, 1_000 + 400 * number);
                assert!(echo(&connection, bytes.clone()).await == bytes, "{number}");
                done.set(done.get() + 1);
            });
        }
        until(|| done.get() == STREAMS).await;
        assert!(connection.is_open());
        until(|| connection.requests_available() > 0).await;
    });
}

#[test]
fn a_large_response_is_received_as_it_was_sent() {
    with_server(async |_, address, options| {
        let connection = connect(&address, &options).await;
        let mut response = ask(&connection, "/blocks").await.unwrap();
        let mut received = Vec::new();
        let mut number = 0;
        while let Some(part) = response.body.next().await.unwrap() {
            let Part::Data(slice) = part else {
                panic!("no trailers were sent")
            };
            received.extend_from_slice(&slice);
            while received.len() >= BLOCK_BYTES {
                assert!(received[..BLOCK_BYTES] == block(number), "block {number}");
                received.drain(..BLOCK_BYTES);
                number += 1;
            }
        }
        assert_eq!(number * BLOCK_BYTES, BLOCKS_BYTES);
        assert!(received.is_empty());
    });
}

#[test]
fn a_large_upload_is_received_as_it_was_sent() {
    with_server(async |_, address, options| {
        let connection = connect(&address, &options).await;
        let bytes = pattern(9, 4 << 20);
        assert!(echo(&connection, bytes.clone()).await == bytes);
    });
}

#[test]
fn content_that_nobody_reads_is_not_received() {
    with_server(async |_, address, options| {
        let connection = connect(&address, &options).await;
        let before = blitz_http::reactor::counters().datagrams_received;
        let mut unread = ask(&connection, "/blocks").await.unwrap();
        for _ in 0..20 {
            // Others are not held up.
            assert_eq!(fetch(&connection, "/hello").await.unwrap(), "hello");
        }
        pause().await;
        let datagrams = blitz_http::reactor::counters().datagrams_received - before;
        assert!(datagrams < 10_000, "{datagrams} datagrams");
        let first = unread.body.next().await.unwrap();
        assert!(matches!(first, Some(Part::Data(_))));
        drop(unread);
        assert_eq!(fetch(&connection, "/big").await.unwrap().len(), BIG);
    });
}

#[test]
fn a_cancelled_request_ends_at_the_server() {
    with_server(async |server, address, options| {
        let connection = connect(&address, &options).await;
        let (_, never) = connection
            .request(&get("/never"), BodyLength::Empty)
            .unwrap();
        assert_eq!(fetch(&connection, "/hello").await.unwrap(), "hello");
        // Read from a thread without a reactor.
        let counters = || std::thread::scope(|scope| scope.spawn(|| server.counters()).join());
        let cancelled = || counters().unwrap().cancelled;
        assert_eq!(cancelled(), 0);
        drop(never);
        pause().await;
        let mut big = ask(&connection, "/big").await.unwrap();
        big.body.next().await.unwrap();
        drop(big);
        let (mut send, response) = connection
            .request(&post("/echo"), BodyLength::Unknown)
            .unwrap();
        send.data("some").await.unwrap();
        pause().await;
        drop((send, response));
        until(|| cancelled() == 3).await;
        assert_eq!(fetch(&connection, "/hello").await.unwrap(), "hello");
    });
}

#[test]
fn sessions_of_quic_are_resumed_by_choice() {
    with_server(async |_, address, options| {
        let full = ConnectOptions {
            resume: false,
            ..options.clone()
        };
        let mut resumed = Vec::new();
        for options in [&full, &full, &options, &options, &full] {
            let connection = connect(&address, options).await;
            assert_eq!(fetch(&connection, "/hello").await.unwrap(), "hello");
            let is_resumed = connection.tls().unwrap().is_resumed;
            assert_eq!(connection.timings().is_resumed, is_resumed);
            resumed.push(is_resumed);
        }
        assert_eq!(resumed, [false, false, false, true, false]);
    });
}

#[test]
fn connections_share_a_source_port_by_choice() {
    with_server(async |_, address, options| {
        let own = ConnectOptions {
            own_socket: true,
            ..options.clone()
        };
        let mut connections = Vec::new();
        let addresses = RefCell::new(Vec::new());
        for options in [&options, &options, &own, &own] {
            let connection = connect(&address, options).await;
            let address = fetch(&connection, "/address").await.unwrap();
            addresses.borrow_mut().push(address);
            connections.push(connection);
        }
        let addresses = addresses.take();
        assert_eq!(addresses[0], addresses[1]);
        assert!(!addresses[..2].contains(&addresses[2]));
        assert!(!addresses[..3].contains(&addresses[3]));
    });
}

#[test]
fn a_draining_server_completes_what_it_has_accepted() {
    with_server(async |server, address, options| {
        let connection = connect(&address, &options).await;
        assert_eq!(fetch(&connection, "/hello").await.unwrap(), "hello");
        let (_, slow) = connection
            .request(&get("/slow"), BodyLength::Empty)
            .unwrap();
        pause().await;
        server.drain(Duration::from_secs(3));
        until(|| !connection.is_open()).await;
        let error = ask(&connection, "/hello").await.err().unwrap();
        assert!(matches!(error, ClientError::Unprocessed), "{error}");
        assert!(connection.ready().await.is_err());
        let mut response = slow.response().await.unwrap();
        assert_eq!(content(&mut response).await.unwrap(), b"slow");
    });
}

#[test]
fn a_connection_without_handles_is_closed_after_its_requests() {
    on_each_driver(|io| {
        let script = async |endpoint: quinn::Endpoint| {
            let raw = accept(&endpoint).await;
            let (mut send, _) = raw.whole_request().await;
            tokio::time::sleep(Duration::from_millis(30)).await;
            send.write_all(&[OK, &data(b"last")].concat())
                .await
                .unwrap();
            send.finish().unwrap();
            assert_eq!(raw.close_code().await, 0x100);
        };
        with_peer(Peer::new(), io, script, async |address, options| {
            let connection = connect(&address, &options).await;
            let (_, response) = connection.request(&get("/"), BodyLength::Empty).unwrap();
            drop(connection);
            let mut response = response.response().await.unwrap();
            assert_eq!(content(&mut response).await.unwrap(), b"last");
        });
    });
}

#[test]
fn the_limit_of_streams_of_a_quic_server_is_respected() {
    const LIMIT: u32 = 3;
    on_each_driver(|io| {
        let mut peer = Peer::new();
        peer.transport.max_concurrent_bidi_streams(LIMIT.into());
        let script = async |endpoint: quinn::Endpoint| {
            let raw = accept(&endpoint).await;
            for _ in 0..12 {
                let (mut send, _) = raw.whole_request().await;
                tokio::time::sleep(Duration::from_millis(5)).await;
                send.write_all(OK).await.unwrap();
                send.finish().unwrap();
            }
            assert_eq!(raw.close_code().await, 0x100);
        };
        with_peer(peer, io, script, async |address, options| {
            let connection = connect(&address, &options).await;
            assert_eq!(connection.requests_available(), LIMIT as usize);
            let done = Rc::new(Cell::new(0));
            for _ in 0..12 {
                let (connection, done) = (connection.clone(), Rc::clone(&done));
                blitz_http::spawn(async move {
                    connection.ready().await.unwrap();
                    assert_eq!(fetch(&connection, "/").await.unwrap(), "");
                    done.set(done.get() + 1);
                });
            }
            pause().await;
            assert_eq!(connection.requests_available(), 0);
            until(|| done.get() == 12).await;
            connection.close();
        });
    });
}

#[test]
fn retry_and_key_updates_are_followed() {
    on_each_driver(|io| {
        let script = async |endpoint: quinn::Endpoint| {
            incoming(&endpoint).await.retry().unwrap();
            let incoming = incoming(&endpoint).await;
            assert!(incoming.remote_address_validated());
            let raw =
                crate::h3_peer::RawServer::begin(soon(incoming.into_future()).await.unwrap()).await;
            for _ in 0..3 {
                let (mut send, _) = raw.whole_request().await;
                raw.connection.force_key_update();
                send.write_all(&[OK, &data(b"new keys")].concat())
                    .await
                    .unwrap();
                send.finish().unwrap();
            }
            assert_eq!(raw.close_code().await, 0x100);
        };
        with_peer(Peer::new(), io, script, async |address, options| {
            let connection = connect(&address, &options).await;
            for _ in 0..3 {
                assert_eq!(fetch(&connection, "/").await.unwrap(), "new keys");
                pause().await;
            }
            connection.close();
        });
    });
}

#[test]
fn the_server_of_another_library_is_understood() {
    on_each_driver(|io| {
        let script = async |endpoint: quinn::Endpoint| {
            let connection = soon(incoming(&endpoint).await.into_future()).await.unwrap();
            let connection = h3_quinn::Connection::new(connection);
            let mut connection = h3::server::Connection::<_, bytes::Bytes>::new(connection)
                .await
                .unwrap();
            for _ in 0..3 {
                let resolver = soon(connection.accept()).await.unwrap().unwrap();
                let (request, mut stream) = resolver.resolve_request().await.unwrap();
                let mut content = Vec::new();
                while let Some(mut piece) = stream.recv_data().await.unwrap() {
                    let len = bytes::Buf::remaining(&piece);
                    content.extend_from_slice(&bytes::Buf::copy_to_bytes(&mut piece, len));
                }
                let response = http::Response::builder()
                    .status(200)
                    .header("x-path", request.uri().path())
                    .body(())
                    .unwrap();
                stream.send_response(response).await.unwrap();
                stream.send_data(content.into()).await.unwrap();
                stream.finish().await.unwrap();
            }
            assert!(soon(connection.accept()).await.is_err());
        };
        with_peer(Peer::new(), io, script, async |address, options| {
            let connection = connect(&address, &options).await;
            for number in 0..3_u64 {
                let bytes = pattern(number, 20);
                let length = BodyLength::Known(20);
                let path = format!("/{number}");
                let (mut send, response) = connection.request(&post(&path), length).unwrap();
                send.data(bytes.clone()).await.unwrap();
                send.finish(None).unwrap();
                let mut response = response.response().await.unwrap();
                assert_eq!(response.head.fields.get("x-path"), Some(path.as_bytes()));
                assert_eq!(content(&mut response).await.unwrap(), bytes);
            }
            connection.close();
        });
    });
}
