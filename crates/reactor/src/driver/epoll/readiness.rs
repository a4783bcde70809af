//! The readiness of each socket, and its pending operations.

use std::os::fd::RawFd;

use crate::driver::SendBuffers;
use crate::socket::SocketKey;

/// A pending receive of at most `limit` bytes.
pub(super) struct Armed {
    pub(super) fd: RawFd,
    pub(super) limit: usize,
    pub(super) size: Size,
}

/// The size of the buffer of a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// It uses no buffer of the pool.
    Ration,
    Usual,
    /// It ends with the first bytes.
    Large,
}

/// One socket.
#[derive(Default)]
pub(super) struct Readiness {
    generation: u32,
    pub(super) fd: Option<RawFd>,
    /// There may be input. True at first, because input may have arrived before the socket was watched.
    pub(super) readable: bool,
    /// FIN or an error follows the input.
    pub(super) hangup: bool,
    pub(super) connecting: bool,
    /// The last send found the socket's buffer full.
    pub(super) send_blocked: bool,
    /// Its owner waits for room.
    pub(super) awaits_room: bool,
    pub(super) receive: Option<Armed>,
    pub(super) send: Option<SendBuffers>,
    /// The error number that watching the socket has failed with, or 0.
    pub(super) watch_error: i32,
}

/// All sockets by their index in the core's slab.
#[derive(Default)]
pub(super) struct Sockets(Vec<Readiness>);

impl Sockets {
    pub(super) fn insert(&mut self, socket: SocketKey) {
        let index = socket.index() as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, Readiness::default);
        }
        self.0[index] = Readiness {
            generation: socket.generation(),
            readable: true,
            ..Readiness::default()
        };
    }

    /// A socket that is live.
    pub(super) fn get(&mut self, socket: SocketKey) -> &mut Readiness {
        self.find(socket)
            .expect("an operation belongs to a live socket")
    }

    /// A socket; `None` if it was closed.
    pub(super) fn find(&mut self, socket: SocketKey) -> Option<&mut Readiness> {
        let state = self.0.get_mut(socket.index() as usize)?;
        (state.generation == socket.generation()).then_some(state)
    }
}
