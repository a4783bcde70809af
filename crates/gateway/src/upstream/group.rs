//! Several servers for the requests of a route, as a configuration has them and as one core sees them.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fmt::Write;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use blitz_config::{Balance, ClientKey, ServerKey, Sticky, UpstreamSettings};

use super::balancer::Balancer;
use super::check::{CheckState, GroupChecks};
use super::cookie::{CookieKey, GroupTokens, Tokens};
use super::retry_budget::RetryBudget;
use super::selector::{Affinity, FULL_WEIGHT, Selector, View, mix};
use super::shared_retries::SharedRetries;
use super::shed::Shed;
use super::weights::weighted;
use crate::target::Target;

/// The servers of a route before the start; all cores share it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GroupConfig {
    targets: Box<[GroupTarget]>,
    /// How clients stay with a target.
    sticky: Option<Sticky>,
    /// Those of all targets, one target after the other.
    pub(crate) servers: Box<[Arc<Target>]>,
}

/// A target of a route: some of its servers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GroupTarget {
    name: Box<str>,
    weight: u16,
    /// Where its servers are.
    servers: Range<usize>,
    weights: Box<[u16]>,
    balance: Balance,
    sticky: Option<Sticky>,
    settings: Arc<UpstreamSettings>,
}

impl GroupConfig {
    /// The same as in a file. `None` if a server cannot be used.
    pub(crate) fn new<'a>(
        group: &'a blitz_config::TargetGroup,
        mut target_of: impl FnMut(&'a blitz_config::Placed<String>) -> Option<Arc<Target>>,
    ) -> Option<GroupConfig> {
        let mut servers = Vec::new();
        let mut targets = Vec::with_capacity(group.targets.len());
        for target in &group.targets {
            let first = servers.len();
            // All are tried, so that each mistake is reported.
            let found: Vec<_> = target
                .servers
                .iter()
                .map(|server| target_of(&server.url))
                .collect();
            servers.extend(found);
            let balance = target.balance.as_ref();
            let sticky = target.sticky.as_ref();
            targets.push(GroupTarget {
                name: target.name.as_str().into(),
                weight: target.weight,
                servers: first..servers.len(),
                weights: target.servers.iter().map(|server| server.weight).collect(),
                balance: balance.map_or_else(Balance::default, |balance| balance.value.clone()),
                sticky: sticky.map(|sticky| sticky.value.clone()),
                settings: Arc::clone(&target.settings),
            });
        }
        let sticky = group.sticky.as_ref();
        Some(GroupConfig {
            targets: targets.into(),
            sticky: sticky.map(|sticky| sticky.value.clone()),
            servers: servers.into_iter().collect::<Option<_>>()?,
        })
    }

    /// A service without a name, as the one target of a route.
    pub(crate) fn of_service(service: &Arc<Target>) -> GroupConfig {
        let target = GroupTarget {
            name: service.url().into(),
            weight: 1,
            servers: 0..1,
            weights: Box::new([1]),
            balance: Balance::default(),
            sticky: None,
            settings: Arc::default(),
        };
        GroupConfig {
            targets: Box::new([target]),
            sticky: None,
            servers: Box::new([Arc::clone(service)]),
        }
    }

    /// With servers in the places of services. `servers_of` has those of a service by its place among the servers, with
    /// their weights; one without servers keeps its place.
    pub(crate) fn with_servers(
        &self,
        mut servers_of: impl FnMut(usize) -> Vec<(Arc<Target>, u16)>,
    ) -> GroupConfig {
        let mut servers = Vec::new();
        let targets = self.targets.iter().map(|target| {
            let first = servers.len();
            let parts = target.servers.clone().zip(&target.weights);
            let parts = parts.map(|(at, weight)| {
                let mut all = match self.servers[at].is_service() {
                    true => servers_of(at),
                    false => Vec::new(),
                };
                if all.is_empty() {
                    all.push((Arc::clone(&self.servers[at]), 1));
                }
                (*weight, all)
            });
            let mut all = weighted(parts.collect());
            all.truncate(SERVERS_MAX);
            let weights = all.iter().map(|(_, weight)| *weight).collect();
            servers.extend(all.into_iter().map(|(server, _)| server));
            GroupTarget {
                servers: first..servers.len(),
                weights,
                ..target.clone()
            }
        });
        GroupConfig {
            targets: targets.collect(),
            sticky: self.sticky.clone(),
            servers: servers.into(),
        }
    }

    /// Whether SRV records tell some of its servers.
    pub(crate) fn has_services(&self) -> bool {
        self.servers.iter().any(|server| server.is_service())
    }

