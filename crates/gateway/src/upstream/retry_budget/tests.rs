//! Tests of budgets, also with random histories of several cores.

use std::collections::VecDeque;

use super::*;

/// How many retries there are now, of a core that is alone.
fn left(budget: &RetryBudget, shared: &SharedRetries, processed: Processed, now: Instant) -> u32 {
    let share = RetryShare::default();
    (0..)
        .take_while(|_| budget.try_retry(processed, share, shared, now))
        .count() as u32
}

#[test]
fn retries_depend_on_the_requests_of_the_last_ten_seconds() {
    let start = Instant::now();
    for (processed, allowed) in [(Processed::Perhaps, 400), (Processed::No, 4000)] {
        let (budget, shared) = (RetryBudget::default(), SharedRetries::default());
        let left = |now| left(&budget, &shared, processed, now);
        for number in 0..2000 {
            budget.note_request(start + PERIOD / 2000 * number);
        }
        let end = start + PERIOD - PART / 2;
        assert_eq!(left(end), allowed);
        assert_eq!(left(end + PART), 0, "{processed:?}");
        assert_eq!(left(end + 2 * PERIOD), RETRIES_MIN);
    }
}

#[test]
fn a_hundred_retries_of_each_kind_are_always_possible() {
    let (budget, shared) = (RetryBudget::default(), SharedRetries::default());
    let now = Instant::now();
    let left = |processed, now| left(&budget, &shared, processed, now);
    assert_eq!(left(Processed::Perhaps, now), RETRIES_MIN);
    assert_eq!(left(Processed::No, now), RETRIES_MIN);
    assert_eq!(left(Processed::No, now + PERIOD), 0);
    assert_eq!(left(Processed::No, now + PERIOD + PART), RETRIES_MIN);
    assert_eq!(left(Processed::Perhaps, now + PERIOD + PART), RETRIES_MIN);
}

#[test]
fn cores_have_their_shares_and_the_rest_together() {
    let shared = SharedRetries::default();
    let now = Instant::now();
    let busy = RetryBudget::default();
    (0..1000).for_each(|_| busy.note_request(now));
    let idle: [RetryBudget; 3] = Default::default();
    let mut of_idle = 0;
    for budget in &idle {
        of_idle += left(budget, &shared, Processed::Perhaps, now);
    }
    assert_eq!(of_idle, RETRIES_MIN);
    assert_eq!(left(&busy, &shared, Processed::Perhaps, now), 200);
}

#[test]
fn a_share_may_be_another_one() {
    let now = Instant::now();
    let share = |millionths| RetryShare { millionths };
    for (share, allowed) in [
        (share(0), 100),
        (share(50_000), 500),
        (share(1_000_000), 10_000),
    ] {
        let (budget, shared) = (RetryBudget::default(), SharedRetries::default());
        (0..10_000).for_each(|_| budget.note_request(now));
        let retries = (0..20_000)
            .filter(|_| budget.try_retry(Processed::Perhaps, share, &shared, now))
            .count();
        assert_eq!(retries, allowed);
    }
}

/// Random numbers with a fixed seed (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Cores have clocks that differ by so much.
const SKEW_MS: u64 = 3;

/// The requests and retries of several cores, those of late and all of them.
#[derive(Default)]
struct History {
    /// Of twenty seconds.
    requests: VecDeque<Instant>,
    /// Of ten seconds.
    retries: VecDeque<Instant>,
    all_requests: u64,
    all_retries: u64,
}

impl History {
    fn forget(&mut self, now: Instant) {
        let skew = Duration::from_millis(2 * SKEW_MS);
        let lists = [
            (&mut self.requests, 2 * PERIOD + skew),
            (&mut self.retries, PERIOD - skew),
        ];
        for (times, age) in lists {
            let is_old = |time: &Instant| now.saturating_duration_since(*time) > age;
            while times.front().is_some_and(is_old) {
                times.pop_front();
            }
        }
    }
}

/// A history of so many cores with one upstream, which fails often, always or never in turns.
fn check_history(seed: u64) {
    let mut numbers = Numbers(seed);
    let start = Instant::now();
    let shared = SharedRetries::default();
    let cores = 1 + numbers.below(8) as usize;
    let budgets: Vec<RetryBudget> = (0..cores).map(|_| RetryBudget::default()).collect();
    let (mut now, mut history) = (start, History::default());
    let (mut pause, mut failing) = (1, 100);
    for step in 0..20_000 {
        if step % 2_000 == 0 {
            pause = [0, 1, 10, 100, 1_000][numbers.below(5) as usize];
            failing = [0, 20, 100][numbers.below(3) as usize];
        }
        now += Duration::from_millis(numbers.below(1 + 2 * pause));
        // The clock of a core is that of its turn.
        let then = now + Duration::from_millis(numbers.below(SKEW_MS));
        let budget = &budgets[numbers.below(cores as u64) as usize];
        budget.note_request(then);
        history.requests.push_back(then);
        history.all_requests += 1;
        let mut left = 8;
        while left > 0 && numbers.below(100) < failing {
            left -= 1;
            history.forget(now);
            if !budget.try_retry(Processed::Perhaps, RetryShare::default(), &shared, then) {
                break;
            }
            history.retries.push_back(then);
            history.all_retries += 1;
            let (requests, retries) = (history.requests.len() as u64, history.retries.len() as u64);
            let max = requests / 5 + u64::from(RETRIES_MIN);
            assert!(
                retries <= max,
                "seed {seed}: {retries} retries in ten seconds"
            );
        }
        let seconds = then.saturating_duration_since(start).as_secs() + 1;
        let max = history.all_requests / 5 + 10 * seconds + u64::from(RETRIES_MIN);
        assert!(
            history.all_retries <= max,
            "seed {seed}: too many altogether"
        );
    }
}

#[test]
fn budgets_are_never_exceeded() {
    for seed in 0..40 {
        check_history(seed);
    }
}

#[test]
fn retries_come_back() {
    let (budget, shared) = (RetryBudget::default(), SharedRetries::default());
    let start = Instant::now();
    let mut retries = 0;
    for second in 0..100 {
        retries += left(&budget, &shared, Processed::Perhaps, start + PART * second);
    }
    // A hundred at once, and the next when no ten seconds have both.
    assert_eq!(retries, 10 * RETRIES_MIN);
}
