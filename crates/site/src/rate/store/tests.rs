use std::collections::HashMap;

use super::*;

const KEY: u64 = 7;
const STEP: Duration = Duration::from_millis(1);

/// A store as the script makes it of Redis.
#[derive(Default)]
struct Central(HashMap<u64, u64>);

impl Central {
    /// Carries out a demand: tokens that are granted, and the nanoseconds until the next one.
    fn run(&mut self, demand: &StoreDemand, now: u64) -> (u32, i64) {
        let interval = demand.interval;
        let capacity = u64::from(demand.burst) * interval;
        let tat = self.0.entry(demand.key).or_default();
        let charged = interval as i64 * demand.charged;
        *tat = (*tat).max(now).saturating_add_signed(charged).max(now);
        let room = (now + capacity).saturating_sub(*tat) / interval;
        let granted = room.min(demand.wanted.into());
        *tat += granted * interval;
        let wait = (*tat + interval) as i64 - (now + capacity) as i64;
        (granted as u32, wait)
    }
}

/// A process, a demand of it, and the response.
type Response = (usize, StoreDemand, (u32, i64));

/// Processes with a store that they share.
struct Processes {
    start: Instant,
    stores: Vec<RateStore>,
    central: Central,
    positions: Vec<usize>,
    share: usize,
    /// Responses that are under way.
    responses: Vec<Response>,
}

impl Processes {
    fn new(count: u32) -> Processes {
        Processes::with_slots(count, SLOTS, 100)
    }

    /// With tables that are so small that each turn looks at all of them.
    fn small(count: u32) -> Processes {
        Processes::with_slots(count, 64, 1)
    }

    fn with_slots(count: u32, slots: usize, share: usize) -> Processes {
        let start = Instant::now();
        let store = |number| {
            let store = RateStore::with_slots(number, start, slots);
            store.set_processes(count);
            store
        };
        Processes {
            start,
            stores: (0..u64::from(count)).map(store).collect(),
            central: Central::default(),
            positions: vec![0; count as usize],
            share,
            responses: Vec::new(),
        }
    }

    fn take(&self, process: usize, key: u64, rate: &Rate, at: Duration) -> bool {
        let taken = self.stores[process].take(StoreTable::Proved, key, rate, self.start + at);
        taken.expect("there is a slot").is_ok()
    }

    /// All that the control threads do in a turn.
    fn exchange(&mut self, at: Duration) {
        self.ask(at);
        self.respond(at);
    }

    /// Sends demands, which the store carries out at once.
    fn ask(&mut self, at: Duration) {
        for process in 0..self.stores.len() {
            let mut demands = Vec::new();
            let store = &self.stores[process];
            store.demands(usize::MAX, &mut demands);
            let position = &mut self.positions[process];
            store.sweep(position, self.share, self.start + at, &mut demands);
            for demand in demands {
                let response = self.central.run(&demand, time(at));
                self.responses.push((process, demand, response));
            }
        }
    }

    /// The responses to all demands arrive.
    fn respond(&mut self, at: Duration) {
        for (process, demand, (granted, wait)) in self.responses.drain(..) {
            self.stores[process].grant(&demand, granted, wait, self.start + at);
        }
    }

    /// How many of so many requests per millisecond pass on each process, from one time to another.
    fn passed(&mut self, rate: &Rate, offered: u32, times: [u64; 2]) -> u64 {
        let mut passed = 0;
        for millisecond in times[0]..times[1] {
            let at = STEP * millisecond as u32;
            for process in 0..self.stores.len() {
                let taken = (0..offered).filter(|_| self.take(process, KEY, rate, at));
                passed += taken.count() as u64;
            }
            if millisecond % 5 == 4 {
                self.exchange(at);
            }
        }
        passed
    }
}

/// The time of the store.
fn time(at: Duration) -> u64 {
    at.as_nanos() as u64 + 1_000_000_000
}

/// Tokens that a limit has for a client as if one process counted, with some beyond its burst.
struct Reference {
    rate: Rate,
    further: u32,
    tat: u64,
}

impl Reference {
    fn new(rate: Rate, further: u32) -> Reference {
        Reference {
            rate,
            further,
            tat: 0,
        }
    }

    fn has_token(&self, at: Duration) -> bool {
        let capacity = u64::from(self.rate.burst + self.further) * self.rate.interval;
        self.tat.max(time(at)) + self.rate.interval <= time(at) + capacity
    }

    /// The store is charged some milliseconds later.
    fn has_long_had_token(&self, at: Duration) -> bool {
        self.has_token(at.saturating_sub(STEP * 100))
    }

