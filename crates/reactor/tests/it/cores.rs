//! Several cores.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use blitz_reactor::{
    Address, Config, Cores, DriverKind, IoChoice, Listener, Socket, block_on, core_index, sleep,
    spawn, start, yield_now,
};

use crate::{anywhere, config, on_both_drivers};

const DRIVERS: [IoChoice; 2] = [IoChoice::Uring, IoChoice::Epoll];

#[test]
fn every_core_serves_the_same_address() {
    for io in DRIVERS {
        let reservation = Listener::reserve(&anywhere()).unwrap();
        let Address::Tcp(address) = *reservation.address() else {
            unreachable!()
        };
        let served: Arc<[AtomicUsize; 2]> = Arc::default();
        let counts = served.clone();
        let (sender, stops) = mpsc::channel::<Waker>();
        let cores = start(
            &Config {
                cores: 2,
                ..config(io)
            },
            move |index| {
                let (counts, sender) = (counts.clone(), sender.clone());
                async move {
                    assert_eq!(core_index(), index);
                    let listener = Listener::bind(&Address::Tcp(address)).unwrap();
                    spawn(async move {
                        loop {
                            let socket = listener.accept().await;
                            counts[index].fetch_add(1, Ordering::Relaxed);
                            socket.send("served");
                            socket.finish();
                        }
                    });
                    let mut asked = false;
                    std::future::poll_fn(|cx| {
                        if asked {
                            return std::task::Poll::Ready(());
                        }
                        asked = true;
                        sender.send(cx.waker().clone()).unwrap();
                        std::task::Poll::Pending
                    })
                    .await;
                }
            },
        )
        .unwrap();
        let stops: Vec<Waker> = stops.iter().take(2).collect();
        for _ in 0..200 {
            let mut text = String::new();
            TcpStream::connect(address)
                .unwrap()
                .read_to_string(&mut text)
                .unwrap();
            assert_eq!(text, "served");
        }
        let served: Vec<usize> = served.iter().map(|n| n.load(Ordering::Relaxed)).collect();
        assert_eq!(served.iter().sum::<usize>(), 200);
        assert!(served.iter().all(|&n| n > 20), "{served:?}");
        assert_eq!(cores.counters().accepted, 200);
        assert_eq!(cores.driver() == DriverKind::Uring, io == IoChoice::Uring);
        stops.into_iter().for_each(Waker::wake);
        cores.join().unwrap();
    }
}

/// Each core tells its index to each of its clients; the first one is busy.
#[test]
fn a_busy_core_gives_new_connections_to_an_idle_one() {
    for io in DRIVERS {
        let (address, is_over, cores) = start_two(&config(io), async |index, listener, over| {
            spawn(serve(listener, index.to_string()));
            while !over.load(Ordering::Relaxed) {
                match index {
                    0 => busy_for(Duration::from_micros(100)),
                    _ => sleep(Duration::from_millis(5)).await,
                }
                yield_now().await;
            }
        });
        let deadline = Instant::now() + Duration::from_secs(20);
        let (mut asked, mut served) = (0, [0, 0]);
        while cores.counters().accepts_given < 20 {
            assert!(Instant::now() < deadline, "{:?}", cores.counters());
            let mut client = TcpStream::connect(address).unwrap();
            asked += 1;
            let mut index = String::new();
            client.read_to_string(&mut index).unwrap();
            served[index.parse::<usize>().unwrap()] += 1;
        }
        assert_eq!(served.iter().sum::<usize>(), asked);
        let counters = cores.counters();
        assert_eq!(counters.accepted as usize, asked);
        assert!(served[1] as u64 >= counters.accepts_given, "{served:?}");
        is_over.store(true, Ordering::Relaxed);
        cores.join().unwrap();
    }
}

#[test]
fn jobs_reach_every_core_and_cores_wake_each_other() {
    for io in DRIVERS {
        let (jobs, done) = mpsc::channel();
        let cores = start(
            &Config {
                cores: 2,
                ..config(io)
            },
            |_| sleep(Duration::from_millis(300)),
        )
        .unwrap();
        // Each core spawns a task that blocking threads wake.
        cores.post_all(move |index| {
            let jobs = jobs.clone();
            spawn(async move {
                for _ in 0..100 {
                    blitz_reactor::blocking(|| ()).await;
                }
                jobs.send(index).unwrap();
            });
        });
        let mut received: Vec<usize> = done.iter().take(2).collect();
        received.sort_unstable();
        assert_eq!(received, [0, 1]);
        cores.join().unwrap();
    }
}

