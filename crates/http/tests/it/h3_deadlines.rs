use std::time::{Duration, Instant};

use blitz_http::{Counters, ServeOptions};
use blitz_testing::h3::kind::HEADERS;
use blitz_testing::h3::stream::ENCODER;
use blitz_testing::h3::{data, frame, request, request_with};
use quinn::VarInt;

use crate::deadlines::limits;
use crate::h3_support::{get, pause, soon, with_options};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_head_that_does_not_end_resets_its_stream() {
    let options = || limits(|l| l.head_timeout = millis(150));
    with_options(options, async |server| {
        let client = server.raw_client().await;
        let mut other = client.exchange(request("POST", "/echo")).await;
        let begun = Instant::now();
        let mut late = client.exchange(&request("GET", "/hello")[..7]).await;
        for byte in b"12" {
            pause(40).await;
            late.write([*byte]).await;
        }
        assert_eq!(late.reset_code().await, 0x10b);
        let took = begun.elapsed();
        assert!((millis(140)..millis(1_000)).contains(&took), "{took:?}");
        assert_eq!(late.stop_code().await, Some(0x10b));
        // One whose instructions do not come is as late.
        let _encoder = client.quic.stream(ENCODER).await;
        let mut blocked = client.exchange(frame(HEADERS, [2, 0, 0x80])).await;
        assert_eq!(blocked.reset_code().await, 0x10b);
        assert_eq!(server.counters().header_timeouts, 2);
        other.write(data("abc")).await;
        other.send.finish().unwrap();
        other.response().await.expect(200, "abc");
        client.hello().await;
    });
}

/// A client within its window is not late, however long it takes for all of its content.
#[test]
fn content_below_the_minimum_rate_gets_408() {
    let options = || {
        limits(|l| {
            l.body_rate_grace = millis(150);
            l.body_rate_min = 1000;
        })
    };
    with_options(options, async |server| {
        let client = server.raw_client().await;
        let head = request_with("POST", "/whole", &[("content-length", "1000")]);
        let mut exchange = client.exchange(head).await;
        // These bytes add 100 ms to the grace period.
        exchange.write(data(vec![b'x'; 100])).await;
        let begun = Instant::now();
        assert_eq!(exchange.frame().await.unwrap().0, HEADERS);
        assert!(begun.elapsed() >= millis(230), "{:?}", begun.elapsed());
        let response = exchange.response().await;
        assert_eq!(
            response.content,
            b"408 Request Timeout: request-body-too-slow\n"
        );
        assert_eq!(server.counters().body_timeouts, 1);
        client.hello().await;
        // Some services allow it, for their own request.
        let mut patient = client.exchange(request("POST", "/patient")).await;
        pause(300).await;
        patient.write(data("abc")).await;
        patient.send.finish().unwrap();
        patient.response().await.expect(200, "abc");
        let mut exchange = client.exchange(request("POST", "/whole")).await;
        assert_eq!(exchange.response().await.heads, [Some(408)]);
    });
}

/// Clients may send the content of one request after that of another.
#[test]
fn content_that_waits_behind_others_of_its_connection_is_not_too_slow() {
    let options = || {
        limits(|l| {
            l.body_rate_grace = millis(150);
            l.body_rate_min = 1000;
            l.body_idle_timeout = millis(200);
            l.head_timeout = millis(150);
        })
    };
    with_options(options, async |server| {
        let client = server.raw_client().await;
        let mut first = client.exchange(request("POST", "/whole")).await;
        let mut second = client.exchange(request("POST", "/whole")).await;
        let mut echo = client.exchange(request("POST", "/echo")).await;
        assert_eq!(echo.frame().await.unwrap().0, HEADERS);
        // This stream is open without a byte of its own, once the one behind it has some.
        let mut late = client.exchange(b"").await;
        let mut fourth = client.exchange(request("GET", "/hello")).await;
        fourth.send.finish().unwrap();
        fourth.response().await.expect(200, "hello");
        for _ in 0..10 {
            pause(50).await;
            first.write(data(vec![b'x'; 400])).await;
        }
        first.send.finish().unwrap();
        assert_eq!(first.response().await.heads, [Some(200)]);
        second.write(data("abc")).await;
        second.send.finish().unwrap();
        second.response().await.expect(200, "abc");
        echo.write(data("abc")).await;
        echo.send.finish().unwrap();
        assert_eq!(echo.content().await, b"abc");
        late.write(request("GET", "/hello")).await;
        late.send.finish().unwrap();
        late.response().await.expect(200, "hello");
        assert_eq!(server.counters().body_timeouts, 0);
        assert_eq!(server.counters().header_timeouts, 0);
        // The bytes for one of two streams are not enough for both.
        let mut trickling = client.exchange(request("POST", "/whole")).await;
        let mut waiting = client.exchange(request("POST", "/whole")).await;
        let trickle = async {
            for _ in 0..10 {
                pause(50).await;
                trickling.write(data(vec![b'x'; 70])).await;
            }
        };
        let ((), response) = tokio::join!(trickle, waiting.response());
        assert_eq!(response.heads, [Some(408)]);
        assert_eq!(server.counters().body_timeouts, 1);
    });
}

