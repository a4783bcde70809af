//! A run of the generator: starts the cores, leads them, and puts together what they have recorded.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use blitz_http::{Config, Cores, Pinning, Signal, Signals, precise_sleep_until, sleep, start};

use super::by_request::RequestFigures;
use super::check::{Evidence, Expected};
use super::control::RunControl;
use super::live_view::LiveView;
use super::machine_time::{Usage, UsageSince};
use super::plan::{Least, LoadPlan, STEADY_WITHIN, WarmUp};
use super::probe::Probed;
use super::problems::{self, Course};
use super::recorder::CoreResult;
use super::request::RequestSpec;
use super::steady::is_steady;
use super::worker;
use crate::load_result::{
    GeneratorFacts, LoadResult, PlanFacts, RESULT_VERSION, RequestResult, TargetFacts,
};

/// Time for the cores to open before the run begins.
const OPENING: Duration = Duration::from_millis(50);

/// How often the leading thread looks at the run.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often a core that is done looks whether its thread may end.
const END_EVERY: Duration = Duration::from_millis(2);

/// The longest time from the end of the measured time to the results of all cores. They give up requests in flight
/// before; a core that takes longer has failed.
const FINISH_WITHIN: Duration = Duration::from_secs(20);

/// The exit code of shells for a program that SIGINT has ended.
const INTERRUPTED_TWICE: i32 = 130;

/// Windows in which the rate has to be steady.
const WINDOW: Duration = Duration::from_millis(250);

/// How a run has ended.
pub(super) struct RunEnd {
    pub(super) result: LoadResult,
    /// The first wrong response, if it has ended the run.
    pub(super) evidence: Option<Evidence>,
}

/// The thread that leads the cores.
struct Leader {
    plan: Arc<LoadPlan>,
    control: Arc<RunControl>,
    results: Receiver<CoreResult>,
    signals: Signals,
    view: LiveView,
    ended: Vec<CoreResult>,
    usage: Usage,
    used: Option<UsageSince>,
    is_interrupted: bool,
}

/// Runs the plan.
///
/// # Errors
/// The cores cannot be started, or one has failed.
pub(super) fn run(
    plan: LoadPlan,
    probed: &Probed,
    command: String,
    is_quiet: bool,
) -> Result<RunEnd, String> {
    let plan = Arc::new(plan);
    let is_watched = LiveView::is_possible(is_quiet);
    let control = RunControl::new(plan.cores, Instant::now() + OPENING, is_watched);
    let control = Arc::new(control);
    let signals = Signals::install().map_err(|error| format!("signals: {error}"))?;
    let (cores, results) = start_cores(&plan, &control)?;
    let io = format!("{:?}", cores.driver()).to_lowercase();
    let mut leader = Leader {
        view: LiveView::new(is_watched),
        plan: Arc::clone(&plan),
        control: Arc::clone(&control),
        results,
        signals,
        ended: Vec::new(),
        usage: Usage::default(),
        used: None,
        is_interrupted: false,
    };
    let warm_up = leader.warm_up();
    let started_at = wall_clock();
    leader.measure();
    leader.view.clear();
    cores
        .join()
        .map_err(|error| format!("a core of the generator failed: {error}"))?;
    leader.take_results();
    let used = leader.used.unwrap_or_default();
    let mut merged = CoreResult::default();
    for result in std::mem::take(&mut leader.ended) {
        merged.merge(result);
    }
    let late = merged.late;
    let mut result = put_together(&plan, probed, merged, &used);
    result.command = command;
    result.generator.io = io;
    result.started_at = started_at;
    result.warm_up_s = warm_up.as_secs_f64();
    let course = Course {
        is_closed_loop: plan.rate.is_none(),
        is_interrupted: leader.is_interrupted,
        late,
        least: plan.least,
    };
    result.problems = problems::of(&result, &course);
    Ok(RunEnd {
        result,
        evidence: control.take_evidence(),
    })
}

