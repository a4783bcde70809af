//! One run: a gateway on a simulated machine, all that its peers do, and what is left at the end.

use std::cell::RefCell;
use std::net::Ipv6Addr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use blitz_gateway::{Gateway, Options, SteppedReloads};
use blitz_host::serving::ListenerConfig;
use blitz_http::{Address, DatagramListener, Drain, TlsSlot};
use blitz_reactor::simulation::{Holdings, Stop, World};

use crate::access_log;
use crate::ledger::Ledger;
use crate::outcome::{RunFailure, RunSummary};
use crate::plan::{Http3, LOSSY_WAIT, Plan, Reach};
use crate::reload::Replica;
use crate::shrink::shrink;
use crate::{client, reload, sets, tls, upstream};

/// Virtual time after which a run must have ended.
const RUN_MAX: Duration = Duration::from_secs(600);

/// Virtual time after which no idle connection is kept.
const IDLE_MAX: Duration = Duration::from_secs(100);

/// The same with clients of HTTP/3, of whose end the gateway may learn from their silence only.
const HTTP3_IDLE_MAX: Duration = Duration::from_secs(300);

/// How long requests may take after the start of a planned drain.
const DRAIN_MAX: Duration = Duration::from_secs(500);

/// Interval of the checks for silent requests.
const LOOK_EVERY: Duration = Duration::from_millis(100);

const SOCKETS_MAX: usize = 10_000;

/// Runs one seed.
///
/// # Errors
/// [`RunFailure`].
pub fn run(seed: u64, keeps_trace: bool) -> Result<RunSummary, RunFailure> {
    let summary = carry_out(&Plan::new(seed), keeps_trace)?;
    with_set(summary, keeps_trace, seed)
}

/// Runs only the set of a seed, if it has one.
///
/// # Errors
/// [`RunFailure`].
pub fn run_set(seed: u64, keeps_trace: bool) -> Result<RunSummary, RunFailure> {
    let ran = sets::run(seed, keeps_trace);
    let ran = ran.unwrap_or_else(|| Ok(RunSummary::default()));
    ran.map_err(|failure| RunFailure {
        shrunk: keeps_trace.then(|| sets::plan_of(seed)).flatten(),
        ..failure
    })
}

/// Runs the set of a seed as well, if it has one.
fn with_set(
    mut summary: RunSummary,
    keeps_trace: bool,
    seed: u64,
) -> Result<RunSummary, RunFailure> {
    if let Some(ran) = sets::run(seed, keeps_trace) {
        let of_set = ran?;
        summary.has_set = true;
        summary.requests += of_set.requests;
        summary.time += of_set.time;
        summary.trace.extend(of_set.trace);
    }
    Ok(summary)
}

/// As [`run`], and shrinks the plan of a failure: fewer clients, requests and faults.
///
/// # Errors
/// [`RunFailure`] of the smallest plan that was found, which it names.
pub fn run_and_shrink(seed: u64) -> Result<RunSummary, RunFailure> {
    let plan = Plan::new(seed);
    let summary = carry_out(&plan, true).map_err(|failure| {
        let (plan, failure) = shrink(plan, failure);
        let shrunk = Some(format!("{plan:#?}"));
        RunFailure { shrunk, ..failure }
    })?;
    with_set(summary, true, seed).map_err(|failure| RunFailure {
        shrunk: sets::plan_of(seed),
        ..failure
    })
}

pub(crate) fn carry_out(plan: &Plan, keeps_trace: bool) -> Result<RunSummary, RunFailure> {
    let world = World::new(plan.seed, plan.conditions.clone());
    if keeps_trace {
        world.keep_trace();
    }
    let ledger = Rc::new(Ledger::new(&world, plan));
    // A core catches the panics of its tasks; others must not hide which seed they came from.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| play(&world, &ledger))) {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        ledger.violate(format!("panic: {}", said.unwrap_or("without a message")));
    }
    let violations = ledger.violations();
    let trace = world.take_trace();
    let (requests, time) = (ledger.ended(), world.now());
    let reloads = ledger.observed.reloads();
    world.close();
    match violations.is_empty() {
        true => Ok(RunSummary {
            requests,
            has_set: false,
            reloads,
            time,
            trace,
        }),
        false => Err(RunFailure {
            seed: plan.seed,
            violations,
            trace,
            shrunk: None,
        }),
    }
}

