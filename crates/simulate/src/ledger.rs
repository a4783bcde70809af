//! The state of every request, as reported by its peers, and the rules that it must follow.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use blitz_reactor::simulation::World;

use crate::access_log::LoggedLines;
use crate::plan::{ClientPlan, Fault, Plan, Reach, RequestPlan, ResponseOrder, Version};
use crate::reload::{Observed, Replica};

/// The time at which bytes were last sent or received on a connection.
pub(crate) type Pulse = Rc<Cell<Duration>>;

/// Longest time without a byte for a request. The pauses of a plan are shorter.
const SILENCE_MAX: Duration = Duration::from_millis(2_500);

/// Additional time for requests that wait for a connection to one address of an upstream.
const WAITING_MAX: Duration = Duration::from_secs(5);

/// Interval of the checks whether content has arrived.
const ARRIVAL_LOOK_EVERY: Duration = Duration::from_millis(20);

/// Request content that the gateway discards after a response.
const DISCARDED_MAX: u64 = 64 * 1024;

/// How long a client may wait for a response after its FIN.
const HALF_CLOSE_GRACE: Duration = Duration::from_secs(1);

/// All requests of a run.
pub(crate) struct Ledger {
    pub(crate) world: World,
    pub(crate) plan: Plan,
    entries: RefCell<BTreeMap<u64, RequestEntry>>,
    violations: RefCell<Vec<String>>,
    /// Requests that have ended.
    ended: Cell<usize>,
    /// The gateway drains.
    is_draining: Cell<bool>,
    /// The requests and contents that each upstream carries.
    carried: Vec<Cell<Carried>>,
    pub(crate) observed: Observed,
    /// The access log of the gateway.
    pub(crate) logged: LoggedLines,
}

/// Requests that have arrived at an upstream and not ended for their clients.
#[derive(Clone, Copy, Default)]
struct Carried {
    requests: usize,
    /// When the last of them ended.
    none_since: Duration,
}

/// One request.
#[derive(Default)]
struct RequestEntry {
    /// The connections that carry it.
    pulses: Vec<Pulse>,
    began: Option<Duration>,
    ended: bool,
    ending: Option<Ending>,
    /// How often it has arrived at an upstream.
    arrivals: usize,
    /// Its content has arrived there completely.
    has_arrived_whole: bool,
}

impl RequestEntry {
    /// When a byte moved last on its connections.
    fn last_pulse(&self) -> Option<Duration> {
        self.pulses.iter().map(|pulse| pulse.get()).max()
    }
}

/// How a request ended for its client.
#[derive(Debug, Clone)]
#[expect(dead_code, reason = "the reasons are shown by `Debug`")]
pub(crate) enum Ending {
    /// The client cancelled it as planned.
    Left,
    /// The complete response of the upstream.
    Complete,
    /// A response that the gateway generated.
    Refused(u16),
    /// The gateway refused the stream without processing the request (RFC 9113, section 8.7).
    RefusedStream,
    /// The gateway has told the client to go before it was sent.
    NotSent,
    /// The exchange was aborted, for this reason.
    Cut(String),
    /// The same, for a hand-written client.
    Broken(String),
    /// The response is wrong.
    Wrong(String),
}

impl Ledger {
    pub(crate) fn new(world: &World, plan: &Plan) -> Ledger {
        let entries = plan
            .requests()
            .map(|request| (request.id, RequestEntry::default()));
        Ledger {
            world: world.clone(),
            plan: plan.clone(),
            entries: RefCell::new(entries.collect()),
            violations: RefCell::default(),
            ended: Cell::new(0),
            is_draining: Cell::new(false),
            carried: vec![Cell::default(); plan.upstreams.len()],
            observed: Observed::default(),
            logged: LoggedLines::default(),
        }
    }

    pub(crate) fn pulse(&self) -> Pulse {
        Rc::new(Cell::new(self.world.now()))
    }

    pub(crate) fn find(&self, id: u64) -> Option<RequestPlan> {
        self.plan
            .requests()
            .find(|request| request.id == id)
            .cloned()
    }

    /// Records a violation, which fails the run.
    pub(crate) fn violate(&self, what: String) {
        self.world.note(|| format!("VIOLATION {what}"));
        self.violations.borrow_mut().push(what);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.borrow().clone()
    }

