//! The upstreams of a core. They belong to the core and not to its routes: routes with the same upstream share it, and it
//! outlives the configuration that named it first.

use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use blitz_http::{Address, ClientTlsSlot, Pool, Protocol, UpstreamTls};

use super::balancer::{Balancer, Connector};
use super::resolve::ResolvedName;
use crate::target::{Origin, Target};

/// What makes two targets the same upstream.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Identity {
    origin: Origin,
    protocol: Protocol,
    tls: bool,
}

/// All upstreams of a core that a route has.
pub(crate) struct UpstreamSet {
    pool: Pool,
    by_identity: HashMap<Identity, Weak<Balancer>>,
}

impl UpstreamSet {
    pub(crate) fn new(pool: Pool) -> UpstreamSet {
        UpstreamSet {
            pool,
            by_identity: HashMap::new(),
        }
    }

    /// The upstream of a target. `names` are those of all targets, already being resolved.
    pub(crate) fn get(
        &mut self,
        target: &Target,
        names: &[Arc<ResolvedName>],
        tls: Option<&ClientTlsSlot>,
    ) -> Rc<Balancer> {
        let identity = Identity {
            origin: target.origin.clone(),
            protocol: target.protocol,
            tls: target.tls,
        };
        if let Some(balancer) = self.by_identity.get(&identity).and_then(Weak::upgrade) {
            return balancer;
        }
        let balancer = Rc::new(self.balancer(target, names, tls));
        self.by_identity.insert(identity, Rc::downgrade(&balancer));
        balancer
    }

    /// Forgets the upstreams that no route has.
    pub(crate) fn prune(&mut self) {
        self.by_identity
            .retain(|_, balancer| balancer.strong_count() > 0);
    }

    fn balancer(
        &self,
        target: &Target,
        names: &[Arc<ResolvedName>],
        tls: Option<&ClientTlsSlot>,
    ) -> Balancer {
        let tls = target.tls.then(|| {
            let tls = tls.and_then(|tls| UpstreamTls::new(tls, &target.host()).ok());
            tls.expect("the gateway built it once before it was used")
        });
        let connector = Connector {
            pool: self.pool.clone(),
            protocol: target.protocol,
            tls,
        };
        match &target.origin {
            Origin::Ip(address) => Balancer::fixed(connector, &Address::Tcp(*address)),
            Origin::Unix(path) => {
                Balancer::fixed(connector, &Address::Unix(Arc::new(path.clone())))
            }
            Origin::Localhost(port) => Balancer::localhost(connector, *port),
            Origin::Name(name, port) => {
                let resolved = names.iter().find(|resolved| resolved.is(name, *port));
                let resolved = resolved.expect("the gateway resolves every name of its targets");
                Balancer::named(connector, Arc::clone(resolved))
            }
        }
    }
}
