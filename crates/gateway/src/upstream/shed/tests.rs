//! The controller with a simulated upstream, which works on so many requests at a time and serves the others in their
//! order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_config::{Importance, Shed};

use super::controller::{Arrival, Controller};
use super::unloaded::Unloaded;

const SERVERS: usize = 8;
const WORK: Duration = Duration::from_millis(20);

/// Requests that the upstream can serve in a second.
const CAPACITY: f64 = 400.0;

/// Random numbers of a fixed seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut one = self.0;
        one = (one ^ (one >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        one = (one ^ (one >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        one ^ (one >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A time until the next of independent events.
    fn interval(&mut self, per_second: f64) -> Duration {
        let uniform = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        Duration::from_secs_f64(-(1.0 - uniform).ln() / per_second)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    /// A request has waited long enough at the gateway.
    WaitOver(usize),
    /// The upstream has finished it.
    Finished(usize),
}

#[derive(Debug, Clone, Copy)]
struct Request {
    core: usize,
    importance: Importance,
    arrived: Instant,
    started: Option<Instant>,
    finished: Option<Instant>,
    is_shed: bool,
}

struct Simulation {
    start: Instant,
    now: Instant,
    random: Random,
    events: BinaryHeap<Reverse<(Instant, Event)>>,
    cores: Vec<Controller<usize>>,
    requests: Vec<Request>,
    working: usize,
    queue: VecDeque<usize>,
    /// The time of work on a request.
    work: fn(&mut Random, Duration) -> Duration,
    /// Arrivals in a second, from a time since the start on.
    rates: Vec<(Duration, f64)>,
    importances: &'static [Importance],
}

impl Simulation {
    fn new(settings: Shed, cores: usize, seed: u64, rates: &[(u64, f64)]) -> Simulation {
        let start = Instant::now();
        let unloaded = Arc::new(Unloaded::default());
        let controller = |_| Controller::new(&settings, cores, Arc::clone(&unloaded), start);
        Simulation {
            start,
            now: start,
            random: Random(seed),
            events: BinaryHeap::from([Reverse((start, Event::Arrival))]),
            cores: (0..cores).map(controller).collect(),
            requests: Vec::new(),
            working: 0,
            queue: VecDeque::new(),
            work: |_, _| WORK,
            rates: rates
                .iter()
                .map(|&(from, rate)| (Duration::from_secs(from), rate))
                .collect(),
            importances: &[Importance::Normal],
        }
    }

    fn run(&mut self, seconds: u64) {
        let end = self.start + Duration::from_secs(seconds);
        while let Some(&Reverse((time, event))) = self.events.peek() {
            if time >= end {
                break;
            }
            self.events.pop();
            self.now = time;
            match event {
                Event::Arrival => self.arrive(),
                Event::WaitOver(number) => self.end_wait(number),
                Event::Finished(number) => self.finish(number),
            }
        }
    }

    fn arrive(&mut self) {
        let elapsed = self.now - self.start;
        let rate = self
            .rates
            .iter()
            .rfind(|(from, _)| *from <= elapsed)
            .unwrap()
            .1;
        let next = self.now + self.random.interval(rate);
        self.events.push(Reverse((next, Event::Arrival)));
        let number = self.requests.len();
        let core = self.random.below(self.cores.len() as u64) as usize;
        let importance = self.random.below(self.importances.len() as u64) as usize;
        let importance = self.importances[importance];
        self.requests.push(Request {
            core,
            importance,
            arrived: self.now,
            started: None,
            finished: None,
            is_shed: false,
        });
        match self.cores[core].arrive(importance, self.now, || number) {
            Arrival::Admitted => self.send(number),
            Arrival::Waits { wait, displaced } => {
                self.events
                    .push(Reverse((self.now + wait, Event::WaitOver(number))));
                if let Some(displaced) = displaced {
                    self.requests[displaced].is_shed = true;
                }
            }
            Arrival::Shed => self.requests[number].is_shed = true,
        }
        self.admit(core);
    }

    fn end_wait(&mut self, number: usize) {
        let Request {
            core, importance, ..
        } = self.requests[number];
        if self.cores[core].leave(importance, |&other| other == number) {
            self.requests[number].is_shed = true;
        }
    }

    fn admit(&mut self, core: usize) {
        while let Some(number) = self.cores[core].next() {
            self.send(number);
        }
    }

    fn send(&mut self, number: usize) {
        self.requests[number].started = Some(self.now);
        self.queue.push_back(number);
        self.work();
    }

    fn work(&mut self) {
        while self.working < SERVERS
            && let Some(number) = self.queue.pop_front()
        {
            self.working += 1;
            let work = (self.work)(&mut self.random, self.now - self.start);
            self.events
                .push(Reverse((self.now + work, Event::Finished(number))));
        }
    }

    fn finish(&mut self, number: usize) {
        self.working -= 1;
        self.requests[number].finished = Some(self.now);
        self.work();
        let Request { core, started, .. } = self.requests[number];
        self.cores[core].end(started.unwrap(), true, self.now);
        self.admit(core);
    }

    /// Those that arrived between these times in milliseconds.
    fn arrived(&self, from: u64, to: u64) -> impl Iterator<Item = &Request> {
        let at = |millis| self.start + Duration::from_millis(millis);
        let (from, to) = (at(from), at(to));
        self.requests
            .iter()
            .filter(move |one| (from..to).contains(&one.arrived))
    }

    /// Responses in a second between these times in milliseconds.
    fn goodput(&self, from: u64, to: u64) -> f64 {
        let at = |millis| self.start + Duration::from_millis(millis);
        let span = at(from)..at(to);
        let is_within = |time: &Instant| span.contains(time);
        let finished = self.requests.iter().filter_map(|one| one.finished);
        finished.filter(is_within).count() as f64 * 1e3 / (to - from) as f64
    }

    /// The 99th percentile of the times of requests that were served.
    fn p99(&self, from: u64, to: u64) -> Duration {
        let served = self
            .arrived(from, to)
            .filter_map(|one| Some(one.finished? - one.arrived));
        let mut times: Vec<_> = served.collect();
        times.sort();
        times[times.len() * 99 / 100]
    }

    fn shed(&self, from: u64, to: u64) -> usize {
        self.arrived(from, to).filter(|one| one.is_shed).count()
    }

    /// The limits of all cores together.
    fn limits(&self) -> usize {
        self.cores.iter().map(Controller::limit).sum()
    }
}

/// Three times the capacity for a minute, then half of it.
const OVERLOAD: &[(u64, f64)] = &[(0, 200.0), (10, 3.0 * CAPACITY), (70, 200.0)];

fn check_overload(simulation: &mut Simulation, case: &str) {
    simulation.run(80);
    let goodput = simulation.goodput(10_000, 70_000);
    assert!(goodput > 0.9 * CAPACITY, "{case}: {goodput} in a second");
    let unloaded = simulation.p99(5_000, 10_000);
    let p99 = simulation.p99(10_000, 70_000);
    assert!(p99 < WORK * 3, "{case}: {p99:?}, and {unloaded:?} before");
    assert_eq!(simulation.shed(72_000, 80_000), 0, "{case}");
    let recovered = simulation.p99(72_000, 80_000);
    assert!(recovered < WORK * 2, "{case}: {recovered:?} afterwards");
}

#[test]
fn under_three_times_its_capacity_an_upstream_serves_nine_tenths_of_it_in_time() {
    for seed in 0..8 {
        let mut simulation = Simulation::new(Shed::default(), 1, seed, OVERLOAD);
        check_overload(&mut simulation, &format!("seed {seed}"));
    }
}

#[test]
fn the_limits_of_two_cores_are_that_of_one() {
    for seed in 0..4 {
        let mut simulation = Simulation::new(Shed::default(), 2, seed, OVERLOAD);
        check_overload(&mut simulation, &format!("seed {seed}"));
        let limits = simulation.limits();
        assert!((8..=24).contains(&limits), "seed {seed}: {limits}");
    }
}

#[test]
fn a_gateway_that_starts_under_overload_learns_the_time_without_load() {
    for cores in [1, 4] {
        let mut simulation = Simulation::new(Shed::default(), cores, 3, &[(0, 3.0 * CAPACITY)]);
        simulation.run(12);
        let (goodput, p99) = (
            simulation.goodput(2_000, 12_000),
            simulation.p99(2_000, 12_000),
        );
        assert!(
            goodput > 0.9 * CAPACITY,
            "{cores} cores: {goodput} in a second"
        );
        assert!(p99 < WORK * 4, "{cores} cores: {p99:?}");
    }
}

#[test]
fn less_important_requests_are_shed_first() {
    let mut simulation = Simulation::new(Shed::default(), 1, 5, OVERLOAD);
    simulation.importances = &Importance::ALL;
    simulation.run(70);
    let share = |importance| {
        let of_it = || {
            simulation
                .arrived(12_000, 70_000)
                .filter(|one| one.importance == importance)
        };
        let served = of_it().filter(|one| !one.is_shed).count();
        served as f64 / of_it().count() as f64
    };
    let [low, normal, high, critical] = Importance::ALL.map(share);
    // A quarter of the requests, which is three quarters of the capacity.
    assert!(critical > 0.9, "{critical}");
    assert!((0.2..0.6).contains(&high), "{high}");
    assert!(low < 0.02 && normal < 0.05, "{low}, {normal}");
}

#[test]
fn load_below_the_capacity_is_not_shed() {
    // Exponential times have no sharp end, as those of services.
    let mut simulation = Simulation::new(Shed::default(), 1, 11, &[(0, 0.6 * CAPACITY)]);
    simulation.work = |random, _| random.interval(1.0 / WORK.as_secs_f64());
    simulation.run(60);
    let (shed, all) = (simulation.shed(0, 60_000), simulation.requests.len());
    assert!(shed * 1_000 < all, "{shed} of {all}");
}

#[test]
fn an_upstream_with_varying_times_is_kept_busy() {
    let mut simulation = Simulation::new(Shed::default(), 1, 13, &[(0, 3.0 * CAPACITY)]);
    simulation.work = |random, _| random.interval(1.0 / WORK.as_secs_f64());
    simulation.run(60);
    let goodput = simulation.goodput(5_000, 60_000);
    assert!(goodput > 0.85 * CAPACITY, "{goodput} in a second");
}

#[test]
fn a_slower_upstream_gets_its_limit_back() {
    let mut simulation = Simulation::new(Shed::default(), 1, 17, &[(0, 3.0 * CAPACITY)]);
    // A quarter of the capacity after 20 s.
    simulation.work = |_, elapsed| match elapsed < Duration::from_secs(20) {
        true => WORK,
        false => WORK * 4,
    };
    simulation.run(90);
    let (quarter, late) = (CAPACITY / 4.0, simulation.goodput(50_000, 90_000));
    assert!(late > 0.88 * quarter, "{late} in a second");
}

#[test]
fn the_limit_keeps_its_bounds_in_all_histories_and_recovers() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let (min, max) = (1 + random.below(4) as u32, 5 + random.below(100) as u32);
        let settings = Shed {
            min: Some(min),
            max: Some(max),
            queue: Some(1 + random.below(50) as u32),
            wait: None,
        };
        let unloaded = Arc::new(Unloaded::default());
        let mut now = Instant::now();
        let mut controller = Controller::<u64>::new(&settings, 1, unloaded, now);
        let mut sent: Vec<Instant> = Vec::new();
        for number in 0..5_000 {
            now += Duration::from_micros(random.below(20_000));
            match random.below(5) {
                0..3 => {
                    let importance = Importance::ALL[random.below(4) as usize];
                    match controller.arrive(importance, now, || number) {
                        Arrival::Admitted => sent.push(now),
                        Arrival::Waits { wait, .. } => assert!(wait <= Duration::from_secs(1)),
                        Arrival::Shed => {}
                    }
                }
                3 if !sent.is_empty() => {
                    let started = sent.swap_remove(random.below(sent.len() as u64) as usize);
                    controller.end(started, random.below(3) > 0, now);
                }
                _ => {
                    let importance = Importance::ALL[random.below(4) as usize];
                    controller.leave(importance, |_| true);
                }
            }
            while controller.next().is_some() {
                sent.push(now);
            }
            assert_eq!(controller.in_flight(), sent.len(), "seed {seed}");
            let limit = controller.limit();
            assert!(
                (min as usize..=max as usize).contains(&limit),
                "seed {seed}: {limit}"
            );
            assert!(
                controller.waiting() <= settings.queue.unwrap() as usize,
                "seed {seed}"
            );
            assert!(sent.len() <= max as usize, "seed {seed}: {}", sent.len());
        }
        for started in sent.drain(..) {
            controller.end(started, false, now);
        }
        while Importance::ALL
            .iter()
            .any(|one| controller.leave(*one, |_| true))
        {}
        assert_eq!(
            (controller.in_flight(), controller.waiting()),
            (0, 0),
            "seed {seed}"
        );
        now += Duration::from_secs(5);
        let arrival = controller.arrive(Importance::Low, now, || 0);
        assert!(
            matches!(arrival, Arrival::Admitted),
            "seed {seed}: {arrival:?}"
        );
    }
}

#[test]
fn a_full_queue_sheds_the_oldest_of_the_least_important() {
    let settings = Shed {
        max: Some(1),
        queue: Some(2),
        ..Shed::default()
    };
    let now = Instant::now();
    let mut controller = Controller::new(&settings, 1, Arc::default(), now);
    let mut arrive = |importance, number| match controller.arrive(importance, now, || number) {
        Arrival::Admitted => "admitted".to_owned(),
        Arrival::Waits { displaced, .. } => format!("waits for {displaced:?}"),
        Arrival::Shed => "shed".to_owned(),
    };
    assert_eq!(arrive(Importance::Normal, 0), "admitted");
    assert_eq!(arrive(Importance::Normal, 1), "waits for None");
    assert_eq!(arrive(Importance::High, 2), "waits for None");
    assert_eq!(arrive(Importance::Low, 3), "shed");
    assert_eq!(arrive(Importance::Normal, 4), "waits for Some(1)");
    assert_eq!(arrive(Importance::High, 5), "waits for Some(4)");
    assert_eq!(arrive(Importance::High, 6), "waits for Some(2)");
    assert_eq!(arrive(Importance::Normal, 7), "shed");
    let mut served = Vec::new();
    for _ in 0..3 {
        controller.end(now, true, now);
        served.extend(controller.next());
    }
    assert_eq!(served, [6, 5], "the newest first");
    assert!(controller.try_begin(now));
    assert!(!controller.try_begin(now), "the limit is reached");
    assert_eq!((controller.in_flight(), controller.waiting()), (1, 0));
}
