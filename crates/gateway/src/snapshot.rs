//! A compiled configuration, built aside and handed to all cores: a request keeps the snapshot that it began with.
//!
//! A snapshot has no state of a core. A route holds the number of its upstream, and each core finds the state of that
//! upstream by its identity when a request needs it first.

mod groups;

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use blitz_host::names::Resolver;
use blitz_http::{ClientTls, ClientTlsSlot, Cores, TlsConfigError, UpstreamTls, core_local};
use blitz_site::access_log::AccessLog;
use blitz_site::{CoreObservers, EndpointMaker, Observers, TraceSettings, count};

use crate::https_redirect::HttpsRedirect;
use crate::metrics::{Labels, ServerFacts, hidden_urls};
use crate::sites::{Site, Sites};
use crate::start_error::StartError;
use crate::target::{Origin, Target};
use crate::upstream::{
    Balancer, Check, CheckState, Checks, ConnectionSettings, CookieKey, Group, GroupChecks,
    GroupTokens, Identity, Member, Members, SharedSheds, ShedState, States, UpstreamConfig,
    UpstreamSet, UpstreamState,
};
use groups::{GroupNumbers, Groups, NumberedGroup, WithoutServers, numbers_of, servers_of};

/// Sites, their upstreams, and where clear text is redirected to.
pub(crate) struct Snapshot {
    pub(crate) sites: Arc<Sites>,
    https_redirect: HttpsRedirect,
    /// The apps of routes.
    pub(crate) endpoints: Vec<EndpointMaker>,
    upstreams: Vec<UpstreamConfig>,
    /// The position of each upstream.
    numbers: HashMap<Identity, usize>,
    /// The numbers of upstreams that routes have without a group.
    used_alone: HashSet<usize>,
    /// Several servers of a route.
    groups: Vec<NumberedGroup>,
    /// The checks of the servers of each of them.
    group_checks: Vec<GroupChecks>,
    /// The texts of the cookies of each of them that sets some.
    group_tokens: Vec<Option<GroupTokens>>,
    /// The targets of groups that shed load.
    sheds: SharedSheds,
    /// The numbers of authorizers among the upstreams, with their hosts, by their URLs.
    authorizers: HashMap<String, (usize, String)>,
    observed: ObserverSettings,
    /// Without the servers of services, if it has services.
    without_servers: Option<Arc<WithoutServers>>,
    /// How often the servers of services had changed.
    service_changes: u64,
    /// The difference from the snapshot that it replaces.
    change: Option<UpstreamChange>,
    /// Each snapshot of a maker has another one.
    id: u64,
}

impl Snapshot {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The upstreams, each with the names of targets that it is a server of.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = (&UpstreamConfig, Vec<&str>)> {
        let mut names = vec![Vec::new(); self.upstreams.len()];
        for (config, numbers) in &self.groups {
            for (number, name) in numbers.iter().zip(config.names()) {
                if !names[*number].contains(&name) {
                    names[*number].push(name);
                }
            }
        }
        self.upstreams.iter().zip(names)
    }

    /// The checks of servers, each with the name of an upstream; those that upstreams share come once for each.
    pub(crate) fn checks(&self) -> impl Iterator<Item = (&Arc<Check>, &str)> {
        let numbered = self.numbered_checks();
        numbered.map(|(_, check, name)| (check, name))
    }

    /// The same with the numbers of the upstreams.
    pub(crate) fn numbered_checks(&self) -> impl Iterator<Item = (usize, &Arc<Check>, &str)> {
        let groups = self.groups.iter().zip(&self.group_checks);
        groups.flat_map(|((config, numbers), checks)| {
            let servers = numbers.iter().zip(config.names()).zip(checks.iter());
            servers.filter_map(|((number, name), check)| Some((*number, check.as_ref()?, name)))
        })
    }

