//! The requests of a run with a set, as their clients and servers report them, and the rules that each must follow.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use blitz_reactor::simulation::World;

use super::plan::{FaultWindow, MemberFault, SetPlan, SetRequest};

/// The time that a message may be on its way, with the turns of both ends. Requests and responses are short, and a
/// connection is made first.
pub(super) const TRANSIT_MAX: Duration = Duration::from_millis(500);

/// How long a connect may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A client of HTTP/1.1 that leaves sends FIN, after which it may still wait for its response for so long.
const HALF_CLOSE_GRACE: Duration = Duration::from_secs(1);

/// The gateway's limit for a response that the route does not limit.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Retries that are always possible within ten seconds. With fewer, the budget explains no failure.
const RETRIES_MIN: usize = 100;

/// All requests of a run.
pub(super) struct SetLedger {
    pub(super) world: World,
    pub(super) plan: SetPlan,
    requests: BTreeMap<u64, SetRequest>,
    entries: RefCell<BTreeMap<u64, Entry>>,
    violations: RefCell<Vec<String>>,
    ended: Cell<usize>,
    /// The times of arrivals: of the first attempt of each request, and of others.
    first_arrivals: RefCell<Vec<Duration>>,
    pub(super) retries: RefCell<Vec<Duration>>,
}

#[derive(Default)]
struct Entry {
    began: Option<Duration>,
    /// When it ended, and until when the gateway may go on with it.
    ended: Option<(Duration, Duration)>,
    attempts: Vec<Attempt>,
}

/// A request at a server.
#[derive(Debug, Clone)]
struct Attempt {
    member: usize,
    at: Duration,
    fault: Option<MemberFault>,
    has_answered: bool,
}

impl Attempt {
    /// Whether it has no response yet, because its server is silent.
    fn is_awaited(&self) -> bool {
        let is_silent = matches!(
            self.fault,
            Some(MemberFault::Hangs | MemberFault::BlackHole)
        );
        is_silent && !self.has_answered
    }
}

/// How a request ended for its client.
#[derive(Debug, Clone)]
#[expect(dead_code, reason = "the reasons are shown by `Debug`")]
pub(super) enum SetEnding {
    /// The client cancelled it as planned.
    Left,
    /// The complete response of a server with this status.
    Complete(u16),
    /// A response of the gateway's own.
    Refused(u16),
    /// The exchange was aborted.
    Cut(String),
    /// The response is wrong.
    Wrong(String),
}

/// An attempt that is at a server, for as long as this exists.
pub(super) struct RunningAttempt {
    ledger: Rc<SetLedger>,
    id: u64,
    index: usize,
}

impl RunningAttempt {
    /// The server sends its response now, or ends the connection in its place.
    pub(super) fn answer(&self) {
        let now = self.ledger.world.now();
        let late = self.ledger.entry(self.id, |entry| {
            entry.attempts[self.index].has_answered = true;
            entry.ended.filter(|(_, until)| now > *until)
        });
        if let Some((ended, _)) = late {
            self.ledger.violate(format!(
                "request {} ended at {:.3} s, and one of its attempts goes on until {:.3} s: it was not cancelled",
                self.id,
                ended.as_secs_f64(),
                now.as_secs_f64()
            ));
        }
    }
}

impl SetLedger {
    pub(super) fn new(world: &World, plan: &SetPlan) -> SetLedger {
        let requests = plan.requests().map(|request| (request.id, request.clone()));
        SetLedger {
            world: world.clone(),
            plan: plan.clone(),
            requests: requests.collect(),
            entries: RefCell::default(),
            violations: RefCell::default(),
            ended: Cell::new(0),
            first_arrivals: RefCell::default(),
            retries: RefCell::default(),
        }
    }

    pub(super) fn find(&self, id: u64) -> Option<SetRequest> {
        self.requests.get(&id).cloned()
    }

    /// Records a violation, which fails the run.
    pub(super) fn violate(&self, violation: String) {
        self.world.note(|| format!("VIOLATION {violation}"));
        self.violations.borrow_mut().push(violation);
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.borrow().clone()
    }

    pub(super) fn is_violated(&self) -> bool {
        !self.violations.borrow().is_empty()
    }

    pub(super) fn ended(&self) -> usize {
        self.ended.get()
    }

    /// A client sends a request.
    pub(super) fn begin(&self, request: &SetRequest) {
        let now = self.world.now();
        self.world.note(|| format!("request {} begins", request.id));
        self.entry(request.id, |entry| entry.began = Some(now));
    }

