//! One core of the generator: connections, the streams on them, and the requests that these send.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_http::{ClientConnection, ClientError, ConnectOptions, Protocol, counters, sleep, spawn};

use super::by_request::ByRequest;
use super::check::{Evidence, Wrong};
use super::connection::{Attempt, ConnectionSlot};
use super::control::{Progress, RunControl};
use super::exchange::{self, CorrectResponse, ExchangeFailure};
use super::pacer::{Pacer, RequestQueue};
use super::plan::LoadPlan;
use super::recorder::{ConnectTimes, CoreRecorder, CoreResult, RequestTimes};
use super::request::{MixOrder, PreparedRequest};
use super::template::Values;
use crate::random::Random;

/// How often a core looks whether the run has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How long requests of an open loop that are in flight at the end may take.
const GRACE: Duration = Duration::from_secs(5);

/// How often a request is sent again that the server has refused.
const REPEATS_MAX: u32 = 3;

/// In a closed loop a request may be stuck that has waited for so long, or half of the run.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// Everything that the streams of a core share.
pub(super) struct Worker {
    pub(super) plan: Arc<LoadPlan>,
    pub(super) control: Arc<RunControl>,
    pub(super) connect_options: ConnectOptions,
    index: usize,
    pacer: Pacer,
    requests: RefCell<Vec<PreparedRequest>>,
    order: RefCell<MixOrder>,
    random: RefCell<Random>,
    /// Requests that were chosen.
    chosen: Cell<u64>,
    pub(super) recorder: RefCell<CoreRecorder>,
    by_request: RefCell<ByRequest>,
    /// Responses with surplus bytes before the run.
    unexpected_before: u64,
    /// Streams that have not ended.
    running: Cell<usize>,
    /// The planned time of each stream's request, from then until it has ended: also while it waits for a connection.
    outstanding: RefCell<Vec<Option<Outstanding>>>,
}

/// Runs core `index` until the run is over.
///
/// # Panics
/// If the plan was not checked.
pub(super) async fn run(plan: Arc<LoadPlan>, control: Arc<RunControl>, index: usize) -> CoreResult {
    let queue = RequestQueue::new();
    let pacer = match &plan.rate {
        None => Pacer::closed(plan.requests_of(index)),
        Some(_) => Pacer::open(&queue),
    };
    let worker = Rc::new(Worker::new(plan, control, index, pacer));
    let plan = &worker.plan;
    let mut slots = Vec::new();
    for _ in (index..plan.connections).step_by(plan.cores) {
        let slot = Rc::new(ConnectionSlot::new());
        for _ in 0..plan.streams {
            let stream = worker.running.get();
            worker.running.set(stream + 1);
            worker.outstanding.borrow_mut().push(None);
            spawn(run_stream(Rc::clone(&worker), Rc::clone(&slot), stream));
        }
        // A connection is closed with the last stream that uses it.
        slots.push(Rc::downgrade(&slot));
    }
    if plan.rate.is_some() {
        worker.arrivals(&queue).await;
        queue.close();
        while !worker.is_over() {
            sleep(LOOK_EVERY).await;
        }
        worker.wait_for_streams(GRACE).await;
    } else {
        while worker.running.get() > 0 && !worker.is_over() {
            sleep(LOOK_EVERY).await;
        }
    }
    let result = worker.finish(&queue);
    if plan.protocol == Protocol::Http3 {
        // The kernel closes those of TCP. A server would keep these until they time out.
        for slot in slots.iter().filter_map(Weak::upgrade) {
            slot.close(&worker);
        }
        sleep(LOOK_EVERY).await;
    }
    result
}

