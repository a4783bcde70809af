//! The timeouts towards upstreams: what each of them covers, and what does not count.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use blitz_gateway::Options;
use blitz_http::{BodyLength, IoChoice, Method, Name, RequestHead, ResponseHead, Status};
use blitz_proto::h2::StreamId;
use blitz_testing::silent_address;
use socket2::{Domain, Socket, Type};

use crate::h2::{H2Upstream, h2};
use crate::h2_peer::H2Peer;
use crate::support::{Proxy, Upstream, eventually, ok};
use crate::tls_support::Authority;

/// A short time, but longer than a loaded machine lets a test wait.
const SHORT: Duration = Duration::from_millis(300);

/// How long streams may be silent if other responses may be for [`SHORT`].
const STREAM_IDLE: Duration = Duration::from_millis(1_000);

/// Far below the defaults of 60 s.
const LONG: Duration = Duration::from_secs(8);

const RESPONSE_TIMEOUT: Option<&str> = Some("blitz; error=http_response_timeout");

/// The head of a stream of events; the type is not in its usual form.
const EVENTS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\
                      Content-Type: Text/Event-Stream; charset=utf-8\r\n\r\n";

/// Options with a short time for the response head.
fn with_response_timeout() -> Options {
    let mut options = Options::default();
    options.client.response_timeout = SHORT;
    options
}

/// Options with a short time of silence within a response, and a longer one for streams. All other
/// deadlines that could end a stream of events are as short.
fn with_idle_timeout() -> Options {
    let mut options = Options::default();
    options.client.body_timeout = SHORT;
    options.client.response_timeout = SHORT;
    options.client.idle_timeout = SHORT;
    options.client.limits.stream_idle_timeout = STREAM_IDLE;
    options.limits.body_idle_timeout = SHORT;
    options.limits.body_rate_grace = SHORT;
    options.limits.idle_timeout = SHORT;
    options.limits.send_stall_timeout = SHORT;
    options.limits.stream_idle_timeout = STREAM_IDLE;
    options
}

/// The head of an extended CONNECT.
fn websocket() -> RequestHead {
    let mut head = RequestHead::new(Method::Get, "/");
    head.set_authority("a");
    head.set_protocol(Some("websocket"));
    head.fields.append(Name::SecWebSocketVersion, "13");
    head
}

fn took(since: Instant, range: Range<Duration>) {
    let took = since.elapsed();
    assert!(range.contains(&took), "it took {took:?}, not {range:?}");
}

/// Checks all targets at once, because each check mostly waits.
fn at_once(targets: &[String; 2], check: impl Fn(&str) + Sync) {
    let check = &check;
    thread::scope(|scope| {
        for target in targets {
            scope.spawn(move || check(target));
        }
    });
}

/// An upstream that sends each of two clients two events, each after more silence than other responses
/// may have, and no more. The kinds are for each version.
fn events_over_http1() -> Upstream {
    Upstream::scripted(|_, peer| {
        peer.request();
        peer.send(EVENTS);
        for _ in 0..2 {
            thread::sleep(SHORT + SHORT / 2);
            peer.send("3\r\nx\n\n\r\n");
        }
        assert!(peer.is_closed_by_peer());
    })
}

fn events_over_http2() -> H2Upstream {
    H2Upstream::scripted(|_, mut peer| {
        let streams = [(); 2].map(|()| peer.request().unwrap().0);
        for stream in streams {
            start_events(&mut peer, stream);
        }
        for _ in 0..2 {
            peer.wait(SHORT + SHORT / 2);
            for stream in streams {
                peer.send(stream, b"x\n\n", false);
            }
        }
        for stream in streams {
            peer.until(stream, |request| request.reset.is_some());
        }
    })
}

fn start_events(peer: &mut H2Peer, stream: StreamId) {
    let mut head = ResponseHead::new(Status::OK);
    head.fields.append(Name::ContentType, "text/event-stream");
    peer.start(stream, &head, BodyLength::Unknown);
}

