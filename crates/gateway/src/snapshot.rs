//! A compiled configuration, built aside and handed to all cores: a request keeps the snapshot that it began with.
//!
//! A snapshot has no state of a core. A route holds the number of its upstream, and each core finds the state of that
//! upstream by its identity when a request needs it first.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use arc_swap::ArcSwap;
use blitz_host::names::Resolver;
use blitz_http::{
    ClientTls, ClientTlsSlot, Cores, ProxyVersion, TlsConfigError, UpstreamTls, core_local,
};
use blitz_site::access_log::AccessLog;
use blitz_site::{CoreObservers, EndpointMaker, Observers, TraceSettings, count};

use crate::https_redirect::HttpsRedirect;
use crate::metrics::{Labels, ServerFacts, hidden_urls};
use crate::route::ForwardGroup;
use crate::sites::{Site, Sites};
use crate::start_error::StartError;
use crate::target::{Origin, Target};
use crate::upstream::{
    Balancer, Check, CheckState, Checks, ConnectionSettings, Group, GroupChecks, GroupConfig,
    Identity, Member, Members, SharedShed, SharedSheds, ShedState, States, UpstreamConfig,
    UpstreamSet, UpstreamState,
};

/// Sites, their upstreams, and where clear text is redirected to.
pub(crate) struct Snapshot {
    pub(crate) sites: Sites,
    https_redirect: HttpsRedirect,
    /// The apps of routes.
    pub(crate) endpoints: Vec<EndpointMaker>,
    upstreams: Vec<UpstreamConfig>,
    /// The position of each upstream.
    numbers: HashMap<Identity, usize>,
    /// The numbers of upstreams that routes have without a group.
    used_alone: HashSet<usize>,
    /// Several servers of a route, with their numbers among the upstreams.
    groups: Vec<(Arc<GroupConfig>, Box<[usize]>)>,
    /// The checks of the servers of each of them.
    group_checks: Vec<GroupChecks>,
    /// The targets of groups that shed load.
    sheds: SharedSheds,
    /// The numbers of authorizers among the upstreams, with their hosts, by their URLs.
    authorizers: HashMap<String, (usize, String)>,
    observed: ObserverSettings,
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
            group.with_checks(checks).shedding(shed)
        })
    }
}

impl Drop for CoreSnapshot {
    fn drop(&mut self) {
        count(|counters| counters.snapshots -= 1);
    }
}

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
}

