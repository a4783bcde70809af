//! Shrinking: removes from a failing plan everything that the failure does not need.

use std::ops::Range;
use std::time::Duration;

use blitz_reactor::simulation::Conditions;

use crate::check::carry_out;
use crate::outcome::RunFailure;
use crate::plan::{ConfigurationPlan, ContentPlan, Plan, QuicPlan, Reloads};

/// Most runs of one search.
const RUNS_MAX: usize = 1_000;

struct Shrinking {
    plan: Plan,
    failure: RunFailure,
    runs: usize,
}

/// Shrinks a failing plan until no change is left with which it still fails. The failure may change.
pub(crate) fn shrink(plan: Plan, failure: RunFailure) -> (Plan, RunFailure) {
    let mut search = Shrinking {
        plan,
        failure,
        runs: 0,
    };
    loop {
        let before = search.plan.size();
        search.leave_out_clients();
        search.leave_out_requests();
        search.leave_out_reloads();
        search.simplify_requests();
        search.simplify_conditions();
        if search.plan.size() == before || search.is_over() {
            return (search.plan, search.failure);
        }
    }
}

impl Shrinking {
    fn is_over(&self) -> bool {
        self.runs >= RUNS_MAX
    }

    /// Keeps the change if the plan still fails with it.
    fn attempt(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        if self.is_over() {
            return false;
        }
        self.runs += 1;
        let mut plan = self.plan.clone();
        change(&mut plan);
        match carry_out(&plan, true) {
            Ok(_) => false,
            Err(failure) => {
                (self.plan, self.failure) = (plan, failure);
                true
            }
        }
    }

    fn leave_out_clients(&mut self) {
        for range in halves(self.plan.clients.len()) {
            let end = range.end.min(self.plan.clients.len());
            let start = range.start.min(end);
            if start < end && end - start < self.plan.clients.len() {
                self.attempt(|plan| drop(plan.clients.drain(start..end)));
            }
        }
    }

    fn leave_out_requests(&mut self) {
        for client in 0..self.plan.clients.len() {
            for range in halves(self.plan.clients[client].requests.len()) {
                let end = range.end.min(self.plan.clients[client].requests.len());
                let start = range.start.min(end);
                if start < end {
                    self.attempt(|plan| drop(plan.clients[client].requests.drain(start..end)));
                }
            }
        }
    }

    fn leave_out_reloads(&mut self) {
        let reloads = |plan: &Plan| {
            plan.reloads
                .as_ref()
                .map_or(0, |reloads| reloads.then.len())
        };
        if self.plan.reloads.is_some() && self.attempt(|plan| plan.reloads = None) {
            return;
        }
        for at in (0..reloads(&self.plan)).rev() {
            self.attempt(|plan| each_reload(plan, |reloads| drop(reloads.then.remove(at))));
        }
        for at in 0..reloads(&self.plan) {
            let mut change = |f: fn(&mut ConfigurationPlan)| {
                self.attempt(|plan| each_reload(plan, |reloads| f(&mut reloads.then[at])));
            };
            change(|configuration| configuration.within = Duration::ZERO);
            change(|configuration| configuration.is_of_host = false);
        }
    }

    fn simplify_requests(&mut self) {
        for client in 0..self.plan.clients.len() {
            for request in 0..self.plan.clients[client].requests.len() {
                let mut change = |f: fn(&mut crate::plan::RequestPlan)| {
                    self.attempt(|plan| f(&mut plan.clients[client].requests[request]));
                };
                change(|request| request.fault = None);
                change(|request| request.request.pause = None);
                change(|request| request.answer.pause = None);
                change(|request| {
                    let has_trailers = request.answer.has_trailers;
                    request.answer = ContentPlan {
                        has_trailers,
                        ..ContentPlan::none()
                    };
                    request.limit_fault();
                });
                change(|request| request.reading_pause = None);
                change(|request| request.request.bytes /= 2);
                change(|request| {
                    request.answer.bytes /= 2;
                    request.limit_fault();
                });
            }
        }
    }

    fn simplify_conditions(&mut self) {
        self.attempt(|plan| plan.cores = 1);
        self.attempt(|plan| {
            plan.clients
                .iter_mut()
                .for_each(|client| client.is_secure = client.quic.is_some());
            plan.upstreams
                .iter_mut()
                .for_each(|upstream| upstream.is_secure = false);
        });
        let calm = Conditions::calm();
        let change: [fn(&mut Plan); 8] = [
            |plan| plan.conditions.late = 0,
            |plan| plan.conditions.short = 0,
            |plan| plan.conditions.receive_ends = 0,
            |plan| plan.conditions.no_buffers = 0,
            |plan| plan.conditions.cancel_loses = 0,
            |plan| plan.conditions.accept_fails = 0,
            |plan| plan.conditions.backlog = 4_096,
            |plan| plan.conditions.turn_us = 1..=1,
        ];
        for change in change {
            self.attempt(change);
        }
        self.simplify_http3(&calm);
        self.attempt(|plan| plan.conditions.segment_bytes = calm.segment_bytes.clone());
        self.attempt(|plan| plan.conditions.buffer_bytes = calm.buffer_bytes.clone());
    }
}

/// The parts of a plan that only clients of HTTP/3 have.
impl Shrinking {
    fn simplify_http3(&mut self, calm: &Conditions) {
        if self.plan.http3.is_none() {
            return;
        }
        let change: [fn(&mut Plan); 10] = [
            |plan| plan.conditions.datagram_lost = 0,
            |plan| plan.conditions.datagram_twice = 0,
            |plan| plan.conditions.trains_refused = 0,
            |plan| plan.http3.iter_mut().for_each(|http3| http3.narrows = None),
            |plan| plan.http3.iter_mut().for_each(|http3| http3.drains = None),
            |plan| each_quic(plan, |quic| quic.moves.clear()),
            |plan| each_quic(plan, |quic| quic.key_updates.clear()),
            |plan| each_quic(plan, |quic| quic.vanishes = false),
            |plan| each_quic(plan, |quic| quic.finds_mtu = false),
            |plan| each_quic(plan, |quic| quic.inserts_within = None),
        ];
        for change in change {
            self.attempt(change);
        }
        self.attempt(|plan| {
            plan.conditions.datagram_delay_us = calm.datagram_delay_us.clone();
        });
        self.attempt(|plan| {
            let http3 = plan.http3.iter_mut();
            http3.for_each(|http3| http3.retry_above = usize::MAX);
        });
    }
}

fn each_reload(plan: &mut Plan, change: impl Fn(&mut Reloads)) {
    plan.reloads.iter_mut().for_each(change);
}

fn each_quic(plan: &mut Plan, change: fn(&mut QuicPlan)) {
    let clients = plan.clients.iter_mut();
    clients
        .filter_map(|client| client.quic.as_mut())
        .for_each(change);
}

/// Ranges of `len` elements to remove: halves, quarters and so on, from the back, so that elements in
/// front keep their index.
fn halves(len: usize) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut step = len.div_ceil(2);
    while step > 0 {
        let mut end = len;
        while end > 0 {
            ranges.push(end.saturating_sub(step)..end);
            end = end.saturating_sub(step);
        }
        step /= 2;
    }
    ranges
}
