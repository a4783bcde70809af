//! An idle connection needs no task (rule 5).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use blitz_reactor::{Cause, Resume, Socket, consume_resume, counters, now, sleep, yield_now};

use crate::{on_all_drivers, on_both_drivers, pair};

/// Stores its calls.
#[derive(Default)]
struct Inbox(RefCell<Vec<(Socket, u64, Cause)>>);

impl Resume for Inbox {
    fn resume(self: Rc<Self>, socket: Socket, tag: u64, cause: Cause) {
        self.0.borrow_mut().push((socket, tag, cause));
    }
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_parked_socket_is_resumed_with_the_first_bytes() {
    on_both_drivers(|| async {
        let inbox = Rc::new(Inbox::default());
        let (client, server) = pair().await;
        server.park(inbox.clone(), 42, LONG);
        sleep(Duration::from_millis(10)).await;
        assert!(inbox.0.borrow().is_empty());
        client.send("GET");
        sleep(Duration::from_millis(10)).await;
        let (_server, tag, cause) = inbox.0.borrow_mut().pop().unwrap();
        assert_eq!(tag, 42);
        assert!(matches!(cause, Cause::Received(bytes) if *bytes == *b"GET"));
    });
}

#[test]
fn a_socket_that_is_readable_when_parked_is_resumed_at_once() {
    on_all_drivers(|| async {
        let inbox = Rc::new(Inbox::default());
        let (client, server) = pair().await;
        client.send("early");
        sleep(Duration::from_millis(10)).await;
        assert_eq!(server.unread_bytes(), 5);
        server.park(inbox.clone(), 0, LONG);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(inbox.0.borrow().len(), 1);
    });
}

#[test]
fn fin_and_reset_resume_a_parked_socket() {
    on_all_drivers(|| async {
        let inbox = Rc::new(Inbox::default());
        let (closing, first) = pair().await;
        let (resetting, second) = pair().await;
        first.park(inbox.clone(), 1, LONG);
        second.park(inbox.clone(), 2, LONG);
        drop(closing);
        resetting.abort();
        sleep(Duration::from_millis(10)).await;
        let mut back = inbox.0.take();
        back.sort_by_key(|(_, tag, _)| *tag);
        assert_eq!(back.len(), 2);
        assert!(back[0].0.recv().await.unwrap().is_none());
        assert!(back[1].0.recv().await.is_err());
    });
}

#[test]
fn a_parked_socket_is_resumed_at_its_deadline() {
    on_all_drivers(|| async {
        let inbox = Rc::new(Inbox::default());
        let (_client, server) = pair().await;
        let deadline = now() + Duration::from_millis(30);
        server.park(inbox.clone(), 7, Duration::from_millis(30));
        while inbox.0.borrow().is_empty() {
            sleep(Duration::from_millis(2)).await;
        }
        assert!(now() >= deadline);
        assert!(matches!(inbox.0.borrow()[0].2, Cause::Expired));
    });
}

#[test]
fn a_parked_socket_can_be_unparked_unless_it_is_readable() {
    on_all_drivers(|| async {
        let inbox = Rc::new(Inbox::default());
        let (client, server) = pair().await;
        let parked = server.park(inbox.clone(), 0, LONG);
        let server = parked.unpark().unwrap();
        assert!(parked.unpark().is_none(), "only once");
        client.send("x");
        assert_eq!(&*server.recv().await.unwrap().unwrap(), b"x");
        let parked = server.park(inbox.clone(), 0, LONG);
        client.send("y");
        sleep(Duration::from_millis(10)).await;
        assert!(parked.unpark().is_none());
        assert_eq!(inbox.0.borrow().len(), 1);
    });
}

/// The tag of a socket, the turn, and what the socket received.
type Resumed = (u64, u64, Option<Vec<u8>>);

/// Counts each resumed socket as one that has to wait, and records it with its turn and its bytes.
#[derive(Default)]
struct Waiting {
    resumed: RefCell<Vec<Resumed>>,
    sockets: RefCell<Vec<Socket>>,
    /// The first one takes this long.
    delay: Cell<Duration>,
}

impl Resume for Waiting {
    fn resume(self: Rc<Self>, socket: Socket, tag: u64, cause: Cause) {
        consume_resume();
        std::thread::sleep(self.delay.take());
        let bytes = match cause {
            Cause::Received(bytes) => Some(bytes.to_vec()),
            _ => None,
        };
        let turn = counters().turns;
        self.resumed.borrow_mut().push((tag, turn, bytes));
        self.sockets.borrow_mut().push(socket);
    }
}

/// Parks so many sockets, then sends a byte to each in the same turn.
async fn send_to_parked(waiting: &Rc<Waiting>, count: u64, within: Duration) -> Vec<Socket> {
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (client, server) = pair().await;
        clients.push(client);
        servers.push(server);
    }
    // Only now: on a busy machine the first ones would expire while the last ones connect.
    for (tag, server) in servers.into_iter().enumerate() {
        server.park(waiting.clone(), tag as u64, within);
    }
    clients.iter().for_each(|client| client.send("x"));
    clients
}

#[test]
fn a_turn_resumes_a_bounded_number_of_sockets_that_have_to_wait() {
    on_all_drivers(|| async {
        let waiting = Rc::new(Waiting::default());
        let clients = send_to_parked(&waiting, 100, LONG).await;
        // Later bytes of a socket that is held back come behind the first ones.
        yield_now().await;
        clients.iter().for_each(|client| client.send("y"));
        while waiting.resumed.borrow().len() < clients.len() {
            sleep(Duration::from_millis(1)).await;
        }
        let mut resumed = waiting.resumed.take();
        for turn in resumed.chunk_by(|one, next| one.1 == next.1) {
            assert!(turn.len() <= 16, "{} in one turn", turn.len());
        }
        resumed.sort_unstable();
        for (at, (tag, _, bytes)) in resumed.iter().enumerate() {
            assert_eq!(*tag, at as u64, "each is resumed once");
            let bytes = bytes.as_deref().expect("it received");
            assert!(b"xy".starts_with(bytes), "{tag} has {bytes:?}");
        }
        sleep(Duration::from_millis(5)).await;
        assert!(waiting.resumed.borrow().is_empty(), "each is resumed once");
    });
}

#[test]
fn sockets_that_are_held_back_do_not_expire() {
    on_both_drivers(|| async {
        let waiting = Rc::new(Waiting::default());
        waiting.delay.set(Duration::from_millis(300));
        let within = Duration::from_millis(200);
        let clients = send_to_parked(&waiting, 100, within).await;
        while waiting.resumed.borrow().len() < clients.len() {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(counters().held_back > 0);
        let resumed = waiting.resumed.take();
        let expired = resumed.iter().filter(|(_, _, bytes)| bytes.is_none());
        assert_eq!(expired.count(), 0, "of {}", resumed.len());
    });
}
