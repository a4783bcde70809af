//! A gateway from its settings to its running cores.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use blitz::serving::{self, EndError, ListenerConfig, Serving, Tick};
use blitz_http::{
    Address, ClientTls, ClientTlsSlot, Config, Cores, H2cUpgrade, Peer, ServeOptions, Service,
    Signals, TlsConfigError, TlsSlot, UpstreamTls,
};

use crate::counters::{self, Counters};
use crate::grpc;
use crate::options::Options;
use crate::routes::{DuplicateRoute, Routes};
use crate::service::GatewayService;
use crate::target::{Origin, Target};
use crate::upstream::start_resolving;

/// How long a core may take to report its counters before they are left out.
const COUNTERS_TIMEOUT: Duration = Duration::from_secs(1);

/// A reverse proxy, being set up.
///
/// A request goes to the target with the longest matching prefix; unmatched requests go to the
/// service that [`Gateway::start`] is given.
#[derive(Debug, Default)]
pub struct Gateway {
    listen: Vec<ListenerConfig>,
    targets: Vec<Target>,
    upstream_tls: Option<ClientTlsSlot>,
    options: Options,
    config: Config,
}

/// A gateway at work. Dropping it does not stop it.
pub struct Running {
    serving: Serving,
    routes: Routes<Target>,
    drain_timeout: Duration,
}

/// A gateway on one core, until it is drained.
pub type OnCore = Pin<Box<dyn Future<Output = Result<(), StartError>>>>;

/// Why a gateway cannot start.
#[derive(Debug)]
pub enum StartError {
    /// Two targets claim the same requests.
    Duplicate(DuplicateRoute),
    /// It cannot listen, or the cores cannot be started.
    Serving(serving::StartError),
    /// The TLS settings do not suit a target.
    Tls(TlsConfigError),
    /// The control thread, which resolves names, cannot be started.
    Resolve(io::Error),
}

impl Gateway {
    /// Without listeners and targets.
    #[must_use]
    pub fn new() -> Gateway {
        Gateway::default()
    }

    /// Listens there too; of an address alone, in clear text.
    #[must_use]
    pub fn listen(mut self, endpoint: impl Into<ListenerConfig>) -> Gateway {
        self.listen.push(endpoint.into());
        self
    }

    /// Listens on this address too, over TLS. Settings put into the slot later apply to later
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

    /// TLS settings for targets with `https://`. Without them the well-known authorities are trusted,
    /// and no certificate is sent. Settings put into the slot later apply to new connections, and
    /// existing connections get no more requests.
    #[must_use]
    pub fn upstream_tls(mut self, tls: impl Into<ClientTlsSlot>) -> Gateway {
        self.upstream_tls = Some(tls.into());
        self
    }

    /// Sets bounds and deadlines.
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

    /// Starts to listen and serve on every core; returns once all of them do.
    ///
    /// `fallback` makes the service for unmatched requests, once per core. A program that
    /// waits for signals [installs](Signals::install) its handlers before.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub fn start<S: Service>(
        self,
        fallback: impl Fn() -> Rc<S> + Send + Sync + 'static,
    ) -> Result<Running, StartError> {
        let routes = Routes::new(self.targets).map_err(StartError::Duplicate)?;
        let upstream_tls = upstream_tls(&routes, self.upstream_tls).map_err(StartError::Tls)?;
        let endpoints = serving::reserve(self.listen)?;
        let drain_timeout = self.options.drain_timeout;
        let make = maker(&routes, upstream_tls, self.options, &endpoints, fallback)?;
        let serving = serving::start(endpoints, &self.config, make)?;
        Ok(Running {
            serving,
            routes,
            drain_timeout,
        })
    }

    /// A future that listens and serves on one core until it is drained, for programs that start
    /// their cores themselves, as simulations do. Each call makes the future of one core. Unlike
    /// [`Gateway::start`], this does not check whether another process listens on the addresses.
    ///
    /// # Errors
    /// [`StartError`]; the futures return the error of their core's listeners.
    pub fn on_cores<S: Service>(
        self,
        fallback: impl Fn() -> Rc<S> + Send + Sync + 'static,
    ) -> Result<impl Fn() -> OnCore, StartError> {
        let routes = Routes::new(self.targets).map_err(StartError::Duplicate)?;
        let upstream_tls = upstream_tls(&routes, self.upstream_tls).map_err(StartError::Tls)?;
        let endpoints = self.listen;
        let make = maker(&routes, upstream_tls, self.options, &endpoints, fallback)?;
        let make = Rc::new(make);
        Ok(move || {
            let (endpoints, make) = (endpoints.clone(), Rc::clone(&make));
            let serving = async move { serving::serve_on_core(&endpoints, || make()).await };
            Box::pin(async { serving.await.map_err(StartError::Serving) }) as OnCore
        })
    }
}