    /// Whether each server gets new requests by its weights, in the order of the servers.
    pub(crate) fn weights_of_servers(&self) -> impl Iterator<Item = bool> {
        let targets = self.targets.iter();
        targets.flat_map(|target| {
            let weights = target.weights.iter();
            weights.map(|weight| *weight > 0 && target.weight > 0)
        })
    }

    /// The names of its targets, as the configuration has them.
    pub(crate) fn target_names(&self) -> String {
        let names: Vec<&str> = self.targets.iter().map(|target| &*target.name).collect();
        names.join(", ")
    }

    /// Whether its targets are servers without a name or a weight of their own: they are one set.
    fn is_plain(&self) -> bool {
        let mut targets = self.targets.iter();
        targets.len() > 1
            && targets
                .all(|target| target.servers.len() == 1 && target.weight == self.targets[0].weight)
    }

    /// How a target is chosen: by turns, so that weights of targets are exact.
    fn balance(&self) -> Balance {
        match self.is_plain() {
            true => Balance::P2c,
            false => Balance::RoundRobin,
        }
    }

    /// The target of each server, in the order of the servers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let targets = self.targets.iter();
        targets.flat_map(|target| target.servers.clone().map(move |_| &*target.name))
    }

    /// Whether requests may be sent a second time: clients that stay with a server would lose it, and an upstream that
    /// sheds load has enough of them.
    fn hedges(&self) -> bool {
        let are_free =
            |target: &GroupTarget| target.sticky.is_none() && target.settings.shed.is_none();
        let is_free = self.sticky.is_none() && self.targets.iter().all(are_free);
        is_free && self.settings().any(|settings| settings.hedge.is_some())
    }

    /// The settings of the upstream of each server, in the order of the servers.
    pub(crate) fn settings(&self) -> impl Iterator<Item = &UpstreamSettings> {
        let targets = self.targets.iter();
        targets.flat_map(|target| target.servers.clone().map(move |_| &*target.settings))
    }

    /// Its targets that shed load.
    pub(crate) fn sheds(&self) -> impl Iterator<Item = (&str, blitz_config::Shed)> {
        self.targets.iter().filter_map(|target| {
            let shed = target.settings.shed.as_ref()?;
            Some((&*target.name, shed.value))
        })
    }

    /// The texts of its cookies; `None` if it sets none, and then the key is not needed.
    pub(crate) fn tokens<'k>(&self, key: impl FnOnce() -> &'k CookieKey) -> Option<GroupTokens> {
        let is_set = |sticky: &Option<Sticky>| matches!(sticky, Some(Sticky::Cookie(_)));
        let of_targets = is_set(&self.sticky);
        if !of_targets && !self.targets.iter().any(|target| is_set(&target.sticky)) {
            return None;
        }
        let key = key();
        let inner = self.targets.iter().map(|target| {
            if !is_set(&target.sticky) {
                return Tokens::default();
            }
            let servers = self.servers[target.servers.clone()].iter();
            let urls: Vec<String> = servers.map(|server| server.url()).collect();
            Tokens::new(key, urls.iter().map(String::as_str))
        });
        let names = self.targets.iter().map(|target| &*target.name);
        Some(GroupTokens {
            inner: inner.collect(),
            outer: match of_targets {
                true => Tokens::new(key, names),
                false => Tokens::default(),
            },
        })
    }

    /// A line for each server, and before it one for each choice.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let has_targets = self.targets.len() > 1;
        if has_targets {
            lines.push(choice(&self.balance(), self.sticky.as_ref()));
        }
        for target in &self.targets {
            let is_one =
                target.servers.len() == 1 && !self.servers[target.servers.start].is_service();
            let margin = if has_targets { "  " } else { "" };
            let checked = match &target.settings.health {
                Some(health) => format!(", checked by {}", health.value),
                None => String::new(),
            };
            let sheds = target.settings.shed.is_some();
            if has_targets && is_one && !sheds {
                let url = self.servers[target.servers.start].url();
                lines.push(format!("weight {} {url}{checked}", target.weight));
                continue;
            }
            if has_targets {
                lines.push(format!("weight {} {}", target.weight, target.name));
            }
            let choice = match is_one {
                true => "one server".to_owned(),
                false => choice(&target.balance, target.sticky.as_ref()),
            };
            lines.push(format!("{margin}{choice}{checked}"));
            if sheds {
                lines.push(format!("{margin}requests that it cannot take are shed"));
            }
            for (server, weight) in self.servers[target.servers.clone()]
                .iter()
                .zip(&target.weights)
            {
                lines.push(format!("{margin}weight {weight} {}", server.url()));
            }
        }
        lines
    }
}

