//! A gateway: its settings, its start, and its running cores.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use blitz_host::names::Resolver;
use blitz_host::serving::{self, BoundConfig, DrainTimes, EndError, ListenerConfig, Serving, Tick};
use blitz_http::{
    Address, Chunk, ClientTlsSlot, Config, Cores, DatagramListener, Fields, ForwardedClientRule,
    Peer, PeerRule, ProxyRule, Refusal, Refused, RefusedObserver, RequestHead, ResponseHead,
    ServeOptions, Signals, TlsSlot,
};
use blitz_site::folder::CoreFiles;
use blitz_site::metrics::set_series_max;
use blitz_site::{
    CoreLimits, Counters, Endpoint, Observers, SharedLimits, emit_handshake, emit_incomplete_head,
    emit_refused, error_page,
};

use crate::forward::{LoopId, add_request_id_to_response, told_client};
use crate::grpc;
use crate::health::HealthChecker;
use crate::https_redirect::HttpsRedirect;
use crate::metrics::{ConfigurationStatus, MetricsReader};
use crate::options::Options;
use crate::reloading::Reloading;
use crate::service::GatewayService;
use crate::sites::{Site, Sites};
use crate::snapshot::{CoreSnapshot, ObserverSettings, Snapshot, SnapshotMaker, register};
use crate::start_error::StartError;
use crate::stepped_reloads::SteppedReloads;
use crate::summary::Summary;
use crate::target::Target;
use crate::upstream::UpstreamSet;
use crate::upstream_report::StateReader;

/// How long to wait for the counters of a core; later ones are not included.
const COUNTERS_TIMEOUT: Duration = Duration::from_secs(1);

/// The settings of a reverse proxy that has not started.
///
/// A request goes to the target with the longest matching prefix, among those of its host's [`Site`], or else those
/// without a site; unmatched requests for other hosts than those of sites go to the service that [`Gateway::start`] is
/// given.
#[derive(Debug, Default)]
pub struct Gateway {
    listeners: Vec<ListenerConfig>,
    targets: Vec<Target>,
    sites: Vec<Site>,
    upstream_tls: Option<ClientTlsSlot>,
    options: Options,
    config: Config,
}

/// A running gateway. Dropping this does not stop it.
pub struct Running {
    serving: Serving,
    newest: Arc<ArcSwap<Snapshot>>,
    maker: SnapshotMaker,
    drain_delay: Duration,
    drain_timeout: Duration,
    summary_interval: Duration,
    status: ConfigurationStatus,
    series_max: usize,
}

/// A gateway on one core, until it is drained.
pub type OnCore = Pin<Box<dyn Future<Output = Result<(), StartError>>>>;

impl Gateway {
    /// A gateway without listeners and targets.
    #[must_use]
    pub fn new() -> Gateway {
        Gateway::default()
    }

    /// Adds a listener. An address alone means clear text.
    #[must_use]
    pub fn listen(mut self, listener: impl Into<ListenerConfig>) -> Gateway {
        self.listeners.push(listener.into());
        self
    }

    /// Adds a listener for TLS. Settings that are put into the slot later apply to later
    /// handshakes.
    #[must_use]
    pub fn listen_tls(self, address: Address, tls: TlsSlot) -> Gateway {
        self.listen(ListenerConfig::secure(address, tls))
    }

    /// Adds a target.
    #[must_use]
    pub fn to(mut self, target: Target) -> Gateway {
        self.targets.push(target);
        self
    }

    /// Adds a site.
    #[must_use]
    pub fn site(mut self, site: Site) -> Gateway {
        self.sites.push(site);
        self
    }

    /// TLS settings for targets with `https://`. By default the well-known authorities are trusted,
    /// and no certificate is sent. Settings that are put into the slot later apply to new
    /// connections, and existing connections get no more requests.
    #[must_use]
    pub fn upstream_tls(mut self, tls: impl Into<ClientTlsSlot>) -> Gateway {
        self.upstream_tls = Some(tls.into());
        self
    }

    /// Sets limits, deadlines and behaviour.
    #[must_use]
    pub fn options(mut self, options: Options) -> Gateway {
        self.options = options;
        self
    }

    /// Sets cores and driver.
    #[must_use]
    pub fn config(mut self, config: Config) -> Gateway {
        self.config = config;
        self
    }

