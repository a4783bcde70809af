//! The state that one core needs to forward requests. Cores share none of it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use blitz_http::{Address, ClientTlsSlot, Pool, UpstreamTls};

use crate::forward::LoopId;
use crate::options::Options;
use crate::record::Observers;
use crate::sites::Sites;
use crate::target::{Origin, Target};
use crate::upstream::{Balancer, Connector, ResolvedName};

/// The gateway on one core. Its [`Service`](blitz_http::Service) is the life of a request.
pub(crate) struct GatewayService<S> {
    pub(crate) sites: Sites<Route>,
    pub(crate) options: Arc<Options>,
    pub(crate) observers: Arc<Observers>,
    /// Where requests in clear text are redirected to, if they are.
    pub(crate) https_redirect: Option<HttpsRedirect>,
    /// What identifies this gateway in `CDN-Loop`, the same on all cores.
    pub(crate) loop_id: LoopId,
    /// Answers requests that no target matches.
    pub(crate) fallback: Rc<S>,
    /// Working memory for field values; never borrowed across an await.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// The same for paths.
    pub(crate) path: RefCell<String>,
}

/// The ports that decide about redirects to HTTPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HttpsRedirect {
    /// Port of the TLS listener; 443 if a proxy in front terminates TLS.
    pub(crate) tls_port: u16,
    /// Whether a listener for clear text has port 80.
    pub(crate) listens_on_http_port: bool,
}

/// A target and its upstream.
pub(crate) struct Route {
    pub(crate) target: Target,
    pub(crate) balancer: Balancer,
}

/// The targets with their upstreams. `names` are those of all targets, already being resolved.
pub(crate) fn routes_on_core(
    targets: &Sites<Target>,
    names: &[Arc<ResolvedName>],
    tls: Option<&ClientTlsSlot>,
    options: &Options,
) -> Sites<Route> {
    let pool = Pool::new(options.client.clone());
    targets.map(|target| Route {
        target: target.clone(),
        balancer: balancer(target, names, tls, &pool),
    })
}

fn balancer(
    target: &Target,
    names: &[Arc<ResolvedName>],
    tls: Option<&ClientTlsSlot>,
    pool: &Pool,
) -> Balancer {
    let tls = target.tls.then(|| {
        let tls = tls.and_then(|tls| UpstreamTls::new(tls, &target.host()).ok());
        tls.expect("the gateway built it once before it started")
    });
    let connector = Connector {
        pool: pool.clone(),
        protocol: target.protocol,
        tls,
    };
    match &target.origin {
        Origin::Ip(address) => Balancer::fixed(connector, &Address::Tcp(*address)),
        Origin::Unix(path) => Balancer::fixed(connector, &Address::Unix(Arc::new(path.clone()))),
        Origin::Localhost(port) => Balancer::localhost(connector, *port),
        Origin::Name(name, port) => {
            let resolved = names.iter().find(|resolved| resolved.is(name, *port));
            let resolved = resolved.expect("the gateway resolves every name of its targets");
            Balancer::named(connector, Arc::clone(resolved))
        }
    }
}
