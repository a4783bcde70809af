//! UDP sockets: batches, addresses, ECN, and faults of datagrams.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use blitz_reactor::{
    Config, Counters, DatagramSocket, Datagrams, Ecn, IoChoice, Train, counters, sleep, spawn,
    start, timeout, yield_now,
};

use crate::{config, on_all_drivers, on_both_drivers, pattern};

/// Far more than any of these tests needs.
const SOON: Duration = Duration::from_secs(10);

/// Within this time nothing more comes.
const QUIET: Duration = Duration::from_millis(50);

const SEGMENT: u16 = 1_200;

fn loopback() -> DatagramSocket {
    DatagramSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap()
}

/// A single datagram.
fn datagram(to: SocketAddr, content: &[u8]) -> Datagrams {
    Datagrams {
        to,
        from: None,
        ecn: None,
        content: content.to_vec(),
        segment_bytes: None,
    }
}

fn train(to: SocketAddr, content: &[u8], segment_bytes: u16) -> Datagrams {
    Datagrams {
        segment_bytes: Some(segment_bytes),
        ..datagram(to, content)
    }
}

async fn next(socket: &DatagramSocket) -> Train {
    timeout(SOON, socket.recv()).await.expect("a train comes")
}

/// All datagrams until `bytes` have come or nothing more comes.
async fn gather(socket: &DatagramSocket, bytes: usize) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    while all.iter().map(Vec::len).sum::<usize>() < bytes {
        let Ok(train) = timeout(SOON, socket.recv()).await else {
            break;
        };
        all.extend(train.datagrams().map(<[u8]>::to_vec));
    }
    all
}

#[test]
fn a_datagram_comes_with_its_addresses_and_goes_back() {
    on_all_drivers(|| async {
        let (one, other) = (loopback(), loopback());
        one.send(datagram(other.local(), b"there"));
        let received = next(&other).await;
        assert_eq!(received.bytes(), b"there");
        assert_eq!(received.from, one.local());
        assert_eq!(received.to, Some(IpAddr::from(Ipv4Addr::LOCALHOST)));
        assert_eq!((received.ecn, received.segment_bytes), (None, 5));
        other.send(Datagrams {
            from: received.to,
            ..datagram(received.from, b"and back")
        });
        assert_eq!(next(&one).await.bytes(), b"and back");
    });
}

/// Each would end a multishot receive, so the kernel drops them.
#[test]
fn empty_datagrams_are_not_received_and_delay_no_others() {
    on_all_drivers(|| async {
        let (one, other) = (loopback(), loopback());
        for content in [&b""[..], b"x", b"", b"", b"y", b""] {
            one.send(datagram(other.local(), content));
        }
        let received = gather(&other, 2).await;
        assert_eq!(received.concat().len(), 2);
        assert!(received.iter().all(|datagram| !datagram.is_empty()));
        assert!(timeout(QUIET, other.recv()).await.is_err());
        assert_eq!(counters().datagrams_received, 2);
    });
}

#[test]
fn many_empty_datagrams_do_not_take_a_turn_each() {
    on_both_drivers(|| async {
        let other = loopback();
        let sender = StdSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..500 {
            sender.send_to(&[], other.local()).unwrap();
        }
        sender.send_to(b"z", other.local()).unwrap();
        let turns = counters().turns;
        assert_eq!(next(&other).await.bytes(), b"z");
        assert!(
            counters().turns - turns < 100,
            "{}",
            counters().turns - turns
        );
    });
}

#[test]
fn a_train_is_sent_and_received_at_once() {
    on_both_drivers(|| async {
        let (one, other) = (loopback(), loopback());
        let content = pattern(usize::from(SEGMENT) * 20 + 7);
        one.send(train(other.local(), &content, SEGMENT));
        let datagrams = gather(&other, content.len()).await;
        assert_eq!(datagrams.len(), 21);
        assert_eq!(datagrams.concat(), content);
        assert_eq!(datagrams[20].len(), 7);
        let Counters {
            trains_sent,
            datagrams_sent,
            trains_received,
            datagrams_received,
            ..
        } = counters();
        assert_eq!((trains_sent, datagrams_sent), (1, 21));
        assert_eq!((trains_received, datagrams_received), (1, 21));
    });
}

