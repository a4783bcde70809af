//! Clients whose content is not read, which is no attack: nothing of it is counted for ever.

use std::time::Duration;

use blitz_http::ServeOptions;
use blitz_testing::h3::{data, request};
use bytes::Bytes;

use crate::deadlines::limits;
use crate::h3_support::{
    Client, QuicServer, Stream, get, pattern, pause, post, receive, soon, with_options,
};

/// A request that stays open, so that the connection is never idle.
async fn open(client: &Client) -> Stream {
    let mut quiet = client.send(get("/quiet")).await;
    quiet.finish().await.unwrap();
    quiet.recv_response().await.unwrap();
    quiet
}

fn small_windows() -> ServeOptions {
    limits(|limits| {
        limits.quic.window_bytes_max = 64 * 1024;
        limits.quic.unread_excess_bytes_max = 16 * 1024;
        limits.quic.unread_frames_max = 100;
        limits.discard_unannounced_bytes_max = 8 * 1024;
        limits.quic.discard_timeout = Duration::from_millis(50);
    })
}

fn nothing_was_cut(server: &QuicServer) {
    assert_eq!(server.counters().refused_for("unread-flood"), 0);
}

#[test]
fn uploads_that_are_answered_early_do_not_add_up() {
    with_options(small_windows, async |server| {
        let client = server.connect().await;
        let _open = open(&client).await;
        for _ in 0..20 {
            let mut upload = client.send(post("/hello")).await;
            // More than is discarded behind an early response. It is stopped or cut at some point.
            let _ = upload.send_data(Bytes::from(pattern(1, 200_000))).await;
            assert!(upload.recv_response().await.unwrap().status().is_success());
        }
        assert_eq!(client.get("/hello").await.content, b"hello");
        nothing_was_cut(server);
    });
}

/// QUIC tells a client of free streams only when there are several.
#[test]
fn uploads_that_are_answered_early_leave_room_for_requests() {
    let options = || limits(|limits| limits.quic.discard_silence = Duration::from_secs(60));
    with_options(options, async |server| {
        let client = server.connect().await;
        let mut uploads = Vec::new();
        for _ in 0..ServeOptions::default().limits.concurrent_streams_max {
            let mut upload = soon(client.send(post("/hello"))).await;
            upload.send_data(Bytes::from_static(b"a")).await.unwrap();
            assert!(upload.recv_response().await.unwrap().status().is_success());
            uploads.push(upload);
        }
        assert_eq!(client.get("/hello").await.content, b"hello");
    });
}

/// The rest of a response counts more than the end of its request.
#[test]
fn a_response_that_its_client_takes_slowly_is_whole_behind_a_large_upload() {
    with_options(small_windows, async |server| {
        let narrow = |transport: &mut quinn::TransportConfig| {
            transport.stream_receive_window(quinn::VarInt::from_u32(3));
        };
        let client = server.connect_with(narrow).await;
        let refused = post("/hello").header("expect", "a cookie");
        let mut upload = client.send(refused).await;
        // It gets no credit for all of it.
        let content = upload.send_data(Bytes::from(pattern(1, 200_000)));
        let _ = tokio::time::timeout(Duration::from_millis(200), content).await;
        let answer = receive(&mut upload).await.unwrap();
        assert_eq!(answer.status, 417);
        assert!(!answer.content.is_empty());
        nothing_was_cut(server);
    });
}

#[test]
fn uploads_that_are_cancelled_before_they_are_read_do_not_add_up() {
    with_options(small_windows, async |server| {
        let client = server.connect().await;
        let _open = open(&client).await;
        for _ in 0..20 {
            let mut upload = client.send(post("/never")).await;
            let content = upload.send_data(Bytes::from(pattern(1, 30_000)));
            content.await.unwrap();
            pause(20).await;
            upload.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
        }
        assert_eq!(client.get("/hello").await.content, b"hello");
        nothing_was_cut(server);
    });
}