/// The most servers of a target with services: all are looked at for each request.
const SERVERS_MAX: usize = 1024;

/// How a choice is made, for people.
fn choice(balance: &Balance, sticky: Option<&Sticky>) -> String {
    let key = |key: &ServerKey| match key {
        ServerKey::Request(ClientKey::Client) => "the client's address".to_owned(),
        ServerKey::Request(ClientKey::Header(name)) => format!("the field {name}"),
        ServerKey::Request(ClientKey::Cookie(name)) => format!("the cookie {name}"),
        ServerKey::Claim(name) => format!("the claim {name}"),
    };
    let mut text = match sticky {
        Some(Sticky::Cookie(name)) => format!("sticky by the cookie {name}, else "),
        Some(Sticky::Key(by)) => format!("sticky by {}, else ", key(by)),
        None => String::new(),
    };
    // Writing to a text does not fail.
    let _ = match balance {
        Balance::P2c => write!(text, "the better of two by random"),
        Balance::RoundRobin => write!(text, "in turn"),
        Balance::LeastRequests => write!(text, "the fewest requests"),
        Balance::Hash(by) => write!(text, "by a hash of {}", key(by)),
    };
    text
}

/// The servers of a route on a core.
pub(crate) struct Group {
    config: Arc<GroupConfig>,
    /// Chooses a target.
    pub(super) outer: Selector,
    /// For each target, what chooses one of its servers.
    pub(super) inner: Box<[Selector]>,
    balancers: Box<[Rc<Balancer>]>,
    checks: GroupChecks,
    /// For each target, the limit of its requests if it sheds load; empty if none does.
    sheds: Box<[Option<Rc<Shed>>]>,
    pub(crate) retries: RetryBudget,
    /// Whether servers that return get a part of their weight at first.
    has_slow_start: bool,
    /// Whether response times of its servers are compared, and when the next time.
    pub(super) compares_latency: bool,
    pub(super) next_comparison: Cell<Option<Instant>>,
    /// When the log may say again that servers are not ejected.
    pub(super) next_panic: Cell<Option<Instant>>,
    /// The state of its random numbers.
    random: Cell<u64>,
    /// Whether requests to one of its upstreams may be sent a second time.
    pub(crate) hedges: bool,
}

impl Group {
    /// The balancers are those of the servers. `seed` is that of its random numbers.
    pub(crate) fn new(
        config: &Arc<GroupConfig>,
        balancers: Box<[Rc<Balancer>]>,
        seed: u64,
    ) -> Group {
        let targets = config.targets.iter();
        let names = targets.map(|target| (&*target.name, target.weight));
        let inner = config.targets.iter().map(|target| {
            let urls: Vec<String> = config.servers[target.servers.clone()]
                .iter()
                .map(|server| server.url())
                .collect();
            let servers = urls.iter().map(String::as_str);
            Selector::new(
                servers.zip(target.weights.iter().copied()),
                match target.servers.len() {
                    1 => Balance::RoundRobin,
                    _ => target.balance.clone(),
                },
                target.sticky.clone(),
            )
        });
        let mut targets = config.targets.iter();
        let has_slow_start = targets.any(|target| target.settings.slow_start.is_some());
        let mut group = Group {
            outer: Selector::new(names, config.balance(), config.sticky.clone()),
            inner: inner.collect(),
            hedges: config.hedges(),
            config: Arc::clone(config),
            balancers,
            checks: GroupChecks::default(),
            sheds: Box::default(),
            retries: RetryBudget::default(),
            has_slow_start,
            compares_latency: false,
            next_comparison: Cell::default(),
            next_panic: Cell::default(),
            random: Cell::new(seed),
        };
        let mut compares_latency = false;
        for index in group.indices() {
            let outlier = group.settings(index).outlier();
            group.balancer(index).join(outlier.failures);
            compares_latency |= outlier.latency.is_some();
        }
        group.compares_latency = compares_latency;
        group
    }

