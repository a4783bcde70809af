use std::hash::Hash;
use std::num::NonZeroU32;

use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use proptest::prelude::*;

use super::*;

const LIMIT: u64 = 1;

fn cores(count: usize) -> (Instant, Vec<CoreBuckets>) {
    let start = Instant::now();
    let shared = Arc::new(SharedBuckets::new(count, 7, start));
    let core = |_| CoreBuckets::new(Arc::clone(&shared));
    (start, (0..count).map(core).collect())
}

fn key(shared: &SharedBuckets, text: &str) -> u64 {
    let mut hasher = shared.hasher(LIMIT);
    text.hash(&mut hasher);
    hasher.finish()
}

fn per_second(count: u32, burst: u32) -> Rate {
    Rate::new(count, Duration::from_secs(1), burst)
}

proptest! {
    /// The crate `governor` has the same algorithm.
    #[test]
    fn one_core_decides_as_governor_does(
        count in 1_u32..2000,
        burst in 1_u32..200,
        pauses in prop::collection::vec(0_u64..20_000_000, 1..300),
    ) {
        let rate = per_second(count, burst);
        let interval = Duration::from_nanos(rate.interval);
        let quota = Quota::with_period(interval).unwrap();
        let quota = quota.allow_burst(NonZeroU32::new(burst).unwrap());
        let clock = FakeRelativeClock::default();
        let oracle = RateLimiter::direct_with_clock(quota, clock.clone());
        let (start, mut cores) = cores(1);
        let mut now = start;
        for pause in pauses {
            let pause = Duration::from_nanos(pause);
            now += pause;
            clock.advance(pause);
            let ours = cores[0].take(LIMIT, 5, &rate, now);
            prop_assert_eq!(ours.is_ok(), oracle.check().is_ok());
            if let Err(throttled) = ours {
                // A nanosecond earlier there is none.
                let early = throttled.wait - Duration::from_nanos(1);
                prop_assert!(cores[0].take(LIMIT, 5, &rate, now + early).is_err());
            }
        }
    }
}

/// How many of `offered` requests per second pass within ten seconds, distributed over two cores in these parts.
fn passed(rate: &Rate, offered: u64, parts: [u64; 2]) -> u64 {
    let (start, mut cores) = cores(2);
    let mut passed = 0;
    let pause = Duration::from_nanos(1_000_000_000 / offered);
    for number in 0..offered * 10 {
        let now = start + pause * number as u32;
        let at = number % (parts[0] + parts[1]);
        let core = usize::from(at >= parts[0]);
        passed += u64::from(cores[core].take(LIMIT, 9, rate, now).is_ok());
    }
    passed
}

#[test]
fn two_cores_pass_the_limit_and_at_most_a_token_for_each() {
    for (per_second, burst) in [(100, 1), (100, 100), (10_000, 100), (10_000, 10_000)] {
        let rate = self::per_second(per_second, burst);
        let limit = u64::from(burst) + u64::from(per_second) * 10;
        for parts in [[1, 0], [0, 1], [1, 1], [9, 1], [1, 99]] {
            let passed = passed(&rate, 40_000, parts);
            assert!(passed <= limit + 2, "{passed} of {limit} at {parts:?}");
            assert!(
                passed * 100 >= limit * 98,
                "{passed} of {limit} at {parts:?}"
            );
        }
    }
}

#[test]
fn requests_within_the_limit_pass_however_they_are_distributed() {
    let rate = per_second(10_000, 1000);
    for parts in [[1, 0], [1, 1], [9, 1], [1, 99]] {
        assert_eq!(passed(&rate, 10_000, parts), 100_000, "{parts:?}");
    }
}

#[test]
fn in_every_interval_the_bound_holds() {
    let rate = per_second(10_000, 1000);
    let (start, mut cores) = cores(4);
    assert_eq!(rate.lease(4), 10);
    // Each core takes a lease and leaves it, until all ask for everything a second later.
    for core in &mut cores {
        assert!(core.take(LIMIT, 9, &rate, start).is_ok());
    }
    let now = start + Duration::from_secs(1);
    let mut passed = 0;
    for core in &mut cores {
        while core.take(LIMIT, 9, &rate, now).is_ok() {
            passed += 1;
        }
    }
    assert!((960..=1004).contains(&passed), "{passed} at once");
}

#[test]
fn leases_of_other_keys_are_given_back() {
    let rate = per_second(10_000, 1000);
    let (start, mut cores) = cores(2);
    let core = &mut cores[0];
    // Both keys have the same place.
    let (one, other) = (5, 6);
    for _ in 0..100 {
        assert!(core.take(LIMIT, one, &rate, start).is_ok());
        assert!(core.take(LIMIT, other, &rate, start).is_ok());
    }
    let mut left = 0;
    while core.take(LIMIT, one, &rate, start).is_ok() {
        left += 1;
    }
    assert!((870..=900).contains(&left), "{left} of 900");
}

#[test]
fn a_million_keys_free_no_throttled_one() {
    let rate = Rate::new(10, Duration::from_secs(60), 10);
    let (start, mut cores) = cores(1);
    let shared = Arc::clone(&cores[0].shared);
    let core = &mut cores[0];
    let victim = key(&shared, "victim");
    while core.take(LIMIT, victim, &rate, start).is_ok() {}
    let before = crate::counters().rate_limits_overflowed;
    let mut passed = 0;
    for number in 0..1_000_000 {
        let key = key(&shared, &format!("attacker {number}"));
        passed += u64::from(core.take(LIMIT, key, &rate, start).is_ok());
        if number % 1000 == 0 {
            assert!(core.take(LIMIT, victim, &rate, start).is_err());
        }
    }
    // Those with a bucket of their own, and the burst that all others share.
    assert!(passed <= (KEYS_PER_CORE + 10) as u64, "{passed} passed");
    let overflowed = crate::counters().rate_limits_overflowed - before;
    assert!(overflowed >= 1_000_000 - KEYS_PER_CORE as u64);
    // Full buckets are free for others again.
    let later = start + Duration::from_secs(60);
    assert!(core.take(LIMIT, key(&shared, "new"), &rate, later).is_ok());
    assert_eq!(
        crate::counters().rate_limits_overflowed - before,
        overflowed
    );
}

#[test]
fn several_threads_pass_no_more_than_the_limit() {
    let rate = per_second(10_000, 1000);
    let (start, cores) = cores(4);
    let passed: usize = std::thread::scope(|scope| {
        let run = |mut core: CoreBuckets| {
            scope.spawn(move || {
                let take = |_: &u32| core.take(LIMIT, 9, &rate, start).is_ok();
                (0..2000).filter(take).count()
            })
        };
        let threads: Vec<_> = cores.into_iter().map(run).collect();
        let counts = threads.into_iter().map(|thread| thread.join().unwrap());
        counts.sum()
    });
    assert!((960..=1004).contains(&passed), "{passed} passed");
}

#[test]
fn a_bucket_and_a_set_have_the_stated_sizes() {
    assert_eq!(table::SET_BYTES, WAYS * 16);
    assert_eq!(per_second(100, 100).refill_time(), Duration::from_secs(1));
}