    fn take(&mut self, at: Duration) {
        self.tat = self.tat.max(time(at)) + self.rate.interval;
    }
}

fn rate(count: u32, seconds: u64, burst: u32) -> Rate {
    Rate::new(count, Duration::from_secs(seconds), burst)
}

#[test]
fn slow_requests_pass() {
    for (rate, interval) in [
        (rate(50, 1, 50), 900),
        (rate(50, 1, 50), 1100),
        (rate(5000, 1, 5000), 1500),
        (rate(50, 1, 50), 2000),
        (rate(60, 60, 20), 2000),
        (rate(50, 1, 50), 3000),
    ] {
        let mut all = Processes::new(2);
        for millisecond in 0..60_000_u32 {
            let at = STEP * millisecond;
            if millisecond % interval == 0 {
                let process = (millisecond / interval) as usize % 2;
                assert!(all.take(process, KEY, &rate, at), "{interval} ms: {at:?}");
            }
            if millisecond % 5 == 4 {
                all.exchange(at);
            }
        }
    }
}

/// The first request and then one every `pause`, on processes by turns. Gives which of them pass.
fn every(rate: &Rate, processes: u32, pause: Duration, count: u32) -> Vec<bool> {
    let mut all = Processes::small(processes);
    let one = |number: u32| {
        let at = pause * number;
        let passes = all.take((number % processes) as usize, KEY, rate, at);
        for turn in 0..20 {
            all.exchange(at + STEP * 5 + pause / 20 * turn);
        }
        passes
    };
    (0..count).map(one).collect()
}

#[test]
fn slow_clients_have_the_whole_of_a_slow_limit_and_no_more() {
    for (count, burst) in [(2, 2), (4, 4), (10, 10), (20, 20), (60, 7), (1, 1)] {
        for seconds in [1, 2, 5] {
            let rate = rate(count, 3600, burst);
            let pause = Duration::from_secs(seconds);
            let passed = every(&rate, 1, pause, 8000 / seconds as u32);
            let mut limit = Reference::new(rate, 0);
            for (number, passes) in passed.into_iter().enumerate() {
                let at = pause * number as u32;
                let case = format!("{count}/h every {seconds} s: {at:?}");
                assert!(!passes || limit.has_token(at), "more: {case}");
                assert!(passes || !limit.has_long_had_token(at), "less: {case}");
                if passes {
                    limit.take(at);
                }
            }
        }
    }
}

#[test]
fn slow_clients_of_two_processes_have_the_whole_of_a_slow_limit() {
    for (count, burst) in [(2, 2), (4, 4), (10, 10), (20, 20)] {
        let rate = rate(count, 3600, burst);
        let passed = every(&rate, 2, Duration::from_secs(2), 7200);
        assert!(passed[..burst as usize].iter().all(|passes| *passes));
        let all = passed.into_iter().filter(|passes| *passes).count() as u32;
        // The burst, and what came back in four hours.
        let limit = burst + count * 4;
        let bound = limit + 4 * rate.store_lease(2);
        assert!((limit - 1..=bound).contains(&all), "{all} of {count}/h");
    }
}

#[test]
fn a_process_notices_tokens_that_another_one_has_given_back() {
    let rate = rate(2, 3600, 2);
    let mut all = Processes::small(2);
    assert!(all.take(0, KEY, &rate, Duration::ZERO));
    all.exchange(STEP);
    // The other token is leased by the first process, so the bucket is now short of two.
    assert!(all.take(1, KEY, &rate, STEP * 2));
    for seconds in 0..1790 {
        let at = Duration::from_secs(seconds);
        all.exchange(at + STEP * 3);
        assert!(!all.take(1, KEY, &rate, at + STEP * 4), "{at:?}");
    }
    all.exchange(Duration::from_secs(1800));
    assert!(all.take(1, KEY, &rate, Duration::from_secs(1802)));
}