    /// All its servers.
    pub(super) fn indices(&self) -> impl Iterator<Item = ServerIndex> + use<'_> {
        let targets = self.config.targets.iter().enumerate();
        targets.flat_map(|(target, one)| {
            (0..one.servers.len()).map(move |server| ServerIndex::new(target, server))
        })
    }

    /// The other servers of the set of a server: those of its target, or all if each target is a server. `None` if there
    /// are none.
    pub(super) fn set_beside(
        &self,
        index: ServerIndex,
    ) -> Option<impl Iterator<Item = &Balancer> + Clone + use<'_>> {
        let own = self.index(index);
        let all = match self.config.is_plain() {
            true => 0..self.balancers.len(),
            false => self.config.targets[usize::from(index.target)]
                .servers
                .clone(),
        };
        let others = all.filter(move |at| *at != own);
        let mut set = others.map(|at| &*self.balancers[at]).peekable();
        set.peek()?;
        Some(set)
    }

    /// With the checks of its servers.
    pub(crate) fn with_checks(mut self, checks: &GroupChecks) -> Group {
        self.checks = GroupChecks::clone(checks);
        self
    }

    /// With the texts of its cookies.
    pub(crate) fn with_tokens(mut self, tokens: Option<&GroupTokens>) -> Group {
        let Some(GroupTokens { outer, inner }) = tokens else {
            return self;
        };
        self.outer.tokens = Tokens::clone(outer);
        for (selector, tokens) in self.inner.iter_mut().zip(inner) {
            selector.tokens = Tokens::clone(tokens);
        }
        self
    }

    /// With the limits of targets that shed load, by their names.
    pub(crate) fn shedding(mut self, mut shed: impl FnMut(&str) -> Rc<Shed>) -> Group {
        let targets = self.config.targets.iter();
        let sheds = targets.map(|target| {
            let settings = target.settings.shed.as_ref();
            settings.map(|_| shed(&target.name))
        });
        let sheds: Box<[_]> = sheds.collect();
        if sheds.iter().any(Option::is_some) {
            self.sheds = sheds;
        }
        self
    }

    /// The limit of the requests to the target with this server.
    #[inline]
    pub(super) fn shed(&self, index: ServerIndex) -> Option<&Rc<Shed>> {
        self.sheds.get(usize::from(index.target))?.as_ref()
    }

    pub(super) fn target(&self, index: ServerIndex) -> &Target {
        &self.config.servers[self.index(index)]
    }

    pub(super) fn balancer(&self, index: ServerIndex) -> &Rc<Balancer> {
        &self.balancers[self.index(index)]
    }

    fn index(&self, index: ServerIndex) -> usize {
        let target = &self.config.targets[usize::from(index.target)];
        target.servers.start + usize::from(index.server)
    }

    /// The server for a request, among those that can be used.
    pub(super) fn pick(
        &self,
        of_target: Affinity,
        of_server: impl Fn(usize) -> Affinity,
        is_usable: impl Fn(ServerIndex) -> bool,
        now: Instant,
    ) -> Option<ServerIndex> {
        let servers = |target: usize| Servers {
            group: self,
            target,
            is_usable: &is_usable,
            now,
        };
        let target = match self.inner.len() {
            1 => 0,
            _ => {
                let targets = Targets {
                    servers,
                    of_server: &of_server,
                };
                self.outer.pick(of_target, &targets, || self.random())?
            }
        };
        let inner = &self.inner[target];
        let server = inner.pick(of_server(target), &servers(target), || self.random())?;
        Some(ServerIndex::new(target, server))
    }

    /// SplitMix64.
    fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        mix(state)
    }

    /// The retries of all cores, which outlive the configuration with the first server.
    pub(crate) fn shared_retries(&self) -> &SharedRetries {
        self.balancers[0].shared_retries()
    }

    /// Whether requests could get a server like this.
    pub(super) fn has(&self, is_usable: impl Fn(ServerIndex) -> bool) -> bool {
        let targets = self.config.targets.iter().enumerate();
        let mut targets = targets.filter(|(target, _)| self.outer.weight(*target) > 0);
        targets.any(|(target, config)| {
            let servers = 0..config.servers.len();
            let mut servers = servers.filter(|server| self.inner[target].weight(*server) > 0);
            servers.any(|server| is_usable(ServerIndex::new(target, server)))
        })
    }

    /// Whether a request says something about the choice of a target or a server.
    pub(super) fn has_affinity(&self) -> bool {
        self.inner.iter().any(Selector::has_affinity)
    }

    pub(super) fn has_cookie(&self) -> bool {
        let mut selectors = std::iter::once(&self.outer).chain(&self.inner);
        selectors.any(|selector| matches!(selector.sticky, Some(Sticky::Cookie(_))))
    }

    /// The settings of the upstream that has this server.
    pub(super) fn settings(&self, index: ServerIndex) -> &UpstreamSettings {
        &self.config.targets[usize::from(index.target)].settings
    }

    pub(super) fn is_avoided(&self, index: ServerIndex, now: Instant) -> bool {
        self.check_state(index) == CheckState::Down || self.balancer(index).is_avoided(now)
    }

    /// Whether a server gets only the requests of clients that stay with it. A reload may have taken away the servers that
    /// were not drained: then all get requests.
    fn is_drained(&self, index: ServerIndex) -> bool {
        self.balancer(index).member().is_drained() && !self.are_all_drained()
    }

    #[cold]
    fn are_all_drained(&self) -> bool {
        let members = self.balancers.iter().map(|balancer| balancer.member());
        let mut taking = members.zip(self.config.weights_of_servers());
        taking.all(|(member, has_weight)| member.is_drained() || !has_weight)
    }

    /// Whether a target has one server, which the choice of the target decides on.
    fn is_one_server(&self, target: usize) -> bool {
        self.config.targets[target].servers.len() == 1
    }

    /// The verdict of the checks of a server.
    pub(super) fn check_state(&self, index: ServerIndex) -> CheckState {
        match self.checks.get(self.index(index)) {
            Some(Some(check)) => check.state(),
            _ => CheckState::Unknown,
        }
    }
}