    /// A request has arrived at a server.
    pub(super) fn arrive(
        self: &Rc<SetLedger>,
        request: &SetRequest,
        member: usize,
    ) -> RunningAttempt {
        let now = self.world.now();
        let fault = self.plan.fault_at(member, now).map(|window| window.fault);
        self.world.note(|| {
            format!(
                "request {} arrives at server {member}, which has {fault:?}",
                request.id
            )
        });
        let (index, has_ended, was_silent) = self.entry(request.id, |entry| {
            let mut earlier = entry.attempts.iter();
            let was_silent = earlier.any(|one| one.member == member && one.is_awaited());
            entry.attempts.push(Attempt {
                member,
                at: now,
                fault,
                has_answered: false,
            });
            let ended = entry.ended.is_some_and(|(_, until)| now > until);
            (entry.attempts.len() - 1, ended, was_silent)
        });
        if was_silent {
            self.violate(format!(
                "request {} arrives at server {member} again, which was silent",
                request.id
            ));
        }
        let of_kind = if index == 0 {
            &self.first_arrivals
        } else {
            &self.retries
        };
        of_kind.borrow_mut().push(now);
        let most = match request.is_idempotent() {
            true => 1 + self.plan.settings.retries,
            false => 1,
        };
        // A server of HTTP/2 that goes away may have said that it did not process some.
        if index >= most {
            self.violate(format!(
                "request {} ({}) has arrived {} times, at most {most} are allowed",
                request.id,
                request.method,
                index + 1
            ));
        }
        if has_ended {
            self.violate(format!("request {} arrives after its end", request.id));
        }
        RunningAttempt {
            ledger: Rc::clone(self),
            id: request.id,
            index,
        }
    }

    /// Requests that have arrived for the first time within this time.
    pub(super) fn first_arrivals_within(&self, time: &Range<Duration>) -> usize {
        let arrivals = self.first_arrivals.borrow();
        arrivals.iter().filter(|&at| time.contains(at)).count()
    }

    /// Whether a server got a request within this time.
    pub(super) fn has_arrived_at(&self, member: usize, since: Duration) -> bool {
        let entries = self.entries.borrow();
        let mut attempts = entries.values().flat_map(|entry| &entry.attempts);
        attempts.any(|attempt| attempt.member == member && attempt.at >= since)
    }

    /// A request has ended for its client.
    pub(super) fn end(&self, request: &SetRequest, ending: &SetEnding) {
        let now = self.world.now();
        self.ended.set(self.ended() + 1);
        self.world
            .note(|| format!("request {} ends: {ending:?}", request.id));
        let grace = match ending {
            SetEnding::Left => TRANSIT_MAX + HALF_CLOSE_GRACE,
            _ => TRANSIT_MAX,
        };
        let (began, attempts) = self.entry(request.id, |entry| {
            entry.ended = Some((now, now + grace));
            (entry.began.unwrap_or(now), entry.attempts.clone())
        });
        let judged = Judged {
            plan: &self.plan,
            request,
            time: began..now,
            attempts: &attempts,
            retries: self.retries.borrow().len(),
        };
        if let Err(why) = judged.judge(ending) {
            self.violate(format!(
                "request {} must not end with {ending:?} {:.3} s after its start: {why}; its attempts: {attempts:?}; \
                 its plan: {request:?}",
                request.id,
                (now - began).as_secs_f64()
            ));
        }
    }

    fn entry<R>(&self, id: u64, f: impl FnOnce(&mut Entry) -> R) -> R {
        f(self.entries.borrow_mut().entry(id).or_default())
    }
}

/// A request that has ended.
struct Judged<'l> {
    plan: &'l SetPlan,
    request: &'l SetRequest,
    time: Range<Duration>,
    attempts: &'l [Attempt],
    /// Those of all requests until now.
    retries: usize,
}

