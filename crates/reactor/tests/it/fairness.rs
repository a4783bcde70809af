//! Bounds of buffers and sockets, and fairness under overload.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use blitz_reactor::{
    Config, IoChoice, Listener, Slice, Socket, block_on, counters, sleep, sockets_open, spawn,
};

use crate::{anywhere, config, listen, on_both_drivers, pattern};

/// Receives and keeps slices until not even small receives are left.
async fn receive_until_exhausted(holder: &Socket) -> Vec<Slice> {
    let mut held = Vec::new();
    loop {
        let received = blitz_reactor::timeout(Duration::from_millis(50), holder.recv()).await;
        if received.is_err() && counters().no_buffers > 0 {
            return held;
        }
        held.extend(received.into_iter().flatten().flatten());
    }
}

/// A socket of the reactor whose peer sends endlessly.
async fn flooded(outside: &TcpListener) -> (Socket, std::thread::JoinHandle<()>) {
    let socket = Socket::connect(&outside.local_addr().unwrap().into())
        .await
        .unwrap();
    socket.set_window(1 << 20);
    let mut peer = outside.accept().unwrap().0;
    let flood = std::thread::spawn(move || {
        let block = pattern(1 << 20);
        while peer.write_all(&block).is_ok() {}
    });
    (socket, flood)
}

/// Sockets that find the pool empty wait in order, and all are served (rule 2).
#[test]
fn receives_wait_in_order_for_an_empty_pool() {
    on_both_drivers(|| async {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut others = Vec::new();
        // More than the buffers that a driver keeps posted.
        for _ in 0..300 {
            let (server, peer) = crate::with_blocking_peer().await;
            others.push((server, peer));
        }
        let (holder, flood) = flooded(&outside).await;
        let held = receive_until_exhausted(&holder).await;
        let before = counters().no_buffers;
        for (_, peer) in &others {
            crate::write_all(peer, b"me too");
        }
        sleep(Duration::from_millis(100)).await;
        assert!(
            counters().no_buffers >= before + 30,
            "no receive had to wait"
        );
        drop((held, holder));
        for (socket, _) in &others {
            let received = blitz_reactor::timeout(Duration::from_secs(2), socket.recv()).await;
            assert_eq!(&*received.unwrap().unwrap().unwrap(), b"me too");
        }
        assert_eq!(counters().shed, 0);
        crate::outside(move || flood.join().unwrap()).await;
    });
}

/// Unread single bytes do not occupy a buffer each (rule 3).
#[test]
fn unread_single_bytes_are_copied_together() {
    on_both_drivers(|| async {
        let (socket, peer_stream) = crate::with_blocking_peer().await;
        peer_stream.set_nodelay(true).unwrap();
        for byte in pattern(5_000) {
            crate::write_all(&peer_stream, &[byte]);
            blitz_reactor::yield_now().await;
        }
        sleep(Duration::from_millis(20)).await;
        assert_eq!(socket.unread_bytes(), 5_000);
        let mut pieces = 0;
        let mut all = Vec::new();
        while let Some(Ok(Some(bytes))) = socket.try_recv() {
            pieces += 1;
            all.extend_from_slice(&bytes);
        }
        assert!(all == pattern(5_000));
        assert!(pieces <= 3, "{pieces} pieces");
    });
}

/// Small slices that are kept do not occupy buffers (rule 3).
#[test]
fn small_slices_that_are_kept_do_not_exhaust_the_pool() {
    on_both_drivers(|| async {
        let (client, server) = crate::pair().await;
        let mut held = Vec::new();
        for _ in 0..5_000 {
            client.send("x");
            held.push(server.recv().await.unwrap().unwrap());
        }
        assert_eq!(counters().no_buffers, 0);
        assert!(held.iter().all(|slice| **slice == *b"x"));
    });
}

/// While no socket can receive, the largest holder is shed (rule 4).
#[test]
fn the_largest_holder_is_shed_when_no_socket_can_receive() {
    on_both_drivers(|| async {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let (greedy, first) = flooded(&outside).await;
        let (holder, second) = flooded(&outside).await;
        let held = receive_until_exhausted(&holder).await;
        assert!(greedy.unread_bytes() > 0);
        while counters().shed == 0 {
            sleep(Duration::from_millis(20)).await;
        }
        assert!(greedy.recv().await.is_err() || holder.recv().await.is_err());
        drop((held, greedy, holder));
        crate::outside(move || (first.join().unwrap(), second.join().unwrap())).await;
    });
}

/// Bytes that the owner of a socket has taken count if it reports them (rule 4).
#[test]
fn bytes_that_an_owner_reports_count_for_shedding() {
    on_both_drivers(|| async {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let (light, first) = flooded(&outside).await;
        let (holder, second) = flooded(&outside).await;
        let mut held = receive_until_exhausted(&holder).await;
        holder.note_held(held.iter().map(Slice::len).sum());
        // Without a pause: the held bytes are not freed, so another socket would be shed soon.
        while let Ok(more) = holder.recv().await {
            held.extend(more);
        }
        assert_eq!(counters().shed, 1);
        assert!(!matches!(light.try_recv(), Some(Err(_))));
        drop((held, light, holder));
        crate::outside(move || (first.join().unwrap(), second.join().unwrap())).await;
    });
}