#[test]
fn a_train_that_is_too_long_is_sent_as_several() {
    on_both_drivers(|| async {
        let (one, other) = (loopback(), loopback());
        for (bytes, segment, trains) in [(200 * 100, 100, 4), (70_000, 10_000, 2)] {
            let before = counters().trains_sent;
            let content = pattern(bytes);
            one.send(train(other.local(), &content, segment));
            let datagrams = gather(&other, content.len()).await;
            assert_eq!(datagrams.len(), bytes / usize::from(segment));
            assert_eq!(datagrams.concat(), content);
            assert_eq!(counters().trains_sent - before, trains);
        }
        timeout(SOON, one.send_room(0)).await.expect("all is sent");
    });
}

/// Anybody can cause these refusals, with the source port 0 for example.
#[test]
fn a_train_that_is_refused_for_its_addresses_does_not_change_how_others_are_sent() {
    on_both_drivers(|| async {
        let (one, other) = (loopback(), loopback());
        let content = pattern(3_000);
        one.send(train(
            SocketAddr::from(([127, 0, 0, 1], 0)),
            &content,
            SEGMENT,
        ));
        one.send(Datagrams {
            from: Some(IpAddr::from([192, 0, 2, 1])),
            ..train(other.local(), &content, SEGMENT)
        });
        timeout(SOON, one.send_room(0))
            .await
            .expect("all is reported");
        assert_eq!(
            (counters().trains_sent, counters().datagrams_unsent),
            (0, 6)
        );
        one.send(train(other.local(), &content, SEGMENT));
        assert_eq!(gather(&other, content.len()).await.concat(), content);
        assert_eq!(counters().trains_sent, 1);
    });
}

#[test]
fn ecn_bits_go_with_each_family() {
    on_both_drivers(|| async {
        let (one, other) = (loopback(), loopback());
        let six = || DatagramSocket::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, 0))).unwrap();
        let (one_six, other_six) = (six(), six());
        for ecn in [Some(Ecn::Ect1), Some(Ecn::Ect0), Some(Ecn::Ce), None] {
            for (from, to) in [(&one, &other), (&one_six, &other_six)] {
                from.send(Datagrams {
                    ecn,
                    ..train(to.local(), &pattern(3_000), SEGMENT)
                });
                let received = next(to).await;
                assert_eq!(received.ecn, ecn, "to {}", to.local());
                assert_eq!(received.to, Some(to.local().ip()));
                assert_eq!(received.bytes(), pattern(3_000));
            }
        }
    });
}

#[test]
fn a_socket_for_both_families_shows_ipv4_addresses_as_such() {
    on_both_drivers(|| async {
        let both = DatagramSocket::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))).unwrap();
        let (four, port) = (loopback(), both.local().port());
        // Another address of this machine than the kernel would choose for the reply.
        let address = IpAddr::from([127, 0, 0, 9]);
        four.send(Datagrams {
            ecn: Some(Ecn::Ect0),
            ..datagram(SocketAddr::new(address, port), b"four")
        });
        let received = next(&both).await;
        assert_eq!((received.from, received.to), (four.local(), Some(address)));
        assert_eq!(received.ecn, Some(Ecn::Ect0));
        both.send(Datagrams {
            from: received.to,
            ecn: Some(Ecn::Ce),
            ..train(received.from, &pattern(2_000), SEGMENT)
        });
        let back = next(&four).await;
        assert_eq!(back.from, SocketAddr::new(address, port));
        assert_eq!(
            (back.ecn, back.bytes()),
            (Some(Ecn::Ce), &pattern(2_000)[..])
        );
    });
}

#[test]
fn no_failure_of_sending_ends_a_socket() {
    on_both_drivers(|| async {
        let (one, other) = (loopback(), loopback());
        // EMSGSIZE, EINVAL for the port, and EAFNOSUPPORT.
        one.send(datagram(other.local(), &pattern(65_530)));
        one.send(datagram(SocketAddr::from(([127, 0, 0, 1], 0)), b"nobody"));
        one.send(datagram(SocketAddr::from((Ipv6Addr::LOCALHOST, 9)), b"six"));
        timeout(SOON, one.send_room(0))
            .await
            .expect("all is reported");
        assert_eq!(counters().datagrams_unsent, 3);
        // A port that nobody listens on: ICMP says so, and it concerns nobody else.
        let closed = loopback().local();
        yield_now().await;
        one.send(datagram(closed, b"nobody"));
        sleep(QUIET).await;
        one.send(datagram(other.local(), b"still there"));
        assert_eq!(next(&other).await.bytes(), b"still there");
        other.send(datagram(one.local(), b"and here"));
        assert_eq!(next(&one).await.bytes(), b"and here");
    });
}

