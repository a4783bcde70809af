//! Limits per upstream: connections in use, and requests that wait for one.

use std::cell::RefCell;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use blitz_http::{
    BodyLength, ClientError, ClientOptions, Connection, Counters, IoChoice, Limits, Pool, Protocol,
    Upstream,
};
use blitz_testing::refusing_address;

use crate::support::{on_each_driver, run, scripted};

/// The counts since `before`: full queues, waits that timed out, and all waits at the limit of
/// connections.
fn counted(before: &Counters) -> (u64, u64, u64) {
    let now = blitz_http::counters();
    (
        now.upstream_queue_full - before.upstream_queue_full,
        now.upstream_queue_timeouts - before.upstream_queue_timeouts,
        now.upstream_limit_waits - before.upstream_limit_waits,
    )
}

/// Runs `client` against a server that accepts connections and sends nothing.
fn limited(io: IoChoice, limits: Limits, protocol: Protocol, client: impl AsyncFnOnce(Upstream)) {
    let is_over = Arc::new(AtomicBool::new(false));
    let script_is_over = Arc::clone(&is_over);
    let script = move |listener: TcpListener| {
        let mut accepted = Vec::new();
        while !script_is_over.load(Ordering::SeqCst) {
            accepted.push(listener.accept().expect("accepts"));
        }
    };
    let (address, server) = scripted(script);
    run(io, async {
        let options = ClientOptions {
            limits,
            ..ClientOptions::default()
        };
        let upstream = Pool::new(options).upstream_with_protocol(&address, protocol);
        client(upstream).await;
        is_over.store(true, Ordering::SeqCst);
        let last = blitz_reactor::Socket::connect(&address).await;
        last.expect("connects");
    });
    server.join().expect("the script ran");
}

fn limits(connections: usize, waiting: usize, wait: Duration) -> Limits {
    Limits {
        upstream_connections_max: connections,
        upstream_waiting_max: waiting,
        upstream_wait_timeout: wait,
        ..Limits::default()
    }
}

async fn settle() {
    blitz_http::sleep(Duration::from_millis(30)).await;
}

/// The number of a request, and its result.
type Ended = (usize, Result<(), ClientError>);

/// Waiting requests, and their results in order of completion.
#[derive(Clone, Default)]
struct Waiters {
    ended: Rc<RefCell<Vec<Ended>>>,
    connections: Rc<RefCell<Vec<Connection>>>,
}

impl Waiters {
    fn start(&self, number: usize, upstream: &Upstream) {
        let (waiters, upstream) = (self.clone(), upstream.clone());
        blitz_http::spawn(async move {
            let got = upstream.checkout().await;
            let got = got.map(|connection| waiters.connections.borrow_mut().push(connection));
            waiters.ended.borrow_mut().push((number, got));
        });
    }

    fn numbers(&self) -> Vec<usize> {
        self.ended
            .borrow()
            .iter()
            .map(|(number, _)| *number)
            .collect()
    }
}

#[test]
fn connections_in_use_are_bounded_and_requests_wait_in_order() {
    on_each_driver(|io| {
        let limits = limits(2, 3, Duration::from_secs(5));
        limited(io, limits, Protocol::Http1, async |upstream| {
            let before = blitz_http::counters();
            let first = upstream.checkout().await.expect("connects");
            let second = upstream.checkout().await.expect("connects");
            let waiters = Waiters::default();
            for number in 0..3 {
                waiters.start(number, &upstream);
            }
            settle().await;
            assert_eq!((upstream.active(), waiters.numbers()), (2, vec![]));
            let refused = upstream.checkout().await.err();
            assert!(
                matches!(refused, Some(ClientError::QueueFull)),
                "{refused:?}"
            );

            // A connection that returns to the pool serves the request that has waited longest.
            drop(first);
            settle().await;
            assert_eq!((upstream.active(), waiters.numbers()), (2, vec![0]));
            assert!(waiters.connections.borrow()[0].is_reused());
            // A closed connection allows the next request to make another.
            let (send, response) =
                second.request(&crate::client_exchange::get("/"), BodyLength::Empty);
            drop((send, response));
            settle().await;
            assert_eq!((upstream.active(), waiters.numbers()), (2, vec![0, 1]));
            assert!(!waiters.connections.borrow()[1].is_reused());
            waiters.connections.borrow_mut().clear();
            settle().await;
            assert_eq!(waiters.numbers(), [0, 1, 2]);
            waiters.connections.borrow_mut().clear();
            assert_eq!(upstream.active(), 0);
            assert_eq!(counted(&before), (1, 0, 4));
        });
    });
}

#[test]
fn a_request_waits_for_a_bounded_time() {
    on_each_driver(|io| {
        let limits = limits(1, 3, Duration::from_millis(50));
        limited(io, limits, Protocol::Http1, async |upstream| {
            let before = blitz_http::counters();
            let first = upstream.checkout().await.expect("connects");
            let refused = upstream.checkout().await.err();
            assert!(matches!(refused, Some(ClientError::Busy)), "{refused:?}");
            assert_eq!(counted(&before), (0, 1, 1));
            drop(first);
            assert!(upstream.checkout().await.is_ok());
        });
    });
}

#[test]
fn a_failed_connect_makes_room_for_the_next() {
    on_each_driver(|io| {
        run(io, async {
            let address = blitz_http::Address::Tcp(refusing_address());
            let options = ClientOptions {
                limits: limits(1, 3, Duration::from_secs(5)),
                ..ClientOptions::default()
            };
            let upstream = Pool::new(options).upstream(&address);
            for _ in 0..3 {
                let refused = upstream.checkout().await.err();
                assert!(matches!(refused, Some(ClientError::Refused)), "{refused:?}");
                assert_eq!(upstream.active(), 0);
            }
        });
    });
}

#[test]
fn requests_for_a_shared_connection_wait_in_a_bounded_queue() {
    on_each_driver(|io| {
        let limits = limits(8, 5, Duration::from_millis(200));
        limited(io, limits, Protocol::Http2, async |upstream| {
            let before = blitz_http::counters();
            // Before the server's SETTINGS there is one permit, which the first request takes.
            let waiters = Waiters::default();
            for number in 0..10 {
                waiters.start(number, &upstream);
            }
            settle().await;
            let full = |ended: &(usize, _)| matches!(ended.1, Err(ClientError::QueueFull));
            assert_eq!(
                waiters.ended.borrow().iter().filter(|it| full(it)).count(),
                4
            );
            blitz_http::sleep(Duration::from_millis(400)).await;
            let late = |ended: &(usize, _)| matches!(ended.1, Err(ClientError::Busy));
            assert_eq!(
                waiters.ended.borrow().iter().filter(|it| late(it)).count(),
                5
            );
            assert_eq!(counted(&before), (4, 5, 0));
            waiters.connections.borrow_mut().clear();
        });
    });
}