fn start_cores(
    plan: &Arc<LoadPlan>,
    control: &Arc<RunControl>,
) -> Result<(Cores, Receiver<CoreResult>), String> {
    let (sender, results) = mpsc::channel();
    let config = Config {
        io: plan.io,
        cores: plan.cores,
        pin: Pinning::Auto,
        ..Config::default()
    };
    let (plan, control) = (Arc::clone(plan), Arc::clone(control));
    let cores = start(&config, move |index| {
        let (plan, control) = (Arc::clone(&plan), Arc::clone(&control));
        let sender = sender.clone();
        async move {
            precise_sleep_until(control.start()).await;
            let result = worker::run(plan, Arc::clone(&control), index).await;
            // Nobody receives it after a second interrupt.
            let _ = sender.send(result);
            while !control.may_end() {
                sleep(END_EVERY).await;
            }
        }
    });
    let cores = cores.map_err(|error| format!("the cores cannot be started: {error}"))?;
    Ok((cores, results))
}

impl Leader {
    /// Waits for the end of the warm-up, and begins the measured time. Returns the length of the warm-up.
    fn warm_up(&mut self) -> Duration {
        let start = self.control.start();
        let from = match self.plan.warm_up {
            WarmUp::For(length) => {
                self.control.measure(start + length, self.plan.duration);
                self.wait_until(start + length, "warm-up", start);
                start + length
            }
            WarmUp::UntilSteady => {
                self.wait_until_steady(start);
                let from = Instant::now();
                self.control.measure(from, self.plan.duration);
                from
            }
        };
        self.usage = Usage::now();
        from.saturating_duration_since(start)
    }

    fn wait_until_steady(&mut self, start: Instant) {
        let mut counts = Vec::new();
        let mut before = 0;
        let deadline = start + STEADY_WITHIN;
        while !is_steady(&counts) && Instant::now() < deadline && !self.is_over() {
            self.wait_until(Instant::now() + WINDOW, "warm-up", start);
            let completed = self.control.total(|core| &core.completed);
            counts.push(completed - before);
            before = completed;
        }
    }

    /// Waits until all cores have ended.
    fn measure(&mut self) {
        let begun = Instant::now();
        let until = self.plan.duration.map(|length| begun + length);
        match (until, self.plan.least) {
            (Some(until), Some(least)) => self.wait_for_responses(least, until, begun),
            (Some(until), None) => self.wait_until(until, "measure", begun),
            (None, _) => {}
        }
        // With a duration the measured time is over now, and open loops may still wait for responses.
        let is_timed = until.is_some();
        if is_timed {
            self.take_usage();
        }
        let deadline = until.map(|until| until + FINISH_WITHIN);
        while !self.is_over() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            self.look("finish", None);
        }
        self.take_usage();
        self.control.let_end();
    }

    /// Waits until the least is measured, and at most until a moment.
    fn wait_for_responses(&mut self, least: Least, until: Instant, begun: Instant) {
        // Responses since the measured time began are missing here, so that there will be a few responses more.
        let before = self.control.total(|core| &core.completed);
        self.wait_until((begun + least.time).min(until), "measure", begun);
        while Instant::now() < until && !self.is_over() {
            let completed = self.control.total(|core| &core.completed) - before;
            if completed >= least.responses {
                break;
            }
            let done = completed as f64 / least.responses as f64;
            let next = (Instant::now() + LOOK_EVERY).min(until);
            self.look_until("measure", Some(done), next);
        }
        self.control.end_measuring();
    }

    fn take_usage(&mut self) {
        let usage = &self.usage;
        self.used.get_or_insert_with(|| Usage::now().since(usage));
    }

    fn wait_until(&mut self, until: Instant, phase: &str, begun: Instant) {
        let whole = until.saturating_duration_since(begun).as_secs_f64();
        while Instant::now() < until && !self.is_over() {
            let done = begun.elapsed().as_secs_f64() / whole.max(f64::MIN_POSITIVE);
            self.look_until(phase, Some(done), until);
        }
    }

    fn look(&mut self, phase: &str, done: Option<f64>) {
        self.look_until(phase, done, Instant::now() + LOOK_EVERY);
    }

    /// Handles signals and results, for a short time or until a moment.
    fn look_until(&mut self, phase: &str, done: Option<f64>, until: Instant) {
        self.view.show(&self.control, phase, self.share(done));
        let wait = until
            .saturating_duration_since(Instant::now())
            .min(LOOK_EVERY);
        let signal = self.signals.wait(Some(wait)).unwrap_or_default();
        if matches!(
            signal,
            Some(Signal::Interrupt | Signal::Terminate | Signal::Quit)
        ) {
            if self.is_interrupted {
                // Nothing of the first signal is left to wait for.
                std::process::exit(INTERRUPTED_TWICE);
            }
            self.is_interrupted = true;
            self.control.stop();
        }
        self.take_results();
    }

    fn take_results(&mut self) {
        while let Ok(result) = self.results.try_recv() {
            self.ended.push(result);
        }
    }

    /// The share of the run that is over: of its requests, if their number is the plan.
    fn share(&self, of_time: Option<f64>) -> Option<f64> {
        match self.plan.request_count {
            Some(count) => {
                let completed = self.control.total(|core| &core.completed);
                Some(completed as f64 / count as f64)
            }
            None => of_time,
        }
    }

    fn is_over(&self) -> bool {
        self.ended.len() == self.plan.cores
    }
}

