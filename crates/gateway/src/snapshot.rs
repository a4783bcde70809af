//! What a configuration says, built aside and handed to all cores: a request keeps the snapshot that it began with.
//!
//! A snapshot has no state of a core. A route holds the number of its upstream, and each core finds the state of that
//! upstream by its identity when a request needs it first.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use arc_swap::ArcSwap;
use blitz_host::names::Resolver;
use blitz_http::{ClientTls, ClientTlsSlot, Cores, TlsConfigError, UpstreamTls, core_local};

use crate::counters::count;
use crate::https_redirect::HttpsRedirect;
use crate::sites::{Site, Sites};
use crate::start_error::StartError;
use crate::target::{Origin, Target};
use crate::upstream::{Balancer, Identity, UpstreamConfig, UpstreamSet};

/// Sites, their upstreams, and where clear text is redirected to.
pub(crate) struct Snapshot {
    pub(crate) sites: Sites,
    https_redirect: HttpsRedirect,
    upstreams: Vec<UpstreamConfig>,
    /// The position of each upstream.
    numbers: HashMap<Identity, usize>,
}

/// A snapshot on a core.
pub(crate) struct CoreSnapshot {
    shared: Arc<Snapshot>,
    /// The upstreams by their numbers, empty until they are needed.
    balancers: Box<[OnceCell<Rc<Balancer>>]>,
}

impl CoreSnapshot {
    /// Upstreams of the core that the snapshot has keep their state; the others are forgotten.
    pub(crate) fn new(shared: &Arc<Snapshot>, upstreams: &mut UpstreamSet) -> CoreSnapshot {
        let empty = || OnceCell::new();
        let balancers: Box<[_]> = shared.upstreams.iter().map(|_| empty()).collect();
        upstreams.retain(|identity, balancer| {
            let number = shared.numbers.get(identity);
            number.is_some_and(|number| balancers[*number].set(Rc::clone(balancer)).is_ok())
        });
        count(|counters| counters.snapshots += 1);
        CoreSnapshot {
            shared: Arc::clone(shared),
            balancers,
        }
    }

    pub(crate) fn sites(&self) -> &Sites {
        &self.shared.sites
    }

    pub(crate) fn https_redirect(&self) -> HttpsRedirect {
        self.shared.https_redirect
    }

    /// The state of an upstream of this snapshot.
    #[inline]
    pub(crate) fn balancer(
        &self,
        number: usize,
        upstreams: &RefCell<UpstreamSet>,
    ) -> &Rc<Balancer> {
        self.balancers[number].get_or_init(|| {
            let config = &self.shared.upstreams[number];
            upstreams.borrow_mut().get(config)
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
}

impl SnapshotMaker {
    pub(crate) fn new(resolver: Resolver, upstream_tls: Option<ClientTlsSlot>) -> SnapshotMaker {
        SnapshotMaker {
            resolver,
            upstream_tls,
            retired: Vec::new(),
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
    ) -> Result<Snapshot, StartError> {
        self.resolver.prune();
        let mut numbers = HashMap::new();
        let mut upstreams = Vec::new();
        for forward in sites.forwards_mut() {
            let identity = Identity::new(&forward.target, forward.connect_timeout);
            let number = match numbers.get(&identity) {
                Some(number) => *number,
                None => {
                    upstreams.push(self.upstream(&identity, &forward.target)?);
                    numbers.insert(identity, upstreams.len() - 1);
                    upstreams.len() - 1
                }
            };
            forward.upstream = number;
        }
        Ok(Snapshot {
            sites,
            https_redirect,
            upstreams,
            numbers,
        })
    }

    pub(crate) fn make_of(
        &mut self,
        sites: Vec<Site>,
        https_redirect: HttpsRedirect,
    ) -> Result<Arc<Snapshot>, StartError> {
        let sites = Sites::new(sites, Vec::new(), false).map_err(StartError::Conflict)?;
        Ok(Arc::new(self.make(sites, https_redirect)?))
    }

    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Keeps a snapshot that was replaced, until no core has it any more.
    pub(crate) fn retire(&mut self, snapshot: Arc<Snapshot>) {
        self.retired.push(snapshot);
    }

    /// Frees the snapshots that no core has any more.
    pub(crate) fn free_retired(&mut self) {
        self.retired
            .retain(|snapshot| Arc::strong_count(snapshot) > 1);
    }

    fn upstream(
        &mut self,
        identity: &Identity,
        target: &Target,
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
        Ok(UpstreamConfig {
            identity: identity.clone(),
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

/// A gateway on a core, whose sites can be replaced.
pub(crate) trait TakeSnapshot {
    fn take(&self, snapshot: &Arc<Snapshot>);
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

/// Hands a snapshot to all cores. Each takes it between two turns of its tasks.
pub(crate) fn publish(cores: &Cores, snapshot: &Arc<Snapshot>) {
    let snapshot = Arc::clone(snapshot);
    cores.post_all(move |_| take_on_core(&snapshot));
}

fn take_on_core(snapshot: &Arc<Snapshot>) {
    let gateways = GATEWAYS.with_borrow(Clone::clone);
    let alive = gateways.iter().filter_map(Weak::upgrade);
    alive.for_each(|gateway| gateway.take(snapshot));
}

/// Replaces the sites of a gateway whose cores a program has started itself
/// ([`Gateway::on_cores`](crate::Gateway::on_cores)).
pub struct SteppedReloads {
    maker: SnapshotMaker,
    newest: Arc<ArcSwap<Snapshot>>,
    https_redirect: HttpsRedirect,
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
        let snapshot = self.maker.make_of(sites, self.https_redirect)?;
        let before = self.newest.swap(Arc::clone(&snapshot));
        self.maker.retire(before);
        Ok(NewSites(snapshot))
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
