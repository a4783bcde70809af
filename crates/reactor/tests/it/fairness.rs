//! Bounds: buffers, sockets, and one who wants everything.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use blitz_reactor::{
    Config, IoChoice, Listener, Slice, Socket, block_on, counters, sleep, sockets_open, spawn,
};

use crate::{anywhere, config, listen, on_both_drivers, pattern};

/// Receives from a flood and keeps everything until not even rations are left.
async fn hoard_everything(hoarder: &Socket) -> Vec<Slice> {
    let mut hoard = Vec::new();
    loop {
        let held = blitz_reactor::timeout(Duration::from_millis(50), hoarder.recv()).await;
        if held.is_err() && counters().no_buffers > 0 {
            return hoard;
        }
        hoard.extend(held.into_iter().flatten().flatten());
    }
}

/// A socket of the reactor whose other end sends without end.
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

/// A socket that finds the pool empty waits in a queue, and all of them continue (rule 2).
#[test]
fn an_empty_pool_makes_receivers_wait_in_line() {
    on_both_drivers(|| async {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut others = Vec::new();
        // More than a driver has buffers in readiness.
        for _ in 0..300 {
            let (server, peer) = crate::with_outsider().await;
            others.push((server, peer));
        }
        let (hoarder, flood) = flooded(&outside).await;
        let hoard = hoard_everything(&hoarder).await;
        let before = counters().no_buffers;
        for (_, peer) in &others {
            crate::write_all(peer, b"me too");
        }
        sleep(Duration::from_millis(100)).await;
        assert!(counters().no_buffers >= before + 30, "nobody has to wait");
        drop((hoard, hoarder));
        for (socket, _) in &others {
            let heard = blitz_reactor::timeout(Duration::from_secs(2), socket.recv()).await;
            assert_eq!(&*heard.unwrap().unwrap().unwrap(), b"me too");
        }
        assert_eq!(counters().shed, 0);
        crate::outside(move || flood.join().unwrap()).await;
    });
}

/// Bytes that wait one by one do not pin a buffer each (rule 3).
#[test]
fn single_bytes_that_wait_are_gathered() {
    on_both_drivers(|| async {
        let (socket, outsider) = crate::with_outsider().await;
        outsider.set_nodelay(true).unwrap();
        for byte in pattern(5_000) {
            crate::write_all(&outsider, &[byte]);
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

/// Small slices that are kept do not pin buffers (rule 3).
#[test]
fn hoarded_slices_leave_the_pool_to_the_others() {
    on_both_drivers(|| async {
        let (client, server) = crate::pair().await;
        let mut hoard = Vec::new();
        for _ in 0..5_000 {
            client.send("x");
            hoard.push(server.recv().await.unwrap().unwrap());
        }
        assert_eq!(counters().no_buffers, 0);
        assert!(hoard.iter().all(|slice| **slice == *b"x"));
    });
}

/// While no socket can receive, the largest holder is shed (rule 4).
#[test]
fn the_largest_holder_is_shed_when_nobody_can_receive() {
    on_both_drivers(|| async {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let (greedy, first) = flooded(&outside).await;
        let (hoarder, second) = flooded(&outside).await;
        let hoard = hoard_everything(&hoarder).await;
        assert!(greedy.unread_bytes() > 0);
        while counters().shed == 0 {
            sleep(Duration::from_millis(20)).await;
        }
        assert!(greedy.recv().await.is_err() || hoarder.recv().await.is_err());
        drop((hoard, greedy, hoarder));
        crate::outside(move || (first.join().unwrap(), second.join().unwrap())).await;
    });
}

/// Bytes that the owner of a socket has taken count if it reports them (rule 4).
#[test]
fn an_owner_that_says_what_it_holds_is_shed_for_it() {
    on_both_drivers(|| async {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let (modest, first) = flooded(&outside).await;
        let (hoarder, second) = flooded(&outside).await;
        let mut hoard = hoard_everything(&hoarder).await;
        hoarder.note_held(hoard.iter().map(Slice::len).sum());
        // Looked at once: what is hoarded does not come back, so that the next one's turn comes soon.
        while let Ok(more) = hoarder.recv().await {
            hoard.extend(more);
        }
        assert_eq!(counters().shed, 1);
        assert!(!matches!(modest.try_recv(), Some(Err(_))));
        drop((hoard, modest, hoarder));
        crate::outside(move || (first.join().unwrap(), second.join().unwrap())).await;
    });
}

/// Holding costs more the more is held: many who take nothing leave room for a newcomer.
#[test]
fn a_thousand_stalled_connections_leave_room_for_a_newcomer() {
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
            (16 << 20..64 << 20).contains(&held),
            "{held} bytes are held"
        );
        let newcomer = Socket::connect(&address.into()).await.unwrap();
        let (mut peer, _) = outside.accept().unwrap();
        peer.write_all(b"hello").unwrap();
        let heard = blitz_reactor::timeout(Duration::from_millis(500), newcomer.recv()).await;
        assert_eq!(&*heard.unwrap().unwrap().unwrap(), b"hello");
        assert_eq!(counters().shed, 0);
    });
}

/// The same when each has passed some on to a peer that takes nothing, as a gateway does: what everybody
/// may hold however little is left comes out of a reserve.
#[test]
fn stalled_connections_that_have_passed_bytes_on_leave_room_for_a_newcomer() {
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
        let newcomer = Socket::connect(&address.into()).await.unwrap();
        let (mut peer, _) = outside.accept().unwrap();
        peer.write_all(b"hello").unwrap();
        let heard = blitz_reactor::timeout(Duration::from_millis(100), newcomer.recv()).await;
        assert_eq!(&*heard.unwrap().unwrap().unwrap(), b"hello");
        assert_eq!((counters().no_buffers, counters().shed), (0, 0));
    });
}

