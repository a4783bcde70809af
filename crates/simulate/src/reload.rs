//! Reloads: the gateway gets other configurations while requests run, each of which has to end with the one that it
//! began with.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use blitz_config::{Document, Environment, read};
use blitz_gateway::{Record, RecordHook, RouteName, Site, SteppedReloads, Target, compile};
use blitz_reactor::simulation::World;

use crate::ledger::Ledger;
use crate::plan::{ConfigurationPlan, Plan, Reach, Reloads};
use crate::random::Random;

/// The port of the first server. Those of the second replicas begin `REPLICA_PORTS` above.
const FIRST_PORT: u16 = 9_000;
const REPLICA_PORTS: u16 = 100;

/// The host of all requests.
const HOST: &str = "gateway";

/// One of the servers that an upstream can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Replica {
    pub(crate) upstream: usize,
    pub(crate) replica: usize,
}

impl Replica {
    pub(crate) fn port(self) -> u16 {
        FIRST_PORT + REPLICA_PORTS * self.replica as u16 + self.upstream as u16
    }

    fn of_target(target: &Target) -> Option<Replica> {
        Replica::of_url(&target.authority)
    }

    /// The server of a URL without a path.
    fn of_url(url: &str) -> Option<Replica> {
        let (_, port) = url.rsplit_once(':')?;
        let above = port.parse::<u16>().ok()?.checked_sub(FIRST_PORT)?;
        Some(Replica {
            upstream: usize::from(above % REPLICA_PORTS),
            replica: usize::from(above / REPLICA_PORTS),
        })
    }
}

/// The servers of a plan.
pub(crate) fn servers(plan: &Plan) -> impl Iterator<Item = Replica> {
    let replicas = if plan.reloads.is_some() { 2 } else { 1 };
    let upstreams = 0..plan.upstreams.len();
    upstreams
        .flat_map(move |upstream| (0..replicas).map(move |replica| Replica { upstream, replica }))
}

/// The URLs of the servers that the routes of a configuration lead to; without reloads those of the first replicas.
fn urls(plan: &Plan, replicas: Option<&[usize]>) -> Vec<String> {
    let urls = plan.upstreams.iter().enumerate().map(|(index, upstream)| {
        let scheme = match (upstream.is_secure, upstream.version.is_http2()) {
            (true, _) => "https",
            (false, true) => "h2c",
            (false, false) => "http",
        };
        let host = match upstream.reach {
            // It stands for 127.0.0.1 and ::1, in this order.
            Reach::SecondAfterRefusal | Reach::SecondAfterSilence => "localhost",
            Reach::Direct | Reach::Refused | Reach::Silent => "127.0.0.1",
        };
        let server = Replica {
            upstream: index,
            replica: replicas.map_or(0, |replicas| replicas[index]),
        };
        format!("{scheme}://{host}:{}", server.port())
    });
    urls.collect()
}

/// The first targets of the gateway.
pub(crate) fn targets(plan: &Plan) -> Vec<Target> {
    let first = plan.reloads.as_ref();
    let urls = urls(plan, first.map(|reloads| reloads.first.as_slice()));
    let targets = urls.into_iter().zip(&plan.upstreams).enumerate();
    let targets = targets.map(|(index, (url, upstream))| {
        let target = format!("/{index}={url}");
        Target {
            request_trailers: upstream.gets_trailers,
            ..target.parse().expect("it is a valid target")
        }
    });
    targets.collect()
}

/// The sites of a configuration, as its file has them.
fn sites(plan: &Plan, configuration: &ConfigurationPlan) -> Vec<Site> {
    let host = if configuration.is_of_host { HOST } else { "*" };
    let mut text = format!("[site.\"{host}\"]\n");
    for (index, url) in urls(plan, Some(&configuration.replicas)).iter().enumerate() {
        text += &format!("\"/{index}\" = \"{url}\"\n");
    }
    let document = Document::new("blitz.toml", text);
    let (configuration, mut diagnostics) = read(&document, &Environment::default());
    let mut no_files = |_: &str| Err((String::new(), String::new()));
    let mut sites = compile(&configuration, &mut no_files, &mut diagnostics);
    assert_eq!(diagnostics, [], "the text is right");
    for (_, route) in sites.iter_mut().flat_map(|site| &mut site.routes) {
        let server = route.target().and_then(Replica::of_target);
        if server.is_some_and(|server| plan.upstreams[server.upstream].gets_trailers) {
            route.forward_request_trailers();
        }
    }
    sites
}

