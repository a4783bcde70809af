use std::net::TcpListener;
use std::rc::Rc;
use std::time::Duration;

use blitz_http::{
    BodyError, BodyLength, ClientError, ClientOptions, Counters, Fields, IoChoice, Limits, Method,
    Name, Part, Pool, Protocol, RequestHead, Response, ResponseEvent, ResponseHead, Status,
    Upstream,
};
use blitz_proto::h2::Code;
use blitz_testing::{Raw, refusing_address};

use crate::client_exchange::expect_slow_body;
use crate::h2_peer::H2Peer;
use crate::support::{BIG, Server, on_each_driver, run, scripted};

/// Runs `client` against a server that plays a script.
fn with_script(
    io: IoChoice,
    options: ClientOptions,
    script: impl FnOnce(TcpListener) + Send + 'static,
    client: impl AsyncFnOnce(Pool, Upstream),
) {
    let (address, server) = scripted(script);
    run(io, async {
        let pool = Pool::new(options);
        let upstream = pool.upstream_with_protocol(&address, Protocol::Http2);
        client(pool, upstream).await;
    });
    server.join().expect("the script ran");
}

fn played(
    io: IoChoice,
    script: impl FnOnce(TcpListener) + Send + 'static,
    client: impl AsyncFnOnce(Pool, Upstream),
) {
    with_script(io, ClientOptions::default(), script, client);
}

/// Runs `client` against our own server.
fn with_server(io: IoChoice, client: impl AsyncFnOnce(&Server, Pool, Upstream)) {
    let server = Server::start(io);
    run(io, async {
        let pool = Pool::new(ClientOptions::default());
        let address = blitz_http::Address::Tcp(server.address);
        let upstream = pool.upstream_with_protocol(&address, Protocol::Http2);
        client(&server, pool, upstream).await;
    });
}

fn head(method: Method, path: &str) -> RequestHead {
    let mut head = RequestHead::new(method, path);
    head.set_authority("a");
    head
}

async fn ask(upstream: &Upstream, path: &str) -> Result<Response, ClientError> {
    let connection = upstream.checkout().await?;
    let (_, response) = connection.request(&head(Method::Get, path), BodyLength::Empty);
    response.response().await
}

