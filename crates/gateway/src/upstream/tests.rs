//! Random histories of servers that fail, are slow, and return: the choice keeps its promises in all of them.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_config::{Action, Document, Environment, Placed, read};
use blitz_http::{Address, ClientOptions, Pool, Protocol, Upstream};
use blitz_site::Failure;

use super::balancer::{Balancer, Connector, Pick, Tried};
use super::choice::Choice;
use super::group::{Group, GroupConfig};
use super::member::Member;
use super::selector::mix;
use crate::target::{Origin, Target};

/// The servers of a configuration on a core. Their hosts are addresses. Cores with the same `members` share them.
pub(super) fn group_of(text: &str, members: &mut Vec<Arc<Member>>, seed: u64) -> Group {
    let document = Document::new("blitz.toml", text);
    let (configuration, diagnostics) = read(&document, &Environment::default());
    assert_eq!(diagnostics, []);
    let Action::Proxy(proxy) = &configuration.sites[0].routes[0].settings.action.value else {
        panic!("another action");
    };
    let target = |url: &Placed<String>| url.value.parse().ok().map(Arc::new);
    let config = Arc::new(GroupConfig::new(proxy.group.as_ref().unwrap(), target).unwrap());
    let balancer = |target: &Arc<Target>| {
        let Origin::Ip(address) = target.origin else {
            panic!("{target:?} is a name");
        };
        let url = target.url();
        let known = members.iter().find(|member| *member.url == url);
        let member = known.map_or_else(|| Arc::new(Member::new(&url)), Arc::clone);
        members.push(Arc::clone(&member));
        let connector = Connector {
            label: url.into(),
            member,
            pool: Pool::new(ClientOptions::default()),
            protocol: Protocol::Http1,
            tls: None,
        };
        Rc::new(Balancer::fixed(connector, &Address::Tcp(address)))
    };
    Group::new(&config, config.servers.iter().map(balancer).collect(), seed)
}

/// The servers of a `to`.
pub(super) fn group(to: &str) -> Group {
    group_of(&format!("[site.\"*\"]\nto = {to}\n"), &mut Vec::new(), 1)
}

/// An upstream of so many servers, with further keys.
fn text(servers: usize, keys: &str) -> String {
    let urls: Vec<String> = (1..=servers)
        .map(|n| format!("\"http://10.0.0.{n}\""))
        .collect();
    let servers = urls.join(", ");
    format!("[site.\"*\"]\nto = \"app\"\n[upstream.app]\nservers = [{servers}]\n{keys}\n")
}

/// How a server behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Behaviour {
    Good,
    /// So many milliseconds slower.
    Slow(u64),
    /// It answers with 500.
    Failing,
    /// It refuses connections.
    Gone,
}

/// A core with requests that are at its servers.
struct Core {
    group: Group,
    running: VecDeque<(Instant, usize, Upstream)>,
}

struct History {
    cores: Vec<Core>,
    behaviours: Vec<Behaviour>,
    random: u64,
    now: Instant,
    /// The responses of each server since they were taken.
    served: Vec<u32>,
    /// When each could not be reached for the last time.
    gone: Vec<Option<Instant>>,
    /// Requests that no server could be found for.
    lost: u32,
    failed: u32,
}