/// A new connection receives within this time.
async fn expect_served(outside: &TcpListener, within: Duration) {
    let address = outside.local_addr().unwrap();
    let connection = Socket::connect(&address.into()).await.unwrap();
    let (mut peer, _) = outside.accept().unwrap();
    peer.write_all(b"hello").unwrap();
    let received = blitz_reactor::timeout(within, connection.recv()).await;
    assert_eq!(&*received.unwrap().unwrap().unwrap(), b"hello");
}

/// Shares shrink as memory is held, so many stalled connections leave room for a new one.
#[test]
fn a_thousand_stalled_connections_leave_room_for_a_new_one() {
    on_both_drivers(|| async {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = outside.local_addr().unwrap();
        let mut stalled = Vec::new();
        for _ in 0..1_000 {
            let socket = Socket::connect(&address.into()).await.unwrap();
            socket.set_window(1 << 20);
            let (mut peer, _) = outside.accept().unwrap();
            peer.set_nonblocking(true).unwrap();
            let _ = peer.write(&pattern(200_000));
            stalled.push((socket, peer));
            blitz_reactor::yield_now().await;
        }
        sleep(Duration::from_millis(200)).await;
        let held: usize = stalled
            .iter()
            .map(|(socket, _)| socket.unread_bytes())
            .sum();
        assert!(
            (15 << 20..64 << 20).contains(&held),
            "{held} bytes are held"
        );
        expect_served(&outside, Duration::from_millis(500)).await;
        assert_eq!(counters().shed, 0);
    });
}

/// The same when each connection has forwarded bytes to a peer that does not read, as in a gateway: small receives come
/// from a reserve.
#[test]
fn stalled_connections_of_a_gateway_leave_room_for_a_new_one() {
    on_both_drivers(|| async {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = outside.local_addr().unwrap();
        let mut stalled = Vec::new();
        for _ in 0..1_000 {
            let socket = Socket::connect(&address.into()).await.unwrap();
            socket.set_window(64 << 10);
            let (mut peer, _) = outside.accept().unwrap();
            peer.set_nonblocking(true).unwrap();
            let _ = peer.write(&pattern(500_000));
            let mut passed_on = Vec::new();
            for _ in 0..6 {
                let piece = blitz_reactor::timeout(Duration::from_millis(5), socket.recv()).await;
                passed_on.extend(piece.into_iter().flatten().flatten());
            }
            stalled.push((socket, peer, passed_on));
        }
        expect_served(&outside, Duration::from_millis(100)).await;
        assert_eq!((counters().no_buffers, counters().shed), (0, 0));
    });
}

/// Receives that were started with much free memory complete with little: then sockets have small receives only, and a
/// new connection is served.
#[test]
fn a_burst_on_waiting_connections_leaves_room_for_a_new_one() {
    on_both_drivers(|| async {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = outside.local_addr().unwrap();
        let mut waiting = Vec::new();
        for _ in 0..1_000 {
            let socket = Socket::connect(&address.into()).await.unwrap();
            socket.set_window(256 << 10);
            let (peer, _) = outside.accept().unwrap();
            peer.set_nonblocking(true).unwrap();
            waiting.push((socket, peer));
        }
        sleep(Duration::from_millis(20)).await;
        // 250 MB in total.
        for (_, peer) in &mut waiting {
            let _ = peer.write(&pattern(250_000));
        }
        sleep(Duration::from_millis(300)).await;
        expect_served(&outside, Duration::from_millis(100)).await;
        assert_eq!(counters().shed, 0);
    });
}

/// A sender at full speed does not delay small messages on other connections (rule 1).
#[test]
fn a_fast_connection_does_not_starve_others() {
    on_both_drivers(|| async {
        let (listener, address) = listen();
        let flood = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let block = pattern(1 << 20);
            while stream.write_all(&block).is_ok() {}
        });
        let hot = listener.accept().await;
        hot.set_window(1 << 20);
        let received = Rc::new(Cell::new(0usize));
        let count = received.clone();
        let reader = spawn(async move {
            while let Ok(Some(bytes)) = hot.recv().await {
                count.set(count.get() + bytes.len());
            }
        });
        let client = Socket::connect(&address.into()).await.unwrap();
        let server = listener.accept().await;
        let mut waits: Vec<Duration> = Vec::new();
        for _ in 0..200 {
            let start = Instant::now();
            client.send("ping");
            server.recv().await.unwrap();
            waits.push(start.elapsed());
            sleep(Duration::from_millis(1)).await;
        }
        waits.sort();
        assert!(received.get() > 10 << 20, "the fast connection receives");
        assert!(
            waits[180] < Duration::from_millis(50),
            "90 % within {:?}",
            waits[180]
        );
        reader.abort();
        crate::outside(move || flood.join().unwrap()).await;
    });
}

