//! A socket that is closed while its peer still sends (rule 16).

use std::future::Future;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use blitz_reactor::{Config, IoChoice, Lingering, block_on, counters, sleep, sockets_open};

use crate::{config, on_both_drivers, outside, pattern, with_blocking_peer, write_all};

fn lingering<F: Future<Output = ()>>(limits: Lingering, body: impl Fn() -> F) {
    for io in [IoChoice::Uring, IoChoice::Epoll] {
        println!("driver: {io:?}");
        let config = Config {
            lingering: limits,
            ..config(io)
        };
        block_on(&config, body()).unwrap();
    }
}

#[test]
fn a_peer_that_sends_everything_before_it_reads_gets_the_answer() {
    on_both_drivers(|| async {
        let (socket, mut peer_stream) = with_blocking_peer().await;
        let peer = std::thread::spawn(move || {
            for _ in 0..100 {
                write_all(&peer_stream, &pattern(100_000));
            }
            let mut answer = String::new();
            peer_stream.read_to_string(&mut answer).unwrap();
            answer
        });
        socket.recv().await.unwrap();
        socket.send("413 with a reason");
        socket.finish();
        let answer = outside(move || peer.join().unwrap());
        assert_eq!(answer.await, "413 with a reason");
        sleep(Duration::from_millis(20)).await;
        assert_eq!(sockets_open(), 0, "and then it is closed");
    });
}

#[test]
fn a_peer_that_never_stops_sending_is_cut_off() {
    let limits = Lingering {
        time: Duration::from_millis(700),
        silence: Duration::from_millis(300),
        ..Lingering::default()
    };
    lingering(limits, || async {
        let (socket, mut peer_stream) = with_blocking_peer().await;
        socket.send("bye");
        socket.finish();
        let began = Instant::now();
        let cut = outside(move || {
            while peer_stream.write_all(b"more").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
            began.elapsed()
        });
        let cut = cut.await.as_millis();
        assert!((600..1_500).contains(&cut), "after {cut} ms");
        assert_eq!(sockets_open(), 0);
    });
}

#[test]
fn lingering_sockets_are_bounded_in_number() {
    let limits = Lingering {
        sockets_max: 3,
        ..Lingering::default()
    };
    lingering(limits, || async {
        let before = counters().lingering_cut;
        let mut peers = Vec::new();
        for _ in 0..10 {
            let (socket, peer_stream) = with_blocking_peer().await;
            socket.finish();
            peers.push(peer_stream);
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(sockets_open(), 3);
        assert_eq!(counters().lingering_cut - before, 7);
        // Those that began last linger on; peers that close make room.
        peers.truncate(8);
        sleep(Duration::from_millis(20)).await;
        assert_eq!(sockets_open(), 1);
        for _ in 0..2 {
            let (socket, peer_stream) = with_blocking_peer().await;
            socket.finish();
            peers.push(peer_stream);
        }
        sleep(Duration::from_millis(20)).await;
        assert_eq!(sockets_open(), 3);
        assert_eq!(counters().lingering_cut - before, 7);
    });
}