#[test]
fn pieces_that_are_read_as_they_come_do_not_add_up() {
    let options = || {
        limits(|limits| {
            limits.quic.window_bytes_min = 32 * 1024;
            limits.quic.window_bytes_max = 32 * 1024;
            limits.quic.unread_excess_bytes_max = 0;
        })
    };
    with_options(options, async |server| {
        let client = server.raw_client().await;
        let mut exchange = client.exchange(request("POST", "/whole")).await;
        let mut sent = Vec::new();
        // Each in a packet of its own, most of which is no content.
        for piece in 0..2_000 {
            let piece = pattern(piece, 2);
            exchange.write(data(&piece)).await;
            sent.extend_from_slice(&piece);
            pause(1).await;
        }
        exchange.send.finish().unwrap();
        exchange.response().await.expect(200, &sent);
        nothing_was_cut(server);
    });
}

/// Sends 1 MiB that nobody reads, and cancels it after this time.
async fn upload_in_vain(client: &Client, millis: u64) -> tokio::task::JoinHandle<()> {
    let mut upload = client.send(post("/never")).await;
    tokio::spawn(async move {
        let content = upload.send_data(Bytes::from(vec![7; 1 << 20]));
        let _ = tokio::time::timeout(Duration::from_millis(millis), content).await;
        upload.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
    })
}

/// Each upload may fill the window of its stream; the connection's has room for more requests all the same.
#[test]
fn many_uploads_that_nobody_reads_leave_room_for_requests() {
    with_options(Default::default, async |server| {
        let client = server.connect().await;
        let mut uploads = Vec::new();
        for _ in 0..20 {
            uploads.push(upload_in_vain(&client, 20_000).await);
        }
        pause(500).await;
        assert_eq!(client.get("/hello").await.content, b"hello");
        uploads.iter().for_each(tokio::task::JoinHandle::abort);
        nothing_was_cut(server);
    });
}