/// A function that makes the service of a core and its options.
fn maker<S: Service, F: Fn() -> Rc<S> + Send + Sync + 'static>(
    routes: &Routes<Target>,
    upstream_tls: Option<ClientTlsSlot>,
    options: Options,
    endpoints: &[ListenerConfig],
    fallback: F,
) -> Result<impl Fn() -> (Rc<GatewayService<S>>, ServeOptions) + Send + Sync + use<S, F>, StartError>
{
    let names = start_resolving(&names(routes), &options.name_servers);
    let names = names.map_err(StartError::Resolve)?;
    let https_port = options.redirect_https.then(|| https_port(endpoints));
    let options = Arc::new(options);
    let targets = routes.map(Target::clone);
    Ok(move || {
        let core = GatewayService::new(
            &targets,
            &names,
            upstream_tls.as_ref(),
            Arc::clone(&options),
            https_port,
            fallback(),
        );
        let options = ServeOptions {
            limits: options.limits.clone(),
            refusal: Some(Rc::new(grpc::refusal)),
            h2c_upgrade: h2c_upgrade(&options),
            ..ServeOptions::default()
        };
        (Rc::new(core), options)
    })
}

/// Whether a client may switch to HTTP/2 with `Upgrade`: all but trusted proxies, since later
/// requests of the connection would bypass their access rules.
fn h2c_upgrade(options: &Arc<Options>) -> Option<Rc<H2cUpgrade>> {
    let trusted = Arc::clone(options);
    let is_allowed = move |peer: &Peer| !trusted.trusted_proxies.contains(peer);
    options.h2c_upgrade.then(|| Rc::new(is_allowed) as _)
}

/// The port of the first TLS listener; 443 if a proxy in front terminates TLS.
fn https_port(endpoints: &[ListenerConfig]) -> u16 {
    let ports = endpoints.iter().filter_map(|endpoint| match endpoint {
        ListenerConfig {
            address: Address::Tcp(address),
            tls: Some(_),
            ..
        } => Some(address.port()),
        _ => None,
    });
    ports.into_iter().next().unwrap_or(443)
}

/// The TLS settings if a target needs them, tried once so that they work on every core.
fn upstream_tls(
    routes: &Routes<Target>,
    given: Option<ClientTlsSlot>,
) -> Result<Option<ClientTlsSlot>, TlsConfigError> {
    let mut secure = routes.iter().filter(|(_, target)| target.tls).peekable();
    if secure.peek().is_none() {
        return Ok(None);
    }
    let tls = match given {
        Some(tls) => tls,
        None => ClientTls::builder().build()?.into(),
    };
    for (_, target) in secure {
        UpstreamTls::new(&tls, &target.host())?;
    }
    Ok(Some(tls))
}

/// Every name that has to be resolved, once.
fn names(routes: &Routes<Target>) -> Vec<(String, u16)> {
    let mut names: Vec<_> = routes
        .iter()
        .filter_map(|(_, target)| match &target.origin {
            Origin::Name(name, port) => Some((name.clone(), *port)),
            _ => None,
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl Running {
    /// Where it listens, port 0 replaced by the port that was free.
    #[must_use]
    pub fn listeners(&self) -> &[ListenerConfig] {
        self.serving.listeners()
    }

    /// The targets in the order in which they match.
    #[must_use]
    pub fn routes(&self) -> &Routes<Target> {
        &self.routes
    }

    /// The cores, with their driver and their own counters.
    #[must_use]
    pub fn cores(&self) -> &Cores {
        self.serving.cores()
    }

    /// Stops accepting, lets running requests finish, and after `limit` drops what is left. A
    /// second call can only bring the end nearer.
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

    /// Serves until a signal ends it: TERM and QUIT let requests finish within the options'
    /// `drain_timeout`, INT drops them.
    ///
    /// # Errors
    /// [`EndError`]: the end came in another way.
    pub fn run_until_signal(self, signals: &Signals) -> Result<(), EndError> {
        self.serving.run_until_signal(signals, self.drain_timeout)
    }

    /// As [`Running::run_until_signal`], and calls `keep` on the calling thread when there may be something to
    /// do for those who serve.
    ///
    /// # Errors
    /// [`EndError`]: the end came in another way.
    pub fn run_until_signal_with(
        self,
        signals: &Signals,
        keep: impl FnMut(Tick),
    ) -> Result<(), EndError> {
        self.serving
            .run_until_signal_with(signals, self.drain_timeout, keep)
    }

    /// The proxy's and HTTP's counters, summed over the cores. Cores that have ended, or do not
    /// answer within a second, are left out.
    #[must_use]
    pub fn counters(&self) -> (Counters, blitz_http::Counters) {
        let (sender, receiver) = mpsc::channel();
        self.cores().post_all(move |_| {
            // Fails if the core is too late.
            let _ = sender.send((counters::counters(), blitz_http::counters()));
        });
        let mut sums = (Counters::default(), blitz_http::Counters::default());
        for _ in 0..self.cores().count() {
            let Ok((proxy, http)) = receiver.recv_timeout(COUNTERS_TIMEOUT) else {
                break;
            };
            sums.0.add(&proxy);
            sums.1.add(&http);
        }
        sums
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Duplicate(duplicate) => duplicate.fmt(f),
            StartError::Serving(error) => error.fmt(f),
            StartError::Tls(error) => error.fmt(f),
            StartError::Resolve(error) => write!(f, "cannot start to resolve names: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<serving::StartError> for StartError {
    fn from(error: serving::StartError) -> StartError {
        StartError::Serving(error)
    }
}
