//! The state that one core needs to forward requests. Cores share none of it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::forward::LoopId;
use crate::options::Options;
use crate::record::Observers;
use crate::snapshot::{CoreSnapshot, Snapshot, TakeSnapshot};
use crate::upstream::UpstreamSet;

/// The gateway on one core. Its [`Service`](blitz_http::Service) is the life of a request.
pub(crate) struct GatewayService<S> {
    /// The newest one; requests hold older ones.
    pub(crate) snapshot: RefCell<Rc<CoreSnapshot>>,
    pub(crate) upstreams: RefCell<UpstreamSet>,
    pub(crate) options: Arc<Options>,
    pub(crate) observers: Arc<Observers>,
    /// What identifies this gateway in `CDN-Loop`, the same on all cores.
    pub(crate) loop_id: LoopId,
    /// Answers requests that no target matches.
    pub(crate) fallback: Rc<S>,
    /// Working memory for field values; never borrowed across an await.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// The same for paths.
    pub(crate) path: RefCell<String>,
}

impl<S> GatewayService<S> {
    /// The snapshot for a request, which keeps it until its end.
    #[inline]
    pub(crate) fn snapshot(&self) -> Rc<CoreSnapshot> {
        Rc::clone(&self.snapshot.borrow())
    }
}

impl<S> TakeSnapshot for GatewayService<S> {
    fn take(&self, snapshot: &Arc<Snapshot>) {
        let before = self.snapshot();
        let snapshot = CoreSnapshot::after(&before, snapshot, &mut self.upstreams.borrow_mut());
        *self.snapshot.borrow_mut() = Rc::new(snapshot);
    }
}