impl History {
    fn new(servers: usize, cores: usize, keys: &str, seed: u64) -> History {
        let (text, mut members) = (text(servers, keys), Vec::new());
        let core = |number| Core {
            group: group_of(&text, &mut members, mix(seed + number as u64)),
            running: VecDeque::new(),
        };
        History {
            cores: (0..cores).map(core).collect(),
            behaviours: vec![Behaviour::Good; servers],
            random: mix(seed),
            now: Instant::now(),
            served: vec![0; servers],
            gone: vec![None; servers],
            lost: 0,
            failed: 0,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = mix(self.random.wrapping_add(1));
        self.random % below
    }

    /// Requests at a constant rate for a time, each at a random core. Good servers take 3 ms.
    fn run(&mut self, time: Duration, per_second: u32) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_secs(1) / per_second;
            let core = self.random(self.cores.len() as u64) as usize;
            for core in 0..self.cores.len() {
                self.finish(core);
            }
            self.request(core);
        }
    }

    /// Ends the requests of a core that have been answered by now.
    fn finish(&mut self, core: usize) {
        let core = &mut self.cores[core];
        let mut left = VecDeque::new();
        for (sent, server, upstream) in core.running.drain(..) {
            let extra = match self.behaviours[server] {
                Behaviour::Slow(millis) => millis,
                _ => 0,
            };
            let took = Duration::from_millis(3 + extra);
            if self.now < sent + took {
                left.push_back((sent, server, upstream));
                continue;
            }
            let is_failure = self.behaviours[server] == Behaviour::Failing;
            let balancer = balancer(&core.group, server);
            balancer.responded(&upstream, took, is_failure, self.now);
            balancer.in_flight.set(balancer.in_flight.get() - 1);
            self.served[server] += 1;
            self.failed += u32::from(is_failure);
        }
        core.running = left;
    }

    fn request(&mut self, core: usize) {
        let (now, group) = (self.now, &self.cores[core].group);
        let (mut tried, mut choice) = (Tried::default(), Choice::new(group, |_| None, || false));
        let mut chosen = None;
        while let Pick::Upstream(upstream) = choice.pick(&mut tried, now) {
            let server = server_of(&upstream);
            let balancer = balancer(group, server);
            if self.behaviours[server] != Behaviour::Gone {
                balancer.connected(&upstream);
                balancer.sent(&upstream, now);
                chosen = Some((server, upstream));
                break;
            }
            balancer.failed(&upstream, Failure::ConnectionRefused, false, now);
            self.gone[server] = Some(now);
        }
        drop(choice);
        let Some((server, upstream)) = chosen else {
            self.lost += 1;
            return;
        };
        let balancer = balancer(group, server);
        balancer.in_flight.set(balancer.in_flight.get() + 1);
        self.cores[core].running.push_back((now, server, upstream));
    }

    /// The share of each server since the last call.
    fn shares(&mut self) -> Vec<f64> {
        let all: u32 = self.served.iter().sum();
        let counts = std::mem::replace(&mut self.served, vec![0; self.behaviours.len()]);
        counts
            .iter()
            .map(|count| f64::from(*count) / f64::from(all.max(1)))
            .collect()
    }

    /// The servers that are avoided because they fail or are slow, and not because they could not be reached.
    fn ejected(&self) -> usize {
        let group = &self.cores[0].group;
        let was_gone = |at: usize| self.gone[at].is_some_and(|then| self.now < then + SECOND * 30);
        let servers = (0..self.behaviours.len()).filter(|at| !was_gone(*at));
        servers
            .filter(|at| balancer(group, *at).member().is_avoided(self.now))
            .count()
    }
}

fn balancer(group: &Group, server: usize) -> &Rc<Balancer> {
    let index = group.indices().nth(server).unwrap();
    group.balancer(index)
}

