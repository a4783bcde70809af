use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

use blitz_http::{
    Address, BodyError, BodyLength, ClientError, ClientOptions, Connection, Fields, IoChoice,
    Limits, Method, Name, Part, RecvBody, RequestHead, Response, ResponseEvent, SendError, Status,
};
use blitz_testing::{Raw, refusing_address};

use crate::support::{on_each_driver, run, scripted};

/// Runs `client` against a server that plays `script` on the first connection.
fn against<T>(
    io: IoChoice,
    script: impl FnOnce(Raw) + Send + 'static,
    client: impl AsyncFnOnce(Connection) -> T,
) -> T {
    let (address, server) = scripted(move |listener| script(Raw::accept(&listener)));
    let result = run(io, async {
        let options = Rc::new(ClientOptions {
            response_timeout: Duration::from_millis(300),
            body_timeout: Duration::from_millis(300),
            limits: Limits {
                body_idle_timeout: Duration::from_millis(300),
                ..Limits::default()
            },
            ..ClientOptions::default()
        });
        client(
            Connection::connect(&address, &options)
                .await
                .expect("connects"),
        )
        .await
    });
    server.join().expect("the script ran");
    result
}

pub(crate) fn get(path: &str) -> RequestHead {
    let mut head = RequestHead::new(Method::Get, path);
    head.set_authority("up");
    head
}

async fn ask(connection: Connection) -> Result<Response, ClientError> {
    let (send, response) = connection.request(&get("/x"), BodyLength::Empty);
    drop(send);
    response.response().await
}