/// The known facts about the configurations, servers and requests of a run with reloads.
#[derive(Default)]
pub(crate) struct Observed {
    /// Configurations that cores have taken, with the core and the time.
    taken: RefCell<Vec<(usize, Duration, usize)>>,
    /// Where requests have arrived.
    arrivals: RefCell<Vec<(u64, Replica)>>,
    accepted: RefCell<BTreeMap<Replica, usize>>,
    /// How often a client has begun to send a request.
    begun: Cell<usize>,
    /// The gateway's reports of requests that have ended.
    routed: Routed,
}

type Routed = Arc<Mutex<Vec<RoutedRequest>>>;

/// A request that has ended, as the gateway knows it.
struct RoutedRequest {
    id: u64,
    core: usize,
    started: Instant,
    server: Option<Replica>,
}

impl Observed {
    /// Takes note of all requests.
    pub(crate) fn hook(&self) -> RecordHook {
        let routed = Arc::clone(&self.routed);
        RecordHook::new(move |record: &Record<'_>, head| {
            let id = head.path().rsplit('/').next();
            let upstream = record.route.and_then(RouteName::upstream);
            let request = RoutedRequest {
                id: id.and_then(|id| id.parse().ok()).unwrap_or_default(),
                core: blitz_http::core_index(),
                started: record.started,
                server: upstream.and_then(|url| Replica::of_url(&url)),
            };
            let mut routed = routed.lock().expect("no thread panics while it notes one");
            routed.push(request);
        })
    }

    /// A client begins to send a request.
    pub(crate) fn begin(&self) {
        self.begun.set(self.begun.get() + 1);
    }

    /// A server has accepted a connection.
    pub(crate) fn accept(&self, server: Replica) {
        *self.accepted.borrow_mut().entry(server).or_default() += 1;
    }

    /// A request has arrived at a server.
    pub(crate) fn arrive(&self, id: u64, server: Replica) {
        self.arrivals.borrow_mut().push((id, server));
    }

    fn take(&self, core: usize, time: Duration, configuration: usize) {
        self.taken.borrow_mut().push((core, time, configuration));
    }

    /// How often a core took another configuration.
    pub(crate) fn reloads(&self) -> usize {
        self.taken.borrow().len()
    }

    /// The configurations that a core may have had at this time: within the turn in which it took one, also the one before.
    fn at(&self, core: usize, time: Duration, turn: Duration) -> Vec<usize> {
        let mut possible = vec![0];
        for (_, taken, configuration) in self.taken.borrow().iter().filter(|(of, ..)| *of == core) {
            if *taken + turn < time {
                possible.clear();
            }
            if *taken <= time + turn {
                possible.push(*configuration);
            }
        }
        possible
    }
}

/// Gives the cores their configurations at the planned times.
pub(crate) async fn run(world: World, ledger: Rc<Ledger>, reloads: Rc<RefCell<SteppedReloads>>) {
    let began = world.now();
    let planned = ledger.plan.reloads.iter().flat_map(|reloads| &reloads.then);
    for (index, configuration) in planned.enumerate() {
        let passed = world.now() - began;
        world
            .sleep(configuration.after.saturating_sub(passed))
            .await;
        let sites = sites(&ledger.plan, configuration);
        let made = reloads.borrow_mut().make(sites);
        let sites = match made {
            Ok(sites) => sites,
            Err(error) => return ledger.violate(format!("a reload fails: {error}")),
        };
        let mut random = Random::new(ledger.plan.seed ^ index as u64);
        let within_us = configuration.within.as_micros() as u64;
        for core in 0..ledger.plan.cores {
            world
                .sleep(Duration::from_micros(random.within(0..=within_us)))
                .await;
            world.note(|| format!("core {core} takes configuration {}", index + 1));
            // A core that drains may have ended.
            if world.on_core(core, || sites.take_on_core()).is_some() {
                ledger.observed.take(core, world.now(), index + 1);
            }
        }
    }
}

