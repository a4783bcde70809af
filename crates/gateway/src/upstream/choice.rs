//! Which servers of several one request tries.

use std::rc::Rc;
use std::time::{Duration, Instant};

use blitz_config::{Sticky, UpstreamSettings};
use blitz_host::names::NameFailure;
use blitz_http::{Fields, Name};

use super::balancer::{Balancer, Pick, Tried};
use super::group::{Group, ServerIndex};
use super::selector::{Affinity, ClientValue, Selector};
use super::shed::{Permit, Shed};
use crate::target::Target;

/// How long a request passes over servers that cannot be connected to, before it takes the last one that is tried as the
/// end: that of two connections that are not answered.
const PASSING_OVER_TIME: Duration = Duration::from_secs(8);

/// The servers that a request has tried. Hardly any request tries more than a few.
#[derive(Debug, Clone, Default)]
struct TriedServers {
    first: [Option<ServerIndex>; 3],
    more: Vec<ServerIndex>,
}

impl TriedServers {
    fn contains(&self, index: ServerIndex) -> bool {
        self.first.contains(&Some(index)) || self.more.contains(&index)
    }

    fn add(&mut self, index: ServerIndex) {
        if self.contains(index) {
            return;
        }
        match self.first.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(index),
            None => self.more.push(index),
        }
    }
}

/// The servers that a request wants, has tried, and is at. While it is at one, that server counts it.
pub(crate) struct Choice<'a> {
    group: &'a Group,
    of_target: Affinity,
    /// For each target; empty if no request says anything.
    of_servers: Vec<Affinity>,
    /// Whether the client uses TLS, for cookies.
    is_secure: bool,
    tried: TriedServers,
    /// How many addresses it has tried, and until when it tries others.
    tries: usize,
    until: Option<Instant>,
    current: Option<ServerIndex>,
    /// It was sent to the current server, and may be sent again.
    has_failed: bool,
    /// Where the retry goes if no other server can be reached.
    again: Option<ServerIndex>,
    /// Why a server had no address.
    unresolved: Option<NameFailure>,
    /// That of an upstream that sheds load.
    permit: Option<Permit>,
}

impl Drop for Choice<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<'a> Choice<'a> {
    /// For a request with these values. `is_secure`: its client uses TLS.
    pub(crate) fn new(
        group: &'a Group,
        value: impl Fn(ClientValue<'_>) -> Option<Vec<u8>>,
        is_secure: impl FnOnce() -> bool,
    ) -> Box<Choice<'a>> {
        let of_servers = match group.has_affinity() {
            true => group
                .inner
                .iter()
                .map(|inner| inner.affinity(&value))
                .collect(),
            false => Vec::new(),
        };
        Box::new(Choice {
            group,
            of_target: group.outer.affinity(&value),
            of_servers,
            is_secure: group.has_cookie() && is_secure(),
            tried: TriedServers::default(),
            tries: 0,
            until: None,
            current: None,
            has_failed: false,
            again: None,
            unresolved: None,
            permit: None,
        })
    }

    /// The next address for the request. `tried` is about the current server.
    pub(crate) fn pick(&mut self, tried: &mut Tried, now: Instant) -> Pick {
        self.group.compare_latencies(now);
        let until = *self.until.get_or_insert(now + PASSING_OVER_TIME);
        let has_time = now < until || self.tries == 0;
        // The server may have another address.
        if let Some(index) = self.current.filter(|_| !self.has_failed && has_time)
            && !self.group.is_avoided(index, now)
            && let pick @ (Pick::Upstream(_) | Pick::Pending) = self.pick_at(index, tried, now)
        {
            return pick;
        }
        while let Some(index) = self.next(has_time, now) {
            self.go_to(index);
            *tried = Tried::default();
            match self.pick_at(index, tried, now) {
                Pick::Exhausted => {}
                Pick::Unresolved(failure) => self.unresolved = Some(failure),
                pick => return pick,
            }
        }
        if let Some(index) = self.current.filter(|_| !self.has_failed && has_time) {
            match self.pick_at(index, tried, now) {
                Pick::Unresolved(failure) => self.unresolved = Some(failure),
                Pick::Exhausted => {}
                pick => return pick,
            }
        }
        match self.unresolved {
            Some(failure) if self.tries == 0 => {
                self.reset();
                Pick::Unresolved(failure)
            }
            _ => Pick::Exhausted,
        }
    }

    fn pick_at(&mut self, index: ServerIndex, tried: &mut Tried, now: Instant) -> Pick {
        let balancer = self.group.balancer(index);
        // A server that this request probes is avoided by all others.
        let is_unreachable = balancer.is_unreachable(now);
        let pick = balancer.pick(tried, || now);
        if let Pick::Upstream(upstream) = &pick {
            self.tries += 1;
            if !is_unreachable {
                balancer.note_picked(upstream, now);
            }
        }
        pick
    }

