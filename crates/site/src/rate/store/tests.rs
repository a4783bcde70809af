use std::collections::HashMap;

use super::*;

const KEY: u64 = 7;
const STEP: Duration = Duration::from_millis(1);

/// A store as the script makes it of Redis.
#[derive(Default)]
struct Central(HashMap<u64, u64>);

impl Central {
    /// Carries out a demand: tokens that are granted, and the time until the next one.
    fn run(&mut self, demand: &StoreDemand, now: u64) -> (u32, Duration) {
        let interval = demand.interval;
        let capacity = u64::from(demand.burst) * interval;
        let tat = self.0.entry(demand.key).or_default();
        let charged = interval as i64 * demand.charged;
        *tat = (*tat).max(now).saturating_add_signed(charged).max(now);
        let room = (now + capacity).saturating_sub(*tat) / interval;
        let granted = room.min(demand.wanted.into());
        *tat += granted * interval;
        let wait = (*tat + interval).saturating_sub(now + capacity);
        (granted as u32, Duration::from_nanos(wait))
    }
}

/// Processes with a store that they share.
struct Processes {
    start: Instant,
    stores: Vec<RateStore>,
    central: Central,
    positions: Vec<usize>,
}

impl Processes {
    fn new(count: u32) -> Processes {
        let start = Instant::now();
        let store = |number| {
            let store = RateStore::new(number, start);
            store.set_processes(count);
            store
        };
        Processes {
            start,
            stores: (0..u64::from(count)).map(store).collect(),
            central: Central::default(),
            positions: vec![0; count as usize],
        }
    }

    fn take(&self, process: usize, key: u64, rate: &Rate, at: Duration) -> bool {
        let taken = self.stores[process].take(key, rate, self.start + at);
        taken.expect("there is a slot").is_ok()
    }

    /// All that the control threads do in a turn.
    fn exchange(&mut self, at: Duration) {
        let now = self.start + at;
        for (store, position) in self.stores.iter().zip(&mut self.positions) {
            let mut demands = Vec::new();
            store.demands(usize::MAX, &mut demands);
            store.sweep(position, 100, now, &mut demands);
            for demand in demands {
                let at = at.as_nanos() as u64 + 1_000_000_000;
                let (granted, wait) = self.central.run(&demand, at);
                store.grant(&demand, granted, wait, now);
            }
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
    let table = all.stores[0].slots.get().unwrap();
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
        without += u32::from(all.stores[0].take(key, &rate, all.start + STEP).is_none());
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
    let take = || {
        (0..2000)
            .filter(|_| store.take(KEY, &rate, now).unwrap().is_ok())
            .count()
    };
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
