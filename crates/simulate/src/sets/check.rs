//! The rules for a set as a whole: its budget of retries, its ejections, and the servers that return.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use blitz_gateway::{ServerOnCore, SteppedReloads};
use blitz_reactor::simulation::World;

use super::ledger::{SetLedger, TRANSIT_MAX};
use super::plan::{Balance, MemberFault};
use super::server_address;

/// Interval of the looks at the servers as the cores see them.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The limits of the budget of retries: for each second, at the start and within any period, and that period.
const PER_SECOND: f64 = 10.0;
const RETRIES_MIN: f64 = 100.0;
const PERIOD: Duration = Duration::from_secs(10);

/// Retries that arrive may have been decided so much earlier: a connection is made before.
const RETRY_TRANSIT_MAX: Duration = TRANSIT_MAX;

/// Within this time after its last fault a server gets requests again.
const RETURN_MAX: Duration = Duration::from_secs(35);

/// With so many requests for each server after that time, each server gets one.
const REQUESTS_PER_SERVER: usize = 8;

/// The shortest time between two attempts to connect to a server that could not be connected to, less the differences of
/// the ways there.
const COOLDOWN_MIN: Duration = Duration::from_millis(800);

/// How long it takes at most until all cores know of an attempt to connect that failed.
const CONNECT_FAILED_MAX: Duration = Duration::from_millis(1_300);

/// Looks at the servers while a run goes on.
pub(super) struct Watch {
    world: World,
    ledger: Rc<SetLedger>,
    servers: SteppedReloads,
    next_look: Cell<Duration>,
}

impl Watch {
    pub(super) fn new(world: &World, ledger: &Rc<SetLedger>, servers: SteppedReloads) -> Watch {
        Watch {
            world: world.clone(),
            ledger: Rc::clone(ledger),
            servers,
            next_look: Cell::default(),
        }
    }

    /// The servers as a core sees them, with their indices.
    fn on_core(&self, core: usize) -> Vec<(usize, ServerOnCore)> {
        let servers = self.world.look(core, || self.servers.servers_on_core());
        let servers = servers.unwrap_or_default().into_iter();
        let numbered = servers.filter_map(|server| {
            let (_, port) = server.url.rsplit_once(':')?;
            let member = usize::from(port.parse::<u16>().ok()? - super::FIRST_PORT);
            Some((member, server))
        });
        numbered.collect()
    }

    /// Checks that servers which work are not avoided, and that at most half of those that can be connected to are.
    pub(super) fn look(&mut self) {
        let now = self.world.now();
        if now < self.next_look.get() {
            return;
        }
        self.next_look.set(now + LOOK_EVERY);
        let plan = &self.ledger.plan;
        let mut windows = plan.members.iter().flatten();
        let has_unreachable = windows.any(|window| window.fault.is_of_connects());
        for core in 0..plan.cores {
            let servers = self.on_core(core);
            let avoided: Vec<usize> = servers
                .iter()
                .filter(|(_, server)| server.avoided_for.is_some())
                .map(|(member, _)| *member)
                .collect();
            let works = |member: &&usize| plan.members[**member].is_empty();
            if let Some(member) = avoided.iter().find(works) {
                self.ledger.violate(format!(
                    "core {core} avoids server {member}, which has never failed, at {:.3} s",
                    now.as_secs_f64()
                ));
            }
            if !has_unreachable && avoided.len() * 2 > plan.members.len() {
                self.ledger.violate(format!(
                    "core {core} avoids the servers {avoided:?} of {} at {:.3} s, all of which accept connections",
                    plan.members.len(),
                    now.as_secs_f64()
                ));
            }
        }
    }

    /// Checks the run when all requests have ended.
    pub(super) fn judge(&self) {
        self.judge_budget();
        self.judge_returns();
        self.judge_connects();
    }

