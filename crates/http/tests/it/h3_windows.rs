//! Transfers through windows of any size.

use blitz_testing::h3::{data, request};
use bytes::Bytes;
use quinn::VarInt;
use tokio::task::JoinSet;

use crate::h3_support::{
    Client, QuicServer, get, pattern, pause, post, receive, soon, with_server,
};
use crate::support::BIG;

/// Numbers that a seed determines.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// As many small numbers as large ones.
    fn size(&mut self, bits: u64) -> u64 {
        let limit = 1 << self.below(bits);
        1 + self.below(limit)
    }
}

/// Content of a response, in windows.
const WINDOWS_MAX: usize = 2_000;

/// Neither side may wait for ever, whichever window is used up.
#[test]
fn any_windows_and_sizes_carry_all_content() {
    let seed = std::env::var("SEED").map_or_else(|_| rand_seed(), |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    with_server(async |server| {
        let mut random = Random(seed | 1);
        for _ in 0..6 {
            let (stream, connection) = (random.size(18) as u32, random.size(20) as u32);
            println!("windows of {stream} and {connection} bytes");
            let client = server
                .connect_with(|transport| {
                    transport
                        .stream_receive_window(VarInt::from_u32(stream))
                        // The server's own streams need some of it.
                        .receive_window(VarInt::from_u32(connection + 400));
                })
                .await;
            let mut exchanges = JoinSet::new();
            for _ in 0..random.size(6) {
                // Each window of it takes a round trip.
                let most = stream.min(connection).max(1) as usize * WINDOWS_MAX;
                let bytes = (random.size(18) as usize).min(most);
                let piece = random.size(17) as usize;
                let path = ["/echo", "/elsewhere", "/whole"][random.below(3) as usize];
                let stream = client.send(post(path)).await;
                let content = pattern(random.below(1 << 30), bytes);
                exchanges.spawn(echo(stream, content, piece));
            }
            while let Some(done) = exchanges.join_next().await {
                done.unwrap();
            }
        }
        assert_eq!(server.counters().cancelled, 0);
    });
}

fn rand_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_nanos() as u64
}

async fn echo(stream: crate::h3_support::Stream, content: Vec<u8>, piece: usize) {
    let (mut send, mut recv) = stream.split();
    let sending = async {
        for piece in content.chunks(piece.max(content.len() / 200)) {
            let piece = Bytes::copy_from_slice(piece);
            soon(send.send_data(piece)).await.unwrap();
        }
        send.finish().await.unwrap();
    };
    let ((), answer) = tokio::join!(sending, receive(&mut recv));
    assert!(answer.unwrap().content == content);
}

/// Each of them has more for its client than this takes, and the client takes a little of all.
#[test]
fn streams_that_are_not_read_do_not_stop_others() {
    with_server(async |server| {
        let client = server
            .connect_with(|transport| {
                transport.stream_receive_window(VarInt::from_u32(10_000));
            })
            .await;
        let mut unread = Vec::new();
        for _ in 0..40 {
            let mut stream = client.send(get("/big")).await;
            stream.finish().await.unwrap();
            soon(stream.recv_response()).await.unwrap();
            unread.push(stream);
        }
        let answer = client.get("/big").await;
        assert_eq!(answer.content.len(), BIG);
        let mut last = unread.pop().unwrap();
        drop(unread);
        let mut bytes = 0;
        while let Some(piece) = soon(last.recv_data()).await.unwrap() {
            bytes += bytes::Buf::remaining(&piece);
        }
        assert_eq!(bytes, BIG);
    });
}

/// The memory of connections is free when they are gone.
#[test]
fn nothing_is_left_of_connections_that_are_gone() {
    with_server(async |server| {
        let idle = server.ask(blitz_reactor::fair_share);
        for round in 0..4 {
            let client = server.connect().await;
            let mut streams = Vec::new();
            for path in [
                "/big",
                "/never",
                "/echo",
                "/slowly-read",
                "/burst-elsewhere",
            ] {
                let mut stream = client.send(post(path)).await;
                let content = Bytes::from(pattern(round, 30_000));
                stream.send_data(content).await.unwrap();
                streams.push(stream);
            }
            pause(50).await;
            match round {
                0 => client.quic.connection.close(VarInt::from_u32(0x100), b""),
                // All of its handles are gone, so it is closed.
                1 => drop((client, streams)),
                // It violates the protocol.
                2 => violate(client).await,
                _ => streams.iter_mut().for_each(|stream| {
                    let code = h3::error::Code::H3_REQUEST_CANCELLED;
                    stream.stop_stream(code);
                    stream.stop_sending(code);
                }),
            }
            server
                .when("cancelled", |counters| {
                    counters.cancelled >= 5 * (round + 1)
                })
                .await;
            assert_eq!(server.counters().cancelled, 5 * (round + 1));
            if round == 3 {
                assert_eq!(client_of(server).await, b"hello");
            }
        }
        server
            .when("closed", |counters| counters.connections == 0)
            .await;
        assert_eq!(server.ask(blitz_reactor::fair_share), idle);
    });
}

async fn violate(client: Client) {
    let mut exchange = client.quic.exchange(data("no head")).await;
    exchange.send.finish().unwrap();
    assert_eq!(client.quic.close_code().await, 0x105);
}

async fn client_of(server: &QuicServer) -> Vec<u8> {
    server.connect().await.get("/hello").await.content
}

/// A client is told late what was read of its heads. Until then it must have room for the next ones.
#[test]
fn content_that_nobody_reads_leaves_room_for_requests() {
    with_server(async |server| {
        for bytes in [1_000, 5_000, 7_000, 10_000, 14_000, 30_000] {
            let client = server.raw_client().await;
            let mut unread = Vec::new();
            for _ in 0..95 {
                let mut exchange = soon(client.exchange(request("POST", "/never"))).await;
                exchange.write(data(vec![b'x'; bytes])).await;
                unread.push(exchange);
            }
            client.hello().await;
            let sent = [request("POST", "/echo"), data(vec![b'y'; 50_000])].concat();
            let answer = soon(client.ask(sent)).await;
            answer.expect(200, vec![b'y'; 50_000]);
        }
    });
}