    /// The servers that are checked or drained, for metrics. A server comes once for each way in which it is checked.
    pub(crate) fn server_facts(&self) -> Vec<ServerFacts> {
        let mut known = HashSet::new();
        let checks = self.checks().map(|(check, _)| check);
        let checks = checks.filter(|check| known.insert(check.id));
        let checked = checks.map(|check| ServerFacts {
            label: Arc::clone(&check.subject.label),
            checks: check.counts(),
            is_up: match check.state() {
                CheckState::Unknown => None,
                state => Some(state == CheckState::Up),
            },
            is_drained: false,
        });
        let upstreams = self.upstreams.iter();
        let drained = upstreams.filter(|upstream| upstream.member.is_drained());
        let drained = drained.map(|upstream| ServerFacts {
            label: Arc::clone(&upstream.label),
            checks: [0; 2],
            is_up: None,
            is_drained: true,
        });
        checked.chain(drained).collect()
    }

    /// The servers with this URL, with their numbers among the upstreams.
    pub(crate) fn members_of(&self, url: &str) -> impl Iterator<Item = (usize, &Arc<Member>)> {
        let numbered = self.upstreams.iter().enumerate();
        let named = numbered.filter(move |(_, upstream)| *upstream.member.url == *url);
        named.map(|(number, upstream)| (number, &upstream.member))
    }

    /// The name of an upstream of which this server is the last that gets new requests. One that is down by its checks
    /// does not count.
    pub(crate) fn last_of(&self, url: &str) -> Option<String> {
        let is_it = |number: &usize| *self.upstreams[*number].member.url == *url;
        let takes = |number: usize, check: Option<&Option<Arc<Check>>>| {
            let check = check.and_then(Option::as_ref);
            let is_down = check.is_some_and(|check| check.state() == CheckState::Down);
            !is_down && !self.upstreams[number].member.is_drained()
        };
        let groups = self.groups.iter().zip(&self.group_checks);
        let mut last = groups.filter(|((config, numbers), checks)| {
            let weighted = numbers.iter().zip(config.weights_of_servers()).enumerate();
            let mut others =
                weighted.filter(|(_, (number, has_weight))| *has_weight && !is_it(number));
            numbers.iter().any(is_it)
                && !others.any(|(at, (number, _))| takes(*number, checks.get(at)))
        });
        last.next().map(|((config, _), _)| config.target_names())
    }

    /// Whether routes have the upstream of this number alone, and not only as one of several servers.
    pub(crate) fn is_used_alone(&self, number: usize) -> bool {
        self.used_alone.contains(&number)
    }
}

/// How the upstreams of a snapshot follow from those of the one before it. Comparing them takes too long for a core.
struct UpstreamChange {
    before: u64,
    /// For each upstream its number before; `None` if it is new.
    kept: Box<[Option<u32>]>,
    /// The numbers of upstreams that are not in the new snapshot.
    gone: Box<[u32]>,
}

impl UpstreamChange {
    fn new(before: &Snapshot, after: &Snapshot) -> UpstreamChange {
        let number = |identity| before.numbers.get(identity).map(|number| *number as u32);
        let kept = after
            .upstreams
            .iter()
            .map(|upstream| number(&upstream.identity));
        let is_gone = |(_, upstream): &(usize, &UpstreamConfig)| {
            !after.numbers.contains_key(&upstream.identity)
        };
        let gone = before.upstreams.iter().enumerate().filter(is_gone);
        UpstreamChange {
            before: before.id,
            kept: kept.collect(),
            gone: gone.map(|(number, _)| number as u32).collect(),
        }
    }
}

/// The settings of observers that a reload changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObserverSettings {
    pub(crate) access_log: Option<Arc<AccessLog>>,
    pub(crate) tracing: Option<TraceSettings>,
}

impl Snapshot {
    pub(crate) fn observed(&self) -> &ObserverSettings {
        &self.observed
    }

    pub(crate) fn observed_mut(&mut self) -> &mut ObserverSettings {
        &mut self.observed
    }
}

/// A snapshot on a core.
pub(crate) struct CoreSnapshot {
    shared: Arc<Snapshot>,
    /// The upstreams by their numbers, empty until they are needed.
    balancers: Box<[OnceCell<Rc<Balancer>>]>,
    /// The same for groups. Their turns begin anew with each snapshot.
    groups: Box<[OnceCell<Group>]>,
    observers: CoreObservers,
}