/// Requests events with each version at once, and checks that all come, and when the streams end.
fn expect_events(io: IoChoice, target: &str) {
    let proxy = Proxy::with(io, &[target], with_idle_timeout());
    let silence = 3 * SHORT + STREAM_IDLE..LONG;
    let began = Instant::now();
    let mut peer = proxy.peer();
    peer.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    let mut client = h2(&proxy);
    let stream = client.request(Method::Post, "/", BodyLength::Known(2));
    client.send(stream, b"hi", true);
    assert_eq!(peer.head().unwrap().line, "HTTP/1.1 200 OK");
    let (rest, _) = peer.rest();
    assert_eq!(String::from_utf8_lossy(&rest), "3\r\nx\n\n\r\n".repeat(2));
    took(began, silence.clone());
    let answer = client.answer(stream);
    assert_eq!(
        (answer.status, answer.content),
        (Some(Status::OK), b"x\n\n".repeat(2))
    );
    assert!(answer.reset.is_some(), "the end is not clean");
    took(began, silence);
    eventually("both are cut off", || proxy.counters().cut_off == 2);
}

scenarios! {
    fn connecting_takes_no_longer_than_its_timeout(io) {
        let targets = ["http", "h2c"].map(|scheme| format!("{scheme}://{}", silent_address()));
        at_once(&targets, |target| {
            let mut options = Options::default();
            options.client.limits.connect_timeout = SHORT;
            let proxy = Proxy::with(io, &[target], options);
            let began = Instant::now();
            let answer = proxy.client().get("/");
            took(began, SHORT..LONG);
            assert_eq!(answer.status, 504);
            assert_eq!(answer.field("proxy-status"), Some("blitz; error=connection_timeout"));
        });
    }

    fn a_connection_whose_first_syn_is_lost_is_made(io) {
        // A full queue drops the SYN, which the kernel sends again after a second.
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
            waiting.push(stream);
        }
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            drop(waiting);
            let listener = TcpListener::from(socket);
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(ok("late").as_bytes());
            }
        });
        let proxy = Proxy::to(io, &[&format!("http://{address}")]);
        assert_eq!(proxy.client().get("/").text(), "late");
    }

    fn an_upload_may_go_on_after_an_early_response_head(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n");
            if peer.exactly(1_000).is_some() {
                peer.send("done");
            }
        });
        let mut options = Options::default();
        options.client.body_timeout = SHORT;
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
        for _ in 0..10 {
            thread::sleep(SHORT / 3);
            client.send([b'x'; 100]);
        }
        assert_eq!(client.response().text(), "done");
    }

    fn a_client_that_pauses_its_upload_is_told_so(io) {
        let over_http1 = Upstream::scripted(|_, peer| {
            peer.head();
            peer.rest();
        });
        let over_http2 = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.next() {
                peer.until(stream, |request| request.reset.is_some());
            }
        });
        at_once(&[over_http1.url(), over_http2.url], |target| {
            // The upstream may take as long as the client.
            let mut options = with_response_timeout();
            options.limits.body_idle_timeout = SHORT;
            options.client.limits.body_idle_timeout = SHORT;
            let proxy = Proxy::with(io, &[target], options);
            let began = Instant::now();
            let mut peer = proxy.peer();
            peer.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\n");
            peer.send([b'x'; 80_000]);
            let mut client = h2(&proxy);
            let stream = client.request(Method::Post, "/", BodyLength::Known(90_000));
            client.send(stream, &[b'x'; 60_000], false);
            assert_eq!(peer.head().unwrap().line, "HTTP/1.1 408 Request Timeout");
            let answer = client.answer(stream);
            took(began, SHORT..LONG);
            assert_eq!(answer.status, Some(Status::REQUEST_TIMEOUT));
        });
    }

    fn the_tls_handshake_has_a_timeout_of_its_own(io) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut options = Options::default();
        options.client.limits.connect_timeout = SHORT;
        options.client.limits.tls_handshake_timeout = 2 * SHORT;
        let gateway = Proxy::gateway(io).upstream_tls(crate::support::trusting(&Authority::new()));
        let target = format!("https://{}", listener.local_addr().unwrap());
        let proxy = Proxy::start(gateway.options(options), &[&target]);
        let began = Instant::now();
        let answer = proxy.client().get("/");
        took(began, 2 * SHORT..LONG);
        assert_eq!(answer.status, 504);
        assert_eq!(answer.field("proxy-status"), Some("blitz; error=connection_timeout; details=\"handshake-timeout\""));
    }

    fn a_response_head_takes_no_longer_than_its_timeout(io) {
        let over_http1 = Upstream::scripted(|_, peer| {
            peer.request();
            assert!(peer.is_closed_by_peer());
        });
        let over_http2 = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.request() {
                peer.until(stream, |request| request.reset.is_some());
            }
        });
        at_once(&[over_http1.url(), over_http2.url], |target| {
            let proxy = Proxy::with(io, &[target], with_response_timeout());
            let began = Instant::now();
            let answer = proxy.client().get("/");
            took(began, SHORT..LONG);
            assert_eq!((answer.status, answer.field("proxy-status")), (504, RESPONSE_TIMEOUT));
            let began = Instant::now();
            let answer = h2(&proxy).get("/");
            took(began, SHORT..LONG);
            assert_eq!(answer.status, Some(Status::GATEWAY_TIMEOUT));
            assert_eq!(answer.fields.get_str(Name::ProxyStatus), RESPONSE_TIMEOUT);
        });
    }

    fn the_response_to_extended_connect_takes_no_longer_than_its_timeout(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.next() {
                peer.until(stream, |request| request.reset.is_some());
            }
        });
        let proxy = Proxy::with(io, &[&upstream.url], with_response_timeout());
        let mut client = h2(&proxy);
        assert_eq!(client.get("/").status, Some(Status::GATEWAY_TIMEOUT));
        let began = Instant::now();
        let stream = client.send_head(&websocket(), BodyLength::Unknown);
        let answer = client.answer(stream);
        took(began, SHORT..LONG);
        assert_eq!(answer.status, Some(Status::GATEWAY_TIMEOUT));
        assert_eq!(answer.fields.get_str(Name::ProxyStatus), RESPONSE_TIMEOUT);
    }

    fn a_pause_of_the_client_does_not_count_as_the_upstreams(io) {
        let over_http1 = Upstream::scripted(|_, peer| {
            while let Some((_, body)) = peer.request() {
                if body == b"silence" {
                    assert!(peer.is_closed_by_peer());
                    return;
                }
                peer.send(ok(std::str::from_utf8(&body).unwrap()));
            }
        });
        let over_http2 = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, request)) = peer.request() {
                match request.content.as_slice() {
                    b"silence" => drop(peer.until(stream, |request| request.reset.is_some())),
                    content => {
                        let text = String::from_utf8(content.to_vec()).unwrap();
                        peer.answer(stream, Status::OK, &text);
                    }
                }
            }
        });
        at_once(&[over_http1.url(), over_http2.url], |target| {
            let proxy = Proxy::with(io, &[target], with_response_timeout());
            for (rest, status) in [("content", 200), ("silence", 504)] {
                let mut client = proxy.client();
                client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n");
                client.send(&rest[..3]);
                thread::sleep(SHORT + SHORT / 2);
                let began = Instant::now();
                client.send(&rest[3..]);
                let answer = client.response();
                assert_eq!(answer.status, status, "{target}");
                if status == 504 {
                    took(began, SHORT..LONG);
                }
            }
        });
    }

    fn an_upstream_that_takes_no_content_is_not_awaited_longer_than_for_its_response(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            thread::sleep(LONG);
        });
        let proxy = Proxy::with(io, &[&upstream.url()], with_response_timeout());
        let mut client = proxy.client();
        const LENGTH: usize = 64 << 20;
        client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n"));
        let began = Instant::now();
        client.send(vec![b'x'; LENGTH]);
        let answer = client.response();
        took(began, SHORT..LONG);
        assert_eq!((answer.status, answer.field("proxy-status")), (504, RESPONSE_TIMEOUT));
    }

    fn each_102_restarts_the_wait_for_the_response_head(io) {
        let over_http1 = Upstream::scripted(|_, peer| {
            peer.request();
            for _ in 0..2 {
                thread::sleep(SHORT);
                peer.send("HTTP/1.1 102 Processing\r\n\r\n");
            }
            assert!(peer.is_closed_by_peer());
        });
        let over_http2 = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.request() {
                for _ in 0..2 {
                    peer.wait(SHORT);
                    let head = ResponseHead::new(Status::PROCESSING);
                    peer.machine.send_informational(stream, &head, &mut peer.out);
                    peer.flush();
                }
                peer.until(stream, |request| request.reset.is_some());
            }
        });
        at_once(&[over_http1.url(), over_http2.url], |target| {
            let mut options = Options::default();
            options.client.response_timeout = 2 * SHORT;
            let proxy = Proxy::with(io, &[target], options);
            let began = Instant::now();
            let mut client = proxy.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            for _ in 0..2 {
                assert_eq!(client.response().status, 102);
            }
            let answer = client.response();
            took(began, 4 * SHORT..LONG);
            assert_eq!((answer.status, answer.field("proxy-status")), (504, RESPONSE_TIMEOUT));
        });
    }

    fn waiting_for_a_connection_does_not_count(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while peer.request().is_some() {
                thread::sleep(SHORT);
                peer.send(ok("late"));
            }
        });
        let mut options = with_response_timeout();
        options.client.response_timeout = 2 * SHORT;
        options.client.limits.upstream_connections_max = 1;
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let mut clients = [(); 3].map(|()| proxy.client());
        let began = Instant::now();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.response().text(), "late");
        }
        took(began, 3 * SHORT..LONG);
    }

    fn a_second_attempt_has_the_whole_time(io) {
        let upstream = Upstream::scripted(|number, peer| {
            peer.request();
            thread::sleep(SHORT);
            if number > 0 {
                peer.send(ok("second"));
            }
        });
        let mut options = with_response_timeout();
        options.client.response_timeout = SHORT + SHORT / 2;
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        assert_eq!(proxy.client().get("/").text(), "second");
        assert_eq!(proxy.counters().retries, 1);
    }

    fn a_response_is_cut_off_after_its_idle_timeout(io) {
        let over_http1 = Upstream::scripted(|_, peer| {
            peer.request();
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
            assert!(peer.is_closed_by_peer());
        });
        let over_http2 = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.request() {
                peer.start(stream, &ResponseHead::new(Status::OK), BodyLength::Unknown);
                peer.send(stream, b"x", false);
                peer.until(stream, |request| request.reset.is_some());
            }
        });
        at_once(&[over_http1.url(), over_http2.url], |target| {
            let proxy = Proxy::with(io, &[target], with_idle_timeout());
            let began = Instant::now();
            let mut peer = proxy.peer();
            peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(peer.head().unwrap().line, "HTTP/1.1 200 OK");
            assert_eq!(peer.rest().0, b"1\r\nx\r\n");
            took(began, SHORT..4 * SHORT);
            eventually("it is counted", || proxy.counters().cut_off == 1);
        });
    }

    fn a_slow_response_is_not_a_silent_one(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
            for _ in 0..9 {
                thread::sleep(SHORT / 3);
                peer.send("x");
            }
        });
        let proxy = Proxy::with(io, &[&upstream.url()], with_idle_timeout());
        assert_eq!(proxy.client().get("/").body, [b'x'; 9]);
    }

    fn events_may_be_as_far_apart_as_in_a_tunnel_over_http1(io) {
        expect_events(io, &events_over_http1().url());
    }

    fn events_may_be_as_far_apart_as_in_a_tunnel_over_http2(io) {
        expect_events(io, &events_over_http2().url);
    }

    fn a_tunnel_may_be_silent_for_longer_than_a_response(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
            thread::sleep(2 * SHORT);
            peer.send("late");
            assert!(peer.is_closed_by_peer());
        });
        let proxy = Proxy::with(io, &[&upstream.url()], with_idle_timeout());
        let began = Instant::now();
        let mut peer = proxy.peer();
        peer.send(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        );
        assert!(peer.head().unwrap().line.contains("101"));
        assert_eq!(peer.rest().0, b"late");
        took(began, 2 * SHORT + STREAM_IDLE..LONG);
    }

    fn a_tunnel_over_http2_may_be_silent_for_longer_than_a_response(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, head)) = peer.next() {
                if head.protocol().is_none() {
                    peer.answer(stream, Status::OK, "plain");
                    continue;
                }
                peer.start(stream, &ResponseHead::new(Status::OK), BodyLength::Unknown);
                peer.wait(2 * SHORT);
                peer.send(stream, b"late", false);
                peer.until(stream, |request| request.reset.is_some());
            }
        });
        let proxy = Proxy::with(io, &[&upstream.url], with_idle_timeout());
        let mut client = h2(&proxy);
        assert_eq!(client.get("/").content, b"plain");
        let began = Instant::now();
        let stream = client.send_head(&websocket(), BodyLength::Unknown);
        let answer = client.answer(stream);
        took(began, 2 * SHORT + STREAM_IDLE..LONG);
        assert_eq!(answer.content, b"late");
        assert_eq!(proxy.http_counters().tunnel_timeouts, 1);
    }
}