    /// Retries stay within the budget: since the start, and within any period.
    fn judge_budget(&self) {
        let ledger = &self.ledger;
        let retries = ledger.retries.borrow();
        let share = ledger.plan.settings.budget as f64 / 100.0;
        for (index, at) in retries.iter().enumerate() {
            let requests = ledger.first_arrivals_within(&(Duration::ZERO..*at)) as f64;
            let most = share * requests + PER_SECOND * at.as_secs_f64() + RETRIES_MIN;
            if index as f64 > most {
                return ledger.violate(format!(
                    "{} retries have arrived within the first {:.3} s, {most:.0} are within the budget",
                    index + 1,
                    at.as_secs_f64()
                ));
            }
            let end = *at + PERIOD.saturating_sub(RETRY_TRANSIT_MAX);
            let count = retries[index..].iter().take_while(|at| **at < end).count();
            let before = at.saturating_sub(PERIOD + RETRY_TRANSIT_MAX);
            let requests = ledger.first_arrivals_within(&(before..end)) as f64;
            let most = share * requests + RETRIES_MIN;
            if count as f64 > most + 1.0 {
                return ledger.violate(format!(
                    "{count} retries have arrived within {:.3} s after {:.3} s, {most:.0} are within the budget",
                    (end - *at).as_secs_f64(),
                    at.as_secs_f64()
                ));
            }
        }
    }

    /// A server that works again gets requests again.
    fn judge_returns(&self) {
        let plan = &self.ledger.plan;
        let from = plan.last_fault() + RETURN_MAX;
        let keeps_cookie = plan.settings.balance == Balance::Sticky;
        let clients = plan.clients.iter();
        let free = clients.filter(|client| !(keeps_cookie && client.keeps_cookie));
        let requests = free.flat_map(|client| &client.requests);
        let later = requests.filter(|request| request.at >= from).count();
        if later < REQUESTS_PER_SERVER * plan.members.len() {
            return;
        }
        for core in 0..plan.cores {
            let mut servers = self.on_core(core).into_iter();
            let avoided = servers.find(|(_, server)| server.avoided_for.is_some());
            if let Some((member, server)) = avoided {
                self.ledger.violate(format!(
                    "all servers work since {:.3} s, and core {core} avoids server {member} for {:?} at the end",
                    plan.last_fault().as_secs_f64(),
                    server.avoided_for
                ));
            }
        }
        for (member, windows) in plan.members.iter().enumerate() {
            let Some(last) = windows.last() else { continue };
            if !self.ledger.has_arrived_at(member, last.time.end) {
                self.ledger.violate(format!(
                    "server {member} works again since {:.3} s, and has got none of the requests since",
                    last.time.end.as_secs_f64()
                ));
            }
        }
    }

    /// One request of all cores at a time finds out whether a server that cannot be connected to works again. Where others
    /// fail as well, a request may have no other server left.
    fn judge_connects(&self) {
        let plan = &self.ledger.plan;
        let attempts = self.world.take_not_accepted();
        let failing = plan.members.iter().filter(|windows| !windows.is_empty());
        if failing.count() > 1 || plan.shortage.is_some() {
            return;
        }
        for (member, windows) in plan.members.iter().enumerate() {
            let address = server_address(member);
            for window in windows
                .iter()
                .filter(|window| window.fault.is_of_connects())
            {
                let times = attempts.iter().filter(|(_, to)| *to == address);
                let mut times = times
                    .map(|(at, _)| *at)
                    .filter(|at| window.time.contains(at));
                let Some(first) = times.next() else { continue };
                let known = match window.fault {
                    MemberFault::BlackHole => first + CONNECT_FAILED_MAX,
                    _ => first + TRANSIT_MAX,
                };
                let later: Vec<Duration> = times.filter(|at| *at > known).collect();
                let is_close = |pair: &&[Duration]| pair[1] - pair[0] < COOLDOWN_MIN;
                if let Some(pair) = later.windows(2).find(is_close) {
                    self.ledger.violate(format!(
                        "server {member} cannot be connected to since {:.3} s, and requests tried it at {:.3} s and at \
                         {:.3} s",
                        window.time.start.as_secs_f64(),
                        pair[0].as_secs_f64(),
                        pair[1].as_secs_f64()
                    ));
                }
            }
        }
    }

    /// Checks that no server counts a request when none runs any more.
    pub(super) fn judge_rest(&self) {
        for core in 0..self.ledger.plan.cores {
            for (member, server) in self.on_core(core) {
                if server.running > 0 {
                    self.ledger.violate(format!(
                        "core {core} counts {} requests at server {member} when nothing runs any more",
                        server.running
                    ));
                }
            }
        }
    }
}
