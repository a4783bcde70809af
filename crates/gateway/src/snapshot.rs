//! What a configuration says, built aside and handed to all cores: a request keeps the snapshot that it began with.

use std::cell::RefCell;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use blitz_http::{ClientTls, ClientTlsSlot, Cores, TlsConfigError, UpstreamTls, core_local};

use crate::sites::{Site, Sites};
use crate::start_error::StartError;
use crate::target::{Origin, Target};
use crate::upstream::{Balancer, ResolvedName, Resolver, UpstreamSet};

/// A target and its upstream on a core.
pub(crate) struct Route {
    pub(crate) target: Target,
    pub(crate) balancer: Rc<Balancer>,
}

/// Sites with all that cores need to make their routes of them.
pub(crate) struct Snapshot {
    pub(crate) sites: Sites<Target>,
    names: Vec<Arc<ResolvedName>>,
    upstream_tls: Option<ClientTlsSlot>,
}

impl Snapshot {
    /// The routes on one core.
    pub(crate) fn on_core(&self, upstreams: &mut UpstreamSet) -> Sites<Route> {
        let routes = self.sites.map(|target| Route {
            target: target.clone(),
            balancer: upstreams.get(target, &self.names, self.upstream_tls.as_ref()),
        });
        upstreams.prune();
        routes
    }
}

/// Makes snapshots; the names and the TLS settings of upstreams are the same in all of them.
pub(crate) struct SnapshotMaker {
    resolver: Resolver,
    /// `None` until a target needs it.
    upstream_tls: Option<ClientTlsSlot>,
}

impl SnapshotMaker {
    pub(crate) fn new(resolver: Resolver, upstream_tls: Option<ClientTlsSlot>) -> SnapshotMaker {
        SnapshotMaker {
            resolver,
            upstream_tls,
        }
    }

    /// A snapshot of these sites.
    ///
    /// # Errors
    /// A target cannot be used.
    pub(crate) fn make(&mut self, sites: Sites<Target>) -> Result<Snapshot, StartError> {
        let upstream_tls = self.upstream_tls(&sites).map_err(StartError::Tls)?;
        let names = self.names(&sites).map_err(StartError::Resolve)?;
        Ok(Snapshot {
            sites,
            names,
            upstream_tls,
        })
    }

    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// The TLS settings if a target needs them. They are used once for each target, so that errors occur
    /// here and not on a core.
    fn upstream_tls(
        &mut self,
        sites: &Sites<Target>,
    ) -> Result<Option<ClientTlsSlot>, TlsConfigError> {
        let targets = sites.all_routes();
        let mut secure = targets.filter(|(_, target)| target.tls).peekable();
        if secure.peek().is_none() {
            return Ok(None);
        }
        let tls = match &self.upstream_tls {
            Some(tls) => tls,
            None => self
                .upstream_tls
                .insert(ClientTls::builder().build()?.into()),
        };
        for (_, target) in secure {
            UpstreamTls::new(tls, &target.host())?;
        }
        Ok(Some(tls.clone()))
    }

    /// All names that have to be resolved, without duplicates.
    fn names(&mut self, sites: &Sites<Target>) -> io::Result<Vec<Arc<ResolvedName>>> {
        let mut names: Vec<_> = sites
            .all_routes()
            .filter_map(|(_, target)| match &target.origin {
                Origin::Name(name, port) => Some((name.clone(), *port)),
                _ => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        self.resolver.resolve(&names)
    }
}

/// A gateway on a core, whose sites can be replaced.
pub(crate) trait TakeSnapshot {
    fn take(&self, snapshot: &Snapshot);
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
    cores.post_all(move |_| {
        let gateways = GATEWAYS.with_borrow(Clone::clone);
        let alive = gateways.iter().filter_map(Weak::upgrade);
        alive.for_each(|gateway| gateway.take(&snapshot));
    });
}

/// A running gateway whose sites can be replaced.
pub struct Reloading<'a> {
    cores: &'a Cores,
    maker: &'a mut SnapshotMaker,
}

impl<'a> Reloading<'a> {
    pub(crate) fn new(cores: &'a Cores, maker: &'a mut SnapshotMaker) -> Reloading<'a> {
        Reloading { cores, maker }
    }

    /// Replaces all sites. No connection is closed, and each request ends with the sites that it began with. Upstreams
    /// that stay keep their connections.
    ///
    /// # Errors
    /// A target contradicts another one or cannot be used; the sites stay as they are.
    pub fn replace_sites(&mut self, sites: Vec<Site>) -> Result<(), StartError> {
        let sites = Sites::new(sites, Vec::new(), false).map_err(StartError::Conflict)?;
        let snapshot = Arc::new(self.maker.make(sites)?);
        publish(self.cores, &snapshot);
        Ok(())
    }

    /// Resolves the names of upstreams again.
    pub fn resolve_again(&self) {
        self.maker.resolver().reload();
    }

    /// Whether targets have names.
    #[must_use]
    pub fn has_names(&self) -> bool {
        self.maker.resolver().has_names()
    }
}