impl Worker {
    fn new(plan: Arc<LoadPlan>, control: Arc<RunControl>, index: usize, pacer: Pacer) -> Worker {
        let seed = plan.seed ^ (index as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let prepared = plan.requests.iter();
        let prepared = prepared.map(|(spec, _)| spec.prepare().expect("the plan was checked"));
        let specs: Vec<_> = plan.requests.iter().map(|(spec, _)| spec.clone()).collect();
        Worker {
            requests: RefCell::new(prepared.collect()),
            order: RefCell::new(MixOrder::new(&specs, seed)),
            random: RefCell::new(Random::new(seed)),
            recorder: RefCell::new(CoreRecorder::new(plan.interval, plan.duration)),
            by_request: RefCell::new(ByRequest::new(plan.requests.len())),
            chosen: Cell::new(0),
            unexpected_before: counters().upstream_unexpected_bytes,
            running: Cell::new(0),
            outstanding: RefCell::default(),
            connect_options: plan.connect_options(),
            plan,
            control,
            index,
            pacer,
        }
    }

    fn set_outstanding(&self, stream: usize, outstanding: Option<Outstanding>) {
        self.outstanding.borrow_mut()[stream] = outstanding;
    }

    pub(super) fn progress(&self) -> &Progress {
        self.control.progress_of(self.index)
    }

    fn is_over(&self) -> bool {
        self.control
            .is_over(self.control.since_start(Instant::now()))
    }

    /// Plans the arrivals of the warm-up, then those of the measured time.
    async fn arrivals(&self, queue: &RequestQueue) {
        let Some((rate, spacing)) = &self.plan.rate else {
            return;
        };
        let place = (self.index, self.plan.cores);
        let start = self.control.start();
        if let Some(warm_up) = rate.warm_up() {
            let arrivals =
                warm_up.arrivals(self.plan.warm_up.fixed(), *spacing, place, !self.plan.seed);
            queue.plan(arrivals, start, &self.control, |_, _| {}).await;
        }
        let Some(length) = self.plan.duration else {
            return;
        };
        let arrivals = rate.arrivals(length, *spacing, place, self.plan.seed);
        let start = start + self.plan.warm_up.fixed();
        let lag = |_, lag| self.recorder.borrow_mut().lag(lag);
        queue.plan(arrivals, start, &self.control, lag).await;
    }

    async fn wait_for_streams(&self, at_most: Duration) {
        let deadline = Instant::now() + at_most;
        while self.running.get() > 0 && !self.control.is_stopped() && Instant::now() < deadline {
            sleep(LOOK_EVERY).await;
        }
    }

    fn finish(&self, queue: &RequestQueue) -> CoreResult {
        let from = self.control.measured_from().unwrap_or_default();
        let now = self.control.since_start(Instant::now());
        let until = self.control.measured_until().unwrap_or(now).min(now);
        let mut length = Duration::from_nanos(until.saturating_sub(from));
        let last_end = self.recorder.borrow().last_end();
        if self.plan.request_count.is_some() && self.running.get() == 0 {
            // All requests have ended, and the core notices that some time later.
            length = length.min(last_end);
        }
        if self.plan.rate.is_some() {
            // Requests that were planned for the measured time count whenever they end, and so does that time.
            length = length.max(last_end);
        }
        let recorder = self
            .recorder
            .replace(CoreRecorder::new(self.plan.interval, None));
        let mut result = recorder.finish(length);
        let unfinished = self.unfinished(&result, queue);
        let mut by_request = self.by_request.take();
        for &(request, waited) in &unfinished {
            by_request.unfinished(request, waited);
        }
        result.by_request = by_request.finish();
        result.add_unfinished(unfinished.into_iter().map(|(_, waited)| waited));
        let unexpected = counters().upstream_unexpected_bytes - self.unexpected_before;
        if unexpected > 0 {
            let error = "more bytes behind a response".to_owned();
            *result.counts.failed.entry(error).or_default() += unexpected;
        }
        if queue.has_overflowed() {
            let error = "too many planned requests wait".to_owned();
            *result.counts.failed.entry(error).or_default() += 1;
        }
        if self.plan.rate.is_some()
            && let Some(answered) = &mut result.answered
        {
            answered.length_s = Duration::from_nanos(until.saturating_sub(from)).as_secs_f64();
        }
        result
    }

    /// Requests without a response, if it is known which, and how long they have waited. In an open loop these are all that were planned for the measured
    /// time. In a closed loop each stream has one in flight at the end; those count that have waited for much longer than
    /// all others took.
    fn unfinished(
        &self,
        result: &CoreResult,
        queue: &RequestQueue,
    ) -> Vec<(Option<usize>, Duration)> {
        let outstanding = self.outstanding.borrow();
        let mut outstanding: Vec<Outstanding> = outstanding.iter().copied().flatten().collect();
        let now = Instant::now();
        let waited = |one: &Outstanding| (one.request, now - one.planned);
        if self.plan.rate.is_some() {
            let waiting = queue.take_waiting().into_iter();
            outstanding.extend(waiting.map(Outstanding::planned));
            outstanding.retain(|one| self.counts(one.planned, one.planned));
            return outstanding.iter().map(waited).collect();
        }
        let longest = Duration::from_nanos(result.times.latency.max_ns);
        let usual = (longest * 2).max(STUCK_AFTER.min(result.length / 2));
        let waited = outstanding.iter().map(waited);
        waited.filter(|(_, waited)| *waited > usual).collect()
    }

    /// Whether a request counts: by its end in a closed loop, by its planned start in an open one, because there
    /// nothing that was planned may be left out.
    fn counts(&self, planned: Instant, end: Instant) -> bool {
        let at = if self.plan.rate.is_some() {
            planned
        } else {
            end
        };
        self.control.is_measured(self.control.since_start(at))
    }

    /// The time since the start of the measured time.
    fn measured(&self, at: Instant) -> Duration {
        let from = self.control.measured_from().unwrap_or_default();
        Duration::from_nanos(self.control.since_start(at).saturating_sub(from))
    }

    pub(super) fn connected(&self, times: &ConnectTimes) {
        Progress::add(&self.progress().connections, 1);
        self.recorder.borrow_mut().connected(times);
    }

    /// A connection could not be opened, or carries no request.
    #[cold]
    pub(super) fn failed_to_connect(&self, error: String) {
        self.failed(None, error, Instant::now());
    }

    /// A request failed now, which was planned then; `None` without one.
    #[cold]
    fn failed(&self, request: Option<usize>, error: String, planned: Instant) {
        let now = Instant::now();
        Progress::add(&self.progress().errors, 1);
        if self.counts(planned, now) {
            self.recorder.borrow_mut().failed(error, self.measured(now));
            if let Some(request) = request {
                self.by_request.borrow_mut().failed(request);
            }
        }
    }

    #[cold]
    fn wrong(&self, request: usize, (wrong, evidence): (Wrong, Evidence), planned: Instant) {
        let now = Instant::now();
        Progress::add(&self.progress().errors, 1);
        if self.counts(planned, now) {
            self.recorder
                .borrow_mut()
                .wrong(wrong.name(), self.measured(now));
            self.by_request.borrow_mut().failed(request);
        }
        if !self.plan.keep_going {
            self.control.stop_with(evidence);
        }
    }

    /// The server refused a request that was planned then, and it is sent again.
    #[cold]
    fn repeated(&self, planned: Instant) {
        if self.counts(planned, Instant::now()) {
            self.recorder.borrow_mut().repeated();
        }
    }

    /// A request waits because the server allows no more at a time on its connection.
    #[cold]
    pub(super) fn queued(&self) {
        let now = self.control.since_start(Instant::now());
        if self.control.is_measured(now) {
            self.recorder.borrow_mut().queued();
        }
    }

    /// The next request, with values that no other one has.
    fn choose(&self) -> Chosen {
        let chosen = self.chosen.get();
        self.chosen.set(chosen + 1);
        let number = chosen * self.plan.cores as u64 + self.index as u64;
        Chosen {
            index: self.order.borrow_mut().next(),
            values: Values {
                number: self.plan.first_requests() + number,
                random: self.random.borrow_mut().bits(),
            },
        }
    }
}

/// A request without a response.
#[derive(Clone, Copy)]
struct Outstanding {
    planned: Instant,
    /// Its number in the mix, once it is chosen.
    request: Option<usize>,
}

impl Outstanding {
    fn planned(planned: Instant) -> Outstanding {
        Outstanding {
            planned,
            request: None,
        }
    }
}

/// A request of the mix, and the values of its placeholders.
struct Chosen {
    index: usize,
    values: Values,
}

/// Sends requests on one stream of a connection until there are no more.
async fn run_stream(worker: Rc<Worker>, slot: Rc<ConnectionSlot>, stream: usize) {
    let is_new = worker.plan.new_connections;
    let mut previous = None;
    'requests: while let Some(planned) = worker.pacer.next(&worker.control, previous).await {
        worker.set_outstanding(stream, Some(Outstanding::planned(planned)));
        let mut chosen = None;
        let mut repeats = 0;
        previous = loop {
            let (connection, has_waited) = match slot.connection(&worker).await {
                Attempt::Ready {
                    connection,
                    has_waited,
                } => (connection, has_waited),
                Attempt::Failed => break None,
                Attempt::Over => break 'requests,
            };
            let request = chosen.get_or_insert_with(|| worker.choose());
            let outstanding = Outstanding {
                planned,
                request: Some(request.index),
            };
            worker.set_outstanding(stream, Some(outstanding));
            // Nothing lies between the end of the previous request and this one if the connection was there.
            let sent = match previous {
                Some(previous) if previous == planned && !has_waited && repeats == 0 => planned,
                _ => Instant::now(),
            };
            let ended = send_request(&worker, &connection, request, (planned, sent)).await;
            if is_new {
                slot.close(&worker);
            }
            match ended {
                Err(Refused) if repeats < REPEATS_MAX => worker.repeated(planned),
                Err(Refused) => {
                    let error = ClientError::Unprocessed.to_string();
                    worker.failed(Some(request.index), error, planned);
                    break Some(Instant::now());
                }
                Ok(end) => break Some(end),
            }
            repeats += 1;
        };
        worker.set_outstanding(stream, None);
    }
    worker.running.set(worker.running.get() - 1);
}

