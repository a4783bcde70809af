//! The upstreams of a core. They belong to the core and not to its routes: routes with the same upstream share it, and it
//! outlives the configuration that named it first.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_config::{ResponseLimits, TimeLimit, UpstreamSettings};
use blitz_host::names::{ResolvedName, ResolvedService};
use blitz_http::{
    Address, ClientOptions, ClientTlsSlot, FOREVER, Limits, Pool, Protocol, UpstreamTls,
};

use super::balancer::{Balancer, Connector, UpstreamState};
use super::member::Member;
use super::shed::Sheds;
use crate::target::{Origin, Target};

/// Settings of the connections to an upstream; `None` are those of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct ConnectionSettings {
    /// How long connecting may take.
    pub(crate) connect_timeout: Option<Duration>,
    /// Limits of responses.
    pub(crate) limits: ResponseLimits,
    /// Limits of connections, and of requests that wait for one.
    pub(crate) queue: QueueSettings,
}

/// Limits of the connections to an upstream; `None` are those of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct QueueSettings {
    /// Connections in use, of a core to an address.
    connections_max: Option<usize>,
    /// Requests that wait for one.
    waiting_max: Option<usize>,
    /// How long they wait.
    timeout: Option<Duration>,
}

impl QueueSettings {
    /// Those of an upstream with a name.
    pub(crate) fn of(settings: &UpstreamSettings) -> QueueSettings {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let queue = settings.queue.as_ref().map(|queue| queue.value);
        let queue = queue.unwrap_or_default();
        QueueSettings {
            connections_max: settings
                .connections_max
                .as_ref()
                .map(|max| number(max.value)),
            waiting_max: queue.max.map(number),
            timeout: queue.timeout.map(|limit| match limit {
                TimeLimit::After(timeout) => timeout.min(FOREVER),
                TimeLimit::Forever => FOREVER,
            }),
        }
    }
}

impl QueueSettings {
    fn apply(self, limits: &mut Limits) {
        if let Some(max) = self.connections_max {
            limits.upstream_connections_max = max;
        }
        if let Some(max) = self.waiting_max {
            limits.upstream_waiting_max = max;
        }
        if let Some(timeout) = self.timeout {
            limits.upstream_wait_timeout = timeout;
        }
    }
}

impl ConnectionSettings {
    /// Of a server of an upstream with these settings.
    pub(crate) fn with(self, settings: &UpstreamSettings) -> ConnectionSettings {
        ConnectionSettings {
            queue: QueueSettings::of(settings),
            ..self
        }
    }
}

/// The identity of an upstream: two targets with the same identity are the same upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    origin: Origin,
    protocol: Protocol,
    tls: bool,
    settings: ConnectionSettings,
}

impl Identity {
    pub(crate) fn new(target: &Target, settings: ConnectionSettings) -> Identity {
        Identity {
            origin: target.origin.clone(),
            protocol: target.protocol,
            tls: target.tls,
            settings,
        }
    }

    /// The upstream as a URL without path.
    pub(crate) fn url(&self) -> String {
        self.origin.url(self.tls, self.protocol)
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }
}

/// All that a core needs to make the state of an upstream.
#[derive(Clone)]
pub(crate) struct UpstreamConfig {
    pub(crate) identity: Identity,
    /// Its name in metrics.
    pub(crate) label: Arc<str>,
    /// The name that is being resolved, if it has one.
    pub(crate) name: Option<Arc<ResolvedName>>,
    /// The service that is being resolved, if it is one.
    pub(crate) service: Option<Arc<ResolvedService>>,
    /// The knowledge of all cores about it.
    pub(crate) member: Arc<Member>,
    /// TLS settings that were used before, and the host of the certificate.
    pub(crate) tls: Option<(ClientTlsSlot, String)>,
}

/// The upstreams that a core has used.
pub(crate) struct UpstreamSet {
    options: ClientOptions,
    pools: HashMap<ConnectionSettings, Pool>,
    by_identity: HashMap<Identity, Rc<Balancer>>,
    /// Those of them, by their names, that shed load.
    pub(crate) sheds: Sheds,
    /// The snapshot that the core has.
    pub(crate) newest: u64,
    /// Requests of older snapshots have added upstreams, which the newest may not have.
    has_strays: bool,
}

