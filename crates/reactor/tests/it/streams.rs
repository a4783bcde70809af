//! Bytes arrive completely, in order, and within bounds.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

use blitz_reactor::{
    Address, Buffer, IoChoice, Listener, Socket, block_on, counters, sleep, spawn, yield_now,
};

use crate::{
    config, listen, on_all_drivers, on_both_drivers, outside, pair, pattern, read_exactly,
    read_to_end, with_blocking_peer, write_all,
};

#[test]
fn sent_bytes_arrive_and_fin_ends_the_stream() {
    on_all_drivers(|| async {
        let (client, server) = pair().await;
        client.send("one ");
        client.send(b"two ".to_vec());
        let mut buffer = Buffer::take();
        buffer.extend_from_slice(b"three");
        client.send(buffer);
        client.shutdown_write();
        assert_eq!(read_to_end(&server).await, b"one two three");
        assert!(server.recv().await.unwrap().is_none(), "FIN stays");
        server.send("still open this way");
        server.shutdown_write();
        assert_eq!(read_to_end(&client).await, b"still open this way");
    });
}

#[test]
fn bytes_queued_in_one_turn_are_sent_together() {
    on_both_drivers(|| async {
        let (client, server) = pair().await;
        client.send("head");
        client.send("body");
        assert_eq!(&*server.recv().await.unwrap().unwrap(), b"headbody");
    });
}

#[test]
fn large_transfers_are_complete_both_ways_at_once() {
    const LEN: usize = 20 << 20;
    on_all_drivers(|| async {
        let (client, server) = pair().await;
        spawn(async move {
            while let Some(bytes) = server.recv().await.unwrap() {
                server.send_room(64 << 10).await.unwrap();
                server.send(bytes);
            }
            server.finish();
        });
        let sent = pattern(LEN);
        let expected = sent.clone();
        let client = std::rc::Rc::new(client);
        let sender = client.clone();
        spawn(async move {
            for piece in sent.chunks(50_000) {
                sender.send_room(128 << 10).await.unwrap();
                sender.send(piece.to_vec());
            }
            sender.shutdown_write();
        });
        assert!(read_to_end(&client).await == expected);
    });
}

#[test]
fn unread_bytes_never_exceed_the_window() {
    on_all_drivers(|| async {
        let (client, server) = pair().await;
        server.set_window(20_000);
        spawn(async move {
            for _ in 0..200 {
                client.send(pattern(10_000));
                client.send_room(0).await.unwrap();
            }
            client.finish();
        });
        let mut total = 0;
        let mut most = 0;
        while let Some(bytes) = {
            sleep(Duration::from_millis(1)).await;
            most = most.max(server.unread_bytes());
            server.recv().await.unwrap()
        } {
            total += bytes.len();
        }
        assert_eq!(total, 2_000_000);
        assert!(most <= 20_000, "{most} bytes waited");
        assert!(most > 5_000, "the window is used");
    });
}

#[test]
fn the_kernel_buffers_a_bounded_amount_for_a_client_that_does_not_read() {
    const LEN: usize = 8 << 20;
    on_both_drivers(|| async {
        let (listener, address) = listen();
        let mut client = TcpStream::connect(address).unwrap();
        let server = listener.accept().await;
        let sent = counters().sent_bytes;
        for piece in pattern(LEN).chunks(64 << 10) {
            server.send(piece.to_vec());
        }
        sleep(Duration::from_millis(300)).await;
        // In addition to the client's receive buffer.
        let taken = counters().sent_bytes - sent;
        assert!(taken <= 1 << 20, "{taken} bytes");
        server.finish();
        let received = outside(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).map(|_| all)
        });
        assert!(received.await.unwrap() == pattern(LEN));
    });
}

#[test]
fn a_closed_window_receives_nothing_until_it_opens() {
    on_both_drivers(|| async {
        let (socket, peer_stream) = with_blocking_peer().await;
        socket.set_window(4_096);
        // The pending receive may still deliver up to its limit.
        socket.set_window(0);
        write_all(&peer_stream, &pattern(200_000));
        sleep(Duration::from_millis(50)).await;
        assert!(
            socket.unread_bytes() <= 16 << 10,
            "{} bytes",
            socket.unread_bytes()
        );
        let before = socket.unread_bytes();
        sleep(Duration::from_millis(50)).await;
        assert_eq!(socket.unread_bytes(), before);
        socket.set_window(64 << 10);
        drop(peer_stream);
        assert_eq!(read_to_end(&socket).await, pattern(200_000));
    });
}

