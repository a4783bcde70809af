//! The simulated driver: the tests that all drivers share, and what only a simulation can show.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use blitz_reactor::simulation::{Acceptor, Conditions, Stop, World};
use blitz_reactor::{
    Address, Cause, Listener, LocalShortage, Resume, Socket, sleep, spawn, timeout, yield_now,
};

/// Virtual time in which a test has to end.
const TEST_MAX: Duration = Duration::from_secs(600);

/// Everything goes wrong that a program must not notice.
pub(crate) fn faults() -> Conditions {
    Conditions {
        delay_us: 10..=1_000,
        bytes_per_ms: 20_000..=1_000_000,
        segment_bytes: 1..=65_536,
        late: 200,
        short: 200,
        receive_ends: 200,
        no_buffers: 20,
        cancel_loses: 300,
        ..Conditions::calm()
    }
}

/// Runs `body` on a simulated core.
pub(crate) fn run(seed: u64, conditions: Conditions, body: impl Future<Output = ()> + 'static) {
    println!("driver: simulated, seed {seed}");
    let world = World::new(seed, conditions);
    world.start_core(10_000, body).unwrap();
    let stop = world.run(TEST_MAX, || world.holdings(0).is_none());
    world.close();
    assert_eq!(stop, Stop::Done);
}

/// Keeps the causes for which parked sockets are resumed.
#[derive(Default)]
struct Causes(RefCell<Vec<Cause>>);

impl Resume for Causes {
    fn resume(self: Rc<Self>, _: Socket, _: u64, cause: Cause) {
        self.0.borrow_mut().push(cause);
    }
}

fn address(port: u16) -> Address {
    Address::Tcp(([127, 0, 0, 1], port).into())
}

#[test]
fn an_address_is_taken_once() {
    run(1, Conditions::calm(), async {
        let first = Listener::bind(&address(80)).unwrap();
        let Err(error) = Listener::bind(&address(80)) else {
            panic!("it is taken")
        };
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        drop(first);
        assert!(Listener::bind(&address(80)).is_ok());
    });
}

#[test]
fn a_connection_that_is_accepted_after_a_lack_of_descriptors_is_not_evicted() {
    let conditions = Conditions {
        no_descriptors: 300,
        ..Conditions::calm()
    };
    for seed in 1..=20 {
        run(seed, conditions.clone(), async {
            let causes = Rc::<Causes>::default();
            let listener = Listener::bind(&address(80)).unwrap();
            for _ in 0..10 {
                let client = Socket::connect(&address(80)).await.unwrap();
                let server = listener.accept().await;
                server.park(causes.clone(), 0, Duration::from_secs(60));
                sleep(Duration::from_millis(10)).await;
                assert!(causes.0.borrow().is_empty(), "{:?}", causes.0.borrow());
                drop(client);
                sleep(Duration::from_millis(10)).await;
                assert_eq!(causes.0.take().len(), 1, "it has ended");
            }
        });
    }
}

#[test]
fn connections_wait_for_descriptors_in_order() {
    let conditions = Conditions {
        no_descriptors: 900,
        ..Conditions::calm()
    };
    for seed in 1..=20 {
        run(seed, conditions.clone(), async {
            let listener = Listener::bind(&address(80)).unwrap();
            let connected = Rc::new(RefCell::new(Vec::new()));
            for n in 0..10 {
                let connected = Rc::clone(&connected);
                spawn(async move {
                    let within = Duration::from_secs(60);
                    let socket = Socket::connect_within(&address(80), within).await;
                    connected.borrow_mut().push((n, socket.unwrap()));
                });
            }
            sleep(Duration::from_millis(1)).await;
            // One that leaves is not waited for.
            let none = timeout(Duration::from_millis(1), Socket::connect(&address(80))).await;
            assert!(none.is_err());
            sleep(Duration::from_secs(30)).await;
            // Ports are assigned in the order in which sockets are opened.
            let mut connected = connected.take();
            connected.sort_by_key(|(_, socket)| socket.local());
            let order: Vec<i32> = connected.iter().map(|(n, _)| *n).collect();
            assert_eq!(order, Vec::from_iter(0..10));
            drop(listener);
        });
    }
}

/// Connects at once on the first core. The sockets appear in the list.
fn connect_together(world: &World, count: usize, within: Duration) -> Rc<RefCell<Vec<Socket>>> {
    let connected = Rc::<RefCell<Vec<Socket>>>::default();
    world.on_core(0, || {
        for _ in 0..count {
            let connected = Rc::clone(&connected);
            spawn(async move {
                let socket = Socket::connect_within(&address(80), within).await;
                connected.borrow_mut().push(socket.unwrap());
            });
        }
    });
    connected
}

/// A core without descriptors, and an upstream.
fn without_descriptors(delay_us: u64) -> (World, Acceptor) {
    let conditions = Conditions {
        no_descriptors: 1_000,
        delay_us: delay_us..=delay_us,
        // Only a few turns happen in the time of a test.
        turn_us: 500..=500,
        ..Conditions::calm()
    };
    let world = World::new(1, conditions);
    let upstream = world.listen(&address(80)).unwrap();
    let body = async { sleep(Duration::from_secs(60)).await };
    world.start_core(1_000, body).unwrap();
    world.run(Duration::from_millis(1), || false);
    (world, upstream)
}