/// Checks that each old configuration on a core has a request that may still run.
pub(crate) fn check_tables(world: &World, ledger: &Ledger) {
    if ledger.plan.reloads.is_none() {
        return;
    }
    let tables = |core| world.look(core, || blitz_gateway::counters().snapshots);
    let tables = (0..ledger.plan.cores).filter_map(tables);
    let old: u64 = tables.map(|tables| tables.saturating_sub(1)).sum();
    let observed = &ledger.observed;
    let routed = observed
        .routed
        .lock()
        .expect("no thread panics while it notes one");
    let running = observed.begun.get().saturating_sub(routed.len());
    if old > running as u64 {
        ledger.violate(format!(
            "{old} old configurations are on cores, and {running} requests run that may use them"
        ));
    }
}

/// Checks where requests went that have ended, and what is left of earlier configurations when nothing runs any more.
pub(crate) fn check(world: &World, ledger: &Ledger, reloads: &RefCell<SteppedReloads>) {
    let Some(planned) = &ledger.plan.reloads else {
        return;
    };
    check_routed(world, ledger, planned);
    for core in 0..ledger.plan.cores {
        let left = world.look(core, || {
            let idle = blitz_http::counters().upstream_idle;
            (blitz_gateway::counters().snapshots, idle)
        });
        // A core that was drained has ended.
        let Some((tables, idle)) = left else { continue };
        if (tables, idle) != (1, 0) {
            ledger.violate(format!(
                "core {core} has {tables} configurations and {idle} pooled connections when nothing runs any more"
            ));
        }
    }
    let left = reloads.borrow_mut().free();
    if left > 1 {
        ledger.violate(format!("{left} configurations are in memory"));
    }
    if let Some(upstream) = planned.steady {
        let server = Replica {
            upstream,
            replica: 0,
        };
        let accepted = ledger.observed.accepted.borrow().get(&server).copied();
        if accepted.is_some_and(|accepted| accepted > 1) {
            ledger.violate(format!(
                "upstream {upstream} is in all configurations, and one connection carries all of its requests; it \
                 has accepted {accepted:?}"
            ));
        }
    }
}

/// Each request went where the configuration that it began with says.
fn check_routed(world: &World, ledger: &Ledger, planned: &Reloads) {
    let origin = world.instant() - world.now();
    let turn = Duration::from_micros(*ledger.plan.conditions.turn_us.end());
    let observed = &ledger.observed;
    let mut servers: BTreeMap<u64, Vec<Replica>> = BTreeMap::new();
    for routed in &*observed
        .routed
        .lock()
        .expect("no thread panics while it notes one")
    {
        let Some(server) = routed.server else {
            ledger.violate(format!("request {} had no route", routed.id));
            continue;
        };
        let started = routed.started - origin;
        let possible = observed.at(routed.core, started, turn);
        let of_configuration = |index: &usize| match index.checked_sub(1) {
            None => planned.first[server.upstream],
            Some(index) => planned.then[index].replicas[server.upstream],
        };
        if !possible
            .iter()
            .map(of_configuration)
            .any(|replica| replica == server.replica)
        {
            ledger.violate(format!(
                "request {} began at {:.6} s on core {} with configuration {possible:?}, and went to {server:?}",
                routed.id,
                started.as_secs_f64(),
                routed.core
            ));
        }
        servers.entry(routed.id).or_default().push(server);
    }
    for (id, server) in &*observed.arrivals.borrow() {
        let routed = servers.get(id);
        if !routed.is_some_and(|servers| servers.contains(server)) {
            ledger.violate(format!(
                "request {id} arrived at {server:?}, and its route leads to {routed:?}"
            ));
        }
    }
}
