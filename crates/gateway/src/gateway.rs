//! A gateway from its settings to its running cores.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::task::Poll;
use std::time::Duration;

use blitz_http::{Address, Config, Cores, Drain, Listener, ServeOptions, Service};

use crate::core::Core;
use crate::counters::{self, Counters};
use crate::options::Options;
use crate::routes::{DuplicateRoute, Routes};
use crate::target::{Origin, Target};
use crate::upstream::{Resolved, start_resolving};

/// How long a core may take to say its counters before they are left out.
const COUNTERS_PATIENCE: Duration = Duration::from_secs(1);

/// A reverse proxy, being set up.
///
/// Requests go to the target with the longest matching prefix; those that no target takes go to
/// the service that [`Gateway::start`] is given.
#[derive(Debug, Default)]
pub struct Gateway {
    listen: Vec<Address>,
    targets: Vec<Target>,
    options: Options,
    config: Config,
}

/// A gateway at work. Dropping it does not stop it.
pub struct Running {
    cores: Cores,
    addresses: Vec<Address>,
    routes: Routes<Target>,
}

/// Why a gateway cannot start.
#[derive(Debug)]
pub enum StartError {
    /// Two targets claim the same requests.
    Duplicate(DuplicateRoute),
    /// An address cannot be listened on.
    Listen(Address, io::Error),
    /// The cores or the control thread cannot be started.
    Start(io::Error),
}

impl Gateway {
    /// Without listeners and targets.
    #[must_use]
    pub fn new() -> Gateway {
        Gateway::default()
    }

    /// Listens on this address too.
    #[must_use]
    pub fn listen(mut self, address: Address) -> Gateway {
        self.listen.push(address);
        self
    }

    /// Adds a target.
    #[must_use]
    pub fn to(mut self, target: Target) -> Gateway {
        self.targets.push(target);
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
    /// `fallback` makes, once per core, what answers requests that no target takes. A program that
    /// wants to hear signals blocks them before.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub fn start<S: Service>(
        self,
        fallback: impl Fn() -> Rc<S> + Send + Sync + 'static,
    ) -> Result<Running, StartError> {
        let routes = Routes::new(self.targets).map_err(StartError::Duplicate)?;
        let mut addresses = Vec::with_capacity(self.listen.len());
        for address in self.listen {
            match Listener::reserve(&address) {
                Ok(settled) => addresses.push(settled),
                Err(error) => return Err(StartError::Listen(address, error)),
            }
        }
        let names = names(&routes);
        let names =
            start_resolving(&names, &self.options.name_servers).map_err(StartError::Start)?;
        let (started, starts) = mpsc::channel();
        let plan = Arc::new(Plan {
            routes: routes.map(Target::clone),
            names,
            addresses: addresses.clone(),
            options: Arc::new(self.options),
            fallback,
            started,
        });
        let cores = blitz_http::start(&self.config, move |_| serve_core(Arc::clone(&plan)))
            .map_err(StartError::Start)?;
        let running = Running {
            cores,
            addresses,
            routes,
        };
        for _ in 0..running.cores.count() {
            // A core that ends without a word has panicked; the panic said why.
            let ended = || StartError::Start(io::Error::other("a core ended while it started"));
            if let Err(error) = starts.recv().unwrap_or_else(|_| Err(ended())) {
                running.drain(Duration::ZERO);
                return Err(error);
            }
        }
        Ok(running)
    }
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

/// What every core starts from.
struct Plan<F> {
    routes: Routes<Target>,
    names: Vec<Arc<Resolved>>,
    addresses: Vec<Address>,
    options: Arc<Options>,
    fallback: F,
    started: Sender<Result<(), StartError>>,
}

/// Listens on every address and serves until drained.
async fn serve_core<S: Service, F: Fn() -> Rc<S>>(plan: Arc<Plan<F>>) {
    let mut listeners = Vec::with_capacity(plan.addresses.len());
    for address in &plan.addresses {
        match Listener::bind(address) {
            Ok(listener) => listeners.push(listener),
            Err(error) => {
                // The receiver has gone only if another core failed to start as well.
                let _ = plan
                    .started
                    .send(Err(StartError::Listen(address.clone(), error)));
                return;
            }
        }
    }
    let _ = plan.started.send(Ok(()));
    let core = Core::new(
        &plan.routes,
        &plan.names,
        Arc::clone(&plan.options),
        (plan.fallback)(),
    );
    let core = Rc::new(core);
    let options = Rc::new(ServeOptions {
        limits: plan.options.limits.clone(),
        ..ServeOptions::default()
    });
    let serving = listeners.into_iter().map(|listener| {
        Box::pin(blitz_http::serve(
            listener,
            Rc::clone(&core),
            Rc::clone(&options),
        ))
    });
    all(serving.collect()).await;
}

/// Waits until every listener is drained.
async fn all<F: Future<Output = ()>>(mut serving: Vec<Pin<Box<F>>>) {
    poll_fn(|cx| {
        serving.retain_mut(|serving| serving.as_mut().poll(cx).is_pending());
        if serving.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

impl Running {
    /// Where it listens, port 0 replaced by the port that was free.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The targets in the order in which they are asked.
    #[must_use]
    pub fn routes(&self) -> &Routes<Target> {
        &self.routes
    }

    /// The cores, with their driver and their own counters.
    #[must_use]
    pub fn cores(&self) -> &Cores {
        &self.cores
    }

    /// Stops accepting, lets running requests finish, and after `limit` drops what is left. A
    /// second call can only bring the end nearer.
    pub fn drain(&self, limit: Duration) {
        self.cores
            .post_all(move |_| Drain::of_core().trigger(limit));
    }

    /// Waits until every core has ended.
    ///
    /// # Errors
    /// A core failed.
    pub fn join(self) -> io::Result<()> {
        self.cores.join()
    }

    /// The proxy's and HTTP's counters, summed over the cores. Cores that have ended, or do not
    /// answer within a second, are left out.
    #[must_use]
    pub fn counters(&self) -> (Counters, blitz_http::Counters) {
        let (sender, receiver) = mpsc::channel();
        self.cores.post_all(move |_| {
            // Nobody waits any more for a core that is too late.
            let _ = sender.send((counters::counters(), blitz_http::counters()));
        });
        let mut sums = (Counters::default(), blitz_http::Counters::default());
        for _ in 0..self.cores.count() {
            let Ok((proxy, http)) = receiver.recv_timeout(COUNTERS_PATIENCE) else {
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
            StartError::Listen(Address::Tcp(address), error) => {
                write!(f, "cannot listen on {address}: {error}")
            }
            StartError::Listen(Address::Unix(path), error) => {
                write!(f, "cannot listen on unix:{}: {error}", path.display())
            }
            StartError::Start(error) => write!(f, "cannot start: {error}"),
        }
    }
}

impl std::error::Error for StartError {}