impl CoreSnapshot {
    /// The first one of a core.
    pub(crate) fn first(
        shared: &Arc<Snapshot>,
        observers: &Arc<Observers>,
        upstreams: &mut UpstreamSet,
    ) -> CoreSnapshot {
        let ObserverSettings {
            access_log,
            tracing,
        } = &shared.observed;
        let observers = CoreObservers::new(observers, access_log.as_ref(), *tracing, None);
        CoreSnapshot::searching(shared, observers, upstreams)
    }

    /// Upstreams of the core that the snapshot has keep their state; the others are forgotten.
    pub(crate) fn after(
        before: &CoreSnapshot,
        shared: &Arc<Snapshot>,
        upstreams: &mut UpstreamSet,
    ) -> CoreSnapshot {
        let ObserverSettings {
            access_log,
            tracing,
        } = &shared.observed;
        let log = access_log.as_ref();
        let before_it = &before.observers;
        let observers = CoreObservers::new(before_it.shared(), log, *tracing, Some(before_it));
        let change = shared.change.as_ref();
        let change = change.filter(|change| change.before == before.shared.id);
        let Some(change) = change.filter(|_| !upstreams.has_strays()) else {
            return CoreSnapshot::searching(shared, observers, upstreams);
        };
        let kept = |number: &Option<u32>| {
            let balancer = before.balancers[(*number)? as usize].get()?;
            Some(Rc::clone(balancer))
        };
        let kept = change
            .kept
            .iter()
            .map(|number| kept(number).map_or_else(OnceCell::new, OnceCell::from));
        let balancers = kept.collect();
        let gone = change.gone.iter().map(|number| *number as usize);
        let gone = gone.filter(|number| before.balancers[*number].get().is_some());
        upstreams.forget(gone.map(|number| &before.shared.upstreams[number].identity));
        CoreSnapshot::with(shared, balancers, observers, upstreams)
    }

    /// Searches each upstream of the core in the snapshot.
    fn searching(
        shared: &Arc<Snapshot>,
        observers: CoreObservers,
        upstreams: &mut UpstreamSet,
    ) -> CoreSnapshot {
        let empty = || OnceCell::new();
        let balancers: Box<[_]> = shared.upstreams.iter().map(|_| empty()).collect();
        upstreams.retain(|identity, balancer| {
            let number = shared.numbers.get(identity);
            number.is_some_and(|number| balancers[*number].set(Rc::clone(balancer)).is_ok())
        });
        CoreSnapshot::with(shared, balancers, observers, upstreams)
    }

    fn with(
        shared: &Arc<Snapshot>,
        balancers: Box<[OnceCell<Rc<Balancer>>]>,
        observers: CoreObservers,
        upstreams: &mut UpstreamSet,
    ) -> CoreSnapshot {
        upstreams.newest = shared.id;
        upstreams.sheds.retain(&shared.sheds);
        count(|counters| counters.snapshots += 1);
        CoreSnapshot {
            shared: Arc::clone(shared),
            balancers,
            groups: shared.groups.iter().map(|_| OnceCell::new()).collect(),
            observers,
        }
    }

    pub(crate) fn sites(&self) -> &Sites {
        &self.shared.sites
    }

    /// The receivers of the records of this core.
    pub(crate) fn observers(&self) -> &CoreObservers {
        &self.observers
    }

    /// The states of those of these upstreams that this core has used; nothing if this is another snapshot.
    pub(crate) fn states(&self, snapshot: u64, range: &Range<usize>) -> States {
        let now = blitz_http::now();
        let of_snapshot = match self.shared.id == snapshot {
            true => self.balancers.get(range.clone()).unwrap_or_default(),
            false => &[],
        };
        let numbered = range.clone().zip(of_snapshot);
        let used = numbered.filter_map(|(number, balancer)| Some((number, balancer.get()?)));
        used.map(|(number, balancer)| (number, balancer.states(now)))
            .collect()
    }

    pub(crate) fn https_redirect(&self) -> HttpsRedirect {
        self.shared.https_redirect
    }

