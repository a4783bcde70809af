//! An idle connection needs no task (rule 5).

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use blitz_reactor::{Cause, Resume, Socket, now, sleep};

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
