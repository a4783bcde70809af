use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request};

use crate::deadlines::limits;
use crate::h3_support::{
    Client, QuicServer, block_on, get, pattern, pause, post, receive, reset_code, soon,
    with_options, with_server,
};
use crate::support::{BIG, BIG_GIVEN, SOON, on_each_driver, options};

#[test]
fn heads_and_content_of_each_size_are_answered() {
    with_server(async |server| {
        let client = server.connect().await;
        let answer = client.get("/hello").await;
        assert_eq!((answer.status, &*answer.content), (200, &b"hello"[..]));
        assert_eq!(answer.fields["content-length"], "5");
        assert!(answer.trailers.is_none());
        for bytes in [0, 1, 100_000, BIG] {
            let content = pattern(bytes as u64, bytes);
            let answer = client.post("/echo", content.clone()).await;
            assert_eq!(answer.status, 200);
            assert!(answer.content == content, "{bytes} bytes");
        }
        assert_eq!(client.get("/stream").await.content, b"onetwothree");
        assert_eq!(client.get("/nowhere").await.status, 404);
        let answer = client.get("/big").await;
        assert_eq!(answer.content.len(), BIG);
        let counters = server.counters();
        assert_eq!((counters.accepted, counters.requests), (1, 8));
        assert_eq!(counters.requests_by_version, [0, 0, 0, 8]);
        assert_eq!((counters.connections, counters.cancelled), (1, 0));
        assert_eq!(counters.tls.version_1_3, 1);
    });
}

#[test]
fn responses_without_content_keep_their_content_length() {
    with_server(async |server| {
        let client = server.connect().await;
        let mut stream = client.send(Request::head("https://localhost/hello")).await;
        stream.finish().await.unwrap();
        let answer = receive(&mut stream).await.unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.fields["content-length"], "5");
        assert_eq!(answer.content, b"");
    });
}

#[test]
fn a_declared_length_is_kept() {
    with_server(async |server| {
        let client = server.connect().await;
        let mut stream = client.send(post("/echo").header("content-length", 6)).await;
        stream
            .send_data(Bytes::from_static(b"abcdef"))
            .await
            .unwrap();
        stream.finish().await.unwrap();
        let answer = receive(&mut stream).await.unwrap();
        assert_eq!(answer.fields["content-length"], "6");
        assert_eq!(answer.content, b"abcdef");
    });
}