    /// The state of an upstream of this snapshot.
    #[inline(always)]
    pub(crate) fn balancer(
        &self,
        number: usize,
        upstreams: &RefCell<UpstreamSet>,
    ) -> &Rc<Balancer> {
        self.balancers[number].get_or_init(|| {
            let config = &self.shared.upstreams[number];
            upstreams.borrow_mut().get(config, self.shared.id)
        })
    }

    /// The state of the authorizer with this URL, and its host.
    pub(crate) fn authorizer(
        &self,
        origin: &str,
        upstreams: &RefCell<UpstreamSet>,
    ) -> Option<(&Rc<Balancer>, &str)> {
        let (number, host) = self.shared.authorizers.get(origin)?;
        Some((self.balancer(*number, upstreams), host))
    }

    /// The state of several servers of this snapshot.
    pub(crate) fn group(&self, number: usize, upstreams: &RefCell<UpstreamSet>) -> &Group {
        self.groups[number].get_or_init(|| {
            let (config, servers) = &self.shared.groups[number];
            let balancers = servers.iter();
            let balancers = balancers.map(|number| Rc::clone(self.balancer(*number, upstreams)));
            let shed = |name: &str| {
                let shared = &self.shared.sheds[name];
                upstreams.borrow_mut().sheds.get(name, shared)
            };
            let checks = &self.shared.group_checks[number];
            let group = Group::new(config, balancers.collect(), blitz_http::random_u64());
            let tokens = self.shared.group_tokens[number].as_ref();
            group.with_checks(checks).with_tokens(tokens).shedding(shed)
        })
    }
}

impl Drop for CoreSnapshot {
    fn drop(&mut self) {
        count(|counters| counters.snapshots -= 1);
    }
}

/// How long a configuration waits for the first answers about its services; later ones apply when they come.
const FIRST_ANSWER_TIME: Duration = Duration::from_secs(2);

/// Makes snapshots; the names and the TLS settings of upstreams are the same in all of them.
pub(crate) struct SnapshotMaker {
    resolver: Resolver,
    /// `None` until a target needs it.
    upstream_tls: Option<ClientTlsSlot>,
    /// Those that were replaced. Cores may still have requests of them, and freeing one takes too long for a core.
    retired: Vec<Arc<Snapshot>>,
    /// A configuration was read and compiled, which has left memory free.
    has_freed: bool,
    /// How many snapshots were made.
    made: u64,
    /// The texts of all of them in metrics.
    labels: Arc<Labels>,
    /// The servers of all of them.
    members: Members,
    /// The checks of servers of all of them.
    checks: Checks,
    /// The upstreams of the last one that shed load.
    sheds: SharedSheds,
    /// See [`Options::sticky_secret`](crate::Options::sticky_secret).
    sticky_secret: fn() -> [u8; 32],
    /// The key that the secret is; empty until a configuration sets cookies.
    cookie_key: OnceLock<CookieKey>,
}

impl SnapshotMaker {
    pub(crate) fn new(
        resolver: Resolver,
        upstream_tls: Option<ClientTlsSlot>,
        sticky_secret: fn() -> [u8; 32],
    ) -> SnapshotMaker {
        SnapshotMaker {
            resolver,
            upstream_tls,
            retired: Vec::new(),
            has_freed: false,
            made: 0,
            labels: Arc::new(Labels::new()),
            members: Members::default(),
            checks: Checks::default(),
            sheds: SharedSheds::default(),
            sticky_secret,
            cookie_key: OnceLock::new(),
        }
    }