#[test]
fn silent_content_gets_408_or_a_reset() {
    let options = || limits(|l| l.body_idle_timeout = millis(200));
    with_options(options, async |server| {
        let client = server.raw_client().await;
        let mut exchange = client.exchange(request("POST", "/whole")).await;
        exchange.write(data(vec![b'x'; 50_000])).await;
        pause(120).await;
        exchange.write(data("x")).await;
        let begun = Instant::now();
        assert_eq!(exchange.response().await.heads, [Some(408)]);
        assert!(begun.elapsed() >= millis(180), "{:?}", begun.elapsed());
        // The response has begun.
        let mut exchange = client.exchange(request("POST", "/echo")).await;
        assert_eq!(exchange.frame().await.unwrap().0, HEADERS);
        for _ in 0..3 {
            pause(120).await;
            exchange.write(data("abcd")).await;
            assert_eq!(exchange.content().await, b"abcd");
        }
        assert_eq!(exchange.reset_code().await, 0x10c);
        assert_eq!(server.counters().body_timeouts, 2);
        client.hello().await;
    });
}

/// PING is no use of the connection, a request is.
#[test]
fn an_idle_connection_is_closed_although_its_client_pings() {
    let options = || limits(|l| l.idle_timeout = millis(400));
    with_options(options, async |server| {
        let client = server
            .connect_with(|transport| {
                transport.keep_alive_interval(Some(millis(50)));
            })
            .await;
        for _ in 0..3 {
            pause(250).await;
            assert_eq!(client.get("/hello").await.content, b"hello");
        }
        let begun = Instant::now();
        let error = client.closed().await;
        assert!(error.is_h3_no_error(), "{error:?}");
        let took = begun.elapsed();
        assert!((millis(350)..millis(1_500)).contains(&took), "{took:?}");
        // Neither is one that was never used.
        let fresh = server
            .connect_with(|transport| {
                transport.keep_alive_interval(Some(millis(50)));
            })
            .await;
        assert!(fresh.closed().await.is_h3_no_error());
        let counters = server.counters();
        assert_eq!((counters.idle_timeouts, counters.connections), (2, 0));
    });
}

/// The timeout of QUIC ends connections that are silent; one with a request is not idle.
#[test]
fn a_connection_with_a_quiet_request_outlives_the_idle_timeout() {
    let options = || limits(|l| l.idle_timeout = millis(400));
    with_options(options, async |server| {
        let client = server.connect().await;
        let mut stream = client.send(get("/quiet")).await;
        soon(stream.recv_response()).await.unwrap();
        pause(1_500).await;
        assert_eq!(client.get("/hello").await.content, b"hello");
        assert_eq!(server.counters().cancelled, 0);
        assert_eq!(server.counters().connections, 1);
    });
}

/// A client that is gone without a word is noticed, also if it has requests.
#[test]
fn a_client_that_is_gone_is_noticed() {
    let options = || limits(|l| l.idle_timeout = millis(400));
    with_options(options, async |server| {
        let client = server.connect().await;
        let mut stream = client.send(get("/quiet")).await;
        soon(stream.recv_response()).await.unwrap();
        // Its runtime does not run meanwhile.
        server.until("cancelled", |counters| counters.cancelled == 1);
        assert_eq!(server.counters().connections, 0);
    });
}