#[test]
fn all_that_wait_connect_once_there_are_descriptors_again() {
    const WAITING: usize = 50;
    let within = Duration::from_secs(5);
    let (world, _upstream) = without_descriptors(10);
    let waiting = connect_together(&world, WAITING, within);
    world.run(Duration::from_millis(50), || false);
    assert_eq!(waiting.borrow().len(), 0);
    world.set_no_descriptors(0);
    // The first one tries after at most 20 ms, and the others with it.
    world.run(Duration::from_millis(25), || false);
    assert_eq!(waiting.borrow().len(), WAITING);
    let later = connect_together(&world, 1, within);
    world.run(Duration::from_millis(1), || false);
    assert_eq!(later.borrow().len(), 1, "it does not queue");
    world.close();
}

#[test]
fn idle_sockets_stay_once_there_are_descriptors_again() {
    let within = Duration::from_secs(5);
    let (world, _upstream) = without_descriptors(10);
    let waiting = connect_together(&world, 10, within);
    world.run(Duration::from_millis(50), || false);
    world.set_no_descriptors(0);
    world.run(Duration::from_millis(25), || false);
    let causes = Rc::<Causes>::default();
    world.on_core(0, || {
        for socket in waiting.take() {
            socket.park(causes.clone(), 0, within);
        }
    });
    let _later = connect_together(&world, 2, within);
    world.run(Duration::from_millis(100), || false);
    assert!(causes.0.borrow().is_empty(), "{:?}", causes.0.borrow());
    world.close();
}

#[test]
fn the_wait_for_a_descriptor_takes_no_time_from_the_connect() {
    let (world, _upstream) = without_descriptors(30_000);
    let connected = connect_together(&world, 1, Duration::from_millis(100));
    world.run(Duration::from_millis(60), || false);
    world.set_no_descriptors(0);
    world.run(Duration::from_millis(100), || false);
    assert_eq!(connected.borrow().len(), 1);
    world.close();
}

#[test]
fn a_lack_of_descriptors_is_no_failure_of_the_address() {
    let world = World::new(
        1,
        Conditions {
            no_descriptors: 1_000,
            ..Conditions::calm()
        },
    );
    world.add_black_hole(&address(2));
    let body = async {
        let to = address(2);
        let failed = Socket::connect_within(&to, Duration::from_secs(10)).await;
        let shortage = failed.map_err(|error| LocalShortage::of(&error, &to));
        assert_eq!(shortage.err(), Some(Some(LocalShortage::Descriptors)));
    };
    world.start_core(10, body).unwrap();
    let stop = world.run(TEST_MAX, || world.holdings(0).is_none());
    assert_eq!(stop, Stop::Done);
    world.close();
}

#[test]
fn cores_share_an_address_among_each_other_but_not_with_peers() {
    let world = World::new(1, Conditions::calm());
    for _ in 0..2 {
        let body = async {
            let listener = Listener::bind(&address(80)).unwrap();
            sleep(Duration::from_secs(1)).await;
            drop(listener);
        };
        world.start_core(10, body).unwrap();
    }
    world.run(Duration::from_millis(1), || false);
    let taken = world.listen(&address(80)).map(drop);
    assert_eq!(taken.unwrap_err().kind(), ErrorKind::AddrInUse);
    world.close();
}

#[test]
fn nobody_answers_at_an_address_without_a_listener_nor_from_a_black_hole() {
    let world = World::new(1, Conditions::calm());
    world.add_black_hole(&address(2));
    let body = async {
        let refused = Socket::connect(&address(1)).await;
        assert_eq!(
            refused.err().map(|error| error.kind()),
            Some(ErrorKind::ConnectionRefused)
        );
        let lost = timeout(Duration::from_secs(10), Socket::connect(&address(2))).await;
        assert!(lost.is_err());
    };
    world.start_core(10, body).unwrap();
    let stop = world.run(TEST_MAX, || world.holdings(0).is_none());
    assert_eq!(stop, Stop::Done);
    world.close();
}

#[test]
fn tasks_that_wake_each_other_without_end_are_noticed() {
    let world = World::new(1, Conditions::calm());
    let body = async {
        loop {
            yield_now().await;
        }
    };
    world.start_core(10, body).unwrap();
    assert_eq!(
        world.run(Duration::from_secs(3_600), || false),
        Stop::Spinning
    );
    world.close();
}

#[test]
fn looking_at_a_core_does_not_wake_it() {
    let world = World::new(1, Conditions::calm());
    let polls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&polls);
    let body = async move {
        let waiting = spawn(poll_fn(move |_| {
            counted.set(counted.get() + 1);
            Poll::<()>::Pending
        }));
        sleep(Duration::from_secs(1)).await;
        waiting.abort();
    };
    world.start_core(10, body).unwrap();
    world.run(Duration::from_millis(1), || {
        world.look(0, || ());
        false
    });
    assert_eq!(polls.get(), 1);
    world.close();
}