    /// A snapshot of these sites.
    ///
    /// # Errors
    /// A target cannot be used.
    pub(crate) fn make(
        &mut self,
        mut sites: Sites,
        https_redirect: HttpsRedirect,
        observed: ObserverSettings,
    ) -> Result<Snapshot, StartError> {
        self.resolver.prune();
        self.has_freed = true;
        self.made += 1;
        self.labels.number(&mut sites);
        let hidden = hidden_urls(&mut sites);
        let mut numbers = HashMap::new();
        let mut upstreams = Vec::new();
        let mut used_alone = HashSet::new();
        let mut groups = GroupNumbers::default();
        for forward in sites.forwards_mut() {
            let number = |target: &Target, settings: ConnectionSettings| {
                self.number(target, settings, &hidden, &mut numbers, &mut upstreams)
            };
            groups.number_forward(forward, &mut used_alone, number)?;
        }
        let mut authorizers = HashMap::new();
        for (origin, target) in authorizer_targets(&sites) {
            let settings = ConnectionSettings::default();
            let number = self.number(&target, settings, &hidden, &mut numbers, &mut upstreams)?;
            used_alone.insert(number);
            authorizers.insert(origin.to_owned(), (number, target.authority));
        }
        let mut groups = groups.groups;
        let mut service_changes = 0;
        let without_servers = groups.has_services().then(|| {
            Arc::new(WithoutServers {
                upstreams: upstreams.len(),
                groups: groups.clone(),
            })
        });
        if without_servers.is_some() {
            self.resolver.wait_for_services(FIRST_ANSWER_TIME);
            service_changes = self.resolver.service_changes();
            groups = self.with_servers(&groups, &mut numbers, &mut upstreams)?;
        }
        self.sheds = groups.sheds(&self.sheds);
        Ok(Snapshot {
            authorizers,
            group_checks: self.group_checks(&groups, &upstreams),
            group_tokens: self.group_tokens(&groups),
            endpoints: sites.endpoints(),
            sites: Arc::new(sites),
            https_redirect,
            upstreams,
            numbers,
            used_alone,
            groups: groups.all,
            sheds: self.sheds.clone(),
            observed,
            without_servers,
            service_changes,
            change: None,
            id: self.made,
        })
    }

    /// The snapshot that follows this one if the servers of its services have changed.
    ///
    /// # Errors
    /// As [`SnapshotMaker::make`].
    pub(crate) fn follow_services(
        &mut self,
        before: &Snapshot,
    ) -> Result<Option<Arc<Snapshot>>, StartError> {
        let Some(without) = &before.without_servers else {
            return Ok(None);
        };
        let service_changes = self.resolver.service_changes();
        if service_changes == before.service_changes {
            return Ok(None);
        }
        self.resolver.prune();
        self.has_freed = true;
        self.made += 1;
        let mut upstreams = before.upstreams[..without.upstreams].to_vec();
        let numbered = upstreams.iter().enumerate();
        let mut numbers = numbered
            .map(|(number, upstream)| (upstream.identity.clone(), number))
            .collect();
        let groups = self.with_servers(&without.groups, &mut numbers, &mut upstreams)?;
        let mut snapshot = Snapshot {
            sites: Arc::clone(&before.sites),
            https_redirect: before.https_redirect,
            endpoints: before.endpoints.clone(),
            used_alone: before.used_alone.clone(),
            authorizers: before.authorizers.clone(),
            group_checks: self.group_checks(&groups, &upstreams),
            group_tokens: self.group_tokens(&groups),
            upstreams,
            numbers,
            groups: groups.all,
            sheds: before.sheds.clone(),
            observed: before.observed.clone(),
            without_servers: Some(Arc::clone(without)),
            service_changes,
            change: None,
            id: self.made,
        };
        snapshot.change = Some(UpstreamChange::new(before, &snapshot));
        Ok(Some(Arc::new(snapshot)))
    }

    /// The groups with servers in the places of services. Their upstreams are added.
    fn with_servers(
        &mut self,
        groups: &Groups,
        numbers: &mut HashMap<Identity, usize>,
        upstreams: &mut Vec<UpstreamConfig>,
    ) -> Result<Groups, StartError> {
        // Their URLs come from name servers, not from variables.
        let hidden = HashMap::new();
        let mut expanded = groups.clone();
        for ((config, servers), settings) in expanded.all.iter_mut().zip(&groups.settings) {
            if !config.has_services() {
                continue;
            }
            let with_servers = config.with_servers(|at| {
                let target = &config.servers[at];
                let Some(service) = &upstreams[servers[at]].service else {
                    return Vec::new();
                };
                let is_usable = |server: &Target| !server.tls || self.tls(server).is_ok();
                servers_of(target, service, is_usable)
            });
            *servers = numbers_of(&with_servers, *settings, |server, settings| {
                self.number(server, settings, &hidden, numbers, upstreams)
            })?;
            *config = Arc::new(with_servers);
        }
        Ok(expanded)
    }