fn stalls_soon() -> ServeOptions {
    limits(|l| l.send_stall_timeout = millis(300))
}

/// The windows of a client that takes so many bytes of each stream.
fn narrow(bytes: u32) -> impl FnOnce(&mut quinn::TransportConfig) {
    move |transport| {
        transport.stream_receive_window(VarInt::from_u32(bytes));
    }
}

#[test]
fn a_response_that_the_client_does_not_take_is_reset() {
    with_options(stalls_soon, async |server| {
        let client = server.connect_with(narrow(10_000)).await;
        for (number, path) in ["/big", "/big-elsewhere", "/burst-elsewhere"]
            .into_iter()
            .enumerate()
        {
            let mut stream = client.send(get(path)).await;
            stream.finish().await.unwrap();
            soon(stream.recv_response()).await.unwrap();
            server
                .when("stalled", |counters| {
                    counters.send_stalls == number as u64 + 1
                })
                .await;
            let error = receive_rest(&mut stream).await;
            assert_eq!(crate::h3_support::reset_code(&error), 0x10c, "{path}");
        }
        server.until_writer_ended();
        assert_eq!(client.get("/hello").await.content, b"hello");
        assert_eq!(server.counters().connections, 1);
    });
}

async fn receive_rest(stream: &mut crate::h3_support::Stream) -> h3::error::StreamError {
    loop {
        match soon(stream.recv_data()).await {
            Ok(piece) => assert!(piece.is_some(), "the response is incomplete"),
            Err(error) => return error,
        }
    }
}

/// The service has given all of the response, and the client has no room for it.
#[test]
fn the_rest_of_a_response_that_the_client_does_not_take_is_reset() {
    with_options(stalls_soon, async |server| {
        let quic = server.quic_with(narrow(4)).await;
        let mut exchange = quic.exchange(request("GET", "/hello")).await;
        exchange.send.finish().unwrap();
        let is_stalled = |counters: &Counters| counters.send_stalls == 1;
        server.when("stalled", is_stalled).await;
        assert_eq!(exchange.reset_code().await, 0x10c);
    });
}

/// However slow, it takes something all the time.
#[test]
fn a_client_that_takes_a_response_slowly_gets_all_of_it() {
    with_options(stalls_soon, async |server| {
        let client = server.connect_with(narrow(20_000)).await;
        let bytes = 100_000;
        let mut exchange = client.quic.exchange(request("POST", "/whole")).await;
        exchange.write(data(vec![b'x'; bytes])).await;
        exchange.send.finish().unwrap();
        assert!(read_slowly(&mut exchange.recv, 5_000).await >= bytes);
        assert_eq!(server.counters().send_stalls, 0);
    });
}

/// Reads a stream to its end, so many bytes at a time; how many there are.
async fn read_slowly(stream: &mut quinn::RecvStream, bytes: usize) -> usize {
    let mut read = 0;
    let mut piece = vec![0; bytes];
    loop {
        pause(50).await;
        match soon(stream.read(&mut piece)).await {
            Ok(Some(more)) => read += more,
            Ok(None) => return read,
            Err(error) => panic!("{error} after {read} bytes"),
        }
    }
}

#[test]
fn a_silent_tunnel_is_closed() {
    let options = || limits(|l| l.stream_idle_timeout = millis(300));
    with_options(options, async |server| {
        let client = server.raw_client().await;
        let head = request_with("CONNECT", "/upgrade", &[(":protocol", "websocket")]);
        let mut exchange = client.exchange(head).await;
        assert_eq!(exchange.frame().await.unwrap().0, HEADERS);
        for _ in 0..4 {
            pause(150).await;
            exchange.write(data("ping")).await;
            assert_eq!(exchange.content().await, b"ping");
        }
        assert_eq!(exchange.reset_code().await, 0x10f);
        assert_eq!(server.counters().tunnel_timeouts, 1);
        client.hello().await;
    });
}
