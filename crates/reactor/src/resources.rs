//! The resources of a core that its sockets use: time, memory, limits and counters.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::buffer::Pool;
use crate::counters::CounterCells;
use crate::load::Load;
use crate::socket::Lingering;
use crate::socket_share::SocketShare;
use crate::timer::{Clock, Wheel};

/// The part of a core below its sockets: they use it while their table is borrowed.
pub(crate) struct CoreResources {
    /// The index of this core among those that were started together.
    pub(crate) index: usize,
    pub(crate) clock: Clock,
    pub(crate) wheel: RefCell<Wheel>,
    pub(crate) pool: Rc<Pool>,
    pub(crate) counters: Arc<CounterCells>,
    pub(crate) load: Load,
    pub(crate) sockets: SocketShare,
    pub(crate) lingering: Lingering,
}