    /// The checks of the servers of groups, whose connections begin with a PROXY header of these versions.
    fn group_checks(&mut self, groups: &Groups, upstreams: &[UpstreamConfig]) -> Vec<GroupChecks> {
        let groups = groups.all.iter().zip(&groups.proxy_versions);
        let checks = groups.map(|((config, numbers), version)| {
            let settings = config.settings();
            let servers = config.servers.iter().zip(numbers).zip(settings);
            let servers = servers
                .map(|((target, number), settings)| (&**target, &upstreams[*number], settings));
            self.checks.of_group(servers, *version)
        });
        checks.collect()
    }

    /// The texts of the cookies of groups.
    fn group_tokens(&self, groups: &Groups) -> Vec<Option<GroupTokens>> {
        let key = || {
            let new = || CookieKey::new(&(self.sticky_secret)());
            self.cookie_key.get_or_init(new)
        };
        let groups = groups.all.iter();
        groups.map(|(config, _)| config.tokens(key)).collect()
    }

    /// A snapshot of these sites, which replaces another one.
    pub(crate) fn make_after(
        &mut self,
        before: &Snapshot,
        sites: Vec<Site>,
        https_redirect: HttpsRedirect,
        observed: ObserverSettings,
    ) -> Result<Arc<Snapshot>, StartError> {
        let sites = Sites::new(sites, Vec::new(), false).map_err(StartError::Conflict)?;
        let mut snapshot = self.make(sites, https_redirect, observed)?;
        snapshot.change = Some(UpstreamChange::new(before, &snapshot));
        Ok(Arc::new(snapshot))
    }

    pub(crate) fn labels(&self) -> &Arc<Labels> {
        &self.labels
    }

    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Keeps a snapshot that was replaced, until no core has it any more.
    pub(crate) fn retire(&mut self, snapshot: Arc<Snapshot>) {
        self.retired.push(snapshot);
    }

    /// How many snapshots were replaced and are not free yet.
    pub(crate) fn retired_count(&self) -> usize {
        self.retired.len()
    }

    /// Frees the snapshots that no core has any more. Returns whether configurations have left memory free since the last
    /// call.
    pub(crate) fn free_retired(&mut self) -> bool {
        let before = self.retired.len();
        self.retired
            .retain(|snapshot| Arc::strong_count(snapshot) > 1);
        std::mem::take(&mut self.has_freed) || self.retired.len() < before
    }

    /// The number of an upstream, which is added if it is new.
    fn number(
        &mut self,
        target: &Target,
        settings: ConnectionSettings,
        hidden: &HashMap<String, Arc<str>>,
        numbers: &mut HashMap<Identity, usize>,
        upstreams: &mut Vec<UpstreamConfig>,
    ) -> Result<usize, StartError> {
        let identity = Identity::new(target, settings);
        if let Some(number) = numbers.get(&identity) {
            return Ok(*number);
        }
        upstreams.push(self.upstream(&identity, target, hidden)?);
        numbers.insert(identity, upstreams.len() - 1);
        Ok(upstreams.len() - 1)
    }

    fn upstream(
        &mut self,
        identity: &Identity,
        target: &Target,
        hidden: &HashMap<String, Arc<str>>,
    ) -> Result<UpstreamConfig, StartError> {
        let tls = match target.tls && !target.is_service() {
            true => Some(self.tls(target).map_err(StartError::Tls)?),
            false => None,
        };
        let name = match &target.origin {
            Origin::Name(name, port) => {
                let resolved = self.resolver.resolve(name, *port);
                Some(resolved.map_err(StartError::Resolve)?)
            }
            _ => None,
        };
        let service = match &target.origin {
            Origin::Service(name) => {
                let resolved = self.resolver.service(name);
                Some(resolved.map_err(StartError::Resolve)?)
            }
            _ => None,
        };
        let url = target.url();
        Ok(UpstreamConfig {
            identity: identity.clone(),
            label: hidden.get(&url).cloned().unwrap_or_else(|| url.into()),
            member: self.members.get(identity),
            name,
            service,
            tls,
        })
    }

