//! Receiving datagrams: a provided ring of its own, which exists once there is a UDP socket.

use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::buffer_ring::ProvidedRing;
use crate::buffer::{
    DATAGRAM_BUFFER_BYTES, DATAGRAM_BUFFERS, DATAGRAM_HEAD_BYTES, DatagramBuffer, DatagramBuffers,
};
use crate::driver::{ReceivedTrain, system};

const GROUP: u16 = 3;

/// The buffers that the kernel receives datagrams into; `None` until there is a UDP socket.
#[derive(Default)]
pub(super) struct DatagramRing(Option<Registered>);

struct Registered {
    ring: ProvidedRing,
    buffers: Rc<DatagramBuffers>,
    posted: u16,
    /// The sizes that receives are given. Boxed, because the kernel has a pointer to it.
    message: Box<libc::msghdr>,
}

impl DatagramRing {
    /// Registers the ring, unless it is.
    pub(super) fn register(&mut self, ring: &IoUring) -> io::Result<()> {
        if self.0.is_none() {
            let buffers = DatagramBuffers::new()?;
            self.0 = Some(Registered {
                ring: ProvidedRing::register(ring, DATAGRAM_BUFFERS, GROUP)?,
                buffers,
                posted: 0,
                message: Box::new(system::receive_message()),
            });
        }
        Ok(())
    }

    /// A receive of batches until no buffer is left.
    pub(super) fn receive(&self, fd: RawFd) -> squeue::Entry {
        let registered = self.0.as_ref().expect("a UDP socket registers the ring");
        opcode::RecvMsgMulti::new(Fd(fd), &raw const *registered.message, GROUP).build()
    }

    /// The result of a completion of such a receive.
    pub(super) fn received(&mut self, completion: &cqueue::Entry) -> ReceivedTrain {
        let (Some(registered), Some(id)) = (&mut self.0, cqueue::buffer_select(completion.flags()))
        else {
            return ReceivedTrain::Nothing;
        };
        registered.posted -= 1;
        let buffer = DatagramBuffer::adopt(&registered.buffers, id);
        match usize::try_from(completion.result()) {
            Ok(DATAGRAM_HEAD_BYTES..) => ReceivedTrain::Train(buffer),
            _ => ReceivedTrain::Nothing,
        }
    }

    /// Whether a receive would find a buffer.
    pub(super) fn has_buffers(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|registered| registered.posted > 0 || !registered.buffers.is_empty())
    }

    /// Posts all free buffers.
    #[inline]
    pub(super) fn refill(&mut self) {
        if let Some(registered) = &mut self.0
            && registered.posted < DATAGRAM_BUFFERS
        {
            registered.refill();
        }
    }
}

impl Registered {
    fn refill(&mut self) {
        while let Some(id) = self.buffers.lend() {
            self.ring
                .post(self.buffers.address(id), DATAGRAM_BUFFER_BYTES, id);
            self.posted += 1;
        }
        self.ring.publish();
    }
}