/// Bursts and pauses of all lengths on processes at random, also while responses of the store are under way.
fn random_pattern(seed: u64, rate: Rate, processes: u32) {
    let mut random = SplitMix(seed);
    let mut all = Processes::small(processes);
    let further = match processes {
        1 => 0,
        _ => 2 * processes * rate.store_lease(processes),
    };
    let mut limit = Reference::new(rate, further);
    let mut at = Duration::ZERO;
    let mut is_quiet = true;
    for _ in 0..500 {
        let process = random.below(processes.into()) as usize;
        for number in 0..=random.below(u64::from(rate.burst) + 2) {
            let case = format!("seed {seed}, {processes} processes, {rate:?}: {at:?}");
            if random.below(4) == 0 {
                all.respond(at);
            }
            let has_token = limit.has_token(at);
            let passes = all.take(process, KEY, &rate, at);
            assert!(!passes || has_token, "more than the limit: {case}");
            let is_due = processes == 1 && is_quiet && number == 0;
            let is_due = is_due && limit.has_long_had_token(at);
            assert!(passes || !is_due, "less: {case}");
            if passes {
                limit.take(at);
            }
        }
        let interval = rate.interval / 1_000_000;
        let longest = [1, 20, 2500, interval, 4 * interval][random.below(5) as usize];
        let pause = STEP * random.below(longest + 1) as u32;
        let end = at + pause;
        let mut tick = STEP;
        all.respond(at);
        while at + tick < end {
            // The response comes a little later.
            all.ask(at + tick - STEP / 2);
            at += tick;
            all.respond(at);
            tick = if at + STEP * 100 < end {
                pause / 40
            } else {
                tick
            }
            .max(STEP);
        }
        is_quiet = pause > IDLE;
        at = end;
        if random.below(3) == 0 {
            // Requests come while it is under way.
            all.ask(at);
        }
    }
}

#[test]
fn no_pattern_of_bursts_and_pauses_passes_more_than_the_limit() {
    for seed in 0..8 {
        for (count, burst) in [(2, 2), (4, 4), (10, 10), (60, 1), (100, 20), (3600, 40)] {
            for processes in [1, 2] {
                random_pattern(seed, rate(count, 3600, burst), processes);
            }
        }
    }
}

/// Numbers of a seed.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }
}

#[test]
fn processes_pass_the_limit_together_and_at_most_the_stated_bound() {
    for (count, burst, processes) in [
        (100, 100, 1),
        (100, 100, 2),
        (100, 5, 3),
        (2000, 400, 4),
        (10, 1, 4),
    ] {
        let rate = rate(count, 1, burst);
        let mut all = Processes::new(processes);
        let bound = 2 * processes * rate.store_lease(processes);
        // From the start on, and after a pause in which all tokens went back.
        for start in [0, 60_000] {
            let passed = all.passed(&rate, 3, [start, start + 10_000]);
            let limit = u64::from(count * 10 + burst);
            let case =
                format!("{passed} of {limit} with {processes} processes and a burst of {burst}");
            assert!(passed <= limit + u64::from(bound), "{case}");
            assert!(passed * 100 >= limit * 85, "{case}");
            for millisecond in (start + 10_000..start + 20_000).step_by(5) {
                all.exchange(STEP * millisecond as u32);
            }
        }
    }
}

#[test]
fn a_new_key_has_a_lease_at_once_and_pays_it_back() {
    let rate = rate(1, 1, 40);
    let mut all = Processes::new(2);
    let at_once = |all: &Processes, process, at| {
        (0..50)
            .filter(|_| all.take(process, KEY, &rate, at))
            .count()
    };
    assert_eq!(at_once(&all, 0, Duration::ZERO), 5);
    assert_eq!(at_once(&all, 1, Duration::ZERO), 5);
    // The rest of the burst follows, and not more than it.
    let mut passed = 10;
    for millisecond in 1..100 {
        let at = STEP * millisecond;
        all.exchange(at);
        passed += at_once(&all, 0, at) + at_once(&all, 1, at);
    }
    assert_eq!(passed, 40);
}

#[test]
fn a_key_whose_allowance_is_unpaid_keeps_its_slot() {
    // A token in ten seconds: each process may take one in advance, and no further one before it is paid back.
    let rate = rate(1, 10, 1);
    let mut all = Processes::new(3);
    let mut passed = 0;
    for second in 0..100 {
        let at = Duration::from_secs(second);
        for process in 0..3 {
            passed += u64::from(all.take(process, KEY, &rate, at));
        }
        for turn in 0..110 {
            all.exchange(at + STEP * turn);
        }
    }
    assert!((10..=13).contains(&passed), "{passed} in 100 seconds");
}

#[test]
fn tokens_of_idle_keys_go_back_and_their_slots_become_free() {
    let rate = rate(1, 1, 80);
    let mut all = Processes::new(1);
    for key in 1..=1000 {
        assert!(all.take(0, key, &rate, Duration::ZERO));
    }
    all.exchange(STEP);
    assert_eq!(all.central.0.len(), 1000);
    for millisecond in 0..3000 {
        all.exchange(STEP * millisecond);
    }
    let table = all.stores[0].tables[0].get().unwrap();
    let used = table.sets.iter().flat_map(|set| &set.keys);
    assert_eq!(
        used.filter(|key| key.load(Ordering::Relaxed) != 0).count(),
        0
    );
    // The 19 seconds for the tokens that were not spent.
    for tat in all.central.0.values() {
        assert!(*tat <= 4_000_000_000, "{tat}");
    }
}