#[test]
fn queued_bytes_are_sent_before_the_core_ends() {
    for io in [IoChoice::Uring, IoChoice::Epoll] {
        let mut peer_stream = block_on(&config(io), async {
            let (socket, peer_stream) = with_blocking_peer().await;
            socket.send("good-bye");
            socket.finish();
            peer_stream
        })
        .unwrap();
        let mut received = String::new();
        peer_stream.read_to_string(&mut received).unwrap();
        assert_eq!(received, "good-bye");
    }
}

/// Even if they are more than one turn starts.
#[test]
fn large_sends_start_before_the_core_ends() {
    const BYTES: usize = 100_000;
    for io in [IoChoice::Uring, IoChoice::Epoll] {
        let outsiders = block_on(&config(io), async {
            let mut pairs = Vec::new();
            for _ in 0..20 {
                pairs.push(with_blocking_peer().await);
            }
            let sent = pairs.into_iter().map(|(socket, peer_stream)| {
                socket.send(pattern(BYTES));
                socket.finish();
                peer_stream
            });
            sent.collect::<Vec<_>>()
        });
        for mut peer_stream in outsiders.unwrap() {
            let mut received = Vec::new();
            peer_stream.read_to_end(&mut received).unwrap();
            assert!(received == pattern(BYTES), "{} bytes", received.len());
        }
    }
}

#[test]
fn unread_bytes_that_are_put_back_come_first() {
    on_both_drivers(|| async {
        let (client, server) = pair().await;
        client.send("GET / and more");
        let mut first = server.recv().await.unwrap().unwrap();
        let rest = first.split_to(6);
        server.unread(first);
        server.unread(rest);
        assert_eq!(&*server.recv().await.unwrap().unwrap(), b"GET / ");
        assert_eq!(&*server.recv().await.unwrap().unwrap(), b"and more");
        assert!(server.try_recv().is_none());
    });
}

