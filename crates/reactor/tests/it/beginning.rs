//! How much tasks begin in a turn, and who waits for that.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use blitz_reactor::{TaskKey, begun, counters, poll_begin, sleep, spawn};

use crate::on_all_drivers;

/// What was begun: by whom, and in which turn.
type Log = Rc<RefCell<Vec<(char, u64)>>>;

/// One turn of a task that wants to begin `left` things: at most 40, as a connection of HTTP/2 does.
fn begin_some(name: char, left: &mut usize, log: &Log, cx: &Context<'_>) -> Poll<()> {
    for _ in 0..40 {
        if *left == 0 {
            return Poll::Ready(());
        }
        if poll_begin(cx).is_pending() {
            return Poll::Pending;
        }
        begun();
        log.borrow_mut().push((name, counters().turns));
        *left -= 1;
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

fn eager(name: char, mut left: usize, log: &Log) -> TaskKey {
    let log = Rc::clone(log);
    spawn(async move { poll_fn(|cx| begin_some(name, &mut left, &log, cx)).await })
}

/// Who began how much in a row: "a40 b24".
fn runs(log: &Log) -> String {
    let log = log.borrow();
    let runs = log.chunk_by(|one, next| one.0 == next.0);
    let runs = runs.map(|run| format!("{}{}", run[0].0, run.len()));
    runs.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_turn_begins_a_bounded_number_and_tasks_take_turns() {
    on_all_drivers(|| async {
        let log = Log::default();
        for name in ['a', 'b', 'c'] {
            eager(name, 100, &log);
        }
        while log.borrow().len() < 300 {
            sleep(Duration::from_millis(1)).await;
        }
        for turn in log.borrow().chunk_by(|one, next| one.1 == next.1) {
            assert!(turn.len() <= 64, "{} in one turn", turn.len());
        }
        // Who was cut short goes on in the next turn, who has had its share goes behind the others.
        assert_eq!(runs(&log), "a40 b64 c64 a60 b36 c36");
        assert!(counters().held_back >= 7, "{}", counters().held_back);
    });
}

#[test]
fn one_that_is_woken_while_it_waits_gains_and_loses_nothing() {
    on_all_drivers(|| async {
        let log = Log::default();
        eager('a', 100, &log);
        let waker = Rc::new(RefCell::new(None));
        let turns = Rc::new(Cell::new(0));
        let (theirs, counted, noted) = (waker.clone(), turns.clone(), log.clone());
        let mut left = 100;
        spawn(poll_fn(move |cx| {
            *theirs.borrow_mut() = Some(cx.waker().clone());
            counted.set(counted.get() + 1);
            begin_some('b', &mut left, &noted, cx)
        }));
        eager('c', 100, &log);
        // Wakes the second one in every turn.
        let done = log.clone();
        spawn(poll_fn(move |cx| {
            if let Some(waker) = &*waker.borrow() {
                waker.wake_by_ref();
            }
            if done.borrow().len() == 300 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        while log.borrow().len() < 300 {
            sleep(Duration::from_millis(1)).await;
        }
        for turn in log.borrow().chunk_by(|one, next| one.1 == next.1) {
            assert!(turn.len() <= 64, "{} in one turn", turn.len());
        }
        assert!(
            turns.get() > 5,
            "it was polled while it waited: {}",
            turns.get()
        );
        assert_eq!(runs(&log), "a40 b64 c64 a60 b36 c36");
    });
}

#[test]
fn those_that_end_or_are_aborted_while_they_wait_hold_nobody_up() {
    on_all_drivers(|| async {
        let log = Log::default();
        for name in ['a', 'd'] {
            eager(name, 40, &log);
        }
        let aborted = eager('b', 10, &log);
        let gone = Rc::new(Cell::new(false));
        let seen = gone.clone();
        // Is held back, and ends before its turn comes.
        spawn(poll_fn(move |cx| {
            if seen.replace(true) {
                return Poll::Ready(());
            }
            assert!(poll_begin(cx).is_pending());
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        let killer = log.clone();
        spawn(async move {
            assert_eq!(killer.borrow().len(), 64);
            aborted.abort();
        });
        eager('c', 10, &log);
        while log.borrow().len() < 90 {
            sleep(Duration::from_millis(1)).await;
        }
        sleep(Duration::from_millis(5)).await;
        assert!(gone.get());
        let log = log.borrow();
        assert_eq!(log.iter().filter(|one| one.0 == 'b').count(), 0);
        assert_eq!(log.iter().filter(|one| one.0 == 'c').count(), 10);
    });
}
