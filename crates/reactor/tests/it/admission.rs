//! The admission budget of a turn, and the order of tasks that wait for it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use blitz_reactor::{TaskKey, consume_admission, counters, poll_admission, sleep, spawn};

use crate::on_all_drivers;

/// The admitted requests: task and turn of each.
type Log = Rc<RefCell<Vec<(char, u64)>>>;

/// One poll of a task that starts `left` requests: at most 40, like an HTTP/2 connection.
fn start_some(name: char, left: &mut usize, log: &Log, cx: &Context<'_>) -> Poll<()> {
    for _ in 0..40 {
        if *left == 0 {
            return Poll::Ready(());
        }
        if poll_admission(cx).is_pending() {
            return Poll::Pending;
        }
        consume_admission();
        log.borrow_mut().push((name, counters().turns));
        *left -= 1;
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

fn eager(name: char, mut left: usize, log: &Log) -> TaskKey {
    let log = Rc::clone(log);
    spawn(async move { poll_fn(|cx| start_some(name, &mut left, &log, cx)).await })
}

/// The tasks in order, with the number of consecutive requests: "a40 b24".
fn runs(log: &Log) -> String {
    let log = log.borrow();
    let runs = log.chunk_by(|one, next| one.0 == next.0);
    let runs = runs.map(|run| format!("{}{}", run[0].0, run.len()));
    runs.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_turn_admits_a_bounded_number_and_tasks_take_turns() {
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
        // A task that the budget has interrupted continues in the next turn; one that used its share is queued.
        assert_eq!(runs(&log), "a40 b64 c64 a60 b36 c36");
        assert!(counters().held_back >= 7, "{}", counters().held_back);
    });
}

#[test]
fn waking_a_held_back_task_does_not_change_its_turn() {
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
            start_some('b', &mut left, &noted, cx)
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
fn held_back_tasks_that_end_or_are_aborted_delay_no_other() {
    on_all_drivers(|| async {
        let log = Log::default();
        for name in ['a', 'd'] {
            eager(name, 40, &log);
        }
        let aborted = eager('b', 10, &log);
        let gone = Rc::new(Cell::new(false));
        let seen = gone.clone();
        // Is held back, and ends before it is admitted.
        spawn(poll_fn(move |cx| {
            if seen.replace(true) {
                return Poll::Ready(());
            }
            assert!(poll_admission(cx).is_pending());
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
