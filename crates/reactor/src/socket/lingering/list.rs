//! The bounds of lingering, and the list of the sockets that linger.

use std::collections::VecDeque;
use std::time::Duration;

use crate::socket::SocketKey;

/// How long, and in how many sockets, a closing core discards input. The times are nginx's defaults of
/// `lingering_time` and `lingering_timeout`.
#[derive(Debug, Clone, Copy)]
pub struct Lingering {
    /// Most time from our FIN to the close.
    pub time: Duration,
    /// Most time without a byte from the peer.
    pub silence: Duration,
    /// Most sockets of a core that linger at once; beyond, the one that began first is closed.
    pub sockets_max: usize,
}

impl Default for Lingering {
    fn default() -> Lingering {
        Lingering {
            time: Duration::from_secs(30),
            silence: Duration::from_secs(5),
            sockets_max: 1024,
        }
    }
}

/// The sockets that linger, in the order in which they began.
#[derive(Default)]
pub(crate) struct LingeringSockets {
    /// Also contains sockets that have closed since.
    pub(super) keys: VecDeque<SocketKey>,
    pub(super) open: usize,
}

impl LingeringSockets {
    /// Notes that a socket no longer lingers.
    pub(crate) fn closed(&mut self) {
        self.open -= 1;
    }
}