async fn content(mut response: Response) -> Result<String, BodyError> {
    let content = response.body.read_to_end(1 << 24).await?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

async fn fetch(upstream: &Upstream, path: &str) -> Result<String, ClientError> {
    let response = ask(upstream, path).await?;
    Ok(content(response)
        .await
        .unwrap_or_else(|error| error.to_string()))
}

/// Runs this many at once, each in a task of its own.
async fn all<T: 'static>(count: usize, work: impl AsyncFn(usize) -> T + Clone + 'static) -> Vec<T> {
    let results = Rc::new(std::cell::RefCell::new(Vec::new()));
    for number in 0..count {
        let (work, results) = (work.clone(), Rc::clone(&results));
        blitz_http::spawn(async move {
            let result = work(number).await;
            results.borrow_mut().push((number, result));
        });
    }
    while results.borrow().len() < count {
        settle().await;
    }
    let mut results = results.take();
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The server's counters, read from a thread without a reactor.
fn counters(server: &Server) -> Counters {
    std::thread::scope(|scope| scope.spawn(|| server.counters()).join()).expect("it answers")
}

async fn settle() {
    blitz_http::sleep(Duration::from_millis(20)).await;
}

#[test]
fn requests_share_a_connection_which_is_pooled() {
    on_each_driver(|io| {
        with_server(io, async |server, pool, upstream| {
            assert_eq!(fetch(&upstream, "/hello").await.unwrap(), "hello");
            settle().await;
            assert_eq!((pool.idle(), upstream.active()), (1, 0));
            let shared = upstream.clone();
            let answers = all(90, async move |number| {
                let path = if number % 3 == 0 { "/slow" } else { "/hello" };
                (path, fetch(&shared, path).await.unwrap())
            });
            for (path, content) in answers.await {
                assert_eq!(content, path[1..]);
            }
            settle().await;
            assert_eq!((pool.idle(), upstream.active()), (1, 0));
            let counters = counters(server);
            assert_eq!((counters.accepted, counters.requests), (1, 91));
        });
    });
}

#[test]
fn many_requests_to_a_new_endpoint_make_one_connection_per_hundred() {
    on_each_driver(|io| {
        with_server(io, async |server, _, upstream| {
            let shared = upstream.clone();
            let answers = all(250, async move |_| fetch(&shared, "/slow").await.unwrap()).await;
            assert!(answers.iter().all(|content| content == "slow"));
            assert_eq!(counters(server).requests, 250);
            let accepted = counters(server).accepted;
            assert!((2..=4).contains(&accepted), "{accepted}");
        });
    });
}

#[test]
fn bodies_stream_in_both_directions_with_trailers() {
    on_each_driver(|io| {
        with_server(io, async |_, _, upstream| {
            let connection = upstream.checkout().await.unwrap();
            let (mut send, stream) =
                connection.request(&head(Method::Post, "/echo"), BodyLength::Unknown);
            let mut response = stream.response().await.unwrap();
            for part in ["a", "bc", "def"] {
                send.data(part).await.unwrap();
                let Ok(Some(Part::Data(slice))) = response.body.next().await else {
                    panic!("no content")
                };
                assert_eq!(&*slice, part.as_bytes());
            }
            let mut trailers = Fields::new();
            trailers.append("x-sum", "6");
            send.finish(Some(&trailers)).unwrap();
            let Ok(Some(Part::Trailers(got))) = response.body.next().await else {
                panic!("no trailers")
            };
            assert_eq!(got.get_str("x-sum"), Some("6"));
            assert!(matches!(response.body.next().await, Ok(None)));
            assert_eq!(fetch(&upstream, "/hello").await.unwrap(), "hello");
        });
    });
}

#[test]
fn large_bodies_pass_both_windows() {
    on_each_driver(|io| {
        with_server(io, async |_, _, upstream| {
            assert_eq!(fetch(&upstream, "/big").await.unwrap().len(), BIG);
            let connection = upstream.checkout().await.unwrap();
            let length = BodyLength::Known(1 << 20);
            let (mut send, stream) = connection.request(&head(Method::Post, "/whole"), length);
            for _ in 0..16 {
                send.data(vec![b'x'; 1 << 16]).await.unwrap();
            }
            send.finish(None).unwrap();
            let response = stream.response().await.unwrap();
            assert_eq!(content(response).await.unwrap().len(), 1 << 20);
        });
    });
}

#[test]
fn interim_responses_and_responses_without_content_arrive() {
    on_each_driver(|io| {
        with_server(io, async |_, _, upstream| {
            let connection = upstream.checkout().await.unwrap();
            let (_, mut stream) =
                connection.request(&head(Method::Get, "/hints"), BodyLength::Empty);
            let Ok(ResponseEvent::Informational(hints)) = stream.next().await else {
                panic!("no hints")
            };
            assert_eq!(hints.status, Status::EARLY_HINTS);
            assert_eq!(
                content(stream.response().await.unwrap()).await.unwrap(),
                "hinted"
            );
            let connection = upstream.checkout().await.unwrap();
            let (_, stream) = connection.request(&head(Method::Head, "/hello"), BodyLength::Empty);
            let response = stream.response().await.unwrap();
            assert_eq!(response.body.length(), BodyLength::Known(5));
            assert_eq!(content(response).await.unwrap(), "");
            let connection = upstream.checkout().await.unwrap();
            let mut expects = head(Method::Post, "/whole");
            expects.fields.append(Name::Expect, "100-continue");
            let (mut send, mut stream) = connection.request(&expects, BodyLength::Known(2));
            let Ok(ResponseEvent::Informational(go_on)) = stream.next().await else {
                panic!("no 100")
            };
            assert_eq!(go_on.status, Status::CONTINUE);
            send.data("hi").await.unwrap();
            send.finish(None).unwrap();
            assert_eq!(
                content(stream.response().await.unwrap()).await.unwrap(),
                "hi"
            );
        });
    });
}

#[test]
fn an_early_response_is_read_while_the_request_continues() {
    on_each_driver(|io| {
        let script = |listener: TcpListener| {
            let mut peer = H2Peer::accept(&listener);
            let (stream, _) = peer.head();
            peer.answer(stream, Status::CONTENT_TOO_LARGE, "no");
            let request = peer.until(stream, |request| request.reset.is_some());
            assert_eq!(request.reset, Some(Code::CANCEL), "{request:?}");
            let (stream, _) = peer.request().unwrap();
            peer.answer(stream, Status::OK, "next");
            peer.expect_end();
        };
        played(io, script, async |_, upstream| {
            let connection = upstream.checkout().await.unwrap();
            let (mut send, stream) =
                connection.request(&head(Method::Post, "/"), BodyLength::Unknown);
            send.data("begun").await.unwrap();
            let response = stream.response().await.unwrap();
            assert_eq!(response.head.status, Status::CONTENT_TOO_LARGE);
            drop(send);
            assert_eq!(content(response).await.unwrap(), "no");
            assert_eq!(fetch(&upstream, "/").await.unwrap(), "next");
        });
    });
}

#[test]
fn one_stalled_reader_does_not_delay_the_others() {
    on_each_driver(|io| {
        with_server(io, async |server, _, upstream| {
            let stalled = ask(&upstream, "/big").await.unwrap();
            settle().await;
            let shared = upstream.clone();
            let lengths = all(99, async move |number| {
                let path = if number < 9 { "/big" } else { "/slow" };
                fetch(&shared, path).await.unwrap().len()
            })
            .await;
            for (number, length) in lengths.into_iter().enumerate() {
                assert_eq!(length, if number < 9 { BIG } else { 4 });
            }
            assert_eq!(counters(server).accepted, 1);
            assert_eq!(
                content(stalled).await.unwrap().len(),
                BIG,
                "no byte is lost"
            );
        });
    });
}

#[test]
fn a_cancelled_request_resets_only_its_own_stream() {
    on_each_driver(|io| {
        let script = |listener: TcpListener| {
            let mut peer = H2Peer::accept(&listener);
            let (kept, _) = peer.head();
            let cancelled =
                |request: &crate::h2_peer::ReceivedRequest| request.reset == Some(Code::CANCEL);
            // Before the response, within the response, and within the request.
            let (waiting, _) = peer.head();
            peer.until(waiting, cancelled);
            let (answered, _) = peer.head();
            peer.start(
                answered,
                &ResponseHead::new(Status::OK),
                BodyLength::Unknown,
            );
            peer.send(answered, b"some", false);
            peer.until(answered, cancelled);
            let (asking, _) = peer.head();
            peer.until(asking, cancelled);
            peer.answer(kept, Status::OK, "kept");
            peer.expect_end();
        };
        played(io, script, async |_, upstream| {
            let first = upstream.checkout().await.unwrap();
            let (_, kept) = first.request(&head(Method::Get, "/"), BodyLength::Empty);
            settle().await;
            let waiting = upstream.checkout().await.unwrap();
            let waiting = waiting.request(&head(Method::Get, "/"), BodyLength::Empty);
            settle().await;
            drop(waiting);
            drop(ask(&upstream, "/").await.unwrap());
            let asking = upstream.checkout().await.unwrap();
            let (send, mut stream) = asking.request(&head(Method::Post, "/"), BodyLength::Unknown);
            settle().await;
            drop(send);
            assert!(matches!(stream.next().await, Err(ClientError::Cancelled)));
            let kept = kept.response().await.unwrap();
            assert_eq!(content(kept).await.unwrap(), "kept");
        });
    });
}

#[test]
fn requests_above_the_last_stream_of_goaway_may_be_sent_again() {
    on_each_driver(|io| {
        let script = |listener: TcpListener| {
            let mut peer = H2Peer::accept(&listener);
            let (first, _) = peer.head();
            let (_, _) = peer.head();
            peer.send_go_away(first.get());
            let mut second = H2Peer::accept(&listener);
            let (again, _) = second.head();
            second.answer(again, Status::OK, "again");
            peer.answer(first, Status::OK, "first");
            peer.expect_end();
            second.expect_end();
        };
        played(io, script, async |_, upstream| {
            let one = upstream.checkout().await.unwrap();
            let (_, one) = one.request(&head(Method::Get, "/1"), BodyLength::Empty);
            settle().await;
            let two = upstream.checkout().await.unwrap();
            let (_, mut two) = two.request(&head(Method::Post, "/2"), BodyLength::Empty);
            let Err(error) = two.next().await else {
                panic!("it was not worked on")
            };
            assert!(error.is_unprocessed(), "{error}");
            assert_eq!(fetch(&upstream, "/2").await.unwrap(), "again");
            let one = one.response().await.unwrap();
            assert_eq!(content(one).await.unwrap(), "first");
        });
    });
}

#[test]
fn refused_streams_may_be_sent_again_and_the_stream_limit_is_kept() {
    on_each_driver(|io| {
        let script = |listener: TcpListener| {
            let mut peer = H2Peer::accept(&listener);
            let (first, _) = peer.head();
            let (second, _) = peer.head();
            peer.reset(second, Code::REFUSED_STREAM);
            let mut other = H2Peer::accept(&listener);
            let (again, _) = other.head();
            other.answer(again, Status::OK, "again");
            peer.answer(first, Status::OK, "first");
            peer.expect_end();
            other.expect_end();
        };
        played(io, script, async |_, upstream| {
            let one = upstream.checkout().await.unwrap();
            let (_, one) = one.request(&head(Method::Get, "/1"), BodyLength::Empty);
            settle().await;
            let error = fetch(&upstream, "/2").await.unwrap_err();
            assert!(matches!(error, ClientError::Unprocessed), "{error}");
            assert_eq!(fetch(&upstream, "/2").await.unwrap(), "again");
            let one = one.response().await.unwrap();
            assert_eq!(content(one).await.unwrap(), "first");
        });
    });
}

#[test]
fn a_retry_gets_a_permit_on_a_newer_connection() {
    on_each_driver(|io| {
        let script = |listener: TcpListener| {
            let mut first = H2Peer::accept(&listener);
            let (waiting, _) = first.head();
            let mut second = H2Peer::accept(&listener);
            for _ in 0..3 {
                let (stream, _) = second.head();
                second.answer(stream, Status::OK, "again");
            }
            first.answer(waiting, Status::OK, "first");
            first.expect_end();
            second.expect_end();
        };
        played(io, script, async |_, upstream| {
            let one = upstream.checkout().await.unwrap();
            let (_, one) = one.request(&head(Method::Get, "/1"), BodyLength::Empty);
            settle().await;
            // The first connection has free permits, but may also be about to send GOAWAY.
            let again = all(3, async move |_| {
                let connection = upstream.connect().await.unwrap();
                let (_, stream) = connection.request(&head(Method::Get, "/2"), BodyLength::Empty);
                content(stream.response().await.unwrap()).await.unwrap()
            });
            assert_eq!(again.await, ["again"; 3]);
            let one = one.response().await.unwrap();
            assert_eq!(content(one).await.unwrap(), "first");
        });
    });
}

#[test]
fn the_stream_limit_of_a_server_is_kept() {
    on_each_driver(|io| {
        let script = |listener: TcpListener| {
            let limits = Limits {
                concurrent_streams_max: 3,
                ..Limits::default()
            };
            let mut first = H2Peer::accept_with(&listener, &limits);
            let streams: Vec<_> = (0..3).map(|_| first.head().0).collect();
            let mut second = H2Peer::accept_with(&listener, &limits);
            let (last, _) = second.head();
            second.answer(last, Status::OK, "");
            streams
                .into_iter()
                .for_each(|stream| first.answer(stream, Status::OK, ""));
            first.expect_end();
            second.expect_end();
        };
        played(io, script, async |_, upstream| {
            let answers = all(4, async move |_| fetch(&upstream, "/").await.unwrap());
            assert_eq!(answers.await, [""; 4]);
        });
    });
}

#[test]
fn a_reset_connection_fails_its_requests() {
    on_each_driver(|io| {
        let script = |listener: TcpListener| {
            let mut peer = H2Peer::accept(&listener);
            let (half, _) = peer.head();
            let (whole, _) = peer.head();
            peer.head();
            peer.start(half, &ResponseHead::new(Status::OK), BodyLength::Known(9));
            peer.send(half, b"half", false);
            peer.answer(whole, Status::OK, "whole");
            peer.fin();
            peer.expect_end();
        };
        played(io, script, async |_, upstream| {
            let shared = upstream.clone();
            let fates = all(3, async move |_| match ask(&shared, "/").await {
                Ok(response) => content(response).await.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            });
            let mut fates = fates.await;
            fates.sort();
            let truncated = "the connection ended during the message".to_owned();
            let nothing = "connection ended before a response".to_owned();
            assert_eq!(
                fates,
                [Ok("whole".to_owned()), Err(nothing), Err(truncated)]
            );
            settle().await;
            assert_eq!((upstream.idle(), upstream.active()), (0, 0));
        });
    });
}

#[test]
fn protocol_violations_are_the_servers_fault() {
    on_each_driver(|io| {
        let script = |listener: TcpListener| {
            let mut peer = Raw::accept(&listener);
            peer.send("HTTP/1.1 400 Bad Request\r\n\r\n");
        };
        played(io, script, async |_, upstream| {
            let error = fetch(&upstream, "/").await.unwrap_err();
            assert!(matches!(error, ClientError::Malformed(_)), "{error}");
        });
    });
}

#[test]
fn deadlines_match_those_of_http1() {
    on_each_driver(|io| {
        let script = |listener: TcpListener| {
            let mut peer = H2Peer::accept(&listener);
            let (silent, _) = peer.head();
            let request = peer.until(silent, |request| request.reset.is_some());
            assert_eq!(request.reset, Some(Code::CANCEL));
            let (halting, _) = peer.head();
            peer.start(halting, &ResponseHead::new(Status::OK), BodyLength::Unknown);
            peer.send(halting, b"some", false);
            peer.until(halting, |request| request.reset.is_some());
            peer.expect_end();
        };
        let options = ClientOptions {
            response_timeout: Duration::from_millis(100),
            body_timeout: Duration::from_millis(100),
            ..ClientOptions::default()
        };
        with_script(io, options, script, async |_, upstream| {
            let error = fetch(&upstream, "/").await.unwrap_err();
            assert!(matches!(error, ClientError::TimedOut), "{error}");
            let response = ask(&upstream, "/").await.unwrap();
            let error = content(response).await.unwrap_err();
            assert!(matches!(error, BodyError::TimedOut), "{error}");
            settle().await;
        });
    });
}

#[test]
fn the_minimum_rate_applies_to_bodies_of_known_length_but_not_to_event_streams() {
    on_each_driver(|io| {
        for (length, may_drip) in [
            (BodyLength::Known(1_000), false),
            (BodyLength::Unknown, true),
        ] {
            let script = move |listener: TcpListener| {
                let mut peer = H2Peer::accept(&listener);
                let (stream, _) = peer.head();
                peer.start(stream, &ResponseHead::new(Status::OK), length);
                for _ in 0..10 {
                    peer.wait(Duration::from_millis(60));
                    if peer.until(stream, |_| true).reset.is_some() {
                        break;
                    }
                    peer.send(stream, b"x", false);
                }
                peer.fin();
            };
            let options = ClientOptions {
                body_timeout: Duration::from_millis(300),
                limits: Limits {
                    body_idle_timeout: Duration::from_millis(300),
                    ..Limits::default()
                },
                ..ClientOptions::default()
            };
            with_script(io, options, script, async |_, upstream| {
                expect_slow_body(ask(&upstream, "/").await.unwrap(), may_drip).await;
            });
        }
    });
}

#[test]
fn an_idle_connection_sends_goaway_at_its_deadline() {
    on_each_driver(|io| {
        let script = |listener: TcpListener| {
            let mut peer = H2Peer::accept(&listener);
            let (stream, _) = peer.head();
            peer.answer(stream, Status::OK, "");
            peer.expect_end();
            assert!(peer.go_away);
        };
        let options = ClientOptions {
            idle_timeout: Duration::from_millis(100),
            ..ClientOptions::default()
        };
        with_script(io, options, script, async |pool, upstream| {
            assert_eq!(fetch(&upstream, "/").await.unwrap(), "");
            settle().await;
            assert_eq!(pool.idle(), 1);
            blitz_http::sleep(Duration::from_millis(300)).await;
            assert_eq!((pool.idle(), upstream.active()), (0, 0));
        });
    });
}

#[test]
fn an_idle_connection_answers_pings_and_closes_after_goaway() {
    on_each_driver(|io| {
        let script = |listener: TcpListener| {
            let mut peer = H2Peer::accept(&listener);
            let (stream, _) = peer.head();
            peer.answer(stream, Status::OK, "");
            std::thread::sleep(Duration::from_millis(50));
            // Its pings are acknowledged without an open request.
            peer.machine.drain(&mut peer.out);
            peer.expect_end();
        };
        played(io, script, async |pool, upstream| {
            assert_eq!(fetch(&upstream, "/").await.unwrap(), "");
            settle().await;
            assert_eq!(pool.idle(), 1);
            blitz_http::sleep(Duration::from_millis(150)).await;
            assert_eq!((pool.idle(), upstream.active()), (0, 0));
        });
    });
}

#[test]
fn an_unused_permit_is_returned() {
    on_each_driver(|io| {
        with_server(io, async |server, pool, upstream| {
            drop(upstream.checkout().await.unwrap());
            settle().await;
            assert_eq!((pool.idle(), upstream.active()), (1, 0));
            assert_eq!(fetch(&upstream, "/hello").await.unwrap(), "hello");
            assert_eq!(counters(server).accepted, 1);
        });
    });
}

#[test]
fn waiting_requests_get_the_error_of_a_failed_connection() {
    on_each_driver(|io| {
        let address = blitz_http::Address::Tcp(refusing_address());
        run(io, async {
            let upstream = Pool::new(ClientOptions::default())
                .upstream_with_protocol(&address, Protocol::Http2);
            let fates = all(5, async move |_| fetch(&upstream, "/").await.unwrap_err());
            for error in fates.await {
                assert!(matches!(error, ClientError::Refused), "{error}");
            }
        });
    });
}
