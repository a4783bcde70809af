//! What one core holds to forward requests; nothing of it is shared with another.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use blitz_http::{Address, Exchange, Pool, Service};

use crate::options::Options;
use crate::request;
use crate::routes::Routes;
use crate::target::{Origin, Target};
use crate::upstream::{Endpoint, Resolved, Speaking};

/// The gateway on one core.
pub(crate) struct Core<F> {
    pub(crate) routes: Routes<Route>,
    pub(crate) options: Arc<Options>,
    /// Where clients in clear text are sent, if they are: the port of HTTPS.
    pub(crate) https_port: Option<u16>,
    /// Answers what no target takes.
    pub(crate) fallback: Rc<F>,
    /// Working memory for field values; never borrowed across an await.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// The same for paths.
    pub(crate) path: RefCell<String>,
}

/// A target and its upstream.
pub(crate) struct Route {
    pub(crate) target: Target,
    pub(crate) endpoint: Endpoint,
}

impl<F: Service> Core<F> {
    /// `names` are those that the targets need, being resolved.
    pub(crate) fn new(
        targets: &Routes<Target>,
        names: &[Arc<Resolved>],
        options: Arc<Options>,
        https_port: Option<u16>,
        fallback: Rc<F>,
    ) -> Core<F> {
        let pool = Pool::new(options.client.clone());
        let routes = targets.map(|target| Route {
            target: target.clone(),
            endpoint: endpoint(target, names, &pool),
        });
        Core {
            routes,
            options,
            https_port,
            fallback,
            scratch: RefCell::default(),
            path: RefCell::default(),
        }
    }
}

fn endpoint(target: &Target, names: &[Arc<Resolved>], pool: &Pool) -> Endpoint {
    let pool = Speaking {
        pool: pool.clone(),
        protocol: target.protocol,
    };
    match &target.origin {
        Origin::Ip(address) => Endpoint::fixed(pool, &Address::Tcp(*address)),
        Origin::Unix(path) => Endpoint::fixed(pool, &Address::Unix(Arc::new(path.clone()))),
        Origin::Localhost(port) => Endpoint::localhost(pool, *port),
        Origin::Name(name, port) => {
            let resolved = names.iter().find(|resolved| resolved.is(name, *port));
            let resolved = resolved.expect("the gateway resolves every name of its targets");
            Endpoint::named(pool, Arc::clone(resolved))
        }
    }
}

impl<F: Service> Service for Core<F> {
    fn call(self: &Rc<Self>, exchange: Exchange) -> impl Future<Output = ()> + 'static {
        request::life_of_a_request(Rc::clone(self), exchange)
    }
}
