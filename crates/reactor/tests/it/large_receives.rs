//! Large content is received in large pieces, while the core has memory (rule 4).

use std::cell::Cell;
use std::io::Read;
use std::net::TcpStream;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use blitz_reactor::{Slice, Socket, counters, is_memory_scarce, sleep, spawn, yield_now};

use crate::{on_both_drivers, outside, pattern, with_blocking_peer, write_all};

/// A usual receive returns no more.
const USUAL_MAX: usize = 17 * 1024;
const LEN: usize = 16 << 20;
/// More than half of the core's memory.
const SCARCE_LEN: usize = 64 << 20;
/// The window of a stream.
const WINDOW: usize = 64 << 10;

/// A socket whose peer sends [`LEN`] bytes and then FIN, on another thread.
async fn with_sender(window: usize) -> (Socket, thread::JoinHandle<()>) {
    with_sender_of(LEN, window).await
}

async fn with_sender_of(len: usize, window: usize) -> (Socket, thread::JoinHandle<()>) {
    let (socket, peer_stream) = with_blocking_peer().await;
    socket.set_window(window);
    let send = move |peer_stream: TcpStream| write_all(&peer_stream, &pattern(len));
    (socket, thread::spawn(move || send(peer_stream)))
}

/// Everything that is received, and the length of the longest piece.
async fn read(socket: &Socket) -> (Vec<u8>, usize) {
    let (mut all, mut longest) = (Vec::new(), 0);
    while let Some(piece) = socket.recv().await.unwrap() {
        longest = longest.max(piece.len());
        all.extend_from_slice(&piece);
    }
    (all, longest)
}

#[test]
fn content_with_a_reader_is_received_in_large_pieces() {
    on_both_drivers(|| async {
        let (socket, sender) = with_sender(WINDOW).await;
        let (all, longest) = read(&socket).await;
        assert!(all == pattern(LEN));
        assert!((USUAL_MAX..WINDOW).contains(&longest), "{longest} bytes");
        outside(move || sender.join().unwrap()).await;
    });
}

/// A request is read ahead with a small window (rule 17).
#[test]
fn a_small_window_has_small_receives() {
    on_both_drivers(|| async {
        let (socket, sender) = with_sender(16 << 10).await;
        let (all, longest) = read(&socket).await;
        assert!(all == pattern(LEN));
        assert!(longest <= 16 << 10, "{longest} bytes");
        outside(move || sender.join().unwrap()).await;
    });
}

/// Without a reader no more is received than the window, however much the sender sends.
#[test]
fn a_reader_that_stops_holds_one_large_piece() {
    on_both_drivers(|| async {
        let (socket, sender) = with_sender(WINDOW).await;
        let mut longest = 0;
        while longest < USUAL_MAX {
            longest = socket.recv().await.unwrap().unwrap().len();
        }
        sleep(Duration::from_millis(50)).await;
        assert!(socket.unread_bytes() <= WINDOW);
        while socket.recv().await.unwrap().is_some() {}
        outside(move || sender.join().unwrap()).await;
    });
}

/// A reset is an error also where the bytes before it were received outside of a turn: it must not look
/// like the end of a message that the end of the connection delimits.
#[test]
fn a_reset_behind_large_content_is_no_fin() {
    on_both_drivers(|| async {
        for round in 0..100 {
            let (socket, peer_stream) = with_blocking_peer().await;
            socket.set_window(WINDOW);
            // A close with unread input resets the connection.
            socket.send("unread");
            yield_now().await;
            let sender = thread::spawn(move || {
                write_all(&peer_stream, &pattern(60 * 1024 * 6 + 20_000));
                drop(peer_stream);
            });
            while let Ok(piece) = socket.recv().await {
                assert!(piece.is_some(), "FIN in round {round}");
            }
            outside(move || sender.join().unwrap()).await;
        }
    });
}

/// A task that sends to a peer that reads as fast lets other tasks run.
#[test]
fn large_sends_end_their_turn() {
    const BETWEEN_MAX: usize = 4 << 20;
    on_both_drivers(|| async {
        let (socket, peer_stream) = with_blocking_peer().await;
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            while (&peer_stream).read(&mut buffer).unwrap() > 0 {}
        });
        let sent = Rc::new(Cell::new(0));
        let of_sender = Rc::clone(&sent);
        spawn(async move {
            for _ in 0..2_000 {
                socket.send(vec![7; 60 * 1024]);
                socket.send_large();
                of_sender.set(of_sender.get() + 60 * 1024);
                socket.send_room(48 * 1024).await.unwrap();
            }
        });
        let (mut before, mut most) = (0, 0);
        while sent.get() < 2_000 * 60 * 1024 {
            most = most.max(sent.get() - before);
            before = sent.get();
            yield_now().await;
        }
        assert!(most <= BETWEEN_MAX, "{most} bytes without a turn");
        outside(move || reader.join().unwrap()).await;
    });
}

/// While less than half of the memory is available, receives are as small as usual.
#[test]
fn receives_are_not_large_while_memory_is_scarce() {
    on_both_drivers(|| async {
        let mut held: Vec<Slice> = Vec::new();
        let mut senders = Vec::new();
        while !is_memory_scarce() {
            let (socket, sender) = with_sender(WINDOW).await;
            let mut bytes = 0;
            while bytes < LEN && !is_memory_scarce() {
                let piece = socket.recv().await.unwrap().unwrap();
                bytes += piece.len();
                held.push(piece);
            }
            senders.push((socket, sender));
        }
        let (socket, sender) = with_sender(WINDOW).await;
        // A receive that was started before may still be large.
        for _ in 0..4 {
            socket.recv().await.unwrap();
        }
        for _ in 0..100 {
            let piece = socket.recv().await.unwrap().unwrap();
            assert!(piece.len() <= USUAL_MAX, "{} bytes", piece.len());
            yield_now().await;
        }
        assert_eq!(counters().shed, 0);
        drop(held);
        senders.push((socket, sender));
        for (socket, sender) in senders {
            while socket.recv().await.unwrap().is_some() {}
            outside(move || sender.join().unwrap()).await;
        }
    });
}

/// Bytes that have arrived stay readable when no large buffer is free, which epoll does not report
/// again.
#[test]
fn a_receive_that_finds_no_large_buffer_is_followed_by_usual_ones() {
    on_both_drivers(|| async {
        let (socket, sender) = with_sender_of(SCARCE_LEN, WINDOW).await;
        let mut held = Vec::new();
        for _ in 0..50 {
            // The kernel's buffer is full, so that nothing more arrives.
            sleep(Duration::from_millis(2)).await;
            while is_memory_scarce() {
                held.pop();
            }
            let mut beyond = 0;
            while beyond < 3 {
                let received = blitz_reactor::timeout(Duration::from_secs(30), socket.recv());
                let received = received.await.expect("bytes have arrived");
                held.extend(received.unwrap());
                beyond += usize::from(is_memory_scarce());
            }
        }
        drop(held);
        while socket.recv().await.unwrap().is_some() {}
        outside(move || sender.join().unwrap()).await;
    });
}