fn play(world: &World, ledger: &Rc<Ledger>) {
    let plan = &ledger.plan;
    let gateway_address = address(8080);
    let tls_address = address(8443);
    let (serve, reloads) = gateway(ledger, &gateway_address, &tls_address);
    let reloads = Rc::new(RefCell::new(reloads));
    for _ in 0..plan.cores {
        let serving = serve();
        let theirs = Rc::clone(ledger);
        let started = world.start_core(SOCKETS_MAX, async move {
            if let Err(error) = serving.await {
                theirs.violate(format!("the gateway does not start: {error}"));
            }
        });
        if let Err(error) = started {
            return ledger.violate(format!("a core does not start: {error}"));
        }
    }
    for server in reload::servers(plan) {
        serve_upstream(world, ledger, server);
    }
    // The cores are idle before the first client connects.
    world.run(Duration::from_millis(1), || false);
    let before: Vec<Option<Holdings>> = (0..plan.cores).map(|core| world.holdings(core)).collect();

    if let Some(http3) = &plan.http3 {
        disturb(world, ledger, http3);
    }
    if plan.reloads.is_some() {
        world.spawn(reload::run(
            world.clone(),
            Rc::clone(ledger),
            Rc::clone(&reloads),
        ));
    }
    for client in plan.clients.clone() {
        let gateway = match client.is_secure {
            true => tls_address.clone(),
            false => gateway_address.clone(),
        };
        world.spawn(client::run(Rc::clone(ledger), client, gateway));
    }
    let all = plan.requests().count();
    let watching = Rc::clone(ledger);
    world.spawn(async move {
        while watching.ended() < all {
            watching.world.sleep(LOOK_EVERY).await;
            watching.watch();
            reload::check_tables(&watching.world, &watching);
        }
    });
    let stop = world.run(RUN_MAX, || {
        check_limits(world, ledger, &before);
        ledger.ended() == all || ledger.is_violated()
    });
    if ledger.is_violated() {
        return;
    }
    if stop != Stop::Done {
        return ledger.violate(format!(
            "the run stopped ({stop:?}) when {} of {all} requests had ended",
            ledger.ended()
        ));
    }
    check_rest(world, ledger, &before, &reloads);
}

/// Starts a server of an upstream, as its upstream can be reached.
fn serve_upstream(world: &World, ledger: &Rc<Ledger>, server: Replica) {
    let upstream = &ledger.plan.upstreams[server.upstream];
    let (first, second) = (address(server.port()), second_address(server.port()));
    if matches!(upstream.reach, Reach::SecondAfterSilence | Reach::Silent) {
        world.add_black_hole(&first);
    }
    let address = match upstream.reach {
        Reach::Direct => first,
        Reach::SecondAfterRefusal | Reach::SecondAfterSilence => second,
        Reach::Refused | Reach::Silent => return,
    };
    let acceptor = world.listen(&address).expect("the address is free");
    let serving = upstream::serve(Rc::clone(ledger), acceptor, upstream.clone(), server);
    world.spawn(serving);
}

/// Changes what clients of HTTP/3 depend on, at the planned times.
fn disturb(world: &World, ledger: &Rc<Ledger>, http3: &Http3) {
    if let Some((after, bytes)) = http3.narrows {
        let theirs = world.clone();
        world.spawn(async move {
            theirs.sleep(after).await;
            let before = theirs.datagram_bytes_max();
            theirs.set_datagram_bytes_max(bytes.min(before));
        });
    }
    if let Some(after) = http3.drains {
        let (theirs, ledger) = (world.clone(), Rc::clone(ledger));
        world.spawn(async move {
            theirs.sleep(after).await;
            ledger.note_draining();
            for core in 0..ledger.plan.cores {
                theirs.on_core(core, || Drain::of_core().trigger(DRAIN_MAX));
            }
        });
    }
}

/// Checks what cores hold at this turn.
fn check_limits(world: &World, ledger: &Ledger, before: &[Option<Holdings>]) {
    let limits = &ledger.plan.limits;
    for (core, before) in before.iter().enumerate() {
        let (Some(held), Some(before)) = (world.holdings(core), before) else {
            continue;
        };
        let Some(counters) = world.look(core, blitz_http::counters) else {
            continue;
        };
        let idle = counters.upstream_idle as usize;
        if idle > limits.pool_idle_max {
            ledger.violate(format!(
                "the pool of core {core} holds {idle} idle connections, its limit is {}",
                limits.pool_idle_max
            ));
        }
        // A task for every connection and for every stream of a client, and as many that are over
        // and will be dropped at their next turn.
        let streams = counters.connections as usize * limits.concurrent_streams_max as usize;
        // One hands lines of the access log over.
        let tasks_max = before.tasks + 2 * (held.sockets + streams) + 1;
        if held.tasks > tasks_max || held.sockets > SOCKETS_MAX {
            ledger.violate(format!(
                "core {core} holds {held:?}; the limits are {tasks_max} tasks and {SOCKETS_MAX} sockets"
            ));
        }
    }
}