impl UpstreamSet {
    pub(crate) fn new(options: ClientOptions) -> UpstreamSet {
        UpstreamSet {
            options,
            pools: HashMap::new(),
            by_identity: HashMap::new(),
            sheds: Sheds::default(),
            newest: 0,
            has_strays: false,
        }
    }

    /// The state of an upstream of a snapshot.
    pub(crate) fn get(&mut self, config: &UpstreamConfig, snapshot: u64) -> Rc<Balancer> {
        if let Some(balancer) = self.by_identity.get(&config.identity) {
            return Rc::clone(balancer);
        }
        self.has_strays |= snapshot != self.newest;
        let balancer = Rc::new(self.balancer(config));
        let identity = config.identity.clone();
        self.by_identity.insert(identity, Rc::clone(&balancer));
        balancer
    }

    /// The states of at most `count` upstreams.
    pub(crate) fn states(&self, count: usize, now: Instant) -> impl Iterator<Item = UpstreamState> {
        let some = self.by_identity.values().take(count);
        some.map(move |balancer| balancer.state(now))
    }

    /// Forgets the other upstreams; their connections close when no request has them.
    pub(crate) fn retain(&mut self, stays: impl Fn(&Identity, &Rc<Balancer>) -> bool) {
        self.by_identity
            .retain(|identity, balancer| stays(identity, balancer));
        self.has_strays = false;
        self.forget_pools();
    }

    /// Forgets these upstreams.
    pub(crate) fn forget<'a>(&mut self, gone: impl Iterator<Item = &'a Identity>) {
        let removed = gone.filter_map(|identity| self.by_identity.remove(identity));
        if removed.count() > 0 {
            self.forget_pools();
        }
    }

    /// Whether there may be upstreams that the newest snapshot does not have.
    pub(crate) fn has_strays(&self) -> bool {
        self.has_strays
    }

    fn forget_pools(&mut self) {
        let Self {
            by_identity, pools, ..
        } = self;
        let is_used = |settings| by_identity.keys().any(|one| one.settings == settings);
        pools
            .retain(|settings, _| *settings == ConnectionSettings::default() || is_used(*settings));
    }

    fn pool(&mut self, settings: ConnectionSettings) -> Pool {
        let options = &self.options;
        let pool = self.pools.entry(settings).or_insert_with(|| {
            let mut options = options.clone();
            let ResponseLimits {
                head_max,
                fields_max,
            } = settings.limits;
            if let Some(bytes) = head_max.and_then(|bytes| usize::try_from(bytes).ok()) {
                options.limits.head_bytes_max = bytes;
            }
            if let Some(fields) = fields_max.and_then(|fields| usize::try_from(fields).ok()) {
                options.limits.response_fields_max = fields;
            }
            if let Some(timeout) = settings.connect_timeout {
                options.limits.connect_timeout = timeout;
                // Other requests wait for a connection that is being made.
                let wait = &mut options.limits.upstream_wait_timeout;
                *wait = timeout.max(*wait);
            }
            settings.queue.apply(&mut options.limits);
            Pool::new(options)
        });
        pool.clone()
    }

    fn balancer(&mut self, config: &UpstreamConfig) -> Balancer {
        let identity = &config.identity;
        let tls = config.tls.as_ref().map(|(slot, host)| {
            let tls = UpstreamTls::new(slot, host);
            tls.expect("the snapshot built it once before")
        });
        let connector = Connector {
            label: Arc::clone(&config.label),
            member: Arc::clone(&config.member),
            pool: self.pool(identity.settings),
            protocol: identity.protocol,
            tls,
        };
        match (&identity.origin, &config.name) {
            (Origin::Ip(address), _) => Balancer::fixed(connector, &Address::Tcp(*address)),
            (Origin::Unix(path), _) => {
                Balancer::fixed(connector, &Address::Unix(Arc::new(path.clone())))
            }
            (Origin::Localhost(port), _) => Balancer::localhost(connector, *port),
            (Origin::Service(_), _) => {
                let service = config.service.as_ref();
                let service = service.expect("the snapshot resolves each service");
                Balancer::without_server(connector, Arc::clone(service))
            }
            (Origin::Name(..), name) => {
                let name = name.as_ref().expect("the snapshot resolves each name");
                Balancer::named(connector, Arc::clone(name))
            }
        }
    }
}
