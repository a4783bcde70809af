//! Tasks, wakes and blocking work.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use blitz_reactor::{blocking, counters, random_u64, sleep, spawn, yield_now};

use crate::{on_all_drivers, on_both_drivers};

#[test]
fn tasks_take_turns() {
    on_all_drivers(|| async {
        let log = Rc::new(RefCell::new(String::new()));
        for name in ["a", "b"] {
            let log = log.clone();
            spawn(async move {
                for _ in 0..3 {
                    log.borrow_mut().push_str(name);
                    yield_now().await;
                }
            });
        }
        sleep(Duration::from_millis(5)).await;
        assert_eq!(*log.borrow(), "ababab");
    });
}

#[test]
fn an_aborted_task_is_dropped() {
    on_all_drivers(|| async {
        let kept = Rc::new(());
        let theirs = kept.clone();
        let task = spawn(async move {
            std::future::pending::<()>().await;
            drop(theirs);
        });
        yield_now().await;
        task.abort();
        assert_eq!(Rc::strong_count(&kept), 1);
        task.abort();
    });
}

#[test]
fn a_task_that_panics_does_not_affect_others() {
    on_all_drivers(|| async {
        let survived = Rc::new(Cell::new(false));
        let other = survived.clone();
        spawn(async { panic!("on purpose") });
        spawn(async move {
            yield_now().await;
            other.set(true);
        });
        // Printing the panic may take a while.
        while counters().task_panics == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        sleep(Duration::from_millis(5)).await;
        assert!(survived.get());
        assert_eq!(counters().task_panics, 1);
    });
}

#[test]
fn a_waker_works_from_any_thread_and_after_its_task_has_ended() {
    on_both_drivers(|| async {
        let slot = Rc::new(RefCell::new(None::<Waker>));
        let polls = Rc::new(Cell::new(0));
        let (theirs, count) = (slot.clone(), polls.clone());
        spawn(async move {
            poll_fn(|cx| {
                count.set(count.get() + 1);
                *theirs.borrow_mut() = Some(cx.waker().clone());
                if count.get() < 3 {
                    Poll::Pending
                } else {
                    Poll::Ready(())
                }
            })
            .await;
        });
        yield_now().await;
        for _ in 0..4 {
            let waker = slot.borrow().clone().unwrap();
            std::thread::spawn(move || waker.wake()).join().unwrap();
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(polls.get(), 3);
    });
}

#[test]
fn a_full_mailbox_loses_no_wake() {
    on_both_drivers(|| async {
        let woken = Rc::new(Cell::new(0));
        let (sender, wakers) = std::sync::mpsc::channel::<Waker>();
        for _ in 0..6_000 {
            let (woken, sender) = (woken.clone(), sender.clone());
            spawn(async move {
                let mut asked = false;
                poll_fn(|cx| {
                    if asked {
                        return Poll::Ready(());
                    }
                    asked = true;
                    sender.send(cx.waker().clone()).unwrap();
                    Poll::Pending
                })
                .await;
                woken.set(woken.get() + 1);
            });
        }
        drop(sender);
        yield_now().await;
        // While the core blocks here, its mailbox is not read.
        let waking = std::thread::spawn(move || wakers.iter().take(6_000).for_each(Waker::wake));
        waking.join().unwrap();
        sleep(Duration::from_millis(20)).await;
        assert_eq!(woken.get(), 6_000);
        assert!(counters().mailbox_overflows > 0);
    });
}

#[test]
fn blocking_jobs_do_not_block_the_core() {
    on_both_drivers(|| async {
        let ticks = Rc::new(Cell::new(0));
        let theirs = ticks.clone();
        spawn(async move {
            loop {
                sleep(Duration::from_millis(2)).await;
                theirs.set(theirs.get() + 1);
            }
        });
        let answer = blocking(|| {
            std::thread::sleep(Duration::from_millis(60));
            42
        });
        assert_eq!(answer.await, 42);
        assert!(ticks.get() >= 5, "{} ticks", ticks.get());
    });
}

#[test]
fn random_numbers_follow_from_the_seed() {
    let drawn = RefCell::new(Vec::new());
    on_both_drivers(|| async { drawn.borrow_mut().push((random_u64(), random_u64())) });
    let drawn = drawn.into_inner();
    assert_eq!(drawn[0], drawn[1]);
    assert_ne!(drawn[0].0, drawn[0].1);
}
