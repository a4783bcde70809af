//! Which servers of several one request tries.

use std::rc::Rc;
use std::time::Instant;

use blitz_config::Sticky;
use blitz_host::names::NameFailure;
use blitz_http::{Fields, Name};

use super::balancer::{Balancer, Pick, TRIES_MAX, Tried};
use super::group::{Group, ServerIndex};
use super::selector::{Affinity, ClientValue, Selector};
use crate::target::Target;

/// The servers that a request wants, has tried, and is at. While it is at one, that server counts it.
pub(crate) struct Choice<'a> {
    group: &'a Group,
    of_target: Affinity,
    /// For each target; empty if no request says anything.
    of_servers: Vec<Affinity>,
    /// Whether the client uses TLS, for cookies.
    is_secure: bool,
    tried: [Option<ServerIndex>; TRIES_MAX],
    /// How many addresses it has tried.
    tries: usize,
    current: Option<ServerIndex>,
    /// It was sent to the current server, and may be sent again.
    has_failed: bool,
    /// Where the retry goes if no other server can be reached.
    again: Option<ServerIndex>,
    /// Why a server had no address.
    unresolved: Option<NameFailure>,
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
            tried: [None; TRIES_MAX],
            tries: 0,
            current: None,
            has_failed: false,
            again: None,
            unresolved: None,
        })
    }

    /// The next address for the request. `tried` is about the current server.
    pub(crate) fn pick(&mut self, tried: &mut Tried, now: Instant) -> Pick {
        // The server may have another address.
        if let Some(index) = self
            .current
            .filter(|_| !self.has_failed && self.tries < TRIES_MAX)
            && !self.group.is_avoided(index, now)
            && let pick @ (Pick::Upstream(_) | Pick::Pending) = self.pick_at(index, tried, now)
        {
            return pick;
        }
        while let Some(index) = self.next(now) {
            self.go_to(index);
            *tried = Tried::default();
            match self.pick_at(index, tried, now) {
                Pick::Exhausted => {}
                Pick::Unresolved(failure) => self.unresolved = Some(failure),
                pick => return pick,
            }
        }
        if let Some(index) = self
            .current
            .filter(|_| !self.has_failed && self.tries < TRIES_MAX)
        {
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
        let is_avoided = balancer.is_avoided(now);
        let pick = balancer.pick(tried, || now);
        if let Pick::Upstream(upstream) = &pick {
            self.tries += 1;
            if !is_avoided {
                balancer.note_picked(upstream, now);
            }
        }
        pick
    }

    /// The next server. Those that could not be connected to a moment ago come last, since all may have failed.
    fn next(&mut self, now: Instant) -> Option<ServerIndex> {
        if self.tries >= TRIES_MAX || self.tried.iter().all(Option::is_some) {
            return self.again.take();
        }
        let is_untried = |index: ServerIndex| !self.tried.contains(&Some(index));
        let is_healthy =
            |index: ServerIndex| is_untried(index) && !self.group.is_avoided(index, now);
        self.pick_of(is_healthy)
            .or_else(|| self.again.take())
            .or_else(|| self.pick_of(|index| !self.tried.contains(&Some(index))))
    }

    fn pick_of(&self, is_usable: impl Fn(ServerIndex) -> bool) -> Option<ServerIndex> {
        let of_server = |target: usize| self.of_servers.get(target).copied().unwrap_or_default();
        self.group.pick(self.of_target, of_server, is_usable)
    }

    fn go_to(&mut self, index: ServerIndex) {
        self.leave();
        self.current = Some(index);
        self.has_failed = false;
        let in_flight = &self.group.balancer(index).in_flight;
        in_flight.set(in_flight.get() + 1);
        if let Some(slot) = self.tried.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(index);
        }
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

    /// Forgets what was tried.
    #[cold]
    pub(crate) fn reset(&mut self) {
        self.tried = [None; TRIES_MAX];
        self.tries = 0;
        self.again = None;
        self.unresolved = None;
        self.has_failed = true;
    }

    /// The server of the current attempt.
    pub(crate) fn server(&self) -> Option<(&'a Target, &'a Rc<Balancer>)> {
        let (group, index) = (self.group, self.current?);
        Some((group.target(index), group.balancer(index)))
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
        if affinity.member != Some(member) {
            let secure = if self.is_secure { "; Secure" } else { "" };
            let token = selector.token(member);
            let cookie = format!("{name}={token}; Path=/; HttpOnly; SameSite=Lax{secure}");
            fields.append(Name::SetCookie, cookie);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use blitz_config::{Action, Document, Environment, Placed, read};
    use blitz_http::{Address, ClientOptions, Pool, Protocol};

    use super::*;
    use crate::target::Origin;
    use crate::upstream::balancer::Connector;
    use crate::upstream::cooldown::COOLDOWN_MIN;
    use crate::upstream::group::GroupConfig;
    use crate::upstream::member::Member;

    /// The servers of a `to` on this core. Their hosts are addresses.
    fn group(to: &str) -> Group {
        let document = Document::new("blitz.toml", format!("[site.\"*\"]\nto = {to}\n"));
        let (configuration, _) = read(&document, &Environment::default());
        let Action::Proxy(proxy) = &configuration.sites[0].routes[0].settings.action.value else {
            panic!("another action");
        };
        let target = |url: &Placed<String>| url.value.parse().ok().map(Arc::new);
        let config = Arc::new(GroupConfig::new(proxy.group.as_ref().unwrap(), target).unwrap());
        let balancer = |target: &Arc<Target>| {
            let Origin::Ip(address) = target.origin else {
                panic!("{target:?} is a name");
            };
            let connector = Connector {
                label: target.url().into(),
                member: Arc::new(Member::new(&target.url())),
                pool: Pool::new(ClientOptions::default()),
                protocol: Protocol::Http1,
                tls: None,
            };
            Rc::new(Balancer::fixed(connector, &Address::Tcp(address)))
        };
        Group::new(&config, config.servers.iter().map(balancer).collect())
    }

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
    fn one_request_tries_three_servers_at_most() {
        let group = group(
            "[\"http://10.0.0.1\", \"http://10.0.0.2\", \"http://10.0.0.3\", \"http://10.0.0.4\"]",
        );
        let mut choice = choice(&group);
        let now = Instant::now();
        assert_eq!(
            picks(&mut choice, now),
            ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]
        );
        choice.retry_elsewhere();
        assert_eq!(
            picks(&mut choice, now),
            ["10.0.0.3:80"],
            "where the retry began"
        );
        choice.reset();
        assert_eq!(picks(&mut choice, now).len(), 3);
    }

    #[test]
    fn one_request_at_a_time_probes_a_server_that_did_not_answer() {
        let group = group("[\"http://10.0.0.1\", \"http://10.0.0.2\"]");
        let now = Instant::now();
        let at_first = |now: Instant| {
            let picked = (0..4).map(|_| picks(&mut choice(&group), now).remove(0));
            picked.filter(|address| address == "10.0.0.1:80").count()
        };
        assert_eq!(at_first(now), 2);
        let Pick::Upstream(first) = group.balancer(FIRST).pick(&mut Tried::default(), || now)
        else {
            panic!("it has an address");
        };
        group
            .balancer(FIRST)
            .failed(&first, blitz_site::Failure::ConnectionRefused, true, now);
        assert_eq!(at_first(now), 0);
        assert_eq!(at_first(now + COOLDOWN_MIN), 1);
        group.balancer(FIRST).connected(&first);
        assert_eq!(at_first(now + COOLDOWN_MIN), 2);
    }

    #[test]
    fn a_server_counts_the_requests_that_are_there() {
        let group = group("[\"http://10.0.0.1\", \"http://10.0.0.2\"]");
        let count = || group.balancer(FIRST).in_flight.get();
        let mut choice = choice(&group);
        choice.pick(&mut Tried::default(), Instant::now());
        assert_eq!(count(), 1);
        choice.retry_elsewhere();
        choice.pick(&mut Tried::default(), Instant::now());
        assert_eq!(count(), 0, "it is at the other one");
        drop(choice);
        assert_eq!(count(), 0);
    }
}