    /// Starts listeners on every core, and returns when all cores serve.
    ///
    /// `fallback` makes the service for unmatched requests, once per core. A program that waits for
    /// signals [installs](Signals::install) its handlers first.
    ///
    /// # Errors
    /// [`StartError`]; no core runs then.
    pub fn start<E: Endpoint>(
        mut self,
        fallback: impl Fn() -> Rc<E> + Send + Sync + 'static,
    ) -> Result<Running, StartError> {
        let resolver = Resolver::new(&self.options.name_servers);
        let mut maker = SnapshotMaker::new(resolver, self.upstream_tls, self.options.sticky_secret);
        let sites = Sites::new(self.sites, self.targets, self.options.redirect_https);
        let sites = sites.map_err(StartError::Conflict)?;
        let listeners = serving::reserve(self.listeners)?;
        let redirect = HttpsRedirect::of(listeners.configs());
        let snapshot = maker.make(sites, redirect, observed(&mut self.options))?;
        let newest = Arc::new(ArcSwap::from_pointee(snapshot));
        let Options {
            drain_delay,
            drain_timeout,
            ..
        } = self.options;
        let summary_interval = self.options.summary_interval;
        let series_max = self.options.series_max;
        let config = Config {
            lingering: blitz_http::lingering(&self.options.limits),
            ..self.config
        };
        let options = self.options;
        let make = service_maker(&newest, options, fallback);
        let serving = serving::start(listeners, &config, make)?;
        Ok(Running {
            serving,
            newest,
            maker,
            drain_delay,
            drain_timeout,
            summary_interval,
            status: ConfigurationStatus::new(),
            series_max,
        })
    }

    /// A future that listens and serves on one core until it is drained, for programs that start
    /// their cores themselves, as simulations do, and how they replace its sites. Each call makes the future of one
    /// core. `datagrams` returns the UDP sockets of a listener that is to serve HTTP/3. Unlike [`Gateway::start`], this
    /// does not check whether another process listens on the addresses.
    ///
    /// # Errors
    /// [`StartError`]; the futures return the error of their core's listeners.
    pub fn on_cores<E: Endpoint, F: Fn() -> Rc<E> + Send + Sync + 'static>(
        mut self,
        datagrams: &dyn Fn(&ListenerConfig) -> Option<DatagramListener>,
        fallback: F,
    ) -> Result<(impl Fn() -> OnCore + use<E, F>, SteppedReloads), StartError> {
        let resolver = Resolver::new(&self.options.name_servers);
        let mut maker = SnapshotMaker::new(resolver, self.upstream_tls, self.options.sticky_secret);
        let sites = Sites::new(self.sites, self.targets, self.options.redirect_https);
        let sites = sites.map_err(StartError::Conflict)?;
        let listeners = self.listeners;
        let redirect = HttpsRedirect::of(&listeners);
        let observed = observed(&mut self.options);
        let snapshot = maker.make(sites, redirect, observed)?;
        let newest = Arc::new(ArcSwap::from_pointee(snapshot));
        let make = Rc::new(service_maker(&newest, self.options, fallback));
        let bound = |config: ListenerConfig| {
            let datagrams = datagrams(&config);
            (config, datagrams)
        };
        let listeners: Vec<BoundConfig> = listeners.into_iter().map(bound).collect();
        let on_core = move || {
            let (listeners, make) = (listeners.clone(), Rc::clone(&make));
            let serving = async move { serving::serve_on_core(&listeners, || make()).await };
            Box::pin(async { serving.await.map_err(StartError::Serving) }) as OnCore
        };
        Ok((on_core, SteppedReloads::new(maker, newest, redirect)))
    }
}

/// Takes the access log out of the options, which outlive its replacement by a reload.
fn observed(options: &mut Options) -> ObserverSettings {
    ObserverSettings {
        access_log: options.access_log.take(),
        tracing: options.tracing,
    }
}

