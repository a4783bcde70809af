//! Runs with a set: several servers behind one upstream, which fail at planned times, with retries, ejections, hedging and
//! deadlines.
//!
//! They have a machine and a gateway of their own, so that the plans of other runs do not depend on them.

mod check;
mod client;
mod ledger;
mod member;
mod plan;

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use blitz_config::{Document, Environment, read};
use blitz_gateway::{Gateway, OnCore, Options, SteppedReloads, compile};
use blitz_http::{Address, Drain};
use blitz_reactor::simulation::{Holdings, Stop, World};

use self::check::Watch;
use self::ledger::{CONNECT_TIMEOUT, SetLedger};
use self::plan::{Balance, Outlier, SetPlan, Settings};
use crate::outcome::{RunFailure, RunSummary};

/// Virtual time after which a run must have ended.
const RUN_MAX: Duration = Duration::from_secs(600);

/// Virtual time after which no idle connection is kept.
const IDLE_MAX: Duration = Duration::from_secs(100);

const SOCKETS_MAX: usize = 10_000;

/// The ports of the gateway and of the first server.
const GATEWAY_PORT: u16 = 8_080;
const FIRST_PORT: u16 = 9_000;

/// Runs the set of a seed; `None` if it has none.
pub(crate) fn run(seed: u64, keeps_trace: bool) -> Option<Result<RunSummary, RunFailure>> {
    let plan = SetPlan::new(seed)?;
    Some(carry_out(&plan, keeps_trace))
}

/// The plan of a seed with a set, for people.
pub(crate) fn plan_of(seed: u64) -> Option<String> {
    let plan = SetPlan::new(seed)?;
    Some(format!(
        "{:#?}\n{:#?}\n{} cores, HTTP/2: {}, shortage: {:?}, {} clients",
        plan.settings,
        plan.members,
        plan.cores,
        plan.is_http2,
        plan.shortage,
        plan.clients.len()
    ))
}