/// Bytes that were asked for while much was free come when little is: nobody receives more than a ration
/// then, and a newcomer is served.
#[test]
fn a_burst_on_connections_that_wait_leaves_room_for_a_newcomer() {
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
        // 250 MB together.
        for (_, peer) in &mut waiting {
            let _ = peer.write(&pattern(250_000));
        }
        sleep(Duration::from_millis(300)).await;
        let newcomer = Socket::connect(&address.into()).await.unwrap();
        let (mut peer, _) = outside.accept().unwrap();
        peer.write_all(b"hello").unwrap();
        let heard = blitz_reactor::timeout(Duration::from_millis(100), newcomer.recv()).await;
        assert_eq!(&*heard.unwrap().unwrap().unwrap(), b"hello");
        assert_eq!(counters().shed, 0);
    });
}

/// One sender at full speed does not delay the small messages of another (rule 1).
#[test]
fn a_hot_connection_does_not_starve_its_neighbours() {
    on_both_drivers(|| async {
        let (listener, address) = listen();
        let flood = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let block = pattern(1 << 20);
            while stream.write_all(&block).is_ok() {}
        });
        let hot = listener.accept().await;
        hot.set_window(1 << 20);
        let eaten = Rc::new(Cell::new(0usize));
        let count = eaten.clone();
        let eater = spawn(async move {
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
        assert!(eaten.get() > 10 << 20, "the flood flows");
        assert!(
            waits[180] < Duration::from_millis(50),
            "90 % within {:?}",
            waits[180]
        );
        eater.abort();
        crate::outside(move || flood.join().unwrap()).await;
    });
}

/// The limit of open sockets (rule 20).
#[test]
fn at_the_limit_of_sockets_accepting_rests_and_resumes() {
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
            assert_eq!(accepted.get(), 40, "the rest is accepted as room comes");
        })
        .unwrap();
    }
}

#[test]
fn connections_that_come_and_go_leave_nothing_behind() {
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

/// Tasks that have more to do than a turn allows share one turn's time, however many they are.
#[test]
fn many_busy_tasks_do_not_keep_a_modest_one_waiting() {
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
        // Each has its first.
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

/// Who sends little does not wait until the kernel has copied what others send.
#[test]
fn a_small_answer_leaves_before_many_large_ones() {
    const LARGE: usize = 100_000;
    on_both_drivers(|| async {
        let mut others = Vec::new();
        for _ in 0..32 {
            others.push(crate::with_outsider().await);
        }
        let (modest, mut peer) = crate::with_outsider().await;
        for (socket, _) in &others {
            socket.send(pattern(LARGE));
        }
        modest.send("hello");
        let before = counters().sent_bytes;
        while modest.queued() > 0 {
            blitz_reactor::yield_now().await;
        }
        let sent = counters().sent_bytes - before;
        assert!(sent < 8 * LARGE as u64, "{sent} bytes went before");
        let mut bytes = [0; 5];
        peer.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
        // And the others have their turns.
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