impl Judged<'_> {
    fn judge(&self, ending: &SetEnding) -> Result<(), String> {
        self.judge_time()?;
        match ending {
            SetEnding::Wrong(why) => Err(why.clone()),
            SetEnding::Left => match self.request.leaves {
                Some(_) => Ok(()),
                None => Err("its client does not leave".to_owned()),
            },
            SetEnding::Complete(status) => self.judge_complete(*status),
            SetEnding::Refused(_) | SetEnding::Cut(_) => {
                self.judge_failure()?;
                self.judge_retries()
            }
        }
    }

    /// The deadline is kept, and no attempt is awaited forever.
    fn judge_time(&self) -> Result<(), String> {
        let settings = &self.plan.settings;
        let attempts = 1 + settings.retries as u32;
        let of_attempts = settings.response_timeout.unwrap_or(RESPONSE_TIMEOUT) * attempts;
        let connects = CONNECT_TIMEOUT * self.plan.members.len() as u32;
        let most = of_attempts + connects * attempts;
        let most = settings.request_timeout.unwrap_or(most).min(most) + TRANSIT_MAX;
        // While no descriptor is left, its connection may not be accepted.
        let took = self.took();
        match took > most + self.shortage() {
            true => Err(format!("it may take {most:?}")),
            false => Ok(()),
        }
    }

    fn took(&self) -> Duration {
        self.time.end - self.time.start
    }

    /// The time without descriptors, if it concerns the request.
    fn shortage(&self) -> Duration {
        let shortage = self.plan.shortage.as_ref();
        let shortage = shortage.filter(|shortage| {
            shortage.start <= self.time.end && shortage.end + TRANSIT_MAX >= self.time.start
        });
        shortage.map_or(Duration::ZERO, |shortage| shortage.end - shortage.start)
    }

    fn judge_complete(&self, status: u16) -> Result<(), String> {
        if !self.attempts.iter().any(|attempt| attempt.has_answered) {
            return Err("no server has answered".to_owned());
        }
        let of_fault = |attempt: &Attempt| attempt.fault == Some(MemberFault::Status(status));
        match status == self.request.status {
            true => Ok(()),
            false if self.attempts.iter().any(of_fault) => self.judge_retries(),
            false => Err("no server had this status".to_owned()),
        }
    }

    /// The faults of the servers during the request. Its connections may have been cut shortly before.
    fn faults(&self) -> impl Iterator<Item = (usize, &FaultWindow)> {
        let start = self.time.start.saturating_sub(TRANSIT_MAX);
        let end = self.time.end;
        let members = 0..self.plan.members.len();
        members.flat_map(move |member| {
            let faults = self.plan.faults_within(member, start..end);
            faults.map(move |window| (member, window))
        })
    }

    /// A request fails only if it was sent to a server that fails, or cannot be sent to any.
    fn judge_failure(&self) -> Result<(), String> {
        if self.shortage() > Duration::ZERO || self.is_over_deadline() {
            return Ok(());
        }
        let was_cut = self.faults().any(|(_, window)| {
            let start = window.time.start;
            window.fault == MemberFault::Refuses
                && start + TRANSIT_MAX >= self.time.start
                && start <= self.time.end
        });
        let met_fault = self.attempts.iter().any(|attempt| attempt.fault.is_some());
        if was_cut || met_fault {
            return Ok(());
        }
        let is_unreachable = |member: usize| {
            let mut faults = self.faults();
            faults.any(|(of, window)| of == member && window.fault.is_of_connects())
        };
        match (0..self.plan.members.len()).all(is_unreachable) {
            true => Ok(()),
            false if self.attempts.is_empty() => {
                Err("it was sent to no server, and one works".to_owned())
            }
            false => Err("the servers that got it did not fail".to_owned()),
        }
    }

    fn is_over_deadline(&self) -> bool {
        let limit = self.plan.settings.request_timeout;
        limit.is_some_and(|limit| self.took() + Duration::from_millis(10) >= limit)
    }

    /// A request that may be sent again does not fail if fewer servers fail than it may have retries.
    fn judge_retries(&self) -> Result<(), String> {
        let settings = &self.plan.settings;
        let mut faulty: Vec<usize> = self.faults().map(|(member, _)| member).collect();
        faulty.dedup();
        let is_hidden = self.faults().all(|(_, window)| match window.fault {
            MemberFault::Refuses | MemberFault::BlackHole => true,
            MemberFault::Closes => true,
            MemberFault::Hangs => true,
            MemberFault::Resets => false,
            MemberFault::Status(_) => settings.retries_statuses,
        });
        let must_succeed = self.request.is_idempotent()
            && !self.plan.is_http2
            && is_hidden
            && settings.hedge.is_none()
            && faulty.len() <= settings.retries
            && faulty.len() < self.plan.members.len()
            && self.retries < RETRIES_MIN
            && self.shortage().is_zero()
            && !self.is_over_deadline();
        match must_succeed {
            true => Err(format!(
                "only servers {faulty:?} fail, and it may be sent again"
            )),
            false => Ok(()),
        }
    }
}