fn carry_out(plan: &SetPlan, keeps_trace: bool) -> Result<RunSummary, RunFailure> {
    let world = World::new(plan.seed, plan.conditions.clone());
    if keeps_trace {
        world.keep_trace();
    }
    let ledger = Rc::new(SetLedger::new(&world, plan));
    // A core catches the panics of its tasks; others must not hide which seed they came from.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| play(&world, &ledger))) {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        ledger.violate(format!("panic: {}", said.unwrap_or("without a message")));
    }
    let violations = ledger.violations();
    let trace = world.take_trace();
    let (requests, time) = (ledger.ended(), world.now());
    world.close();
    match violations.is_empty() {
        true => Ok(RunSummary {
            requests,
            has_set: true,
            reloads: 0,
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

fn play(world: &World, ledger: &Rc<SetLedger>) {
    let plan = &ledger.plan;
    let (serve, servers) = gateway(plan);
    for _ in 0..plan.cores {
        let (serving, theirs) = (serve(), Rc::clone(ledger));
        let started = world.start_core(SOCKETS_MAX, async move {
            if let Err(error) = serving.await {
                theirs.violate(format!("the gateway does not start: {error}"));
            }
        });
        if let Err(error) = started {
            return ledger.violate(format!("a core does not start: {error}"));
        }
    }
    for member in 0..plan.members.len() {
        world.spawn(member::run(
            Rc::clone(ledger),
            member,
            server_address(member),
        ));
    }
    // The cores are idle before the first client connects.
    world.run(Duration::from_millis(1), || false);
    let before: Vec<Option<Holdings>> = (0..plan.cores).map(|core| world.holdings(core)).collect();
    if let Some(shortage) = plan.shortage.clone() {
        let theirs = world.clone();
        world.spawn(async move {
            theirs.sleep(shortage.start).await;
            theirs.set_no_descriptors(1_000);
            theirs.sleep(shortage.end - shortage.start).await;
            theirs.set_no_descriptors(0);
        });
    }
    for client in plan.clients.clone() {
        world.spawn(client::run(
            Rc::clone(ledger),
            client,
            address(GATEWAY_PORT),
        ));
    }
    let all = plan.requests().count();
    let mut watch = Watch::new(world, ledger, servers);
    let stop = world.run(RUN_MAX, || {
        watch.look();
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
    watch.judge();
    check_rest(world, ledger, &before, &watch);
}

/// Checks what is left when nothing is idle any more, and when the cores have ended.
fn check_rest(world: &World, ledger: &SetLedger, before: &[Option<Holdings>], watch: &Watch) {
    world.run(IDLE_MAX, || false);
    watch.judge_rest();
    for (core, before) in before.iter().enumerate() {
        let after = world.holdings(core);
        if after != *before {
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
    if world.open_sockets() > 0 {
        ledger.violate(format!(
            "{} sockets are open after all cores have ended",
            world.open_sockets()
        ));
    }
}

fn gateway(plan: &SetPlan) -> (impl Fn() -> OnCore + use<>, SteppedReloads) {
    let document = Document::new("blitz.toml", configuration(plan));
    let (configuration, mut diagnostics) = read(&document, &Environment::default());
    let mut no_files = |_: &str| Err((String::new(), String::new()));
    let sites = compile(&configuration, &mut no_files, &mut diagnostics);
    assert_eq!(diagnostics, [], "the text is right");
    let mut options = Options::default();
    options.client.limits.connect_timeout = CONNECT_TIMEOUT;
    let gateway = Gateway::new()
        .listen(address(GATEWAY_PORT))
        .options(options);
    let gateway = sites.into_iter().fold(gateway, Gateway::site);
    let site = blitz::builtin::app().into_service();
    let site = site.expect("the built-in site is valid");
    gateway
        .on_cores(&|_| None, move || site.on_core())
        .expect("the targets are valid")
}

/// The file of the gateway.
fn configuration(plan: &SetPlan) -> String {
    let Settings {
        balance,
        retries,
        retries_statuses,
        budget,
        outlier,
        slow_start,
        hedge,
        response_timeout,
        request_timeout,
    } = &plan.settings;
    let mut text = format!("[site.\"*\"]\nto = \"set\"\nretries = {retries}\n");
    let mut add = |line: std::fmt::Arguments<'_>| {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{line}");
    };
    let time = |time: &Duration| format!("\"{}ms\"", time.as_millis());
    let named = [("response", response_timeout), ("request", request_timeout)];
    let timeouts = named.iter().filter_map(|(name, value)| {
        let value = value.as_ref()?;
        Some(format!("{name} = {}", time(value)))
    });
    let timeouts = timeouts.collect::<Vec<_>>().join(", ");
    if !timeouts.is_empty() {
        add(format_args!("timeout = {{ {timeouts} }}"));
    }
    add(format_args!("[upstream.set]"));
    let scheme = if plan.is_http2 { "h2c" } else { "http" };
    let servers = (0..plan.members.len()).map(|member| {
        let port = FIRST_PORT + member as u16;
        format!("\"{scheme}://127.0.0.1:{port}\"")
    });
    add(format_args!(
        "servers = [{}]",
        servers.collect::<Vec<_>>().join(", ")
    ));
    match balance {
        Balance::P2c => {}
        Balance::RoundRobin => add(format_args!("balance = \"round_robin\"")),
        Balance::LeastRequests => add(format_args!("balance = \"least_requests\"")),
        Balance::Hash => add(format_args!(
            "balance = \"hash\"\nhash = \"header:{}\"",
            client::KEY
        )),
        Balance::Sticky => add(format_args!("sticky = \"cookie\"")),
    }
    let on = if *retries_statuses { "\"5xx\"" } else { "" };
    add(format_args!(
        "retry = {{ on = [{on}], budget = 0.{budget:02} }}"
    ));
    match outlier {
        Outlier::Default => {}
        Outlier::Off => add(format_args!("outlier = false")),
        Outlier::Soon => add(format_args!("outlier = {{ failures = 2, time = \"1s\" }}")),
    }
    if let Some(slow_start) = slow_start {
        add(format_args!("slow_start = {}", time(slow_start)));
    }
    if let Some(hedge) = hedge {
        add(format_args!("hedge = {}", time(hedge)));
    }
    text
}

fn address(port: u16) -> Address {
    Address::Tcp(([127, 0, 0, 1], port).into())
}

fn server_address(member: usize) -> Address {
    address(FIRST_PORT + member as u16)
}
