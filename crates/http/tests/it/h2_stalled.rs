//! The memory of many upstream streams with slow readers (rule 4 and rule 14), and of the large
//! heads of many requests.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use blitz_http::{
    BodyLength, ClientError, ClientOptions, IoChoice, Limits, Method, Pool, Protocol, RequestHead,
    Response, Status, Upstream,
};

use crate::h2_client::Client;
use crate::support::{BIG, IS_LATER, Server, on_each_driver, run};

const STALLED: usize = 1_600;

/// About the memory that a core may hold, without the reserve.
const SHARED: usize = 48 << 20;

/// Runs `client` with connections to our own server.
fn with_server(io: IoChoice, limits: Limits, client: impl AsyncFnOnce(Upstream)) {
    let server = Server::start(io);
    run(io, async {
        let options = ClientOptions {
            limits,
            ..ClientOptions::default()
        };
        let address = blitz_http::Address::Tcp(server.address);
        let pool = Pool::new(options);
        client(pool.upstream_with_protocol(&address, Protocol::Http2)).await;
    });
}

async fn ask(upstream: &Upstream, path: &str) -> Response {
    let mut head = RequestHead::new(Method::Get, path);
    head.set_authority("a");
    loop {
        let connection = upstream.checkout().await.expect("connects");
        let (_, response) = connection.request(&head, BodyLength::Empty);
        match response.response().await {
            Ok(response) => return response,
            // A server may refuse the stream after a reset. Ours does so while it still processes
            // the reset stream.
            Err(ClientError::Unprocessed) => blitz_http::sleep(Duration::from_millis(1)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads at least this many bytes.
async fn read(response: &mut Response, bytes: usize) {
    let mut taken = 0;
    while taken < bytes {
        let part = response
            .body
            .next()
            .await
            .expect("comes")
            .expect("not the end");
        if let blitz_http::Part::Data(slice) = part {
            taken += slice.len();
        }
    }
}

/// Open streams that are not read any more. Some of them were read fast before.
async fn stalled(upstream: &Upstream) -> Vec<Response> {
    let mut all = Vec::new();
    for number in 0..STALLED {
        let mut response = ask(upstream, "/big").await;
        if number % 16 == 0 {
            read(&mut response, 400_000).await;
        }
        all.push(response);
    }
    settle().await;
    all
}

async fn settle() {
    blitz_http::sleep(Duration::from_millis(300)).await;
}

fn held() -> usize {
    SHARED.saturating_sub(blitz_reactor::fair_share() * 768)
}

async fn get_hello(upstream: &Upstream) {
    let mut response = ask(upstream, "/hello").await;
    let content = response.body.read_to_end(100).await.expect("comes");
    assert_eq!(&content[..], b"hello");
}

/// Other requests, which get complete responses.
async fn others(upstream: &Upstream) {
    for _ in 0..20 {
        get_hello(upstream).await;
    }
    let mut response = ask(upstream, "/big").await;
    read(&mut response, BIG).await;
}

#[test]
fn stalled_streams_hold_bounded_memory_and_others_continue() {
    on_each_driver(|io| {
        with_server(io, Limits::default(), async |upstream| {
            let mut stalled = stalled(&upstream).await;
            assert!(held() < 48 << 20, "the reserve is in use");
            let before = blitz_http::counters().streams_shed;
            others(&upstream).await;
            assert_eq!(blitz_http::counters().streams_shed, before);
            assert_eq!(blitz_reactor::counters().shed, 0);
            // The stalled streams can continue at any time.
            read(&mut stalled[1], BIG).await;
            assert!(
                stalled[17]
                    .body
                    .next()
                    .await
                    .is_ok_and(|part| part.is_some())
            );
        });
    });
}

#[test]
fn out_of_memory_the_streams_that_hold_the_most_are_reset_and_others_continue() {
    on_each_driver(|io| {
        let limits = Limits {
            stream_window_bytes_min: 64 << 10,
            ..Limits::default()
        };
        with_server(io, limits, async |upstream| {
            let before = blitz_http::counters().streams_shed;
            let mut stalled = stalled(&upstream).await;
            assert!(held() < 48 << 20, "the reserve is in use");
            others(&upstream).await;
            let shed = blitz_http::counters().streams_shed - before;
            assert!(shed > 100, "{shed}");
            assert_eq!(blitz_reactor::counters().shed, 0);
            let mut failed = 0;
            for response in &mut stalled {
                failed += u64::from(response.body.next().await.is_err());
            }
            assert!((1..=shed).contains(&failed), "{failed} of {shed}");
        });
    });
}

/// Every change of the windows is a SETTINGS frame. Our server accepts 100 of them in 10 s.
#[test]
fn windows_that_follow_the_load_do_not_flood_a_server_with_settings() {
    const WAVES: usize = 150;
    const AT_ONCE: usize = 40;
    // The first 8 streams may have full windows.
    let limits = Limits {
        core_buffer_bytes_max: 4 << 20,
        ..Limits::default()
    };
    on_each_driver(|io| {
        with_server(io, limits.clone(), async |upstream| {
            let answered = Rc::new(Cell::new(0));
            let connects = || blitz_http::counters().upstream_connects;
            let before = connects();
            for wave in 1..=WAVES {
                // One stream, then many: the windows grow and shrink again.
                get_hello(&upstream).await;
                for _ in 0..AT_ONCE {
                    let (upstream, answered) = (upstream.clone(), Rc::clone(&answered));
                    blitz_http::spawn(async move {
                        get_hello(&upstream).await;
                        answered.set(answered.get() + 1);
                    });
                }
                let end = Instant::now() + Duration::from_secs(10);
                while answered.get() < wave * AT_ONCE {
                    let answered = answered.get();
                    assert!(Instant::now() < end, "{answered} answers, wave {wave}");
                    blitz_http::sleep(Duration::from_millis(1)).await;
                }
            }
            assert_eq!(connects() - before, 1, "the server has closed connections");
        });
    });
}

/// A request with a head of 27 KiB. It takes a few dozen bytes when the table has the field.
fn large_head(path: &str) -> RequestHead {
    let mut head = RequestHead::new(Method::Get, path);
    head.set_authority("a");
    for _ in 0..30 {
        head.fields.append("x-large", [b'x'; 900]);
    }
    head
}

#[test]
fn large_heads_are_bounded_and_others_are_served() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut sent = 0;
        let mut clients: Vec<Client> = (0..12).map(|_| Client::connect(server.address)).collect();
        for client in &mut clients {
            client.get("/hello");
            for _ in 0..90 {
                client.send_head(&large_head("/later"), BodyLength::Empty);
            }
            sent += client.out.len();
            client.flush();
        }
        assert!(sent < 100_000, "{sent} bytes were sent");
        // When a later request has its response, the server has received all earlier heads.
        for client in &mut clients {
            assert_eq!(client.get("/hello").content, b"hello");
        }
        let refused = server.counters().heads_refused;
        // 16 MiB are enough for about 400 of 1,080.
        assert!((300..1_000).contains(&refused), "{refused}");
        let held = server.ask(held);
        assert!((14 << 20..24 << 20).contains(&held), "{held}");
        let mut late = Client::connect(server.address);
        let stream = late.send_head(&large_head("/hello"), BodyLength::Empty);
        let answer = late.answer(stream);
        assert_eq!(answer.status.map(Status::code), Some(503));
        assert_eq!(answer.fields.get("retry-after"), Some(&b"1"[..]));
        assert_eq!(late.get("/hello").content, b"hello");
        // In HTTP/1.1 large heads are sent in full, and count in the same way.
        let mut plain = server.connect();
        let large = "x".repeat(20_000);
        plain.send(format!(
            "GET /hello HTTP/1.1\r\nHost: a\r\nX-Large: {large}\r\n\r\n"
        ));
        let head = plain.head();
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
        // Their memory is available to others after their responses.
        server.ask(|| IS_LATER.set(true));
        let large = || {
            let mut late = Client::connect(server.address);
            let stream = late.send_head(&large_head("/hello"), BodyLength::Empty);
            late.answer(stream).status.map(Status::code)
        };
        let end = Instant::now() + Duration::from_secs(5);
        while large() != Some(200) {
            assert!(Instant::now() < end, "the memory is never returned");
        }
    });
}

/// Short content that came with its end, and that nobody takes, occupies no receive buffer (rule 3).
#[test]
fn short_content_without_a_reader_is_copied() {
    const CLIENTS: usize = 60;
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut clients: Vec<_> = (0..CLIENTS)
            .map(|_| Client::connect(server.address))
            .collect();
        for client in &mut clients {
            assert_eq!(client.get("/hello").content, b"hello");
        }
        let idle = server.ask(blitz_reactor::fair_share);
        for client in &mut clients {
            let stream = client.request(Method::Post, "/never", BodyLength::Known(10));
            client.send(stream, b"0123456789", true);
        }
        server.until("received", |counters| {
            counters.requests == 2 * CLIENTS as u64
        });
        // As many occupied buffers would take about 1,300 bytes of it.
        let until = Instant::now() + Duration::from_secs(2);
        while server.ask(blitz_reactor::fair_share) + 200 < idle {
            assert!(Instant::now() < until, "the buffers stay occupied");
        }
    });
}