fn server_of(upstream: &Upstream) -> usize {
    let Address::Tcp(address) = upstream.address() else {
        panic!("a socket");
    };
    let text = address.ip().to_string();
    text.rsplit('.').next().unwrap().parse::<usize>().unwrap() - 1
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_server_that_is_200_ms_slower_gets_under_5_percent_after_two_seconds() {
    for (rate, seed) in [(50, 1), (500, 2), (5_000, 3)] {
        let mut history = History::new(3, 2, "", seed);
        history.run(SECOND * 3, rate);
        history.shares();
        history.behaviours[1] = Behaviour::Slow(200);
        history.run(SECOND * 2, rate);
        history.shares();
        history.run(SECOND * 10, rate);
        let shares = history.shares();
        assert!(shares[1] < 0.05, "{rate} requests a second: {shares:?}");
        history.behaviours[1] = Behaviour::Good;
        history.run(SECOND * 30, rate);
        history.shares();
        history.run(SECOND * 10, rate);
        let shares = history.shares();
        assert!(shares[1] > 0.25, "{rate} requests a second: {shares:?}");
    }
}

#[test]
fn equal_servers_get_their_weights() {
    let mut history = History::new(4, 1, "", 1);
    history.run(SECOND * 10, 2_000);
    for share in history.shares() {
        assert!((0.23..0.27).contains(&share), "{share}");
    }
    let weights = "[site.\"*\"]\nto = \"app\"\n[upstream.app]\nbalance = \"BALANCE\"\n\
                   servers = { \"http://10.0.0.1\" = 6, \"http://10.0.0.2\" = 3, \"http://10.0.0.3\" = 1 }\n";
    for balance in ["p2c", "round_robin", "least_requests"] {
        let text = weights.replace("BALANCE", balance);
        let mut history = History::new(3, 1, "", 1);
        history.cores[0].group = group_of(&text, &mut Vec::new(), 5);
        history.run(SECOND * 20, 200);
        let shares = history.shares();
        for (share, wanted) in shares.iter().zip([0.6, 0.3, 0.1]) {
            assert!((share - wanted).abs() < 0.02, "{balance}: {shares:?}");
        }
    }
}

#[test]
fn a_server_that_fails_is_ejected_for_all_cores_and_returns() {
    for cores in [1, 2, 4] {
        let mut history = History::new(3, cores, "", 1);
        history.run(SECOND * 3, 500);
        history.behaviours[2] = Behaviour::Failing;
        history.run(SECOND * 2, 500);
        // Those that each core had sent by then, and one probe.
        let at_first = history.failed;
        assert!(
            at_first < 10 * cores as u32 + 10,
            "{at_first} failures of {cores} cores"
        );
        history.run(SECOND * 60, 500);
        let probes = history.failed - at_first;
        assert!((2..60).contains(&probes), "{probes} failures in a minute");
        history.behaviours[2] = Behaviour::Good;
        history.run(SECOND * 70, 500);
        history.shares();
        history.run(SECOND * 5, 500);
        assert!(history.shares()[2] > 0.25);
    }
}

#[test]
fn an_error_of_all_servers_ejects_none() {
    let mut history = History::new(4, 2, "", 1);
    history.run(SECOND * 3, 500);
    history.behaviours = vec![Behaviour::Failing; 4];
    for _ in 0..20 {
        history.run(SECOND, 500);
        assert!(history.ejected() <= 2);
    }
    history.shares();
    history.run(SECOND * 10, 500);
    let shares = history.shares();
    assert!(
        shares.iter().filter(|share| **share > 0.2).count() >= 2,
        "{shares:?}"
    );
}

#[test]
fn no_request_is_lost_while_one_server_can_be_reached_and_half_are_never_ejected() {
    for seed in 0..40 {
        let servers = 2 + seed as usize % 6;
        let balance = ["p2c", "round_robin", "least_requests"][seed as usize % 3];
        let keys = format!(
            "balance = \"{balance}\"\noutlier = {{ latency = 5, time = \"2s\" }}\nslow_start = \"3s\""
        );
        let mut history = History::new(servers, 1 + seed as usize % 3, &keys, seed);
        for _ in 0..60 {
            let (at, kind) = (history.random(servers as u64) as usize, history.random(5));
            history.behaviours[at] = match kind {
                0 => Behaviour::Slow(200),
                1 => Behaviour::Failing,
                2 => Behaviour::Gone,
                _ => Behaviour::Good,
            };
            let is_gone = |one: &Behaviour| *one == Behaviour::Gone;
            if history.behaviours.iter().all(is_gone) {
                history.behaviours[at] = Behaviour::Good;
            }
            let time = Duration::from_millis(100 + history.random(2_000));
            history.run(time, 200);
            assert_eq!(history.lost, 0, "seed {seed}: {:?}", history.behaviours);
            assert!(history.ejected() * 2 <= servers, "seed {seed}");
        }
        history.behaviours = vec![Behaviour::Good; servers];
        history.run(SECOND * 90, 200);
        history.shares();
        history.run(SECOND * 10, 200);
        let shares = history.shares();
        let least = 0.5 / servers as f64;
        assert!(
            shares.iter().all(|share| *share > least),
            "seed {seed}: {shares:?}"
        );
    }
}

#[test]
fn of_many_servers_all_are_found_when_few_are_left() {
    let mut history = History::new(100, 1, "", 1);
    history.behaviours = vec![Behaviour::Gone; 100];
    history.behaviours[57] = Behaviour::Good;
    history.run(SECOND * 2, 500);
    assert_eq!(history.lost, 0);
}