#[test]
fn a_full_table_gives_no_slot_and_forgets_none() {
    let rate = rate(1, 3600, 1);
    let mut all = Processes::new(1);
    let mut without = 0;
    assert!(all.take(0, u64::MAX, &rate, Duration::ZERO));
    all.exchange(STEP);
    for key in 1..200_000 {
        let taken = all.stores[0].take(StoreTable::Proved, key, &rate, all.start + STEP);
        without += u32::from(taken.is_none());
    }
    assert!(without >= 200_000 - SLOTS as u32, "{without}");
    for millisecond in 0..3000 {
        all.exchange(STEP * millisecond);
    }
    assert!(!all.take(0, u64::MAX, &rate, Duration::from_secs(10)));
}

#[test]
fn demands_are_taken_in_parts() {
    let rate = rate(10, 1, 8);
    let all = Processes::new(1);
    for key in 1..=100 {
        assert!(all.take(0, key, &rate, Duration::ZERO));
    }
    let mut keys = Vec::new();
    for _ in 0..4 {
        let mut demands = Vec::new();
        all.stores[0].demands(30, &mut demands);
        assert!(demands.len() <= 30);
        keys.extend(demands.iter().map(|demand| demand.key));
    }
    keys.sort_unstable();
    assert_eq!(keys, (1..=100).collect::<Vec<_>>());
    // One that failed is there again.
    let mut demands = Vec::new();
    assert!(all.take(0, 500, &rate, Duration::ZERO));
    all.stores[0].demands(30, &mut demands);
    let [demand] = demands[..] else {
        panic!("{demands:?}")
    };
    assert_eq!((demand.charged, demand.wanted), (2, 1));
    all.stores[0].put_back(&demand);
    demands.clear();
    all.stores[0].demands(30, &mut demands);
    assert_eq!(demands, [demand]);
}

#[test]
fn values_that_clients_choose_hold_up_no_others() {
    let rate = rate(1, 3600, 1);
    let all = Processes::new(1);
    let store = &all.stores[0];
    let take = |table, key| store.take(table, key, &rate, all.start);
    let flood = (1..300_000).map(|key| take(StoreTable::Chosen, key));
    assert!(flood.filter(Option::is_none).count() > 200_000);
    for key in 1..=30 {
        assert_eq!(take(StoreTable::Proved, key), Some(Ok(())));
    }
    let mut demands = Vec::new();
    store.demands(30, &mut demands);
    assert_eq!(demands.len(), 30);
    assert!(demands.iter().all(|demand| demand.key <= 30));
    assert!(
        demands
            .iter()
            .all(|demand| demand.table == StoreTable::Proved)
    );
}

#[test]
fn a_store_that_does_not_answer_is_gone() {
    let start = Instant::now();
    let store = RateStore::new(1, start);
    assert!(!store.is_reachable(start));
    store.note_answer(start, start + STEP);
    assert!(store.is_reachable(start + STEP) && store.is_reachable(start + STALE));
    assert!(!store.is_reachable(start + STEP + STALE));
    store.note_failure();
    assert!(!store.is_reachable(start + STEP));
    let facts = store.facts(start);
    assert_eq!(
        (facts.exchanges, facts.failures, facts.seconds),
        (1, 1, 0.001)
    );
}

#[test]
fn several_threads_spend_no_token_twice() {
    let rate = rate(1, 3600, 8000);
    let store = RateStore::new(1, Instant::now());
    store.set_processes(1);
    let now = Instant::now();
    let take_one = |store: &RateStore, rate: &Rate, now| {
        let taken = store.take(StoreTable::Proved, KEY, rate, now);
        taken.is_some_and(|taken| taken.is_ok())
    };
    let take = || (0..2000).filter(|_| take_one(&store, &rate, now)).count();
    let passed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(passed, 2000);
}

#[test]
fn shares_add_up_to_the_limit() {
    let whole = rate(100, 1, 10);
    let share = whole.share(4);
    assert_eq!((share.interval, share.burst), (whole.interval * 4, 2));
    assert_eq!(whole.share(100).burst, 1);
    assert_eq!(whole.share(0), whole);
}