#[test]
fn a_hundred_streams_share_a_connection() {
    with_server(async |server| {
        let client = server.connect().await;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..100_u64 {
            let (mut send, mut recv) = client.send(post("/echo")).await.split();
            tasks.spawn(async move {
                let content = pattern(number, 1_000 + number as usize * 300);
                for piece in content.chunks(7_000) {
                    let piece = Bytes::copy_from_slice(piece);
                    send.send_data(piece).await.unwrap();
                }
                send.finish().await.unwrap();
                assert!(receive(&mut recv).await.unwrap().content == content);
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        // More follow, as the client may open as many again.
        for _ in 0..150 {
            assert_eq!(client.get("/hello").await.content, b"hello");
        }
        let counters = server.counters();
        assert_eq!((counters.accepted, counters.requests), (1, 250));
    });
}

#[test]
fn requests_have_the_new_address_of_a_client_once_it_is_validated() {
    with_server(async |server| {
        let client = server.connect().await;
        let before = client.get("/address").await.content;
        let after = client.quic.move_to([127, 0, 0, 3]).to_string();
        // Its first datagram is large enough to be accepted, and no reply has arrived there.
        let first = client.post("/address", pattern(1, 4_000)).await;
        assert_eq!(first.content, before);
        let start = Instant::now();
        while client.get("/address").await.content != after.as_bytes() {
            assert!(start.elapsed() < SOON);
            pause(5).await;
        }
        for _ in 0..20 {
            assert_eq!(client.get("/address").await.content, after.as_bytes());
        }
    });
}

#[test]
fn two_cores_share_many_connections() {
    on_each_driver(|io| {
        let server = QuicServer::start(io, 2, options);
        block_on(async {
            let mut clients = Vec::new();
            for number in 0..32_u64 {
                let client = server.connect().await;
                let content = pattern(number, 20_000);
                let answer = client.post("/echo", content.clone()).await;
                assert!(answer.content == content);
                clients.push(client);
            }
            for client in &clients {
                assert_eq!(client.get("/hello").await.content, b"hello");
            }
            let counters = server.counters_of_cores();
            let accepted: u64 = counters.iter().map(|core| core.accepted).sum();
            let requests: u64 = counters.iter().map(|core| core.requests).sum();
            assert_eq!((accepted, requests), (32, 64));
            assert!(counters.iter().all(|core| core.accepted > 0));
        });
    });
}

/// A response is queued as far as its reader follows.
#[test]
fn a_client_that_does_not_read_slows_the_service_down() {
    with_server(async |server| {
        let client = server.connect().await;
        let before = server.ask(|| BIG_GIVEN.get());
        let mut stream = client.send(get("/big")).await;
        stream.finish().await.unwrap();
        soon(stream.recv_response()).await.unwrap();
        pause(300).await;
        let given = server.ask(|| BIG_GIVEN.get()) - before;
        // The client's window for a stream is 1.25 MB.
        assert!((1 << 20..3 << 20).contains(&given), "{given} bytes");
        for _ in 0..20 {
            assert_eq!(client.get("/hello").await.content, b"hello");
        }
        let mut bytes = 0;
        while let Some(piece) = soon(stream.recv_data()).await.unwrap() {
            bytes += bytes::Buf::remaining(&piece);
        }
        assert_eq!(bytes, BIG);
    });
}

/// The client may send what the windows allow, and no more.
#[test]
fn a_service_that_does_not_read_slows_the_client_down() {
    with_server(async |server| {
        let client = server.connect().await;
        let mut stream = client.send(post("/never")).await;
        let sent = async {
            for sent in 0.. {
                let piece = Bytes::from_static(&[b'x'; 8192]);
                let sending = stream.send_data(piece);
                let sending = tokio::time::timeout(Duration::from_millis(300), sending);
                if sending.await.is_err() {
                    return sent * 8192;
                }
            }
            0
        };
        let sent = sent.await;
        assert!((32 << 10..600 << 10).contains(&sent), "{sent} bytes");
        // Streams that nobody reads leave room for others.
        let mut idle = Vec::new();
        for _ in 0..8 {
            let mut stream = client.send(post("/never")).await;
            tokio::spawn(async move {
                let _ = stream.send_data(Bytes::from(vec![b'x'; 200_000])).await;
                pause(60_000).await;
            });
            idle.push(());
        }
        let content = pattern(1, 300_000);
        assert!(client.post("/echo", content.clone()).await.content == content);
    });
}

#[test]
fn bodies_stream_in_both_directions_with_trailers() {
    with_server(async |server| {
        let client = server.connect().await;
        let mut stream = client.send(post("/echo")).await;
        soon(stream.recv_response()).await.unwrap();
        for part in ["a", "bc", "def"] {
            stream.send_data(Bytes::from(part)).await.unwrap();
            let mut piece = soon(stream.recv_data()).await.unwrap().unwrap();
            let len = bytes::Buf::remaining(&piece);
            assert_eq!(bytes::Buf::copy_to_bytes(&mut piece, len), part);
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "6".parse().unwrap());
        stream.send_trailers(trailers).await.unwrap();
        stream.finish().await.unwrap();
        assert!(soon(stream.recv_data()).await.unwrap().is_none());
        let trailers = soon(stream.recv_trailers()).await.unwrap().unwrap();
        assert_eq!(trailers["x-sum"], "6");
    });
}

#[test]
fn interim_responses_arrive_before_the_final_one() {
    with_server(async |server| {
        let client = server.connect().await;
        let hinted = client.get("/hints").await;
        assert_eq!(hinted.informational, [103]);
        assert_eq!(hinted.content, b"hinted");
    });
}

#[test]
fn reading_the_content_sends_100_continue() {
    with_server(async |server| {
        let client = server.connect().await;
        let request = post("/whole").header("expect", "100-continue");
        let mut stream = client.send(request.header("content-length", 4)).await;
        let interim = soon(stream.recv_response()).await.unwrap();
        assert_eq!(interim.status().as_u16(), 100);
        stream.send_data(Bytes::from_static(b"body")).await.unwrap();
        stream.finish().await.unwrap();
        assert_eq!(receive(&mut stream).await.unwrap().content, b"body");
        // Content that comes without waiting needs none, and other expectations are refused.
        let mut stream = client
            .send(post("/late-whole").header("expect", "100-continue"))
            .await;
        stream.send_data(Bytes::from_static(b"body")).await.unwrap();
        stream.finish().await.unwrap();
        let answer = receive(&mut stream).await.unwrap();
        assert_eq!(
            (answer.informational, answer.content),
            (vec![], b"body".to_vec())
        );
        let mut stream = client
            .send(post("/whole").header("expect", "the-moon"))
            .await;
        stream.finish().await.unwrap();
        assert_eq!(receive(&mut stream).await.unwrap().status, 417);
    });
}

#[test]
fn a_final_response_instead_of_100_continue_stops_the_content() {
    with_server(async |server| {
        let client = server.connect().await;
        let request = post("/hello").header("expect", "100-continue");
        let mut stream = client.send(request.header("content-length", 4)).await;
        let answer = receive(&mut stream).await.unwrap();
        assert_eq!((answer.status, &*answer.content), (200, &b"hello"[..]));
        assert_eq!(client.get("/hello").await.content, b"hello");
    });
}

/// RFC 9114, section 4.1: the response is complete, and the rest of the request is stopped with H3_NO_ERROR.
#[test]
fn an_upload_that_goes_on_behind_its_response_is_stopped() {
    let options = || limits(|limits| limits.quic.discard_timeout = Duration::from_millis(200));
    with_options(options, async |server| {
        let client = server.connect().await;
        let mut stream = client.send(post("/hello")).await;
        let answer = receive(&mut stream).await.unwrap();
        assert_eq!(answer.content, b"hello");
        let error = loop {
            let piece = Bytes::from_static(&[b'x'; 8192]);
            if let Err(error) = soon(stream.send_data(piece)).await {
                break error;
            }
        };
        assert_eq!(reset_code(&error), 0x100);
        // A little of it is discarded, and its end is awaited.
        let mut small = client.send(post("/hello")).await;
        assert_eq!(receive(&mut small).await.unwrap().content, b"hello");
        small
            .send_data(Bytes::from_static(b"0123456789"))
            .await
            .unwrap();
        small.finish().await.unwrap();
        assert_eq!(client.get("/hello").await.content, b"hello");
        assert_eq!(server.counters().cancelled, 0);
    });
}

/// curl neither ends nor resets an upload that it gives up behind an early response.
#[test]
fn an_upload_that_is_silent_behind_its_response_is_stopped() {
    let options = || limits(|limits| limits.quic.discard_silence = Duration::from_secs(1));
    with_options(options, async |server| {
        let client = server.connect().await;
        let mut stream = client.send(post("/hello")).await;
        assert_eq!(receive(&mut stream).await.unwrap().content, b"hello");
        for _ in 0..12 {
            pause(100).await;
            let piece = Bytes::from_static(b"x");
            soon(stream.send_data(piece)).await.unwrap();
        }
        pause(2_000).await;
        let error = soon(stream.send_data(Bytes::from_static(b"x"))).await;
        assert_eq!(reset_code(&error.unwrap_err()), 0x100);
        assert_eq!(client.get("/hello").await.content, b"hello");
    });
}

#[test]
fn a_truncated_response_is_reset() {
    with_server(async |server| {
        let client = server.connect().await;
        let mut stream = client.send(get("/cut")).await;
        stream.finish().await.unwrap();
        let error = receive(&mut stream).await.unwrap_err();
        assert_eq!(reset_code(&error), 0x102);
        let answer = client.get("/none").await;
        assert_eq!(answer.status, 500);
        assert_eq!(server.counters().refused_for("no-answer"), 1);
        assert_eq!(server.counters().cancelled, 1);
    });
}

#[test]
fn responses_of_other_tasks_are_sent() {
    with_server(async |server| {
        let client = server.connect().await;
        let content = pattern(5, 500_000);
        let answer = client.post("/elsewhere", content.clone()).await;
        assert!(answer.content == content);
        assert_eq!(client.get("/big-elsewhere").await.content.len(), BIG);
    });
}

/// Whether the service reads or not, it is dropped.
#[test]
fn a_request_that_the_client_resets_is_cancelled() {
    with_server(async |server| {
        let client = server.connect().await;
        let paths = [
            "/never",
            "/whole",
            "/read-and-never",
            "/slowly-read",
            "/later",
        ];
        for (number, path) in paths.into_iter().enumerate() {
            let number = number as u64;
            let mut stream = client.send(post(path)).await;
            stream.send_data(Bytes::from_static(b"abc")).await.unwrap();
            server
                .when("a request", |counters| counters.requests == number + 1)
                .await;
            pause(20).await;
            stream.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
            server
                .when("cancelled", |counters| counters.cancelled == number + 1)
                .await;
        }
        assert_eq!(client.get("/hello").await.content, b"hello");
    });
}

#[test]
fn a_response_that_the_client_stops_is_cancelled() {
    with_server(async |server| {
        let client = server.connect().await;
        let paths = ["/never", "/quiet", "/big", "/read-and-never"];
        for (number, path) in paths.into_iter().enumerate() {
            let number = number as u64;
            let mut stream = client.send(get(path)).await;
            stream.finish().await.unwrap();
            server
                .when("a request", |counters| counters.requests == number + 1)
                .await;
            pause(20).await;
            stream.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
            server
                .when("cancelled", |counters| counters.cancelled == number + 1)
                .await;
        }
        assert_eq!(client.get("/hello").await.content, b"hello");
    });
}

#[test]
fn a_client_that_leaves_cancels_all_exchanges() {
    with_server(async |server| {
        let client = server.connect().await;
        let mut streams = Vec::new();
        for path in ["/never", "/quiet", "/whole", "/big", "/later"] {
            streams.push(client.send(post(path)).await);
        }
        server
            .when("all requests", |counters| counters.requests == 5)
            .await;
        client
            .quic
            .connection
            .close(quinn::VarInt::from_u32(0x100), b"");
        server
            .when("cancelled", |counters| counters.cancelled == 5)
            .await;
        server
            .when("closed", |counters| counters.connections == 0)
            .await;
    });
}

/// RFC 9218, section 8: a response may override the client's priority.
#[test]
fn a_response_with_a_higher_priority_is_sent_before_others() {
    with_server(async |server| {
        let client = server
            .connect_with(|transport| {
                transport.receive_window(quinn::VarInt::from_u32(512 << 10));
                transport.stream_receive_window(quinn::VarInt::from_u32(1 << 20));
            })
            .await;
        let mut streams = Vec::new();
        for path in ["/big", "/urgent"] {
            let mut stream = client.send(get(path)).await;
            stream.finish().await.unwrap();
            streams.push(stream);
        }
        // The connection's window is full before anything is read.
        pause(200).await;
        let mut bytes = [0; 2];
        for (stream, bytes) in streams.iter_mut().zip(&mut bytes) {
            soon(stream.recv_response()).await.unwrap();
            let within = Duration::from_millis(5);
            let mut first = true;
            while let Ok(piece) = tokio::time::timeout(within, stream.recv_data()).await {
                *bytes += bytes::Buf::remaining(&piece.unwrap().unwrap());
                if std::mem::take(&mut first) {
                    continue;
                }
                if *bytes > 128 << 10 {
                    break;
                }
            }
        }
        assert!(bytes[1] >= 128 << 10, "{bytes:?}");
    });
}

async fn tunnel(client: &Client) -> crate::h3_support::Stream {
    let request = Request::connect("https://localhost/upgrade");
    let protocol = h3::ext::Protocol::WEB_TRANSPORT;
    let mut stream = client.send(request.extension(protocol)).await;
    let head = soon(stream.recv_response()).await.unwrap();
    assert_eq!(head.status().as_u16(), 200);
    assert!(!head.headers().contains_key("upgrade"));
    stream
}

/// RFC 9220: extended CONNECT.
#[test]
fn a_tunnel_carries_bytes_both_ways_and_each_direction_ends() {
    with_server(async |server| {
        let client = server.connect().await;
        let mut stream = tunnel(&client).await;
        for part in ["early ", "and late"] {
            stream.send_data(Bytes::from(part)).await.unwrap();
            let mut piece = soon(stream.recv_data()).await.unwrap().unwrap();
            assert_eq!(bytes::Buf::copy_to_bytes(&mut piece, part.len()), part);
        }
        let (mut send, mut recv) = stream.split();
        let content = pattern(3, 1 << 20);
        let sent = content.clone();
        let sending = tokio::spawn(async move {
            send.send_data(sent.into()).await.unwrap();
            send.finish().await.unwrap();
        });
        let mut back = Vec::new();
        while let Some(mut piece) = soon(recv.recv_data()).await.unwrap() {
            let len = bytes::Buf::remaining(&piece);
            back.extend_from_slice(&bytes::Buf::copy_to_bytes(&mut piece, len));
        }
        sending.await.unwrap();
        assert!(back.strip_suffix(b"bye") == Some(&*content));
        assert_eq!(server.counters().upgrades, 1);
        assert_eq!(server.counters().cancelled, 0);
    });
}

#[test]
fn a_tunnel_ends_with_a_reset_of_either_direction() {
    with_server(async |server| {
        let client = server.connect().await;
        let cancelled = h3::error::Code::H3_REQUEST_CANCELLED;
        let mut stream = tunnel(&client).await;
        stream.stop_stream(cancelled);
        server
            .when("cancelled", |counters| counters.cancelled == 1)
            .await;
        let mut stream = tunnel(&client).await;
        stream.stop_sending(cancelled);
        server
            .when("cancelled", |counters| counters.cancelled == 2)
            .await;
        assert_eq!(client.get("/hello").await.content, b"hello");
    });
}