    pub(crate) fn is_violated(&self) -> bool {
        !self.violations.borrow().is_empty()
    }

    /// The gateway drains from now on.
    pub(crate) fn note_draining(&self) {
        self.world.note(|| "the gateway drains".to_owned());
        self.is_draining.set(true);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.get()
    }

    /// A client sends a request on a connection.
    pub(crate) fn begin(&self, request: &RequestPlan, pulse: &Pulse) {
        let now = self.world.now();
        self.world.note(|| format!("request {} begins", request.id));
        self.observed.begin();
        self.entry(request.id, |entry| {
            entry.began = Some(now);
            entry.pulses.push(Rc::clone(pulse));
            entry.pulses.push(Rc::new(Cell::new(now)));
        });
    }

    /// A client has lost the connection of a request that was not processed, and will send it on another.
    pub(crate) fn withdraw(&self, request: &RequestPlan) {
        self.entry(request.id, |entry| entry.began = None);
    }

    /// A request has arrived at a server of an upstream.
    pub(crate) fn arrive(&self, request: &RequestPlan, server: Replica, pulse: &Pulse) {
        self.world
            .note(|| format!("request {} arrives at {server:?}", request.id));
        if self.plan.reloads.is_some() {
            self.observed.arrive(request.id, server);
        }
        if server.upstream != request.upstream {
            self.violate(format!("request {} has arrived at {server:?}", request.id));
        }
        let (arrivals, has_ended) = self.entry(request.id, |entry| {
            entry.arrivals += 1;
            entry.pulses.push(Rc::clone(pulse));
            (entry.arrivals, entry.ended)
        });
        if arrivals == 1 && !has_ended {
            let carried = &self.carried[request.upstream];
            let requests = carried.get().requests + 1;
            carried.set(Carried {
                requests,
                ..carried.get()
            });
        }
        let most = if request.is_idempotent() { 2 } else { 1 };
        if arrivals > most {
            self.violate(format!(
                "request {} ({}) has arrived at an upstream {arrivals} times, at most {most} are allowed",
                request.id, request.method
            ));
        }
    }

    pub(crate) fn note_arrived_whole(&self, id: u64) {
        self.entry(id, |entry| entry.has_arrived_whole = true);
    }

    /// Waits until the content of a request has arrived at its upstream. Until then the ends of a tunnel
    /// are not dropped.
    pub(crate) async fn await_arrival(&self, id: u64) {
        while !self.entry(id, |entry| entry.has_arrived_whole) {
            self.world.sleep(ARRIVAL_LOOK_EVERY).await;
        }
    }

    /// A request has ended for its client.
    pub(crate) fn end(&self, request: &RequestPlan, ending: &Ending) {
        let now = self.world.now();
        self.ended.set(self.ended() + 1);
        self.world
            .note(|| format!("request {} ends: {ending:?}", request.id));
        let (took, arrivals, whole) = self.entry(request.id, |entry| {
            entry.ended = true;
            entry.ending = Some(ending.clone());
            let took = now - entry.began.unwrap_or(now);
            (took, entry.arrivals, entry.has_arrived_whole)
        });
        if arrivals > 0 {
            let carried = &self.carried[request.upstream];
            carried.set(Carried {
                requests: carried.get().requests - 1,
                none_since: now,
            });
        }
        let is_right = self.is_right(request, ending, took, arrivals);
        if !is_right {
            self.violate(format!(
                "request {} must not end with {ending:?}; that was {:.3} s after its start, and it has \
                 arrived at an upstream {arrivals} times; its plan: {request:?}",
                request.id,
                took.as_secs_f64()
            ));
        } else if matches!(ending, Ending::Complete)
            && request.order == ResponseOrder::After
            && request.fault.is_none()
            && !whole
        {
            self.violate(format!(
                "request {} has a complete response before its content has arrived at the upstream",
                request.id
            ));
        }
    }