/// Each datagram has frames of several streams, and their handlers read with a delay. It is held once.
#[test]
fn uploads_that_share_datagrams_do_not_add_up() {
    const PIECE: usize = 300;
    let options = || {
        limits(|limits| {
            limits.quic.window_bytes_max = 128 * 1024;
            limits.quic.unread_excess_bytes_max = 0;
        })
    };
    with_options(options, async |server| {
        let client = server.connect().await;
        let mut uploads = Vec::new();
        for number in 0..8 {
            let (mut send, mut response) = client.send(post("/echo")).await.split();
            let content = pattern(number, 400 * PIECE);
            uploads.push(tokio::spawn(async move {
                let sending = async {
                    for piece in content.chunks(PIECE) {
                        let piece = Bytes::copy_from_slice(piece);
                        send.send_data(piece).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                    send.finish().await.unwrap();
                };
                let ((), answer) = tokio::join!(sending, receive(&mut response));
                assert_eq!(answer.unwrap().content, content);
            }));
        }
        for upload in uploads {
            upload.await.unwrap();
        }
        nothing_was_cut(server);
    });
}

/// The window grows while content waits for its readers, and shrinks when the connection is idle. The credit that the
/// client already has stays valid, and the client may use it at once.
#[test]
fn a_window_that_has_shrunk_may_still_be_used() {
    let options = || limits(|limits| limits.quic.unread_excess_bytes_max = 0);
    with_options(options, async |server| {
        let client = server.connect().await;
        for _ in 0..4 {
            let mut busy = client.send(get("/busy")).await;
            busy.finish().await.unwrap();
            let mut uploads = Vec::new();
            for _ in 0..6 {
                uploads.push(upload_in_vain(&client, 400).await);
            }
            for upload in uploads {
                upload.await.unwrap();
            }
            assert_eq!(receive(&mut busy).await.unwrap().content, b"hello");
            // The connection is idle for a while.
            pause(200).await;
        }
        nothing_was_cut(server);
    });
}

/// Content in small frames takes more memory than its window, so the client gets no more credit, and may wait.
#[test]
fn small_pieces_that_nobody_reads_are_held_back() {
    let options = || limits(|limits| limits.quic.unread_frames_max = 200);
    with_options(options, async |server| {
        let client = server.raw_client().await;
        let mut exchange = client.exchange(request("POST", "/never")).await;
        let mut pieces = 0;
        while pieces < 1_200 {
            let piece = data(vec![b'x'; 220]);
            let written = exchange.send.write_all(&piece);
            match tokio::time::timeout(Duration::from_millis(300), written).await {
                Ok(written) => written.unwrap(),
                Err(_) => break,
            }
            pieces += 1;
            pause(1).await;
        }
        // As many as the first window has room for.
        assert!((200..400).contains(&pieces), "{pieces}");
        nothing_was_cut(server);
        exchange.send.reset(0x10c_u32.into()).unwrap();
        client.hello().await;
    });
}

/// The memory of connections beyond their windows is limited for all of them together.
#[test]
fn small_pieces_on_many_connections_are_limited_together() {
    let options = || limits(|limits| limits.core_buffer_bytes_max = 512 * 1024);
    with_options(options, async |server| {
        let mut uploads = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let client = server.raw_client().await;
            let mut exchange = client.exchange(request("POST", "/never")).await;
            exchange.write(data(vec![b'x'; 8_000])).await;
            uploads.spawn(async move {
                // Its receiving half stays open, too.
                let mut exchange = exchange;
                for _ in 0..1_500 {
                    let piece = data(vec![b'x'; 8]);
                    if exchange.send.write_all(&piece).await.is_err() {
                        return client.quic.close_code().await;
                    }
                    pause(1).await;
                }
                client.hello().await;
                0
            });
        }
        let codes = uploads.join_all().await;
        let closed = codes.iter().filter(|code| **code == 0x107).count();
        assert!((1..6).contains(&closed), "{codes:?}");
        assert_eq!(server.counters().refused_for("unread-flood"), closed as u64);
        assert!(codes.iter().all(|code| matches!(code, 0 | 0x107)));
    });
}

/// Uploads that are read all the time, on one connection.
#[test]
fn echoed_uploads_are_never_closed() {
    with_options(Default::default, async |server| {
        let client = server.connect().await;
        let mut uploads = tokio::task::JoinSet::new();
        for number in 0..8 {
            let (mut send, mut response) = client.send(post("/echo")).await.split();
            let content = pattern(number, 1 << 20);
            uploads.spawn(async move {
                let sending = async {
                    send.send_data(Bytes::from(content.clone())).await.unwrap();
                    send.finish().await.unwrap();
                };
                let ((), answer) = tokio::join!(sending, receive(&mut response));
                assert!(answer.unwrap().content == content);
            });
        }
        uploads.join_all().await;
        nothing_was_cut(server);
    });
}

/// QUIC keeps its room for the frames of streams that have ended: an idle connection with much of it is closed, but only
/// while memory is wanted.
#[test]
fn idle_connections_keep_little_room_for_frames_while_memory_is_wanted() {
    for (bytes_max, closed) in [(512 * 1024, 1), (64 << 20, 0)] {
        let options = move || limits(|limits| limits.core_buffer_bytes_max = bytes_max);
        with_options(options, async |server| {
            let client = server.raw_client().await;
            for _ in 0..3 {
                let mut exchange = client.exchange(request("POST", "/never")).await;
                // More than 1,024 slots, of 56 bytes each.
                for _ in 0..1_100 {
                    exchange.write(data([b'x'; 8])).await;
                    pause(1).await;
                }
                exchange.send.reset(0x10c_u32.into()).unwrap();
                pause(50).await;
            }
            match closed {
                0 => client.hello().await,
                _ => assert_eq!(client.quic.close_code().await, 0x100),
            }
            assert_eq!(server.counters().refused_for("idle-memory"), closed);
        });
    }
}