fn put_together(
    plan: &LoadPlan,
    probed: &Probed,
    merged: CoreResult,
    used: &UsageSince,
) -> LoadResult {
    let answered = merged.answered.as_ref().map_or(0, |it| it.completed);
    let completed = merged.counts.completed.max(answered);
    LoadResult {
        version: RESULT_VERSION,
        command: String::new(),
        target: target_facts(plan, probed),
        plan: PlanFacts {
            connections: plan.connections,
            streams: plan.streams,
            cores: plan.cores,
            pacing: plan.pacing(),
            rate: plan.rate.as_ref().and_then(|(rate, _)| rate.constant()),
            new_connections: plan.new_connections,
            resume: plan.resume,
            windows: plan.windows.facts(plan.protocol),
            seed: plan.seed,
        },
        started_at: 0.0,
        duration_s: merged.length.as_secs_f64(),
        warm_up_s: 0.0,
        counts: merged.counts,
        answered: merged.answered,
        times: merged.times,
        requests: requests(plan, merged.by_request),
        connects: merged.connects,
        timeline: merged.timeline,
        generator: GeneratorFacts {
            program: format!("blitz {}", env!("CARGO_PKG_VERSION")),
            io: String::new(),
            cpu_s: used.cpu_s,
            cpu_us_per_request: used.cpu_s * 1e6 / completed.max(1) as f64,
            busiest_core: used.busiest_core,
            busiest_core_waited: used.busiest_core_waited,
            lag: merged.lag,
            context_switches: used.context_switches,
        },
        problems: Vec::new(),
    }
}

fn requests(plan: &LoadPlan, figures: Vec<RequestFigures>) -> Vec<RequestResult> {
    let named = plan.requests.iter().zip(figures);
    let result = |((spec, _), (latency, errors)): (&(RequestSpec, Expected), RequestFigures)| {
        RequestResult {
            name: spec.name(),
            errors,
            latency,
        }
    };
    named.map(result).collect()
}

fn target_facts(plan: &LoadPlan, probed: &Probed) -> TargetFacts {
    let checks = match &plan.requests[..] {
        [(_, expected)] => expected.describe(),
        several => {
            let mut each: Vec<_> = several.iter().map(|(_, it)| it.describe()).collect();
            each.sort();
            each.dedup();
            each.join("; ")
        }
    };
    TargetFacts {
        url: plan.requests[0].0.url.clone(),
        address: plan.address.to_string(),
        protocol: probed.protocol.alpn_name().to_owned(),
        tls: probed.tls.clone(),
        requests: plan.requests.len(),
        checks,
    }
}

fn wall_clock() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0.0, |now| now.as_secs_f64())
}
