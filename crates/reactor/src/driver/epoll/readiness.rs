//! What the kernel has said of each socket, and what waits for it.

use std::os::fd::RawFd;

use crate::driver::SendBuffers;
use crate::socket::SocketKey;

/// A receive under way: up to `limit` bytes more.
pub(super) struct Armed {
    pub(super) fd: RawFd,
    pub(super) limit: usize,
    /// Takes no buffer of the pool.
    pub(super) is_ration: bool,
}

/// One socket.
#[derive(Default)]
pub(super) struct Readiness {
    generation: u32,
    pub(super) fd: Option<RawFd>,
    /// There may be input. True at first: it may have come before the socket was watched.
    pub(super) readable: bool,
    /// FIN or an error waits behind the input.
    pub(super) hangup: bool,
    pub(super) connecting: bool,
    /// The last send found the socket full.
    pub(super) send_blocked: bool,
    pub(super) receive: Option<Armed>,
    pub(super) send: Option<SendBuffers>,
    /// Watching failed with this error number.
    pub(super) broken: i32,
}

/// All sockets by their place in the core's table.
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

    /// A socket of whose life the caller is sure.
    pub(super) fn get(&mut self, socket: SocketKey) -> &mut Readiness {
        self.find(socket)
            .expect("an operation belongs to a live socket")
    }

    /// A socket that may be gone.
    pub(super) fn find(&mut self, socket: SocketKey) -> Option<&mut Readiness> {
        let state = self.0.get_mut(socket.index() as usize)?;
        (state.generation == socket.generation()).then_some(state)
    }
}