/// The index of a server: that of its target, and its own there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerIndex {
    pub(super) target: u16,
    pub(super) server: u16,
}

impl ServerIndex {
    fn new(target: usize, server: usize) -> ServerIndex {
        ServerIndex {
            target: target as u16,
            server: server as u16,
        }
    }
}

/// The servers of a target, for a request.
struct Servers<'g, F> {
    group: &'g Group,
    target: usize,
    is_usable: &'g F,
    now: Instant,
}

impl<'g, F> Servers<'g, F> {
    fn balancer(&self, server: usize) -> &'g Balancer {
        self.group.balancer(ServerIndex::new(self.target, server))
    }
}

impl<F: Fn(ServerIndex) -> bool> View for Servers<'_, F> {
    fn is_usable(&self, server: usize) -> bool {
        (self.is_usable)(ServerIndex::new(self.target, server))
    }

    fn is_drained(&self, server: usize) -> bool {
        let index = ServerIndex::new(self.target, server);
        self.group.is_drained(index) && !self.group.is_one_server(self.target)
    }

    fn in_flight(&self, server: usize) -> u32 {
        self.balancer(server).in_flight.get()
    }

    fn latency(&self, server: usize) -> Option<f64> {
        self.balancer(server).latency.seconds(self.now)
    }

    #[inline]
    fn latency_max(&self, server: usize) -> f64 {
        self.balancer(server).latency.seconds_max()
    }

    #[inline]
    fn ramp(&self, server: usize) -> u32 {
        if !self.group.has_slow_start {
            return FULL_WEIGHT as u32;
        }
        let index = ServerIndex::new(self.target, server);
        let time = self.group.settings(index).slow_start.as_ref();
        let left = time.and_then(|time| {
            let since = self.balancer(server).member().available_for(self.now)?;
            (since < time.value).then(|| since.as_secs_f64() / time.value.as_secs_f64())
        });
        left.map_or(FULL_WEIGHT as u32, |share| {
            ((share * FULL_WEIGHT as f64) as u32).max(RAMP_MIN)
        })
    }
}

/// The least part of its weight that a server gets, of [`FULL_WEIGHT`]: a tenth.
const RAMP_MIN: u32 = 26;

/// The targets of a route, for a request. Those that are one server are chosen by its requests and times.
struct Targets<'g, S, A> {
    servers: S,
    of_server: &'g A,
}

impl<'g, S, A, F> View for Targets<'g, S, A>
where
    S: Fn(usize) -> Servers<'g, F>,
    A: Fn(usize) -> Affinity,
    F: Fn(ServerIndex) -> bool + 'g,
{
    fn is_drained(&self, target: usize) -> bool {
        let group = (self.servers)(target).group;
        group.is_one_server(target) && group.is_drained(ServerIndex::new(target, 0))
    }

    fn is_usable(&self, target: usize) -> bool {
        let servers = (self.servers)(target);
        let inner = &servers.group.inner[target];
        let wanted = (self.of_server)(target).member.map(usize::from);
        (0..inner.len()).any(|server| {
            let may_go = inner.weight(server) > 0 && !servers.is_drained(server);
            (may_go || wanted == Some(server)) && servers.is_usable(server)
        })
    }

    fn in_flight(&self, target: usize) -> u32 {
        (self.servers)(target).in_flight(0)
    }

    fn latency(&self, target: usize) -> Option<f64> {
        (self.servers)(target).latency(0)
    }

    fn latency_max(&self, target: usize) -> f64 {
        (self.servers)(target).latency_max(0)
    }

    fn ramp(&self, target: usize) -> u32 {
        let servers = (self.servers)(target);
        match servers.group.inner[target].len() {
            1 => servers.ramp(0),
            _ => FULL_WEIGHT as u32,
        }
    }
}