impl SnapshotMaker {
    pub(crate) fn new(resolver: Resolver, upstream_tls: Option<ClientTlsSlot>) -> SnapshotMaker {
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
        let mut groups = Groups::default();
        for forward in sites.forwards_mut() {
            let settings = forward.connection_settings;
            let mut number = |target: &Target, settings: ConnectionSettings| {
                self.number(target, settings, &hidden, &mut numbers, &mut upstreams)
            };
            let of_first = settings_of_first(forward.group.as_ref(), settings);
            forward.upstream = number(&forward.target, of_first)?;
            match &mut forward.group {
                None => {
                    used_alone.insert(forward.upstream);
                }
                Some(group) => {
                    let version = forward.proxy_protocol;
                    group.number = groups.number(group, settings, version, &mut number)?;
                }
            }
            let Some(mirror) = &mut forward.mirror else {
                continue;
            };
            let of_first = settings_of_first(mirror.group.as_ref(), settings);
            mirror.upstream = number(&mirror.target, of_first)?;
            match &mut mirror.group {
                None => {
                    used_alone.insert(mirror.upstream);
                }
                Some(group) => group.number = groups.number(group, settings, None, &mut number)?,
            }
        }
        self.sheds = groups.sheds(&self.sheds);
        let mut authorizers = HashMap::new();
        for (origin, target) in authorizer_targets(&sites) {
            let settings = ConnectionSettings::default();
            let number = self.number(&target, settings, &hidden, &mut numbers, &mut upstreams)?;
            used_alone.insert(number);
            authorizers.insert(origin.to_owned(), (number, target.authority));
        }
        Ok(Snapshot {
            authorizers,
            group_checks: self.group_checks(&groups, &upstreams),
            endpoints: sites.endpoints(),
            sites,
            https_redirect,
            upstreams,
            numbers,
            used_alone,
            groups: groups.all,
            sheds: self.sheds.clone(),
            observed,
            change: None,
            id: self.made,
        })
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
        let tls = match target.tls {
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
        let url = target.url();
        Ok(UpstreamConfig {
            identity: identity.clone(),
            label: hidden.get(&url).cloned().unwrap_or_else(|| url.into()),
            member: self.members.get(identity),
            name,
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

/// The settings of connections to the first server of a route.
fn settings_of_first(
    group: Option<&ForwardGroup>,
    settings: ConnectionSettings,
) -> ConnectionSettings {
    let own = group.and_then(|group| group.config.settings().next());
    own.map_or(settings, |own| settings.with(own))
}

/// The origins of the authorizers of these sites. Those that are no origin have a diagnostic.
fn authorizer_targets(sites: &Sites) -> impl Iterator<Item = (&str, Target)> {
    let origins = sites.authorizers();
    origins
        .into_iter()
        .filter_map(|origin| Some((origin, origin.parse().ok()?)))
}

/// The groups of the routes of a snapshot.
#[derive(Default)]
struct Groups {
    all: Vec<(Arc<GroupConfig>, Box<[usize]>)>,
    /// For each of them the version of the PROXY header of its connections.
    proxy_versions: Vec<Option<ProxyVersion>>,
    /// Routes that share a group share the turns of its servers.
    numbers: HashMap<(*const GroupConfig, ConnectionSettings), usize>,
}

impl Groups {
    /// The number of a group, which is added if it is new. `number` is that of a server.
    fn number(
        &mut self,
        group: &ForwardGroup,
        settings: ConnectionSettings,
        proxy_version: Option<ProxyVersion>,
        mut number: impl FnMut(&Target, ConnectionSettings) -> Result<usize, StartError>,
    ) -> Result<usize, StartError> {
        let key = (Arc::as_ptr(&group.config), settings);
        if let Some(number) = self.numbers.get(&key) {
            return Ok(*number);
        }
        let servers = group.config.servers.iter().zip(group.config.settings());
        let servers = servers.map(|(server, own)| number(server, settings.with(own)));
        let servers = servers.collect::<Result<_, _>>()?;
        self.all.push((Arc::clone(&group.config), servers));
        self.proxy_versions.push(proxy_version);
        self.numbers.insert(key, self.all.len() - 1);
        Ok(self.all.len() - 1)
    }

    /// Their targets that shed load, with what is known of them from before.
    fn sheds(&self, before: &SharedSheds) -> SharedSheds {
        let targets = self.all.iter().flat_map(|(config, _)| config.sheds());
        let shared = targets.map(|(name, settings)| {
            let shed = SharedShed::new(settings, before.get(name));
            (Box::from(name), shed)
        });
        let mut sheds = SharedSheds::new();
        for (name, shed) in shared {
            // Routes have the same upstream.
            sheds.entry(name).or_insert(shed);
        }
        sheds
    }
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

fn take_on_core(snapshot: &Arc<Snapshot>) {
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

/// Replaces the sites of a gateway whose cores a program has started itself
/// ([`Gateway::on_cores`](crate::Gateway::on_cores)).
pub struct SteppedReloads {
    maker: SnapshotMaker,
    newest: Arc<ArcSwap<Snapshot>>,
    https_redirect: HttpsRedirect,
}

/// A server as a core sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOnCore {
    /// Its URL.
    pub url: String,
    /// How long requests will avoid it, because it was ejected or could not be connected to.
    pub avoided_for: Option<Duration>,
    /// Requests of this core that have chosen it among several servers, and have not ended.
    pub running: u32,
}

/// Sites for all cores, each of which takes them by itself.
pub struct NewSites(Arc<Snapshot>);

impl SteppedReloads {
    pub(crate) fn new(
        maker: SnapshotMaker,
        newest: Arc<ArcSwap<Snapshot>>,
        https_redirect: HttpsRedirect,
    ) -> SteppedReloads {
        SteppedReloads {
            maker,
            newest,
            https_redirect,
        }
    }

    /// Makes sites that no core has yet.
    ///
    /// # Errors
    /// As [`Reloading::replace_sites`].
    pub fn make(&mut self, sites: Vec<Site>) -> Result<NewSites, StartError> {
        let before = self.newest.load();
        let observed = before.observed.clone();
        let snapshot = self
            .maker
            .make_after(&before, sites, self.https_redirect, observed)?;
        let before = self.newest.swap(Arc::clone(&snapshot));
        self.maker.retire(before);
        Ok(NewSites(snapshot))
    }

    /// The servers of the newest sites as the calling core sees them, if it has used them.
    #[must_use]
    pub fn servers_on_core(&self) -> Vec<ServerOnCore> {
        let snapshot = self.newest.load_full();
        let count = snapshot.upstreams.len();
        let states = states_on_core(snapshot.id, &(0..count));
        let states = states
            .into_iter()
            .flat_map(|(number, all)| all.into_iter().map(move |state| (number, state)));
        let servers = states.map(|(number, state)| ServerOnCore {
            url: snapshot.upstreams[number].identity.url(),
            avoided_for: state.cooling_down,
            running: state.running,
        });
        servers.collect()
    }

    /// Frees the configurations that no core has any more; returns the number of those that are left, with the newest.
    pub fn free(&mut self) -> usize {
        self.maker.free_retired();
        self.maker.retired.len() + 1
    }
}

impl NewSites {
    /// Replaces the sites of the gateways on the calling core.
    pub fn take_on_core(&self) {
        take_on_core(&self.0);
    }
}