#[test]
fn trains_that_are_held_stop_receiving_until_they_are_dropped() {
    on_both_drivers(|| async {
        let (one, other) = (loopback(), loopback());
        let mut held = Vec::new();
        for number in 0..64_u8 {
            one.send(datagram(other.local(), &[number]));
            held.push(next(&other).await);
        }
        for number in 64..100_u8 {
            one.send(datagram(other.local(), &[number]));
        }
        assert!(timeout(QUIET, other.recv()).await.is_err());
        // They keep their content.
        for (number, train) in held.iter().enumerate() {
            assert_eq!(train.bytes(), [number as u8]);
        }
        held.clear();
        for number in 64..100_u8 {
            assert_eq!(next(&other).await.bytes(), [number]);
        }
    });
}

#[test]
fn a_socket_that_nobody_reads_leaves_buffers_to_others() {
    on_both_drivers(|| async {
        let (unread, read, sender) = (loopback(), loopback(), loopback());
        for number in 0..300_u32 {
            sender.send(datagram(unread.local(), &number.to_be_bytes()));
            if number % 10 == 0 {
                yield_now().await;
            }
        }
        sleep(QUIET).await;
        for _ in 0..100 {
            sender.send(datagram(read.local(), b"read"));
            assert_eq!(next(&read).await.bytes(), b"read");
        }
        assert!(counters().trains_paused > 0);
        // The kernel has kept the rest in order.
        for number in 0..300_u32 {
            assert_eq!(next(&unread).await.bytes(), number.to_be_bytes());
        }
    });
}

#[test]
fn a_reader_that_is_slower_than_its_sender_bounds_what_is_received() {
    on_both_drivers(|| async {
        let socket = loopback();
        let to = socket.local();
        let sender = thread::spawn(move || {
            let sender = StdSocket::bind("127.0.0.1:0").unwrap();
            for burst in 0..1_000 {
                for _ in 0..40 {
                    sender.send_to(&[burst as u8; 1_000], to).unwrap();
                }
                thread::sleep(Duration::from_micros(200));
            }
        });
        let mut read = 0;
        let mut waiting_max = 0;
        while let Ok(train) = timeout(QUIET, socket.recv()).await {
            drop(train);
            read += 1;
            waiting_max = waiting_max.max(counters().trains_received - read);
            // Datagrams that arrive meanwhile are received in the next turn.
            if read < 400 {
                thread::sleep(Duration::from_micros(500));
                yield_now().await;
            }
        }
        sender.join().unwrap();
        assert!(waiting_max >= 48, "{waiting_max}");
        // The limit, and what two turns may bring.
        assert!(waiting_max <= 48 + 2 * 64, "{waiting_max}");
    });
}

#[test]
fn datagrams_that_the_kernel_drops_are_counted() {
    on_both_drivers(|| async {
        let socket = loopback();
        let to = socket.local();
        let sender = thread::spawn(move || {
            let sender = StdSocket::bind("127.0.0.1:0").unwrap();
            for _ in 0..20_000 {
                sender.send_to(&[0; 1_000], to).unwrap();
            }
        });
        // The core is blocked, so that nothing is received meanwhile.
        sender.join().unwrap();
        while timeout(QUIET, socket.recv()).await.is_ok() {}
        // The next datagram tells how many were lost before.
        let last = loopback();
        last.send(datagram(to, b"last"));
        assert_eq!(next(&socket).await.bytes(), b"last");
        let Counters {
            datagrams_received,
            datagrams_dropped,
            ..
        } = counters();
        assert!(datagrams_dropped > 0);
        assert_eq!(datagrams_received + datagrams_dropped, 20_001);
    });
}

#[test]
fn a_closed_socket_sends_what_was_queued_and_frees_its_port() {
    on_both_drivers(|| async {
        let other = loopback();
        let one = loopback();
        let port = one.local();
        for _ in 0..10 {
            one.send(datagram(other.local(), b"last words"));
        }
        drop(one);
        for _ in 0..10 {
            assert_eq!(next(&other).await.bytes(), b"last words");
        }
        sleep(QUIET).await;
        StdSocket::bind(port).expect("the port is free");
    });
}