    /// The next server. Those that could not be connected to a moment ago, or fail, come last, since all may.
    fn next(&mut self, has_time: bool, now: Instant) -> Option<ServerIndex> {
        if !has_time {
            return self.again.take();
        }
        loop {
            let is_healthy = |index: ServerIndex| {
                !self.tried.contains(index) && !self.group.is_avoided(index, now)
            };
            let Some(index) = self.pick_of(is_healthy, now) else {
                break;
            };
            let balancer = self.group.balancer(index);
            if balancer.is_suspect.get() {
                self.group.judge(index, now);
                if self.group.is_avoided(index, now) {
                    continue;
                }
            }
            // Another core may find out whether it works again, and then it is avoided.
            if balancer.try_probe(now) {
                return Some(index);
            }
        }
        let again = self.again.take();
        again.or_else(|| {
            let index = self.pick_of(|index| !self.tried.contains(index), now)?;
            self.group.balancer(index).go_anyway();
            Some(index)
        })
    }

    fn pick_of(
        &self,
        is_usable: impl Fn(ServerIndex) -> bool,
        now: Instant,
    ) -> Option<ServerIndex> {
        let of_server = |target: usize| self.of_servers.get(target).copied().unwrap_or_default();
        self.group.pick(self.of_target, of_server, is_usable, now)
    }

    fn go_to(&mut self, index: ServerIndex) {
        self.leave();
        self.current = Some(index);
        self.has_failed = false;
        let in_flight = &self.group.balancer(index).in_flight;
        in_flight.set(in_flight.get() + 1);
        self.tried.add(index);
    }

    fn leave(&mut self) {
        if let Some(index) = self.current.take() {
            let in_flight = &self.group.balancer(index).in_flight;
            in_flight.set(in_flight.get().saturating_sub(1));
        }
    }

    /// Has a retry go to another server, or to the same one if no other can be reached.
    #[cold]
    pub(crate) fn retry_elsewhere(&mut self) {
        self.has_failed = true;
        self.again = self.current;
    }

    /// The same, but never to the same one.
    #[cold]
    pub(crate) fn retry_only_elsewhere(&mut self) {
        self.has_failed = true;
        self.again = None;
    }

    /// Whether a retry would go to another server, as far as that is known.
    pub(crate) fn has_other(&self, now: Instant) -> bool {
        let has_time = self.until.is_none_or(|until| now < until);
        let is_usable =
            |index: ServerIndex| !self.tried.contains(index) && !self.group.is_avoided(index, now);
        has_time && self.group.has(is_usable)
    }