/// A function that makes the service of a core and its options.
fn service_maker<E: Endpoint, F: Fn() -> Rc<E> + Send + Sync + 'static>(
    newest: &Arc<ArcSwap<Snapshot>>,
    options: Options,
    fallback: F,
) -> impl Fn() -> (Rc<GatewayService<E>>, ServeOptions) + Send + Sync + use<E, F> {
    let trusted = options.trusted_proxies.clone();
    let told = move |fields: &Fields, remote| told_client(fields, remote, &trusted);
    let hook = options.record_hook.clone();
    let observers = Observers::new(hook, Box::new(told), blitz_host::log::dropped_lines);
    let observers = Arc::new(observers.with_sink(options.record_sink.clone()));
    let options = Arc::new(options);
    let newest = Arc::clone(newest);
    let random_id = OnceLock::new();
    let limits = OnceLock::new();
    move || {
        let loop_id = options.loop_id.as_ref();
        let loop_id = loop_id
            .unwrap_or_else(|| random_id.get_or_init(|| LoopId::random(blitz_http::random_u64())));
        let limits = limits.get_or_init(|| {
            let (cores, now) = (blitz_http::core_count(), blitz_http::now());
            let limits = SharedLimits::new(cores, blitz_http::random_u64(), now);
            Arc::new(match &options.rate_store {
                Some(store) => limits.with_store(Arc::clone(store)),
                None => limits,
            })
        });
        set_series_max(options.series_max);
        let mut upstreams = UpstreamSet::new(options.client.clone());
        let snapshot = CoreSnapshot::first(&newest.load_full(), &observers, &mut upstreams);
        let service = Rc::new(GatewayService {
            snapshot: RefCell::new(Rc::new(snapshot)),
            upstreams: RefCell::new(upstreams),
            options: Arc::clone(&options),
            loop_id: loop_id.clone(),
            endpoints: RefCell::default(),
            limits: CoreLimits::new(limits),
            waiting_for_authorizers: Rc::default(),
            mirrored: Rc::default(),
            fallback: fallback(),
            scratch: RefCell::default(),
            path: RefCell::default(),
            files: CoreFiles::default(),
        });
        register(&service);
        let options = ServeOptions {
            limits: options.limits.clone(),
            refusal: Some(Rc::new(refuse)),
            refused: Some(record_refused(&service)),
            forwarded_client: Some(forwarded_client(&options)),
            h2c_upgrade: h2c_upgrade(&options),
            proxy_protocol: Some(proxies(&options)),
            alt_svc_withheld: Some(is_trusted(&options)),
            ..ServeOptions::default()
        };
        (service, options)
    }
}

/// Content and fields of a refusal that the gateway has no record of.
fn refuse(refusal: Refusal, fields: &Fields, head: &mut ResponseHead) -> Option<Chunk> {
    add_request_id_to_response(fields, head);
    grpc::refusal(refusal, fields, head).or_else(|| error_page(fields, head, refusal.rule))
}

/// Emits the record of a request that the server has refused, of a failed handshake or of an incomplete head.
fn record_refused<E: Endpoint>(service: &Rc<GatewayService<E>>) -> Rc<RefusedObserver> {
    let gateway = Rc::clone(service);
    Rc::new(move |refused: &Refused<'_>| {
        let snapshot = gateway.snapshot();
        let observers = snapshot.observers();
        let site = |head: Option<&RequestHead>, peer: &Peer| {
            let site = snapshot.sites().find(head?, peer.listener)?;
            site.name()
        };
        match refused {
            Refused::Request(refused) => {
                emit_refused(refused, site(refused.head, refused.peer), observers);
            }
            Refused::Handshake(failed) => emit_handshake(failed, observers),
            Refused::IncompleteHead(head) => {
                emit_incomplete_head(head, site(head.head, head.peer), observers);
            }
        }
    })
}

/// Whether a client may switch to HTTP/2 with `Upgrade`: all but trusted proxies, since later
/// requests of the connection would bypass their access rules.
fn h2c_upgrade(options: &Arc<Options>) -> Option<Rc<PeerRule>> {
    let trusted = Arc::clone(options);
    let is_allowed = move |peer: &Peer| !trusted.trusted_proxies.contains(peer);
    options.h2c_upgrade.then(|| Rc::new(is_allowed) as _)
}

/// The client that a trusted proxy tells.
fn forwarded_client(options: &Arc<Options>) -> Rc<ForwardedClientRule> {
    let trusted = Arc::clone(options);
    Rc::new(move |fields, remote| told_client(fields, remote, &trusted.trusted_proxies))
}

/// Which proxies may send PROXY headers, on listeners that have them.
fn proxies(options: &Arc<Options>) -> Rc<ProxyRule> {
    let trusted = Arc::clone(options);
    Rc::new(move |remote| trusted.trusted_proxies.contains_remote(remote))
}

/// Proxies would pass `Alt-Svc` on to clients, for which it is not meant.
fn is_trusted(options: &Arc<Options>) -> Rc<PeerRule> {
    let trusted = Arc::clone(options);
    Rc::new(move |peer: &Peer| trusted.trusted_proxies.contains(peer))
}

impl Running {
    /// The listeners; port 0 is replaced by the port that was chosen.
    pub fn listeners(&self) -> impl Iterator<Item = &ListenerConfig> + Clone {
        self.serving.listeners()
    }