#[test]
fn a_core_wakes_a_task_of_another_core() {
    for io in DRIVERS {
        let (to_other, from_first) = mpsc::channel::<Waker>();
        let to_other = std::sync::Mutex::new(to_other);
        let from_first = std::sync::Mutex::new(from_first);
        let bounced = Arc::new(AtomicUsize::new(0));
        let count = bounced.clone();
        let shared = Arc::new((to_other, from_first));
        let cores = start(
            &Config {
                cores: 2,
                ..config(io)
            },
            move |index| {
                let (shared, count) = (shared.clone(), count.clone());
                async move {
                    if index == 0 {
                        for _ in 0..500 {
                            let mut asked = false;
                            std::future::poll_fn(|cx| {
                                if std::mem::replace(&mut asked, true) {
                                    return std::task::Poll::Ready(());
                                }
                                shared.0.lock().unwrap().send(cx.waker().clone()).unwrap();
                                std::task::Poll::Pending
                            })
                            .await;
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    } else {
                        for _ in 0..5_000 {
                            if count.load(Ordering::Relaxed) == 500 {
                                return;
                            }
                            let waker = shared.1.lock().unwrap().try_recv();
                            match waker {
                                Ok(waker) => waker.wake(),
                                Err(_) => sleep(Duration::from_millis(1)).await,
                            }
                            yield_now().await;
                        }
                    }
                }
            },
        )
        .unwrap();
        cores.join().unwrap();
        assert_eq!(bounced.load(Ordering::Relaxed), 500);
    }
}

#[test]
fn ipv4_peers_of_a_listener_for_both_families_have_ipv4_addresses() {
    on_both_drivers(|| async {
        let any = Address::Tcp("[::]:0".parse().unwrap());
        let listener = Listener::bind(&any).unwrap();
        let Address::Tcp(address) = *listener.local() else {
            unreachable!()
        };
        let client = TcpStream::connect(("127.0.0.1", address.port())).unwrap();
        let socket = listener.accept().await;
        assert_eq!(socket.peer(), Some(client.local_addr().unwrap()));
    });
}

#[test]
fn an_address_in_use_is_detected_despite_shared_ports() {
    let reservation = Listener::reserve(&anywhere()).unwrap();
    let Address::Tcp(address) = *reservation.address() else {
        unreachable!()
    };
    drop(reservation);
    let taken = TcpListener::bind(address).unwrap();
    let error = Listener::try_reserve(&address.into()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    // A process that was killed releases its rings, and with them its sockets, a little later.
    let released = thread::spawn(move || {
        thread::sleep(Duration::from_millis(120));
        drop(taken);
    });
    assert!(Listener::reserve(&address.into()).is_ok());
    released.join().unwrap();
}

/// Another server that ran here may have left connections, and its options of the address are not ours.
#[test]
fn an_address_of_old_connections_can_be_reserved() {
    let old = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = old.local_addr().unwrap();
    let client = TcpStream::connect(address).unwrap();
    let (server, _) = old.accept().unwrap();
    drop(old);
    let reservation = Listener::try_reserve(&address.into()).unwrap();
    // Nobody else gets it meanwhile.
    assert!(TcpListener::bind(address).is_err());
    drop((reservation, client, server));
}

/// Between the check and the listening of the cores lies their start.
#[test]
fn a_reserved_address_is_kept_until_the_cores_listen() {
    let reservation = Listener::reserve(&anywhere()).unwrap();
    let address = reservation.address();
    let Address::Tcp(socket_address) = *address else {
        unreachable!()
    };
    let in_use = |error: std::io::Error| error.kind() == ErrorKind::AddrInUse;
    assert!(Listener::try_reserve(address).is_err_and(in_use));
    assert!(TcpListener::bind(socket_address).is_err_and(in_use));
    let refused = TcpStream::connect(socket_address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    block_on(&config(IoChoice::Auto), async {
        let shared = [
            Listener::bind(address).unwrap(),
            Listener::bind(address).unwrap(),
        ];
        drop(shared);
    })
    .unwrap();
    let address = Address::from(socket_address);
    drop(reservation);
    assert!(Listener::reserve(&address).is_ok());
}

#[test]
fn the_end_of_a_core_closes_its_connections() {
    for io in DRIVERS {
        let (sender, address) = mpsc::channel();
        let cores = start(
            &Config {
                cores: 1,
                ..config(io)
            },
            move |_| {
                let sender = sender.clone();
                async move {
                    let listener = Listener::bind(&anywhere()).unwrap();
                    sender.send(listener.local().clone()).unwrap();
                    let socket = listener.accept().await;
                    socket.recv().await.unwrap();
                    spawn(async move { while let Ok(Some(_)) = socket.recv().await {} });
                }
            },
        )
        .unwrap();
        let Address::Tcp(address) = address.recv().unwrap() else {
            unreachable!()
        };
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"x").unwrap();
        assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0);
        cores.join().unwrap();
        assert!(TcpStream::connect(address).is_err());
    }
}

/// The last messages of a core to other cores are sent.
#[test]
fn a_core_that_ends_still_sends_its_wakes() {
    for io in DRIVERS {
        for _ in 0..20 {
            let (sender, wakers) = mpsc::channel::<Waker>();
            let wakers = std::sync::Mutex::new(wakers);
            let shared = Arc::new((std::sync::Mutex::new(sender), wakers));
            let cores = start(
                &Config {
                    cores: 2,
                    ..config(io)
                },
                move |index| {
                    let shared = shared.clone();
                    async move {
                        if index == 0 {
                            let waker = shared.1.lock().unwrap().recv().unwrap();
                            return waker.wake();
                        }
                        let mut asked = false;
                        std::future::poll_fn(|cx| {
                            if std::mem::replace(&mut asked, true) {
                                return std::task::Poll::Ready(());
                            }
                            shared.0.lock().unwrap().send(cx.waker().clone()).unwrap();
                            std::task::Poll::Pending
                        })
                        .await;
                    }
                },
            )
            .unwrap();
            cores.join().unwrap();
        }
    }
}

/// A job that panics is counted, and its core continues.
#[test]
fn a_job_that_panics_does_not_end_its_core() {
    for io in DRIVERS {
        let config = Config {
            cores: 1,
            ..config(io)
        };
        let cores = start(&config, |_| sleep(Duration::from_millis(300))).unwrap();
        cores.post_all(|_| panic!("on purpose"));
        let (sender, received) = mpsc::channel();
        cores.post_all(move |index| sender.send(index).unwrap());
        assert_eq!(received.recv(), Ok(0));
        assert_eq!(cores.counters().task_panics, 1);
        cores.join().unwrap();
    }
}

/// A listener on a unix socket can be bound again by the same core.
#[test]
fn a_unix_listener_can_be_closed_and_bound_again() {
    for io in DRIVERS {
        let path = std::env::temp_dir().join(format!("blitz-rebind-{}.sock", std::process::id()));
        let address = Address::unix(&path);
        block_on(&config(io), async {
            for _ in 0..3 {
                let listener = Listener::bind(&address).unwrap();
                let client = Socket::connect(&address).await.unwrap();
                let server = listener.accept().await;
                client.send("again");
                assert_eq!(&*server.recv().await.unwrap().unwrap(), b"again");
                drop(listener);
                sleep(Duration::from_millis(5)).await;
            }
        })
        .unwrap();
    }
}

#[test]
fn the_descriptor_table_is_enlarged_before_the_cores_start() {
    let number = |file: &str, key: &str| -> u64 {
        let text = std::fs::read_to_string(file).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let words = line.unwrap().split_whitespace();
        words.map_while(|word| word.parse().ok()).last().unwrap()
    };
    let cores = start(
        &Config {
            cores: 1,
            ..config(IoChoice::Epoll)
        },
        |_| async {},
    )
    .unwrap();
    cores.join().unwrap();
    let permitted = number("/proc/self/limits", "Max open files");
    assert!(number("/proc/self/status", "FDSize:") >= permitted.min(65_536));
}

/// The first core is busy, and the other one ends while clients connect.
#[test]
fn a_core_that_ends_is_given_no_connections() {
    for io in DRIVERS {
        let (address, is_over, cores) = start_two(&config(io), async |index, listener, over| {
            spawn(serve(listener, "served".to_owned()));
            if index == 1 {
                return sleep(Duration::from_millis(300)).await;
            }
            while !over.load(Ordering::Relaxed) {
                busy_for(Duration::from_micros(100));
                yield_now().await;
            }
        });
        let end = Instant::now() + Duration::from_secs(1);
        let mut served = 0;
        while Instant::now() < end {
            let Ok(mut client) = TcpStream::connect(address) else {
                continue;
            };
            let wait = Some(Duration::from_secs(5));
            client.set_read_timeout(wait).unwrap();
            let mut text = String::new();
            match client.read_to_string(&mut text) {
                Ok(_) => served += usize::from(text == "served"),
                // A core closes the connections of its listener with it.
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            }
        }
        assert!(served > 20, "{served}");
        is_over.store(true, Ordering::Relaxed);
        cores.join().unwrap();
    }
}

/// Both cores hold what they accept, and the first one has other sockets as well. Together they have room for
/// all clients, half of which arrive at the first.
#[test]
fn a_core_at_its_limit_gives_new_connections_to_one_with_room() {
    const LIMIT: usize = 20;
    const OTHERS: usize = 16;
    for io in DRIVERS {
        let peer = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let others = peer.local_addr().unwrap();
        let few = Config {
            sockets_max: LIMIT,
            ..config(io)
        };
        let (connected, all_connected) = mpsc::channel();
        let (address, is_over, cores) = start_two(&few, move |index, listener, over| {
            let connected = connected.clone();
            async move {
                let mut held = Vec::new();
                if index == 0 {
                    for _ in 0..OTHERS {
                        held.push(Socket::connect(&Address::Tcp(others)).await.unwrap());
                    }
                    connected.send(()).unwrap();
                }
                spawn(async move {
                    loop {
                        let socket = listener.accept().await;
                        socket.send("x");
                        held.push(socket);
                    }
                });
                while !over.load(Ordering::Relaxed) {
                    sleep(Duration::from_millis(5)).await;
                }
            }
        });
        all_connected.recv().unwrap();
        let mut clients = Vec::new();
        while clients.len() < LIMIT {
            let mut client = TcpStream::connect(address).unwrap();
            let wait = Some(Duration::from_secs(10));
            client.set_read_timeout(wait).unwrap();
            client.read_exact(&mut [0]).unwrap();
            clients.push(client);
            // A core's room is known to others after its next measurement.
            thread::sleep(Duration::from_millis(20));
        }
        assert!(cores.counters().accepts_given > 0);
        is_over.store(true, Ordering::Relaxed);
        cores.join().unwrap();
    }
}

/// One core has closed its listener, and keeps another one; the other core, which is full, still accepts there.
#[test]
fn a_listener_that_refuses_gives_no_connection_to_a_core_that_has_closed_it() {
    for io in DRIVERS {
        assert_eq!(given_to_a_core_that_has_closed(io, true), 0);
    }
}

/// The core may be so busy that it does not know yet that the listener closes.
#[test]
fn a_connection_comes_back_from_a_core_that_has_closed_its_listener() {
    for io in DRIVERS {
        assert!(given_to_a_core_that_has_closed(io, false) > 0);
    }
}

/// How many connections the core gives away, none of which may be lost.
fn given_to_a_core_that_has_closed(io: IoChoice, refuses_new: bool) -> u64 {
    let peer = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let others = peer.local_addr().unwrap();
    let few = Config {
        sockets_max: 20,
        ..config(io)
    };
    let (ready, all_ready) = mpsc::channel();
    let (go, begins) = (Arc::new(AtomicBool::new(false)), Duration::from_millis(100));
    let refuses = Arc::clone(&go);
    let (address, is_over, cores) = start_two(&few, move |index, listener, over| {
        let (ready, refuses) = (ready.clone(), Arc::clone(&refuses));
        async move {
            let mut held = Vec::new();
            let any: SocketAddr = ([127, 0, 0, 1], 0).into();
            let mut kept = Some(Listener::bind(&any.into()).unwrap());
            if index == 0 {
                for _ in 0..18 {
                    held.push(Socket::connect(&Address::Tcp(others)).await.unwrap());
                }
                spawn(async move {
                    while !refuses.load(Ordering::Relaxed) {
                        sleep(Duration::from_millis(1)).await;
                    }
                    if refuses_new {
                        listener.refuse_new();
                    }
                    loop {
                        held.push(listener.accept().await);
                    }
                });
            } else {
                drop(listener);
            }
            ready.send(()).unwrap();
            while !over.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(5)).await;
            }
            kept.take();
        }
    });
    all_ready.recv().unwrap();
    all_ready.recv().unwrap();
    // They wait, since nobody accepts yet.
    let clients: Vec<_> = (0..5)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    go.store(true, Ordering::Relaxed);
    thread::sleep(begins);
    for mut client in clients {
        client.set_read_timeout(Some(begins)).unwrap();
        let outcome = client.read(&mut [0]).map_err(|error| error.kind());
        assert!(
            outcome.is_err_and(|kind| kind == ErrorKind::WouldBlock),
            "{io:?} {outcome:?}"
        );
    }
    is_over.store(true, Ordering::Relaxed);
    let given = cores.counters().accepts_given;
    cores.join().unwrap();
    given
}

/// Two cores that listen on one address. Each runs the future of `main` with its index, its listener and a
/// flag that ends it.
fn start_two<F, Fut>(config: &Config, main: F) -> (SocketAddr, Arc<AtomicBool>, Cores)
where
    F: Fn(usize, Listener, Arc<AtomicBool>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let reservation = Listener::reserve(&anywhere()).unwrap();
    let Address::Tcp(address) = *reservation.address() else {
        unreachable!()
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    let (sender, listening) = mpsc::channel();
    let config = Config {
        cores: 2,
        ..config.clone()
    };
    let cores = start(&config, move |index| {
        let listener = Listener::bind(&Address::Tcp(address)).unwrap();
        sender.send(index).unwrap();
        main(index, listener, over.clone())
    })
    .unwrap();
    assert_eq!(listening.iter().take(2).count(), 2);
    (address, is_over, cores)
}

/// Sends `text` to each client, and closes.
async fn serve(listener: Listener, text: String) {
    loop {
        let socket = listener.accept().await;
        socket.send(text.clone());
        socket.finish();
    }
}

/// Keeps the thread busy.
fn busy_for(duration: Duration) {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