#[test]
fn a_flood_does_not_stop_other_sockets_and_timers() {
    on_both_drivers(|| async {
        let (flooded, quiet) = (loopback(), loopback());
        let (to, other) = (flooded.local(), quiet.local());
        let flood = thread::spawn(move || {
            let sender = StdSocket::bind("127.0.0.1:0").unwrap();
            let until = std::time::Instant::now() + Duration::from_millis(500);
            while std::time::Instant::now() < until {
                sender.send_to(&[], to).unwrap();
                sender.send_to(b"x", to).unwrap();
            }
            sender.send_to(b"done", other).unwrap();
        });
        spawn(async move {
            loop {
                drop(flooded.recv().await);
            }
        });
        let mut ticks = 0;
        let done = loop {
            match timeout(Duration::from_millis(5), quiet.recv()).await {
                Ok(train) => break train,
                Err(_) => ticks += 1,
            }
        };
        assert_eq!(done.bytes(), b"done");
        assert!(ticks > 20, "{ticks} timers of 5 ms in half a second");
        flood.join().unwrap();
        assert!(counters().datagrams_received > 1_000);
    });
}

#[test]
fn a_train_is_forwarded_to_another_core() {
    for io in [IoChoice::Uring, IoChoice::Epoll] {
        let address = StdSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let settings = Config {
            cores: 2,
            ..config(io)
        };
        static HAS_SOCKET: AtomicBool = AtomicBool::new(false);
        HAS_SOCKET.store(false, Ordering::Release);
        let cores = start(&settings, move |index| async move {
            let socket = DatagramSocket::bind(address).unwrap();
            if index == 1 {
                HAS_SOCKET.store(true, Ordering::Release);
                let received = next(&socket).await;
                let texts: Vec<_> = received.datagrams().collect();
                assert_eq!(texts, [&b"cd"[..], b"e"]);
                assert_eq!(received.to, Some(address.ip()));
                return sleep(Duration::from_millis(300)).await;
            }
            let own = loopback();
            own.send(train(own.local(), b"abcde", 2));
            let received = next(&own).await;
            while !HAS_SOCKET.load(Ordering::Acquire) {
                sleep(Duration::from_millis(1)).await;
            }
            assert!(socket.forward(1, &received, 1..3));
            assert!(!socket.forward(2, &received, 0..3), "there is no such core");
        })
        .unwrap();
        let sums = || cores.counters();
        for _ in 0..100 {
            if sums().datagrams_forwarded == 2 {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let sums = sums();
        assert_eq!(
            (sums.datagrams_forwarded, sums.datagrams_not_forwarded),
            (2, 3)
        );
        cores.join().unwrap();
    }
}

#[cfg(feature = "simulation")]
mod simulated {
    use blitz_reactor::simulation::Conditions;

    use super::*;

    /// Numbers that come out of 1,000.
    fn received_of_1000(seed: u64, conditions: Conditions) -> Vec<u32> {
        let (sender, receiver) = std::sync::mpsc::channel();
        crate::simulated::run(seed, conditions, async move {
            let (one, other) = (loopback(), loopback());
            for group in 0..100_u32 {
                let numbers = group * 10..group * 10 + 10;
                let content: Vec<u8> = numbers.flat_map(u32::to_be_bytes).collect();
                one.send(train(other.local(), &content, 4));
                while let Ok(train) = timeout(Duration::from_millis(20), other.recv()).await {
                    for bytes in train.datagrams() {
                        let number = u32::from_be_bytes(bytes.try_into().unwrap());
                        sender.send(number).unwrap();
                    }
                }
            }
        });
        receiver.into_iter().collect()
    }

    #[test]
    fn a_calm_network_loses_nothing_and_keeps_the_order() {
        let received = received_of_1000(1, Conditions::calm());
        assert_eq!(received, (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn faults_lose_double_and_reorder_and_follow_from_the_seed() {
        let faults = || Conditions {
            datagram_lost: 100,
            datagram_twice: 100,
            datagram_delay_us: 10..=5_000,
            ..crate::simulated::faults()
        };
        let received = received_of_1000(7, faults());
        let mut distinct = received.clone();
        distinct.sort_unstable();
        assert_ne!(received, distinct, "reordered");
        distinct.dedup();
        assert!(distinct.len() < received.len(), "doubled");
        assert!((800..970).contains(&distinct.len()), "{}", distinct.len());
        assert_eq!(received, received_of_1000(7, faults()));
        assert_ne!(received, received_of_1000(8, faults()));
    }

    #[test]
    fn refused_trains_are_sent_singly_and_nothing_is_lost() {
        let conditions = Conditions {
            trains_refused: 1_000,
            ..Conditions::calm()
        };
        let received = received_of_1000(1, conditions);
        assert_eq!(received, (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn datagrams_that_are_too_large_for_the_path_are_lost() {
        let conditions = Conditions {
            datagram_bytes_max: 3,
            ..Conditions::calm()
        };
        assert_eq!(received_of_1000(1, conditions), []);
    }
}