async fn content(body: &mut RecvBody) -> Result<String, BodyError> {
    let bytes = body.read_to_end(1 << 20).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

const GET: &str = "GET /x HTTP/1.1\r\nHost: up\r\n\r\n";

#[test]
fn a_response_with_a_length_is_read_to_its_end() {
    on_each_driver(|io| {
        let script = |mut server: Raw| {
            server
                .expect(GET)
                .send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\n\r\nhe");
            std::thread::sleep(Duration::from_millis(20));
            server.send("llo");
        };
        against(io, script, async |connection| {
            let mut response = ask(connection).await.expect("answers");
            assert_eq!(response.head.status, Status::OK);
            assert_eq!(response.head.fields.get("x-a"), Some(&b"1"[..]));
            assert_eq!(response.body.length(), BodyLength::Known(5));
            assert_eq!(content(&mut response.body).await.expect("ends"), "hello");
            assert!(response.body.is_done());
        });
    });
}

#[test]
fn interim_responses_are_yielded_before_the_final_one() {
    on_each_driver(|io| {
        let script = |mut server: Raw| {
            server
                .expect(GET)
                .send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
            server.send("HTTP/1.1 204 No Content\r\n\r\n");
        };
        against(io, script, async |connection| {
            let (_, mut responses) = connection.request(&get("/x"), BodyLength::Empty);
            let ResponseEvent::Informational(hints) = responses.next().await.unwrap() else {
                panic!("hints come first")
            };
            assert_eq!(hints.status, Status::EARLY_HINTS);
            assert_eq!(hints.fields.get(Name::Link), Some(&b"</a>"[..]));
            let ResponseEvent::Final(response) = responses.next().await.unwrap() else {
                panic!("then the final one")
            };
            assert_eq!(response.head.status, Status::NO_CONTENT);
            assert!(response.body.is_done());
        });
    });
}

/// Not on both drivers, because it takes time.
#[test]
fn interim_responses_are_limited_by_their_rate() {
    const PROCESSING: &str = "HTTP/1.1 102 Processing\r\n\r\n";
    let at_once = Limits::default().informational_max;
    let script = move |mut server: Raw| {
        server.expect(GET).send(PROCESSING.repeat(at_once));
        for _ in 0..2 {
            // Each is the only one of its second.
            std::thread::sleep(Duration::from_millis(1_050));
            server.send(PROCESSING);
        }
        server.send("HTTP/1.1 204 No Content\r\n\r\n");
    };
    against(IoChoice::Auto, script, async |connection| {
        let (_, mut responses) = connection.request(&get("/x"), BodyLength::Empty);
        responses.disable_min_rate();
        for _ in 0..at_once + 2 {
            let event = responses.next().await.unwrap();
            assert!(matches!(event, ResponseEvent::Informational(_)));
        }
        assert!(matches!(
            responses.next().await,
            Ok(ResponseEvent::Final(_))
        ));
    });
    let script = move |mut server: Raw| {
        server.expect(GET).send(PROCESSING.repeat(at_once + 1));
    };
    against(IoChoice::Auto, script, async |connection| {
        let refused = ask(connection).await.err().expect("a flood");
        assert!(
            refused.to_string().contains("1xx") || refused.rule() == Some("too-many-informational")
        );
    });
}

#[test]
fn a_chunked_request_gets_a_chunked_response_with_trailers() {
    on_each_driver(|io| {
        let script = |mut server: Raw| {
            let head = server.head();
            assert!(
                head.to_lowercase().contains("transfer-encoding: chunked"),
                "{head}"
            );
            server.expect("3\r\nabc\r\n2\r\nde\r\n0\r\nx-t: 1\r\n\r\n");
            server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            server.send("4\r\nwxyz\r\n0\r\nX-Sum: 9\r\n\r\n");
        };
        against(io, script, async |connection| {
            let mut head = get("/x");
            head.set_method(Method::Post);
            let (mut send, response) = connection.request(&head, BodyLength::Unknown);
            send.data("abc").await.unwrap();
            send.data("de").await.unwrap();
            let mut trailers = Fields::new();
            trailers.append("x-t", "1");
            send.finish(Some(&trailers)).unwrap();
            let mut body = response.response().await.unwrap().body;
            let Some(Part::Data(data)) = body.next().await.unwrap() else {
                panic!("data")
            };
            assert_eq!(&*data, b"wxyz");
            let Some(Part::Trailers(trailers)) = body.next().await.unwrap() else {
                panic!()
            };
            assert_eq!(trailers.get("x-sum"), Some(&b"9"[..]));
            assert!(body.next().await.unwrap().is_none());
        });
    });
}

#[test]
fn a_response_may_come_before_the_request_is_sent() {
    on_each_driver(|io| {
        let script = |mut server: Raw| {
            server.head();
            server.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
            server.expect("ab");
            // The client cannot reuse this connection.
            server.expect_end();
        };
        against(io, script, async |connection| {
            let mut head = get("/x");
            head.set_method(Method::Post);
            let (mut send, response) = connection.request(&head, BodyLength::Known(1000));
            send.data("ab").await.unwrap();
            let mut response = response.response().await.unwrap();
            assert_eq!(response.head.status, Status::CONTENT_TOO_LARGE);
            assert_eq!(content(&mut response.body).await.unwrap(), "big");
            assert_eq!(send.data("c").await, Err(SendError::Closed));
        });
    });
}

#[test]
fn a_response_delimited_by_close_ends_with_it() {
    on_each_driver(|io| {
        let script = |mut server: Raw| {
            server.expect(GET).send("HTTP/1.0 200 OK\r\n\r\nall of it");
        };
        let text = against(io, script, async |connection| {
            let mut response = ask(connection).await.unwrap();
            assert_eq!(response.body.length(), BodyLength::Unknown);
            content(&mut response.body).await.unwrap()
        });
        assert_eq!(text, "all of it");
    });
}

#[test]
fn failures_are_reported_with_their_cause() {
    on_each_driver(|io| {
        let nothing = |mut server: Raw| {
            server.expect(GET);
        };
        let error = against(io, nothing, async |connection| ask(connection).await.err());
        assert!(
            matches!(error, Some(ClientError::Reset { reused: false })),
            "{error:?}"
        );
        assert!(error.is_some_and(|error| error.is_before_response()));

        let half = |mut server: Raw| {
            server.expect(GET).send("HTTP/1.1 200 O");
        };
        let error = against(io, half, async |connection| ask(connection).await.err());
        assert!(matches!(error, Some(ClientError::Truncated)), "{error:?}");

        let interim = |mut server: Raw| {
            let sent = server.expect(GET);
            sent.send("HTTP/1.1 103 Early Hints\r\n\r\n");
        };
        let error = against(io, interim, async |connection| ask(connection).await.err());
        assert!(matches!(error, Some(ClientError::OnlyInterim)), "{error:?}");
        assert!(error.is_some_and(|error| !error.is_before_response()));

        let half_after_interim = |mut server: Raw| {
            let sent = server.expect(GET);
            sent.send("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 O");
        };
        let end = against(io, half_after_interim, async |connection| {
            ask(connection).await.err()
        });
        assert!(matches!(end, Some(ClientError::Truncated)), "{end:?}");

        let garbage = |mut server: Raw| {
            server.expect(GET).send("SSH-2.0 hi\r\n\r\n");
        };
        let error = against(io, garbage, async |connection| ask(connection).await.err());
        assert!(
            matches!(error, Some(ClientError::Malformed(_))),
            "{error:?}"
        );

        // The line has not ended yet: bytes that are not HTTP are rejected at once.
        let stranger = |mut server: Raw| {
            server.expect(GET).send("SSH-2.0-").expect_end();
        };
        let error = against(io, stranger, async |connection| ask(connection).await.err());
        assert!(
            matches!(error, Some(ClientError::Malformed(_))),
            "{error:?}"
        );

        let silent = |mut server: Raw| server.expect(GET).expect_end();
        let error = against(io, silent, async |connection| ask(connection).await.err());
        assert!(matches!(error, Some(ClientError::TimedOut)), "{error:?}");
    });
}

#[test]
fn a_slow_server_with_a_long_response_timeout_is_awaited() {
    on_each_driver(|io| {
        let slow = |mut server: Raw| {
            server.expect(GET);
            std::thread::sleep(Duration::from_millis(450));
            server.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe");
            std::thread::sleep(Duration::from_millis(450));
            server.send("llo");
        };
        let answer = against(io, slow, async |connection| {
            let (send, mut response) = connection.request(&get("/x"), BodyLength::Empty);
            drop(send);
            response.disable_min_rate();
            content(&mut response.response().await.unwrap().body).await
        });
        assert_eq!(answer.unwrap(), "hello");
    });
}

#[test]
fn bodies_that_end_early_or_stall_are_errors() {
    on_each_driver(|io| {
        let short = |mut server: Raw| {
            server
                .expect(GET)
                .send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe");
        };
        let error = against(io, short, async |connection| {
            content(&mut ask(connection).await.unwrap().body)
                .await
                .err()
        });
        assert!(matches!(error, Some(BodyError::Truncated)), "{error:?}");

        let stalled = |mut server: Raw| {
            server
                .expect(GET)
                .send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
                .expect_end();
        };
        let error = against(io, stalled, async |connection| {
            content(&mut ask(connection).await.unwrap().body)
                .await
                .err()
        });
        assert!(matches!(error, Some(BodyError::TimedOut)), "{error:?}");
    });
}

/// Reads a body of ten bytes that comes below the minimum rate and is cut off, to its end.
pub(crate) async fn expect_slow_body(mut response: Response, may_drip: bool) {
    let mut bytes = 0;
    let ended = loop {
        match response.body.next().await {
            Ok(Some(Part::Data(slice))) => bytes += slice.len(),
            ended => break ended.err(),
        }
    };
    match may_drip {
        true => assert!(bytes == 10 && matches!(ended, Some(BodyError::Truncated))),
        false => assert!(bytes < 8 && matches!(ended, Some(BodyError::TimedOut))),
    }
}

#[test]
fn the_minimum_rate_applies_to_bodies_of_known_length_but_not_to_event_streams() {
    on_each_driver(|io| {
        for (head, chunk, may_drip) in [
            ("Content-Length: 1000", "x", false),
            ("Transfer-Encoding: chunked", "1\r\nx\r\n", true),
        ] {
            let script = move |mut server: Raw| {
                server
                    .expect(GET)
                    .send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n"));
                for _ in 0..10 {
                    std::thread::sleep(Duration::from_millis(60));
                    if server.0.write_all(chunk.as_bytes()).is_err() {
                        break;
                    }
                }
            };
            against(io, script, async |connection| {
                expect_slow_body(ask(connection).await.unwrap(), may_drip).await;
            });
        }
    });
}

#[test]
fn a_response_in_packets_that_arrived_before_reading_is_read_to_its_end() {
    on_each_driver(|io| {
        for packet_bytes in [1, 2, 3, 7, 20] {
            let script = move |mut server: Raw| {
                let answer = "HTTP/1.1 103 Early Hints\r\n\r\n\
                              HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                              5\r\nhello\r\n1\r\n,\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n";
                server.expect(GET);
                for packet in answer.as_bytes().chunks(packet_bytes) {
                    server.send(packet);
                    std::thread::sleep(Duration::from_millis(1));
                }
                server.expect_end();
            };
            against(io, script, async |connection| {
                let (send, response) = connection.request(&get("/x"), BodyLength::Empty);
                drop(send);
                blitz_http::sleep(Duration::from_millis(200)).await;
                let mut body = response.response().await.unwrap().body;
                blitz_http::sleep(Duration::from_millis(200)).await;
                assert_eq!(content(&mut body).await.unwrap(), "hello, world");
            });
        }
    });
}

#[test]
fn a_response_without_content_ends_with_its_head_whatever_follows() {
    on_each_driver(|io| {
        for (method, answer) in [
            (
                Method::Head,
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            ),
            (Method::Head, "HTTP/1.1 200 OK\r\n\r\nhello"),
            (
                Method::Head,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            (
                Method::Get,
                "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
            ),
            (
                Method::Get,
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello",
            ),
        ] {
            let script = move |mut server: Raw| {
                server.head();
                server.send(answer);
            };
            against(io, script, async |connection| {
                let mut head = get("/x");
                head.set_method(method);
                let (_, response) = connection.request(&head, BodyLength::Empty);
                blitz_http::sleep(Duration::from_millis(30)).await;
                let mut body = response.response().await.unwrap().body;
                assert!(body.is_done() && body.take_whole().is_none(), "{answer:?}");
                assert_eq!(content(&mut body).await.unwrap(), "");
            });
        }
    });
}

#[test]
fn a_port_without_a_listener_refuses_and_a_missing_socket_is_named() {
    on_each_driver(|io| {
        let unix = Address::Unix(std::sync::Arc::new("/nonexistent/socket".into()));
        let connect = |address: Address| {
            let connecting = async { Connection::connect(&address, &Rc::default()).await.err() };
            run(io, connecting)
        };
        let error = connect(Address::Tcp(refusing_address()));
        assert!(matches!(error, Some(ClientError::Refused)), "{error:?}");
        let error = connect(unix);
        assert!(matches!(error, Some(ClientError::NoSocket)), "{error:?}");
    });
}

#[test]
fn dropping_the_response_closes_the_connection() {
    on_each_driver(|io| {
        let script = |mut server: Raw| server.expect(GET).expect_end();
        against(io, script, async |connection| {
            let (_, response) = connection.request(&get("/x"), BodyLength::Empty);
            let waited = blitz_http::timeout(Duration::from_millis(50), response.response()).await;
            assert!(waited.is_err());
        });
    });
}

#[test]
fn an_upgrade_makes_a_tunnel() {
    on_each_driver(|io| {
        let script = |mut server: Raw| {
            assert!(server.head().to_lowercase().contains("upgrade: websocket"));
            server.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n");
            server.send("Upgrade: websocket\r\n\r\nfirst");
            server.expect("ping").send("pong").fin();
            server.expect("still").expect_end();
        };
        against(io, script, async |connection| {
            let mut head = get("/x");
            head.fields.append(Name::Upgrade, "websocket");
            head.fields.append(Name::Connection, "upgrade");
            let (_, response) = connection.request(&head, BodyLength::Empty);
            let mut response = response.response().await.unwrap();
            let mut send = response.upgraded.take().expect("a tunnel");
            let Some(Part::Data(data)) = response.body.next().await.unwrap() else {
                panic!()
            };
            assert_eq!(&*data, b"first");
            send.data("ping").await.unwrap();
            assert_eq!(content(&mut response.body).await.unwrap(), "pong");
            // The other direction stays open after FIN.
            send.data("still").await.unwrap();
            send.finish(None).unwrap();
            blitz_http::sleep(Duration::from_millis(20)).await;
        });
    });
}