#[test]
fn a_reset_is_a_persistent_error() {
    on_all_drivers(|| async {
        let (client, server) = pair().await;
        client.abort();
        for _ in 0..2 {
            let error = server.recv().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    });
}

#[test]
fn queued_bytes_arrive_before_a_reset() {
    on_both_drivers(|| async {
        let (client, server) = pair().await;
        client.send("half an answer");
        client.abort();
        assert_eq!(&*server.recv().await.unwrap().unwrap(), b"half an answer");
        assert_eq!(
            server.recv().await.unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
    });
}

#[test]
fn sending_to_a_reset_connection_fails() {
    on_all_drivers(|| async {
        let (client, server) = pair().await;
        client.abort();
        server.recv().await.unwrap_err();
        server.send("into the void");
        assert!(server.send_room(0).await.is_err());
    });
}

#[test]
fn connecting_without_a_listener_is_refused() {
    on_all_drivers(|| async {
        let (listener, address) = listen();
        drop(listener);
        sleep(Duration::from_millis(5)).await;
        let error = Socket::connect(&address.into()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_pending_connect_can_be_cancelled() {
    on_both_drivers(|| async {
        // A full backlog accepts no connection.
        let address = blackhole().into();
        let attempt = Socket::connect(&address);
        let attempt = blitz_reactor::timeout(Duration::from_millis(50), attempt).await;
        assert!(attempt.is_err());
        sleep(Duration::from_millis(20)).await;
        assert_eq!(blitz_reactor::sockets_open(), 0);
    });
}

/// An address whose SYNs are dropped: a listener that does not accept and whose backlog is full.
fn blackhole() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..4_200 {
        let connected = TcpStream::connect_timeout(&address, Duration::from_millis(30));
        match connected {
            Ok(stream) => std::mem::forget(stream),
            Err(_) => break,
        }
    }
    std::mem::forget(listener);
    address
}

#[test]
fn unix_sockets_work_and_the_listener_removes_their_file() {
    on_both_drivers(|| async {
        let path = std::env::temp_dir().join(format!("blitz-reactor-{}.sock", std::process::id()));
        // The file of a crashed process.
        drop(std::os::unix::net::UnixListener::bind(&path));
        let address = Address::unix(&path);
        let listener = Listener::bind(&address).unwrap();
        let client = Socket::connect(&address).await.unwrap();
        let server = listener.accept().await;
        assert_eq!(server.peer(), None);
        client.send("over unix");
        assert_eq!(&*server.recv().await.unwrap().unwrap(), b"over unix");
        drop(listener);
        yield_now().await;
        assert!(!path.exists());
    });
}

/// A file refuses connections like a stale socket, but must not be removed.
#[test]
fn a_file_at_the_path_of_a_unix_socket_is_not_removed() {
    on_both_drivers(|| async {
        let path = std::env::temp_dir().join(format!("blitz-reactor-{}.txt", std::process::id()));
        std::fs::write(&path, "precious").unwrap();
        let error = Listener::bind(&Address::unix(&path)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn both_ends_know_their_addresses() {
    on_all_drivers(|| async {
        let (client, server) = pair().await;
        assert_eq!(client.local(), server.peer());
        assert_eq!(client.peer(), server.local());
    });
}

#[test]
fn a_finished_socket_delivers_its_queue_despite_unread_input() {
    on_both_drivers(|| async {
        let (socket, mut peer_stream) = with_blocking_peer().await;
        write_all(&peer_stream, &pattern(30_000));
        socket.recv().await.unwrap();
        socket.send("413 with a reason");
        socket.finish();
        let answer = outside(move || {
            let answer = read_exactly(&peer_stream, 17);
            let mut rest = Vec::new();
            peer_stream.read_to_end(&mut rest).unwrap();
            (answer, rest)
        });
        assert_eq!(answer.await, (b"413 with a reason".to_vec(), Vec::new()));
        sleep(Duration::from_millis(20)).await;
        assert_eq!(blitz_reactor::sockets_open(), 0, "and then it is gone");
    });
}

#[test]
fn a_finished_socket_waits_a_bounded_time_for_a_silent_peer() {
    on_both_drivers(|| async {
        let (socket, peer_stream) = with_blocking_peer().await;
        socket.send("bye");
        socket.finish();
        let (peer_stream, bye) = outside(move || {
            let bye = read_exactly(&peer_stream, 3);
            (peer_stream, bye)
        })
        .await;
        assert_eq!(bye, b"bye");
        sleep(Duration::from_millis(4_000)).await;
        assert_eq!(blitz_reactor::sockets_open(), 1);
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(blitz_reactor::sockets_open(), 0);
        drop(peer_stream);
    });
}

#[test]
fn dropping_a_socket_closes_it() {
    on_both_drivers(|| async {
        let (socket, mut peer_stream) = with_blocking_peer().await;
        drop(socket);
        let read = outside(move || peer_stream.read(&mut [0; 8]).unwrap());
        assert_eq!(read.await, 0);
        sleep(Duration::from_millis(5)).await;
        assert_eq!(blitz_reactor::sockets_open(), 0);
    });
}

#[test]
fn a_full_socket_waits_for_its_reader() {
    const LEN: usize = 8 << 20;
    on_both_drivers(|| async {
        let (socket, peer_stream) = with_blocking_peer().await;
        socket.send(pattern(LEN));
        sleep(Duration::from_millis(50)).await;
        assert!(socket.queued() > 0, "the kernel does not take it all");
        let reader = outside(move || read_exactly(&peer_stream, LEN) == pattern(LEN));
        assert!(reader.await);
        socket.send_room(0).await.unwrap();
    });
}

#[test]
fn everything_is_counted() {
    on_both_drivers(|| async {
        let (client, server) = pair().await;
        client.send(pattern(1_000));
        server.recv().await.unwrap();
        let counters = counters();
        assert_eq!(counters.accepted, 1);
        assert_eq!(
            (counters.sent_bytes, counters.received_bytes),
            (1_000, 1_000)
        );
        assert!(counters.enters > 0 && counters.cqes > 0);
    });
}

/// The drop of sent memory may run any code.
#[test]
fn dropping_sent_memory_may_use_the_reactor() {
    struct Owner(Vec<u8>, u64);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl Drop for Owner {
        fn drop(&mut self) {
            assert!(blitz_reactor::sockets_open() as u64 >= self.1);
        }
    }
    on_all_drivers(|| async {
        let (client, server) = pair().await;
        client.send(bytes::Bytes::from_owner(Owner(pattern(5_000), 1)));
        client.send_room(0).await.unwrap();
        server.recv().await.unwrap().unwrap();
        server.abort();
        client.recv().await.unwrap_err();
        client.send(bytes::Bytes::from_owner(Owner(pattern(10), 1)));
        assert!(client.send_room(0).await.is_err());
        client.send(bytes::Bytes::from_owner(Owner(pattern(10), 1)));
        yield_now().await;
        drop(client);
    });
}

/// More than the submission queue holds.
#[test]
fn a_turn_may_start_any_number_of_sends() {
    const PAIRS: usize = 700;
    on_both_drivers(|| async {
        let (listener, address) = listen();
        let address = Address::from(address);
        let mut pairs = Vec::new();
        for _ in 0..PAIRS {
            let client = Socket::connect(&address).await.unwrap();
            pairs.push((client, listener.accept().await));
        }
        for (client, server) in &pairs {
            client.send("from the client");
            server.send("from the server");
        }
        for (client, server) in &pairs {
            assert_eq!(&*server.recv().await.unwrap().unwrap(), b"from the client");
            assert_eq!(&*client.recv().await.unwrap().unwrap(), b"from the server");
        }
    });
}