    /// Whether a request may end like this.
    fn is_right(
        &self,
        request: &RequestPlan,
        ending: &Ending,
        took: Duration,
        arrivals: usize,
    ) -> bool {
        let upstream = &self.plan.upstreams[request.upstream];
        let has_waited = took >= WAITING_MAX
            && self.waiting_max() > Duration::ZERO
            && !self.is_unused(request.upstream);
        match (ending, request.fault) {
            (Ending::Wrong(_), _) => false,
            (Ending::Left, fault) => matches!(fault, Some(Fault::ClientLeaves(_))),
            (Ending::Complete, fault) => arrivals > 0 && fault != Some(Fault::UpstreamCloses),
            (Ending::Refused(503), _) if has_waited => true,
            // Calls end with a status of gRPC.
            (Ending::Refused(_), _) if !upstream.is_reachable() && request.call.is_some() => true,
            (Ending::Refused(status), _) if upstream.reach == Reach::Silent => *status == 504,
            (Ending::Refused(status), _) if upstream.reach == Reach::Refused => *status == 502,
            (Ending::Refused(status), fault) => {
                let is_upstreams = !matches!(fault, None | Some(Fault::ClientLeaves(_)));
                *status == 502 && is_upstreams
            }
            (Ending::Cut(_), Some(Fault::UpstreamResets(_))) => true,
            (Ending::RefusedStream | Ending::Cut(_), _) if self.is_draining.get() => {
                arrivals == 0 && self.may_reject(request.id)
            }
            (Ending::NotSent, _) => arrivals == 0 && self.is_draining.get(),
            // Streams that a client has reset count until the gateway has stopped their work.
            (Ending::RefusedStream, _) => arrivals == 0 && self.client_leaves(request.id),
            (Ending::Broken(_), Some(Fault::UpstreamResets(_))) => true,
            // A client that is still sending when the response is complete may be reset before it reads it. Over HTTP/3
            // it is only asked to stop.
            (Ending::Cut(_), _) if self.is_http3(request.id) => false,
            (Ending::Cut(_), _) if !upstream.is_reachable() => {
                request.request.bytes > DISCARDED_MAX
            }
            (Ending::Cut(_), None | Some(Fault::UpstreamCloses)) => {
                request.order == ResponseOrder::Meanwhile && request.request.bytes > DISCARDED_MAX
            }
            (Ending::Cut(_), Some(Fault::ClientLeaves(_))) => false,
            // A client that has sent FIN counts as gone after a second without a response.
            (Ending::Broken(_), _) => took >= HALF_CLOSE_GRACE && self.half_closes(request.id),
        }
    }

    /// Whether nothing has used a reachable upstream for so long that a request need not wait for it.
    fn is_unused(&self, upstream: usize) -> bool {
        let Carried {
            requests,
            none_since,
        } = self.carried[upstream].get();
        self.plan.upstreams[upstream].reach == Reach::Direct
            && requests == 0
            && self.world.now() - none_since > SILENCE_MAX
    }

    fn client_of(&self, id: u64) -> Option<&ClientPlan> {
        let mut clients = self.plan.clients.iter();
        clients.find(|client| client.requests.iter().any(|known| known.id == id))
    }

    /// Whether the client of this request resets streams: hyper also resets those of tunnels that are
    /// not opened.
    fn client_leaves(&self, id: u64) -> bool {
        self.client_of(id).is_some_and(|client| {
            let mut requests = client.requests.iter();
            requests.any(|request| {
                request.tunnel.is_some() || matches!(request.fault, Some(Fault::ClientLeaves(_)))
            })
        })
    }

    /// Whether a request has a field from QPACK's dynamic table.
    pub(crate) fn refers_to_table(&self, id: u64) -> bool {
        let client = self.client_of(id);
        let quic = client.and_then(|client| client.quic.as_ref());
        quic.is_some_and(|quic| quic.inserts_within.is_some())
    }

    fn may_reject(&self, id: u64) -> bool {
        let client = self.client_of(id);
        client.is_some_and(|client| self.plan.may_reject(client))
    }

    fn half_closes(&self, id: u64) -> bool {
        self.client_of(id).is_some_and(|client| client.half_closes)
    }

    fn is_http3(&self, id: u64) -> bool {
        let client = self.client_of(id);
        client.is_some_and(|client| client.version == Version::Http3)
    }

