//! Sleeps, timers, timeouts and the clock.

use std::time::{Duration, Instant};

use blitz_reactor::{now, precise_sleep_until, sleep, sleep_until, spawn, timeout, wall_clock};

use crate::{on_all_drivers, on_both_drivers};

#[test]
fn a_sleep_lasts_at_least_its_duration_and_little_longer() {
    on_both_drivers(|| async {
        for ms in [1, 10, 70] {
            let asked = Duration::from_millis(ms);
            let start = Instant::now();
            sleep(asked).await;
            let slept = start.elapsed();
            assert!(slept >= asked, "{slept:?} for {asked:?}");
            assert!(
                slept < asked + Duration::from_millis(60),
                "{slept:?} for {asked:?}"
            );
        }
    });
}

#[test]
fn a_thousand_sleepers_wake_in_order() {
    on_all_drivers(|| async {
        let woken = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let start = now();
        for n in 0..1_000u64 {
            let woken = woken.clone();
            let at = start + Duration::from_millis(n * 7 % 100);
            spawn(async move {
                sleep_until(at).await;
                woken.borrow_mut().push(at);
            });
        }
        sleep(Duration::from_millis(120)).await;
        assert_eq!(woken.borrow().len(), 1_000);
        assert!(woken.borrow().is_sorted());
    });
}

#[test]
fn a_timer_that_is_reset_fires_at_its_new_time_only() {
    on_all_drivers(|| async {
        let start = now();
        let mut timer = sleep(Duration::from_millis(10));
        let early = timeout(Duration::from_millis(2), &mut timer).await;
        assert!(early.is_err());
        timer.reset(start + Duration::from_millis(40));
        (&mut timer).await;
        assert!(now() - start >= Duration::from_millis(40));
    });
}

#[test]
fn a_timeout_returns_the_output_or_elapsed() {
    on_all_drivers(|| async {
        assert_eq!(timeout(Duration::from_secs(5), async { 7 }).await, Ok(7));
        let never = std::future::pending::<()>();
        assert!(timeout(Duration::from_millis(5), never).await.is_err());
    });
}

#[test]
fn the_clock_does_not_move_within_a_turn() {
    on_both_drivers(|| async {
        let (then, wall) = (now(), wall_clock());
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!((now(), wall_clock()), (then, wall));
        sleep(Duration::from_millis(1)).await;
        assert!(now() > then && wall_clock() > wall);
    });
}

#[test]
fn a_precise_sleep_is_not_rounded_and_not_early() {
    on_both_drivers(|| async {
        let asked = Duration::from_micros(300);
        let mut slept = Vec::new();
        for _ in 0..41 {
            let start = Instant::now();
            precise_sleep_until(start + asked).await;
            slept.push(start.elapsed());
        }
        slept.sort();
        assert!(slept[0] >= asked, "{slept:?}");
        // Rounded to ticks, most would last about a millisecond.
        assert!(slept[20] < Duration::from_micros(800), "{slept:?}");
    });
}

#[test]
fn precise_timers_fire_in_order_and_a_dropped_one_does_not() {
    on_all_drivers(|| async {
        let start = now();
        let woken = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        for n in 0..100u64 {
            let woken = woken.clone();
            let at = start + Duration::from_micros(n * 37 % 100 * 50);
            spawn(async move {
                precise_sleep_until(at).await;
                woken.borrow_mut().push(at);
            });
        }
        let dropped = timeout(
            Duration::from_millis(2),
            precise_sleep_until(start + Duration::from_secs(60)),
        );
        assert!(dropped.await.is_err());
        sleep(Duration::from_millis(10)).await;
        assert_eq!(woken.borrow().len(), 100);
        assert!(woken.borrow().is_sorted());
    });
}
