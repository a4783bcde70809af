//! What one core holds to forward requests; nothing of it is shared with another.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use blitz_http::{Address, ClientTlsSlot, Exchange, Pool, Service, UpstreamTls};

use crate::options::Options;
use crate::request;
use crate::routes::Routes;
use crate::target::{Origin, Target};
use crate::upstream::{Connections, Endpoint, Resolved};

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
        tls: Option<&ClientTlsSlot>,
        options: Arc<Options>,
        https_port: Option<u16>,
        fallback: Rc<F>,
    ) -> Core<F> {
        let pool = Pool::new(options.client.clone());
        let routes = targets.map(|target| Route {
            target: target.clone(),
            endpoint: endpoint(target, names, tls, &pool),
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

fn endpoint(
    target: &Target,
    names: &[Arc<Resolved>],
    tls: Option<&ClientTlsSlot>,
    pool: &Pool,
) -> Endpoint {
    let tls = target.tls.then(|| {
        let tls = tls.and_then(|tls| UpstreamTls::new(tls, &target.host()).ok());
        tls.expect("the gateway has tried it before it started")
    });
    let connections = Connections {
        pool: pool.clone(),
        protocol: target.protocol,
        tls,
    };
    match &target.origin {
        Origin::Ip(address) => Endpoint::fixed(connections, &Address::Tcp(*address)),
        Origin::Unix(path) => Endpoint::fixed(connections, &Address::Unix(Arc::new(path.clone()))),
        Origin::Localhost(port) => Endpoint::localhost(connections, *port),
        Origin::Name(name, port) => {
            let resolved = names.iter().find(|resolved| resolved.is(name, *port));
            let resolved = resolved.expect("the gateway resolves every name of its targets");
            Endpoint::named(connections, Arc::clone(resolved))
        }
    }
}

impl<F: Service> Service for Core<F> {
    fn call(self: &Rc<Self>, exchange: Exchange) -> impl Future<Output = ()> + 'static {
        request::life_of_a_request(Rc::clone(self), exchange)
    }
}