/// The server did not process a request, and any request may be sent again then (RFC 9113, section 8.7; RFC 9114,
/// section 4.1.1).
struct Refused;

/// Sends one request and records its response. Returns when it ended.
async fn send_request(
    worker: &Worker,
    connection: &ClientConnection,
    &Chosen { index, ref values }: &Chosen,
    (planned, sent): (Instant, Instant),
) -> Result<Instant, Refused> {
    let expected = &worker.plan.requests[index].1;
    let started = {
        let mut requests = worker.requests.borrow_mut();
        let (head, content) = requests[index].next(values);
        connection
            .request(head, content.length())
            .map(|(body, response)| (body, response, content))
    };
    let outcome = match started {
        Ok((body, response, content)) => exchange::run(body, response, content, expected).await,
        Err(error) => Err(ExchangeFailure::Request(error)),
    };
    let end = match &outcome {
        Ok(received) => received.end,
        Err(_) => Instant::now(),
    };
    match outcome {
        Ok(received) => record(worker, index, &received, (planned, sent, end)),
        Err(ExchangeFailure::Wrong { wrong, evidence }) => {
            let name = worker.plan.requests[index].0.name();
            worker.wrong(index, (wrong, evidence.of_request(&name)), planned);
        }
        Err(ExchangeFailure::Request(ClientError::Unprocessed)) => return Err(Refused),
        Err(failure) => worker.failed(Some(index), failure.to_string(), planned),
    }
    Ok(end)
}

fn record(
    worker: &Worker,
    request: usize,
    received: &CorrectResponse,
    (planned, sent, end): (Instant, Instant, Instant),
) {
    let progress = worker.progress();
    Progress::add(&progress.completed, 1);
    Progress::add(&progress.bytes, received.content_bytes);
    let latency = end.saturating_duration_since(planned);
    if worker.control.is_watched() {
        progress.latency.record(latency.as_nanos() as u64);
    }
    if worker.plan.rate.is_some() && worker.control.is_measured(worker.control.since_start(end)) {
        let mut recorder = worker.recorder.borrow_mut();
        recorder.answered(received.content_bytes);
    }
    if !worker.counts(planned, end) {
        return;
    }
    let times = RequestTimes {
        latency,
        service: end.saturating_duration_since(sent),
        first_byte: received.head_at.saturating_duration_since(sent),
        end: worker.measured(end),
    };
    let mut recorder = worker.recorder.borrow_mut();
    recorder.status(received.status);
    recorder.completed(&times, received.content_bytes, received.sent_bytes);
    worker.by_request.borrow_mut().completed(request, latency);
}