    /// Calls `look` with the sites in use; targets without a site are one of their own.
    pub fn with_sites<T>(&self, look: impl FnOnce(&Sites) -> T) -> T {
        look(&self.newest.load().sites)
    }

    /// The cores, with their driver and their own counters.
    #[must_use]
    pub fn cores(&self) -> &Cores {
        self.serving.cores()
    }

    /// Reads its state from other threads.
    #[must_use]
    pub fn state_reader(&self) -> StateReader {
        StateReader::new(self.cores().handle(), &self.newest)
    }

    /// The checker of the servers of its upstreams, which a program runs on a core beside those of the gateway.
    #[must_use]
    pub fn health_checker(&self) -> HealthChecker {
        HealthChecker::new(&self.newest)
    }

    /// Replaces its sites while it runs, for programs that wait for no signals.
    pub fn reloading(&mut self) -> Reloading<'_> {
        Reloading::new(
            &mut self.serving,
            &mut self.maker,
            &self.newest,
            self.drain_timeout,
            &self.status,
        )
    }

    /// A reader of its metrics, for any thread. It can be used as long as the cores run.
    #[must_use]
    pub fn metrics(&self) -> MetricsReader {
        let labels = Arc::clone(self.maker.labels());
        let status = self.status.clone();
        let reader = MetricsReader::new(self.cores(), labels, status, self.series_max);
        let newest = Arc::clone(&self.newest);
        reader.with_servers(move || newest.load().server_facts())
    }

    /// Stops accepting, lets requests complete, and drops the rest after `limit`. A second call can
    /// only shorten the time.
    pub fn drain(&self, limit: Duration) {
        self.serving.drain(limit);
    }

    /// Waits until every core has ended.
    ///
    /// # Errors
    /// A core failed.
    pub fn join(self) -> io::Result<()> {
        self.serving.join()
    }

    /// Runs until a signal: TERM and QUIT let requests complete within the options' `drain_delay` and
    /// `drain_timeout`, INT and a second TERM drop them. HUP resolves the names of targets again.
    ///
    /// # Errors
    /// [`EndError`]: the gateway ended without a signal.
    pub fn run_until_signal(self, signals: &Signals) -> Result<(), EndError> {
        self.run_until_signal_with(signals, |tick, running| {
            if tick == Tick::Reload {
                running.resolve_again();
            }
        })
    }

    /// Runs until a signal, and calls `on_tick` on the calling thread, on HUP, on USR1 and at least once a second
    /// while no signal arrives. HUP and USR1 do nothing by themselves.
    ///
    /// # Errors
    /// [`EndError`]: the gateway ended without a signal.
    pub fn run_until_signal_with(
        self,
        signals: &Signals,
        mut on_tick: impl FnMut(Tick, &mut Reloading<'_>),
    ) -> Result<(), EndError> {
        let Running {
            serving,
            drain_delay,
            drain_timeout,
            summary_interval,
            mut maker,
            newest,
            status,
            series_max: _,
        } = self;
        let times = DrainTimes {
            delay: drain_delay,
            timeout: drain_timeout,
        };
        let mut summary = Summary::new(summary_interval, Instant::now());
        serving.run_until_signal_with(signals, times, |serving, tick| {
            match tick {
                Tick::Drain => summary.end(counters_of(serving.cores())),
                Tick::Reload | Tick::Reopen | Tick::Periodic | Tick::NotReady => {
                    summary.tick(Instant::now(), || counters_of(serving.cores()));
                }
            }
            if maker.free_retired() {
                blitz_http::trim_heap();
            }
            let mut running = Reloading::new(serving, &mut maker, &newest, drain_timeout, &status);
            running.follow_services();
            on_tick(tick, &mut running);
        })
    }

    /// The counters of the gateway and of HTTP, summed over the cores. Cores that have ended, or do
    /// not report within a second, are not included.
    #[must_use]
    pub fn counters(&self) -> (Counters, blitz_http::Counters) {
        counters_of(self.cores())
    }
}

fn counters_of(cores: &Cores) -> (Counters, blitz_http::Counters) {
    let (sender, receiver) = mpsc::channel();
    cores.post_all(move |_| {
        // Fails if the core is too late.
        let _ = sender.send((blitz_site::counters(), blitz_http::counters()));
    });
    let mut sums = (Counters::default(), blitz_http::Counters::default());
    for _ in 0..cores.count() {
        let Ok((gateway, http)) = receiver.recv_timeout(COUNTERS_TIMEOUT) else {
            break;
        };
        sums.0.add(&gateway);
        sums.1.add(&http);
    }
    sums
}