/// Checks what is left when nothing is idle any more, and when the cores have ended.
fn check_rest(
    world: &World,
    ledger: &Ledger,
    before: &[Option<Holdings>],
    reloads: &RefCell<SteppedReloads>,
) {
    let idle_max = match ledger.plan.http3 {
        Some(_) => HTTP3_IDLE_MAX,
        None => IDLE_MAX,
    };
    world.run(idle_max, || false);
    reload::check(world, ledger, reloads);
    for (core, before) in before.iter().enumerate() {
        let after = world.holdings(core);
        // A core that was drained has ended.
        let has_ended = after.is_none() && ledger.is_draining();
        if after != *before && !has_ended {
            ledger.violate(format!(
                "core {core} leaks: idle, it holds {after:?}; at its start it held {before:?}"
            ));
        }
        world.on_core(core, || Drain::of_core().trigger(Duration::ZERO));
    }
    world.run(IDLE_MAX, || false);
    for core in 0..before.len() {
        if world.counters(core).task_panics > 0 {
            ledger.violate(format!("a task of core {core} has panicked"));
        }
        if world.holdings(core).is_some() {
            ledger.violate(format!(
                "core {core} has not ended {IDLE_MAX:?} after its drain"
            ));
        }
    }
    access_log::check(ledger);
    if world.open_sockets() > 0 {
        ledger.violate(format!(
            "{} sockets are open after all cores have ended",
            world.open_sockets()
        ));
    }
}

fn gateway(
    ledger: &Ledger,
    listen: &Address,
    listen_tls: &Address,
) -> (impl Fn() -> blitz_gateway::OnCore + use<>, SteppedReloads) {
    let plan = &ledger.plan;
    let mut options = Options::default();
    // The longest silence that the ledger allows contains one attempt to connect.
    options.client.limits.connect_timeout = Duration::from_secs(1);
    options.limits.concurrent_streams_max = plan.limits.concurrent_streams_max;
    options.limits.stream_buffer_bytes_max = plan.limits.stream_buffer_bytes_max;
    // One stream must not take the window of all others.
    options.limits.connection_buffer_bytes_max = plan.limits.stream_buffer_bytes_max * 4;
    let narrows = plan
        .http3
        .as_ref()
        .is_some_and(|http3| http3.narrows.is_some());
    if plan.conditions.datagram_lost > 0 || narrows {
        options.limits.tls_handshake_timeout = LOSSY_WAIT;
        options.limits.head_timeout = LOSSY_WAIT;
        options.limits.body_rate_grace = LOSSY_WAIT;
    }
    let client = &mut options.client.limits;
    client.upstream_connections_max = plan.limits.upstream_connections_max;
    client.stream_buffer_bytes_max = plan.limits.stream_buffer_bytes_max;
    client.stream_window_bytes = plan.limits.stream_buffer_bytes_max;
    client.pool_idle_max = plan.limits.pool_idle_max;
    options.access_log = Some(ledger.logged.log());
    if plan.reloads.is_some() {
        options.record_hook = Some(ledger.observed.hook());
    }
    let mut gateway = Gateway::new().listen(listen.clone()).options(options);
    if plan.clients.iter().any(|client| client.is_secure) {
        gateway = gateway.listen_tls(listen_tls.clone(), TlsSlot::new(tls::listener()));
    }
    if plan.upstreams.iter().any(|upstream| upstream.is_secure) {
        gateway = gateway.upstream_tls(tls::upstreams());
    }
    gateway = reload::targets(plan).into_iter().fold(gateway, Gateway::to);
    let site = blitz::builtin::app().into_service();
    let site = site.expect("the built-in site is valid");
    gateway
        .on_cores(&|listener| datagrams(plan, listener), move || {
            site.on_core()
        })
        .expect("the targets are valid")
}

/// The UDP sockets of the listener with TLS.
fn datagrams(plan: &Plan, listener: &ListenerConfig) -> Option<DatagramListener> {
    let http3 = plan.http3.as_ref().filter(|_| listener.http3)?;
    let Address::Tcp(address) = listener.address else {
        return None;
    };
    let mut secret = [0; 32];
    secret[..8].copy_from_slice(&http3.secret.to_be_bytes());
    let datagrams = DatagramListener::simulated(address, plan.cores, &secret, http3.retry_above);
    Some(datagrams)
}

fn address(port: u16) -> Address {
    Address::Tcp(([127, 0, 0, 1], port).into())
}

fn second_address(port: u16) -> Address {
    Address::Tcp((Ipv6Addr::LOCALHOST, port).into())
}
