//! The state that one core needs to forward requests. Cores share none of it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use blitz_site::folder::CoreFiles;
use blitz_site::{CoreLimits, Endpoint, EndpointMaker};

use crate::forward::LoopId;
use crate::options::Options;
use crate::snapshot::{CoreSnapshot, Snapshot, TakeSnapshot};
use crate::upstream::{ShedState, States, UpstreamSet, UpstreamState};

/// The gateway on one core. Its [`Service`](blitz_http::Service) is the life of a request.
pub(crate) struct GatewayService<E> {
    /// The newest one; requests hold older ones.
    pub(crate) snapshot: RefCell<Rc<CoreSnapshot>>,
    pub(crate) upstreams: RefCell<UpstreamSet>,
    pub(crate) options: Arc<Options>,
    /// The name of this gateway in `CDN-Loop`, the same on all cores.
    pub(crate) loop_id: LoopId,
    /// The apps of routes that this core has used.
    pub(crate) endpoints: RefCell<Vec<(EndpointMaker, Rc<dyn Endpoint>)>>,
    /// The counts of limits of routes.
    pub(crate) limits: CoreLimits,
    /// Requests of this core that wait for authorizers.
    pub(crate) waiting_for_authorizers: Rc<Cell<usize>>,
    /// Copies of requests that are sent, or will be.
    pub(crate) mirrored: Rc<Cell<usize>>,
    /// Answers requests that no target matches.
    pub(crate) fallback: Rc<E>,
    /// Working memory for field values; never borrowed across an await.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// The same for paths.
    pub(crate) path: RefCell<String>,
    pub(crate) files: CoreFiles,
}

impl<E> GatewayService<E> {
    /// The snapshot for a request, which keeps it until its end.
    #[inline]
    pub(crate) fn snapshot(&self) -> Rc<CoreSnapshot> {
        Rc::clone(&self.snapshot.borrow())
    }

    /// The app of a route on this core.
    pub(crate) fn endpoint(&self, maker: &EndpointMaker) -> Rc<dyn Endpoint> {
        let mut endpoints = self.endpoints.borrow_mut();
        if let Some((_, endpoint)) = endpoints.iter().find(|(known, _)| known == maker) {
            return Rc::clone(endpoint);
        }
        let endpoint = maker.on_core();
        endpoints.push((maker.clone(), Rc::clone(&endpoint)));
        endpoint
    }
}

impl<E> TakeSnapshot for GatewayService<E> {
    fn states(&self, snapshot: u64, range: &Range<usize>) -> States {
        self.snapshot().states(snapshot, range)
    }

    fn upstream_states(&self, count: usize) -> Vec<UpstreamState> {
        let upstreams = self.upstreams.borrow();
        upstreams.states(count, blitz_http::now()).collect()
    }

    fn shed_states(&self) -> Vec<ShedState> {
        self.upstreams.borrow().sheds.states().collect()
    }

    fn take(&self, snapshot: &Arc<Snapshot>) {
        // Those of the snapshot before would only take room.
        self.files.clear();
        let stays = |(maker, _): &(EndpointMaker, _)| snapshot.endpoints.contains(maker);
        self.endpoints.borrow_mut().retain(stays);
        let before = self.snapshot();
        let snapshot = CoreSnapshot::after(&before, snapshot, &mut self.upstreams.borrow_mut());
        *self.snapshot.borrow_mut() = Rc::new(snapshot);
    }
}