    /// A choice for a second attempt at the same time: of those that this one has not tried.
    pub(crate) fn another(&self) -> Box<Choice<'a>> {
        Box::new(Choice {
            group: self.group,
            of_target: self.of_target,
            of_servers: self.of_servers.clone(),
            is_secure: self.is_secure,
            tried: self.tried.clone(),
            tries: self.tries,
            until: self.until,
            current: None,
            has_failed: false,
            again: None,
            unresolved: None,
            permit: None,
        })
    }

    /// A second attempt has tried servers too: a retry does not go there.
    #[cold]
    pub(crate) fn note_tried(&mut self, second: &Choice<'_>) {
        self.tried = second.tried.clone();
    }

    /// The settings of the upstream that has the current server.
    pub(crate) fn settings(&self) -> Option<&'a UpstreamSettings> {
        let (group, index) = (self.group, self.current?);
        Some(group.settings(index))
    }

    /// Forgets what was tried.
    #[cold]
    pub(crate) fn reset(&mut self) {
        self.tried = TriedServers::default();
        self.tries = 0;
        self.until = None;
        self.again = None;
        self.unresolved = None;
        self.has_failed = true;
    }

    /// The server of the current attempt.
    pub(crate) fn server(&self) -> Option<(&'a Target, &'a Rc<Balancer>)> {
        let (group, index) = (self.group, self.current?);
        Some((group.target(index), group.balancer(index)))
    }

    /// The upstream of the current server, if it sheds load and the request has no permit of it.
    #[inline]
    pub(crate) fn wanted_permit(&mut self) -> Option<&'a Rc<Shed>> {
        let shed = self.group.shed(self.current?)?;
        match &mut self.permit {
            Some(permit) if permit.is_of(shed) => {
                permit.restart(blitz_http::now());
                None
            }
            other => {
                *other = None;
                Some(shed)
            }
        }
    }

    pub(crate) fn set_permit(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    /// The head of the response has come: the upstream has done its work.
    #[inline]
    pub(crate) fn answered(&mut self, is_failure: bool) {
        if let Some(permit) = self.permit.take() {
            permit.answered(is_failure);
        }
    }

    pub(crate) fn group(&self) -> &'a Group {
        self.group
    }

    /// Adds the cookies by which the client stays where it is, unless it has them.
    #[inline(never)]
    pub(crate) fn set_cookies(&self, fields: &mut Fields) {
        let Some(index) = self.current else { return };
        let target = usize::from(index.target);
        let of_server = self.of_servers.get(target).copied().unwrap_or_default();
        let group = self.group;
        self.set_cookie(&group.outer, self.of_target, index.target, fields);
        self.set_cookie(&group.inner[target], of_server, index.server, fields);
    }

    fn set_cookie(
        &self,
        selector: &Selector,
        affinity: Affinity,
        member: u16,
        fields: &mut Fields,
    ) {
        let Some(Sticky::Cookie(name)) = &selector.sticky else {
            return;
        };
        if affinity.member != Some(member)
            && let Some(token) = selector.tokens.of(member)
        {
            let secure = if self.is_secure { "; Secure" } else { "" };
            let cookie = format!("{name}={token}; Path=/; HttpOnly; SameSite=Lax{secure}");
            fields.append(Name::SetCookie, cookie);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::cooldown::COOLDOWN_MIN;
    use crate::upstream::tests::group;

    fn choice(group: &Group) -> Box<Choice<'_>> {
        Choice::new(group, |_| None, || false)
    }

    /// All servers that one request tries if each fails and no failure is noted.
    fn picks(choice: &mut Choice<'_>, now: Instant) -> Vec<String> {
        let (mut picks, mut tried) = (Vec::new(), Tried::default());
        while let Pick::Upstream(upstream) = choice.pick(&mut tried, now) {
            picks.push(upstream.address().to_string());
        }
        picks
    }

    const FIRST: ServerIndex = ServerIndex {
        target: 0,
        server: 0,
    };

    #[test]
    fn one_request_tries_all_servers() {
        let group = group(
            "[\"http://10.0.0.1\", \"http://10.0.0.2\", \"http://10.0.0.3\", \"http://10.0.0.4\"]",
        );
        let mut choice = choice(&group);
        let now = Instant::now();
        let mut all = picks(&mut choice, now);
        let last = all[3].clone();
        all.sort();
        assert_eq!(
            all,
            ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"]
        );
        choice.retry_elsewhere();
        assert_eq!(picks(&mut choice, now), [last], "where the retry began");
        choice.reset();
        assert_eq!(picks(&mut choice, now).len(), 4);
        choice.reset();
        let mut tried = Tried::default();
        choice.pick(&mut tried, now);
        let late = choice.pick(&mut tried, now + PASSING_OVER_TIME);
        assert!(matches!(late, Pick::Exhausted), "its time is over");
    }

    #[test]
    fn one_request_at_a_time_probes_a_server_that_did_not_answer() {
        let group = group("[\"http://10.0.0.1\", \"http://10.0.0.2\"]");
        let now = Instant::now();
        let at_first = |now: Instant| {
            let picked = (0..40).filter(|_| {
                let mut choice = choice(&group);
                choice.pick(&mut Tried::default(), now);
                choice.current == Some(FIRST)
            });
            picked.count()
        };
        assert!((10..30).contains(&at_first(now)));
        let balancer = group.balancer(FIRST);
        let Pick::Upstream(first) = balancer.pick(&mut Tried::default(), || now) else {
            panic!("it has an address");
        };
        balancer.failed(&first, blitz_site::Failure::ConnectionRefused, true, now);
        assert_eq!(at_first(now), 0);
        assert_eq!(at_first(now + COOLDOWN_MIN), 1);
        let fails_at = now + COOLDOWN_MIN;
        balancer.failed(
            &first,
            blitz_site::Failure::ConnectionRefused,
            true,
            fails_at,
        );
        assert_eq!(
            at_first(fails_at + COOLDOWN_MIN),
            0,
            "twice as long as before"
        );
        let now = fails_at + COOLDOWN_MIN * 2;
        assert_eq!(at_first(now), 1);
        balancer.connected(&first);
        assert_eq!(at_first(now), 0, "it has not responded yet");
        balancer.responded(&first, Duration::from_millis(1), false, now);
        assert!((10..30).contains(&at_first(now)));
    }

    #[test]
    fn a_server_counts_the_requests_that_are_there() {
        let group = group("[\"http://10.0.0.1\", \"http://10.0.0.2\"]");
        let counts = || {
            let servers = group.indices();
            let counts = servers.map(|index| group.balancer(index).in_flight.get());
            counts.collect::<Vec<_>>()
        };
        let mut choice = choice(&group);
        choice.pick(&mut Tried::default(), Instant::now());
        let first = counts();
        assert_eq!(first.iter().sum::<u32>(), 1);
        choice.retry_elsewhere();
        choice.pick(&mut Tried::default(), Instant::now());
        assert_eq!(counts(), [first[1], first[0]], "it is at the other one");
        drop(choice);
        assert_eq!(counts(), [0, 0]);
    }
}