    /// The TLS settings, which are used once here, so that errors do not occur on a core.
    fn tls(&mut self, target: &Target) -> Result<(ClientTlsSlot, String), TlsConfigError> {
        let slot = match &self.upstream_tls {
            Some(slot) => slot,
            None => self
                .upstream_tls
                .insert(ClientTls::builder().build()?.into()),
        };
        UpstreamTls::new(slot, &target.host())?;
        Ok((slot.clone(), target.host()))
    }
}

/// The origins of the authorizers of these sites. Those that are no origin have a diagnostic.
fn authorizer_targets(sites: &Sites) -> impl Iterator<Item = (&str, Target)> {
    let origins = sites.authorizers();
    origins
        .into_iter()
        .filter_map(|origin| Some((origin, origin.parse().ok()?)))
}

/// A gateway on a core, whose sites can be replaced.
pub(crate) trait TakeSnapshot {
    /// The states of at most `count` of its upstreams.
    fn upstream_states(&self, count: usize) -> Vec<UpstreamState>;
    /// Those of its upstreams that shed load.
    fn shed_states(&self) -> Vec<ShedState>;
    fn take(&self, snapshot: &Arc<Snapshot>);

    /// As [`CoreSnapshot::states`], of its newest snapshot.
    fn states(&self, snapshot: u64, range: &Range<usize>) -> States;
}

core_local! {
    /// The gateways of this core.
    static GATEWAYS: RefCell<Vec<Weak<dyn TakeSnapshot>>> = const { RefCell::new(Vec::new()) };
}

/// From now on this gateway takes the snapshots of its core.
pub(crate) fn register(gateway: &Rc<impl TakeSnapshot + 'static>) {
    let gateway: Weak<dyn TakeSnapshot> = Rc::downgrade(gateway) as _;
    GATEWAYS.with_borrow_mut(|gateways| gateways.push(gateway));
}

/// The states of upstreams of a snapshot on the calling core.
pub(crate) fn states_on_core(snapshot: u64, range: &Range<usize>) -> States {
    let gateways = GATEWAYS.with_borrow(Clone::clone);
    let alive = gateways.iter().filter_map(Weak::upgrade);
    alive
        .flat_map(|gateway| gateway.states(snapshot, range))
        .collect()
}

/// The states of upstreams on the calling core: at most `count` of each gateway.
pub(crate) fn upstream_states(count: usize) -> Vec<UpstreamState> {
    let gateways = GATEWAYS.with_borrow(Clone::clone);
    let alive = gateways.iter().filter_map(Weak::upgrade);
    alive
        .flat_map(|gateway| gateway.upstream_states(count))
        .collect()
}

/// The upstreams on the calling core that shed load.
pub(crate) fn shed_states() -> Vec<ShedState> {
    let gateways = GATEWAYS.with_borrow(Clone::clone);
    let alive = gateways.iter().filter_map(Weak::upgrade);
    alive.flat_map(|gateway| gateway.shed_states()).collect()
}

/// How long to wait for the next core that has a new snapshot; one that is busy for longer takes it later.
const TAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// Hands a snapshot to all cores, and waits until they have it. Each takes it between two turns of its tasks.
pub(crate) fn publish(cores: &Cores, snapshot: &Arc<Snapshot>) {
    let snapshot = Arc::clone(snapshot);
    let (taken, all) = mpsc::channel::<()>();
    cores.post_all(move |_| {
        take_on_core(&snapshot);
        let _ = taken.send(());
    });
    // This thread has no clock of a core.
    let mut waiting = 0..cores.count();
    while waiting.next().is_some() && all.recv_timeout(TAKE_TIMEOUT).is_ok() {}
}

pub(crate) fn take_on_core(snapshot: &Arc<Snapshot>) {
    let started = blitz_http::read_clock();
    let gateways = GATEWAYS.with_borrow(Clone::clone);
    let alive = gateways.iter().filter_map(Weak::upgrade);
    alive.for_each(|gateway| gateway.take(snapshot));
    tracing::debug!(
        microseconds = blitz_http::read_clock().duration_since(started).as_micros() as u64,
        upstreams = snapshot.upstreams.len(),
        "a core has taken the new sites"
    );
}