/// This is rule 20.
#[test]
fn accepting_is_paused_at_the_limit_of_sockets_and_resumes() {
    for io in [IoChoice::Uring, IoChoice::Epoll] {
        let config = Config {
            sockets_max: 10,
            ..config(io)
        };
        block_on(&config, async {
            let (listener, address) = listen();
            let accepted = Rc::new(Cell::new(0));
            let count = accepted.clone();
            spawn(async move {
                loop {
                    let socket = listener.accept().await;
                    count.set(count.get() + 1);
                    spawn(async move { while let Ok(Some(_)) = socket.recv().await {} });
                }
            });
            sleep(Duration::from_millis(5)).await;
            let clients: Vec<TcpStream> = (0..40)
                .map(|_| TcpStream::connect(address).unwrap())
                .collect();
            sleep(Duration::from_millis(100)).await;
            let at_limit = accepted.get();
            assert!(
                (10..=40).contains(&at_limit) && sockets_open() <= 10,
                "{at_limit}"
            );
            assert!(counters().accept_paused > 0);
            drop(clients);
            sleep(Duration::from_millis(300)).await;
            assert_eq!(
                accepted.get(),
                40,
                "the rest is accepted when sockets close"
            );
        })
        .unwrap();
    }
}

#[test]
fn closed_connections_leave_no_sockets() {
    on_both_drivers(|| async {
        let listener = Listener::bind(&anywhere()).unwrap();
        let address = listener.local().clone();
        spawn(async move {
            loop {
                let socket = listener.accept().await;
                spawn(async move {
                    if let Ok(Some(bytes)) = socket.recv().await {
                        socket.send(bytes);
                    }
                    socket.finish();
                });
            }
        });
        let done = Rc::new(Cell::new(0));
        for n in 0..1_000u32 {
            let (address, done) = (address.clone(), done.clone());
            spawn(async move {
                let socket = Socket::connect(&address).await.unwrap();
                socket.send(n.to_be_bytes().to_vec());
                if n % 3 == 0 {
                    return done.set(done.get() + 1);
                }
                let back = socket.recv().await.unwrap().unwrap();
                assert_eq!(*back, n.to_be_bytes());
                done.set(done.get() + 1);
            });
        }
        let late = Instant::now() + Duration::from_secs(20);
        while (done.get() < 1_000 || sockets_open() > 0) && Instant::now() < late {
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!((done.get(), sockets_open()), (1_000, 0));
    });
}

/// Busy tasks share one time budget per turn, however many they are.
#[test]
fn many_busy_tasks_do_not_delay_a_light_one() {
    on_both_drivers(|| async {
        const BUSY: usize = 40;
        let turns = Rc::new(RefCell::new([0_usize; BUSY]));
        for number in 0..BUSY {
            let turns = Rc::clone(&turns);
            spawn(async move {
                loop {
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_millis(1) {}
                    turns.borrow_mut()[number] += 1;
                    blitz_reactor::yield_now().await;
                }
            });
        }
        let all = || turns.borrow().iter().sum::<usize>();
        // Each task has run once.
        sleep(Duration::from_micros(100)).await;
        for _ in 0..3 * BUSY {
            let before = all();
            sleep(Duration::from_micros(100)).await;
            let passed = all() - before;
            assert!(passed < BUSY / 4, "{passed} turns of others came before");
        }
        let turns = turns.borrow();
        let (least, most) = (turns.iter().min(), turns.iter().max());
        assert!(
            least.is_some_and(|least| most <= Some(&(least + 1))),
            "{turns:?}"
        );
    });
}

/// A small send does not wait until the kernel has copied the large ones.
#[test]
fn a_small_send_starts_before_many_large_ones() {
    const LARGE: usize = 100_000;
    on_both_drivers(|| async {
        let mut others = Vec::new();
        for _ in 0..32 {
            others.push(crate::with_blocking_peer().await);
        }
        let (light, mut peer) = crate::with_blocking_peer().await;
        for (socket, _) in &others {
            socket.send(pattern(LARGE));
        }
        light.send("hello");
        let before = counters().sent_bytes;
        while light.queued() > 0 {
            blitz_reactor::yield_now().await;
        }
        let sent = counters().sent_bytes - before;
        assert!(sent < 8 * LARGE as u64, "{sent} bytes went before");
        let mut bytes = [0; 5];
        peer.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
        // The large ones are sent as well.
        let readers: Vec<_> = others
            .iter()
            .map(|(_, peer)| peer.try_clone().unwrap())
            .map(|mut peer| {
                std::thread::spawn(move || peer.read_exact(&mut vec![0; LARGE]).unwrap())
            })
            .collect();
        crate::outside(move || readers.into_iter().for_each(|it| it.join().unwrap())).await;
    });
}