    /// How long requests may wait for an upstream connection.
    fn waiting_max(&self) -> Duration {
        let upstreams = self.plan.upstreams.iter();
        let addresses = upstreams.map(|upstream| upstream.reach.addresses()).max();
        match self.plan.limits.upstream_connections_max {
            ..100 => WAITING_MAX * addresses.unwrap_or(1),
            _ => Duration::ZERO,
        }
    }

    /// Finds requests that are stalled.
    pub(crate) fn watch(&self) {
        let now = self.world.now();
        let entries = self.entries.borrow();
        let silent: Vec<String> = entries
            .iter()
            .filter(|(_, entry)| entry.began.is_some() && !entry.ended)
            // quinn-proto 0.11.19 never sends a CONNECTION_CLOSE that its congestion window has no room for.
            .filter(|(id, _)| !(self.is_draining.get() && self.may_reject(**id)))
            .filter_map(|(id, entry)| {
                let mut last = entry.last_pulse()?;
                // The content of a waiting request may use up the window of its connection.
                let most = self.silence_max(*id) + self.waiting_max();
                if now - last > most {
                    let awaited = self.awaited_by(*id, &entries);
                    let pulses = awaited.iter().filter_map(|entry| entry.last_pulse());
                    last = pulses.fold(last, Duration::max);
                }
                (now - last > most).then(|| {
                    format!(
                        "request {id} is stalled: no byte of it has moved since {:.3} s, for more than \
                         {:.1} s, and it has arrived at an upstream {} times; look in the trace for the \
                         last event of its connections before {:.3} s; its plan: {:?}",
                        last.as_secs_f64(),
                        most.as_secs_f64(),
                        entry.arrivals,
                        last.as_secs_f64(),
                        self.find(*id)
                    )
                })
            })
            .collect();
        drop(entries);
        silent.into_iter().for_each(|what| self.violate(what));
    }

    /// The longest time without a byte for a request that does not wait for a connection.
    fn silence_max(&self, id: u64) -> Duration {
        let client = self.client_of(id);
        let more = client.map(|client| self.plan.silence_of(client));
        SILENCE_MAX + more.unwrap_or_default()
    }

    /// The requests that this one may wait for, because it is pipelined behind them, or because they have
    /// all streams that its client may open. They may wait for an upstream connection, or be slow.
    fn awaited_by<'e>(
        &self,
        id: u64,
        entries: &'e BTreeMap<u64, RequestEntry>,
    ) -> Vec<&'e RequestEntry> {
        let Some(client) = self.client_of(id) else {
            return Vec::new();
        };
        let ids = client.requests.iter().map(|request| request.id);
        match client.version {
            Version::Raw => {
                let earlier = ids.take_while(|earlier| *earlier != id);
                earlier.filter_map(|id| entries.get(&id)).collect()
            }
            Version::Http2 | Version::Http3 => {
                let others = ids.filter(|other| *other != id);
                let others = others.filter_map(|id| entries.get(&id));
                let open: Vec<&RequestEntry> = others
                    .filter(|entry| entry.began.is_some() && !entry.ended)
                    .collect();
                match open.len() >= self.plan.limits.concurrent_streams_max as usize {
                    true => open,
                    false => Vec::new(),
                }
            }
            Version::Http1 | Version::RawHttp2 => Vec::new(),
        }
    }

    fn entry<R>(&self, id: u64, f: impl FnOnce(&mut RequestEntry) -> R) -> R {
        f(self.entries.borrow_mut().entry(id).or_default())
    }

    /// Whether the upstream resets the exchange of this request.
    pub(crate) fn upstream_resets(&self, id: u64) -> bool {
        let request = self.find(id);
        request.is_some_and(|request| matches!(request.fault, Some(Fault::UpstreamResets(_))))
    }

    /// All requests that have ended: the id, how often it has arrived at an upstream, and how it ended.
    pub(crate) fn endings(&self) -> Vec<(u64, usize, Ending)> {
        let entries = self.entries.borrow();
        let ended = entries.iter().filter_map(|(id, entry)| {
            let ending = entry.ending.clone()?;
            Some((*id, entry.arrivals, ending))
        });
        ended.collect()
    }

    /// Requests that have ended.
    pub(crate) fn ended(&self) -> usize {
        self.ended.get()
    }
}
