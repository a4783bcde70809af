//! The operations of UDP sockets.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

use crate::buffer::{DATAGRAM_BUFFERS, DatagramBuffer, DatagramBuffers};
use crate::driver::{Completion, ReceivedTrain, system};
use crate::socket::SocketKey;

/// All UDP sockets, and their operations that are to be tried.
#[derive(Default)]
pub(super) struct Datagrams {
    /// By the socket's index.
    sockets: Vec<Readiness>,
    /// `None` until there is a UDP socket.
    buffers: Option<Rc<DatagramBuffers>>,
    to_receive: VecDeque<SocketKey>,
    to_send: VecDeque<Send>,
    /// How many batches may still be received in this turn, and sent.
    receives_left: usize,
    sends_left: usize,
    /// Sockets that begin or cease to wait for room.
    changes: VecDeque<(SocketKey, RawFd, bool)>,
}

#[derive(Default)]
struct Readiness {
    generation: u32,
    readable: bool,
    /// The pending receive.
    receive: Option<RawFd>,
    /// Sends that found the socket's buffer full, in order.
    blocked: VecDeque<Send>,
}

struct Send {
    socket: SocketKey,
    fd: RawFd,
    slot: u32,
    message: *const libc::msghdr,
}

impl Datagrams {
    pub(super) fn register(&mut self, socket: SocketKey) -> io::Result<()> {
        if self.buffers.is_none() {
            self.buffers = Some(DatagramBuffers::new()?);
        }
        let index = socket.index() as usize;
        if self.sockets.len() <= index {
            self.sockets.resize_with(index + 1, Readiness::default);
        }
        self.sockets[index] = Readiness {
            generation: socket.generation(),
            // Datagrams may have arrived before the socket was watched.
            readable: true,
            ..Readiness::default()
        };
        Ok(())
    }

    pub(super) fn has_buffers(&self) -> bool {
        let buffers = self.buffers.as_ref();
        buffers.is_some_and(|buffers| !buffers.is_empty())
    }

    pub(super) fn is_receiving(&self) -> bool {
        !self.to_receive.is_empty()
    }

    pub(super) fn is_sending(&self) -> bool {
        !self.to_send.is_empty()
    }

    pub(super) fn receive(&mut self, socket: SocketKey, fd: RawFd) {
        if let Some(state) = find(&mut self.sockets, socket) {
            state.receive = Some(fd);
            if state.readable {
                self.to_receive.push_back(socket);
            }
        }
    }

    /// Whether a receive was pending.
    pub(super) fn cancel(&mut self, socket: SocketKey) -> bool {
        find(&mut self.sockets, socket).is_some_and(|state| state.receive.take().is_some())
    }

    pub(super) fn send(
        &mut self,
        socket: SocketKey,
        fd: RawFd,
        slot: u32,
        message: *const libc::msghdr,
    ) {
        let send = Send {
            socket,
            fd,
            slot,
            message,
        };
        match find(&mut self.sockets, socket) {
            Some(state) if !state.blocked.is_empty() => state.blocked.push_back(send),
            _ => self.to_send.push_back(send),
        }
    }

    /// Whether the send was pending.
    pub(super) fn cancel_send(&mut self, slot: u32) -> bool {
        let blocked = self.sockets.iter_mut().map(|state| &mut state.blocked);
        for sends in blocked.chain([&mut self.to_send]) {
            if let Some(place) = sends.iter().position(|send| send.slot == slot) {
                sends.remove(place);
                return true;
            }
        }
        false
    }

    /// The next socket that begins or ceases to wait for room.
    pub(super) fn next_change(&mut self) -> Option<(SocketKey, RawFd, bool)> {
        self.changes.pop_front()
    }

    pub(super) fn edge(&mut self, socket: SocketKey, events: u32) {
        let Some(state) = find(&mut self.sockets, socket) else {
            return;
        };
        let is = |bits: libc::c_int| events & bits as u32 != 0;
        if is(libc::EPOLLIN | libc::EPOLLERR) {
            if !state.readable && state.receive.is_some() {
                self.to_receive.push_back(socket);
            }
            state.readable = true;
        }
        if is(libc::EPOLLOUT | libc::EPOLLERR)
            && let Some(first) = state.blocked.front()
        {
            self.changes.push_back((socket, first.fd, false));
            self.to_send.append(&mut state.blocked);
        }
    }

    /// Operations that are started from now on wait for the next turn.
    pub(super) fn begin_turn(&mut self) {
        self.receives_left = usize::from(DATAGRAM_BUFFERS);
        self.sends_left = self.to_send.len();
    }

    /// The next report of this turn.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Completion> {
        if self.to_send.is_empty() && self.to_receive.is_empty() {
            return None;
        }
        self.try_next()
    }

    fn try_next(&mut self) -> Option<Completion> {
        while self.sends_left > 0 {
            self.sends_left -= 1;
            let send = self.to_send.pop_front()?;
            let state = find(&mut self.sockets, send.socket);
            // Behind one that waits for room, in order.
            if let Some(state) = state
                && !state.blocked.is_empty()
            {
                state.blocked.push_back(send);
                continue;
            }
            match system::send_train(send.fd, send.message) {
                Err(libc::EAGAIN) => {
                    self.changes.push_back((send.socket, send.fd, true));
                    if let Some(state) = find(&mut self.sockets, send.socket) {
                        state.blocked.push_back(send);
                    }
                }
                result => {
                    let slot = send.slot;
                    return Some(Completion::TrainSent { slot, result });
                }
            }
        }
        while self.receives_left > 0 {
            self.receives_left -= 1;
            let socket = self.to_receive.pop_front()?;
            if let Some(event) = self.try_receive(socket) {
                return Some(event);
            }
        }
        None
    }

    /// Receives one batch; `None` if there was none.
    fn try_receive(&mut self, socket: SocketKey) -> Option<Completion> {
        let state = find(&mut self.sockets, socket)?;
        let fd = state.receive?;
        let Some(mut buffer) = self.buffers.as_ref().and_then(DatagramBuffer::take) else {
            state.receive = None;
            return Some(Completion::TrainReceived {
                socket,
                received: ReceivedTrain::Nothing,
                more: false,
            });
        };
        match system::receive_train(fd, buffer.bytes_mut()) {
            Err(libc::EAGAIN) => {
                state.readable = false;
                None
            }
            result => {
                // An error of the socket was reported and is gone; more datagrams may be there.
                self.to_receive.push_back(socket);
                result.ok().map(|()| Completion::TrainReceived {
                    socket,
                    received: ReceivedTrain::Train(buffer),
                    more: true,
                })
            }
        }
    }
}

/// A socket; `None` if it was closed.
fn find(sockets: &mut [Readiness], socket: SocketKey) -> Option<&mut Readiness> {
    let state = sockets.get_mut(socket.index() as usize)?;
    (state.generation == socket.generation()).then_some(state)
}
