//! The simulated driver: the operations of a core on the network of a simulation.
//!
//! Every turn tries the operations of the sockets with new events, in random order. The conditions decide
//! which operations are late, short, without a buffer, or complete despite their cancellation.

mod chance;
mod conditions;
mod datagrams;
mod events;
mod id;
mod network;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::{
    Bound, Completion, Handle, Listening, Pending, ReceiveOutcome, ReceivedTrain, SendBuffers,
    SentTrain, system,
};
use crate::buffer::{
    BUFFER_BYTES, DatagramBuffer, DatagramBuffers, LARGE_BYTES, Pool, RATION_BYTES, Slice,
};
use crate::counters::CounterCells;
use crate::mailbox::Mailbox;
use crate::socket::{Address, SocketKey};

pub use self::conditions::Conditions;
pub(crate) use self::events::Datagram;
pub(crate) use self::id::{Id, Owner};
pub(crate) use self::network::{Network, SharedNetwork, Transfer};

/// Connections accepted by one listener in one turn.
const ACCEPTS_PER_TURN: usize = 64;

/// Wall-clock time at which every simulation begins, after 1970: in September 2026.
const EPOCH: Duration = Duration::from_secs(1_790_000_000);

/// The driver of one simulated core.
pub(crate) struct Sim {
    pub(super) network: SharedNetwork,
    core: usize,
    mailbox: Arc<Mailbox>,
    /// Operations by the socket's index in the core's table.
    operations: Vec<Operations>,
    /// Accepting listeners: number in the network and index in the core.
    /// Listeners, their indices, and whether they accept one connection only.
    accepting: Vec<(usize, u32, bool)>,
    /// `None` until there is a UDP socket.
    datagram_buffers: Option<Rc<DatagramBuffers>>,
    /// UDP sockets that receive: number in the network and key in the core.
    receiving_datagrams: Vec<(usize, SocketKey)>,
    reports: VecDeque<Completion>,
    /// Reports returned since they were last counted.
    reported: u64,
    pub(super) notified: bool,
}

/// The pending operations of one socket.
#[derive(Default)]
struct Operations {
    is_connecting: bool,
    /// Bytes that may still be received.
    receive: Option<usize>,
    /// The receive takes a large buffer and ends with its first bytes.
    is_large: bool,
    send: Option<SendBuffers>,
}

impl Sim {
    /// A driver for the next core of this network.
    pub(crate) fn new(network: &SharedNetwork, mailbox: &Arc<Mailbox>) -> Sim {
        Sim {
            network: Rc::clone(network),
            core: network.borrow_mut().add_core(),
            mailbox: Arc::clone(mailbox),
            operations: Vec::new(),
            accepting: Vec::new(),
            datagram_buffers: None,
            receiving_datagrams: Vec::new(),
            reports: VecDeque::new(),
            reported: 0,
            notified: false,
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.network.borrow().instant()
    }

    pub(super) fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + EPOCH + self.network.borrow().now
    }

    pub(super) fn entropy(&self) -> u64 {
        self.network.borrow_mut().random.next()
    }

    pub(super) fn peer(&self, handle: Handle) -> Option<SocketAddr> {
        self.network.borrow().remote(number(handle))
    }

    pub(super) fn local(&self, handle: Handle) -> Option<SocketAddr> {
        self.network.borrow().local(number(handle))
    }

    pub(super) fn shutdown_write(&mut self, handle: Handle) {
        self.network.borrow_mut().shutdown_write(number(handle));
    }

    pub(super) fn reset_on_close(&mut self, handle: Handle) {
        self.network.borrow_mut().reset_on_close(number(handle));
    }

    pub(super) fn open_socket(&mut self, address: &Address) -> io::Result<Handle> {
        let mut network = self.network.borrow_mut();
        if network.happens(|conditions| conditions.no_descriptors) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let id = network.open(Owner::Core(self.core), address);
        Ok(handle(id.number))
    }

    pub(super) fn has_input(&self, handle: Handle) -> bool {
        self.network.borrow().has_input(number(handle))
    }

    pub(super) fn listen(&mut self, address: &Address) -> io::Result<Listening> {
        let listening = self
            .network
            .borrow_mut()
            .listen(Owner::Core(self.core), address);
        let (number, address) = listening.map_err(io::Error::from_raw_os_error)?;
        Ok(Listening {
            handle: handle(number),
            address,
            unix: None,
        })
    }

    pub(super) fn register(&mut self, socket: SocketKey, handle: Handle) {
        let place = socket.index() as usize;
        if self.operations.len() <= place {
            self.operations.resize_with(place + 1, Operations::default);
        }
        self.operations[place] = Operations::default();
        self.network.borrow_mut().set_key(number(handle), socket);
    }

    pub(super) fn close(&mut self, handle: Handle) {
        let number = number(handle);
        let mut network = self.network.borrow_mut();
        if Network::is_listener(number) {
            network.close_listener(number);
        } else {
            network.close(number);
        }
    }

    pub(super) fn accept(&mut self, index: u32, fd: i32, is_one: bool) {
        let number = fd as usize;
        self.accepting.push((number, index, is_one));
        self.network.borrow_mut().mark_number(number);
    }

    pub(super) fn cancel_accept(&mut self, index: u32, fd: i32) {
        if self.stop_accepting(fd as usize).is_some() {
            self.reports.push_back(Completion::Accepted {
                listener: index,
                result: Err(libc::ECANCELED),
                more: false,
            });
        }
    }

    fn stop_accepting(&mut self, number: usize) -> Option<u32> {
        let place = self.accepting.iter().position(|known| known.0 == number)?;
        Some(self.accepting.swap_remove(place).1)
    }

    pub(super) fn connect(&mut self, socket: SocketKey, handle: Handle) {
        self.operations[socket.index() as usize].is_connecting = true;
        self.network.borrow_mut().connect(number(handle));
    }

    /// Never inlined, as [`turn`](Self::turn).
    #[inline(never)]
    pub(super) fn receive_now(
        &mut self,
        handle: Handle,
        limit: usize,
        pool: &Rc<Pool>,
    ) -> Option<ReceiveOutcome> {
        let (received, _) = self.try_receive(number(handle), limit, true, pool)?;
        Some(received)
    }

    pub(super) fn receive_large(&mut self, socket: SocketKey, fd: i32, limit: usize) {
        self.receive(socket, fd, limit);
        self.operations[socket.index() as usize].is_large = true;
    }

    pub(super) fn receive(&mut self, socket: SocketKey, fd: i32, limit: usize) {
        self.operations[socket.index() as usize].is_large = false;
        self.operations[socket.index() as usize].receive = Some(limit);
        self.network.borrow_mut().mark_number(fd as usize);
    }

    pub(super) fn send(&mut self, socket: SocketKey, fd: i32, buffers: SendBuffers) {
        self.operations[socket.index() as usize].send = Some(buffers);
        self.network.borrow_mut().mark_number(fd as usize);
    }

    pub(super) fn cancel(&mut self, socket: SocketKey, fd: i32, operation: Pending) {
        let operations = &mut self.operations[socket.index() as usize];
        if operation.has(Pending::SEND)
            && let Some(buffers) = operations.send
        {
            let mut network = self.network.borrow_mut();
            let loses = network.happens(|conditions| conditions.cancel_loses);
            drop(network);
            let sent = match loses {
                true => self.try_send(fd as usize, buffers),
                false => None,
            };
            self.operations[socket.index() as usize].send = None;
            let result = sent.unwrap_or(Err(libc::ECANCELED));
            self.reports.push_back(Completion::Sent { socket, result });
        } else if operation.has(Pending::RECEIVE) && operations.receive.take().is_some() {
            self.reports.push_back(Completion::Received {
                socket,
                received: ReceiveOutcome::Nothing,
                more: false,
            });
        } else if operation.has(Pending::CONNECT) && std::mem::take(&mut operations.is_connecting) {
            self.reports.push_back(Completion::Connected {
                socket,
                error: libc::ECANCELED,
            });
        }
    }

    /// Tries the operations that may complete. Never inlined, so that a profiler can leave out the
    /// simulated network.
    #[inline(never)]
    pub(super) fn turn(&mut self, pool: &Rc<Pool>, counters: &CounterCells) {
        counters.enters.add(1);
        counters.cqes.add(std::mem::take(&mut self.reported));
        self.notified |= self.mailbox.is_notified();
        let mut network = self.network.borrow_mut();
        let cost = network.draw(|conditions| &conditions.turn_us);
        network.now += Duration::from_micros(cost);
        let ready = network.take_ready(self.core);
        drop(network);
        for number in ready {
            if Network::is_datagram_socket(number) {
                self.try_receive_datagrams(number);
            } else if Network::is_listener(number) {
                self.try_accepts(number);
            } else {
                self.try_operations(number, pool);
            }
        }
    }

    /// Whether reports are queued, such as those of cancelled operations.
    pub(crate) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    pub(crate) fn next(&mut self) -> Option<Completion> {
        let event = self.reports.pop_front();
        self.reported += u64::from(event.is_some());
        event
    }

    fn try_accepts(&mut self, number: usize) {
        let accepting = self.accepting.iter().find(|known| known.0 == number);
        let Some(&(_, index, is_one)) = accepting else {
            return;
        };
        let mut network = self.network.borrow_mut();
        for _ in 0..ACCEPTS_PER_TURN {
            if !network.has_backlog(number) {
                break;
            }
            let result = if network.happens(|conditions| conditions.accept_fails) {
                Err(libc::ENOBUFS)
            } else if network.happens(|conditions| conditions.no_descriptors) {
                Err(libc::EMFILE)
            } else {
                match network.accept(number, None) {
                    Some(id) => Ok(handle(id.number)),
                    None => break,
                }
            };
            let is_last = is_one || result.is_err();
            self.reports.push_back(Completion::Accepted {
                listener: index,
                result,
                more: !is_last,
            });
            if is_last {
                drop(network);
                self.stop_accepting(number);
                return;
            }
        }
        if network.has_backlog(number) {
            network.mark_number(number);
        }
    }

    fn try_operations(&mut self, number: usize, pool: &Rc<Pool>) {
        let mut network = self.network.borrow_mut();
        let Some(socket) = network.key(number) else {
            return;
        };
        if network.is_late(number) {
            return;
        }
        let result = network.connect_result(number);
        drop(network);
        let place = socket.index() as usize;
        if self.operations[place].is_connecting {
            if let Some(error) = result {
                self.operations[place].is_connecting = false;
                self.reports
                    .push_back(Completion::Connected { socket, error });
            }
            return;
        }
        if let Some(buffers) = self.operations[place].send
            && let Some(result) = self.try_send(number, buffers)
        {
            self.operations[place].send = None;
            self.reports.push_back(Completion::Sent { socket, result });
        }
        if let Some(limit) = self.operations[place].receive
            && let Some((received, left)) =
                self.try_receive(number, limit, self.operations[place].is_large, pool)
        {
            let more = left > 0;
            self.operations[place].receive = more.then_some(left);
            self.reports.push_back(Completion::Received {
                socket,
                received,
                more,
            });
            let mut network = self.network.borrow_mut();
            if more && network.is_readable(number) {
                network.mark_number(number);
            }
        }
    }

    /// Sends once; `None` if there is no room.
    fn try_send(&mut self, number: usize, buffers: SendBuffers) -> Option<Result<usize, i32>> {
        let mut network = self.network.borrow_mut();
        let mut sent = 0;
        for piece in pieces(&buffers) {
            let len = network.shorten(piece.len());
            match network.write(number, &piece[..len]) {
                Transfer::Bytes(n) => {
                    sent += n;
                    if n < piece.len() {
                        break;
                    }
                }
                Transfer::Failed(error) if sent == 0 => return Some(Err(error)),
                _ => break,
            }
        }
        (sent > 0).then_some(Ok(sent))
    }

    /// Receives once; also returns the bytes that may still be received. `None` if there was nothing.
    #[inline(always)]
    fn try_receive(
        &mut self,
        number: usize,
        limit: usize,
        is_large: bool,
        pool: &Rc<Pool>,
    ) -> Option<(ReceiveOutcome, usize)> {
        let mut network = self.network.borrow_mut();
        if !network.is_readable(number) {
            return None;
        }
        if network.happens(|conditions| conditions.no_buffers) {
            return Some((ReceiveOutcome::NoBuffers, 0));
        }
        let buffer_bytes = match is_large {
            true => LARGE_BYTES,
            false => BUFFER_BYTES,
        };
        let wanted = network.shorten(limit.min(buffer_bytes));
        let mut ration = [0; RATION_BYTES];
        let (moved, id) = if limit <= RATION_BYTES {
            if pool.available() == 0 {
                return Some((ReceiveOutcome::NoBuffers, 0));
            }
            let wanted = wanted.min(RATION_BYTES);
            (network.read(number, &mut ration[..wanted]), None)
        } else {
            let lent = match is_large {
                true => pool.lend_large(),
                false => pool.lend(),
            };
            let Some(id) = lent else {
                return Some((ReceiveOutcome::NoBuffers, 0));
            };
            // SAFETY: only this call has the lent buffer, and `wanted` is at most its capacity; the
            // mapping began as zeros, so every byte is initialised.
            let buffer =
                unsafe { std::slice::from_raw_parts_mut(pool.address(id).as_ptr(), wanted) };
            (network.read(number, buffer), Some(id))
        };
        let received = match (moved, id) {
            (Transfer::Bytes(n), Some(id)) => {
                let ends = network.happens(|conditions| conditions.receive_ends);
                let left = if ends || is_large { 0 } else { limit - n };
                return Some((ReceiveOutcome::Bytes(Slice::adopt(pool, id, n)), left));
            }
            (Transfer::Bytes(n), None) => {
                return Some((
                    ReceiveOutcome::Bytes(Slice::ration(pool, &ration[..n])),
                    limit - n,
                ));
            }
            (Transfer::Fin, _) => Some(ReceiveOutcome::End),
            (Transfer::Failed(error), _) => Some(ReceiveOutcome::Failed(error)),
            (Transfer::WouldBlock, _) => None,
        };
        id.into_iter().for_each(|id| pool.give_back(id));
        received.map(|received| (received, 0))
    }
}

/// UDP sockets.
impl Sim {
    pub(super) fn bind_datagrams(&mut self, address: SocketAddr) -> io::Result<Bound> {
        let mut network = self.network.borrow_mut();
        let (number, address) = network.bind_datagrams(Owner::Core(self.core), address);
        Ok(Bound {
            handle: handle(number),
            address,
        })
    }

    pub(super) fn register_datagrams(
        &mut self,
        _socket: SocketKey,
        _handle: Handle,
    ) -> io::Result<()> {
        if self.datagram_buffers.is_none() {
            self.datagram_buffers = Some(DatagramBuffers::new()?);
        }
        Ok(())
    }

    pub(super) fn has_datagram_buffers(&self) -> bool {
        let buffers = self.datagram_buffers.as_ref();
        buffers.is_some_and(|buffers| !buffers.is_empty())
    }

    pub(super) fn receive_datagrams(&mut self, socket: SocketKey, fd: i32) {
        let number = fd as usize;
        self.receiving_datagrams.push((number, socket));
        self.network.borrow_mut().mark_datagram_socket(number);
    }

    pub(super) fn cancel_datagrams(&mut self, socket: SocketKey) {
        if self.stop_receiving_datagrams(socket) {
            self.report_train(socket, ReceivedTrain::Nothing, false);
        }
    }

    fn stop_receiving_datagrams(&mut self, socket: SocketKey) -> bool {
        let receiving = &mut self.receiving_datagrams;
        let place = receiving.iter().position(|known| known.1 == socket);
        place.is_some_and(|place| {
            receiving.swap_remove(place);
            true
        })
    }

    fn report_train(&mut self, socket: SocketKey, received: ReceivedTrain, more: bool) {
        self.reports.push_back(Completion::TrainReceived {
            socket,
            received,
            more,
        });
    }

    /// Sends every datagram of a batch. Never inlined, as [`turn`](Self::turn).
    #[inline(never)]
    pub(super) fn send_datagrams(&mut self, handle: Handle, slot: u32, train: &SentTrain) {
        let mut network = self.network.borrow_mut();
        let is_train = train.destination.segment_bytes.is_some();
        if is_train && network.happens(|conditions| conditions.trains_refused) {
            drop(network);
            let result = Err(libc::EIO);
            return self
                .reports
                .push_back(Completion::TrainSent { slot, result });
        }
        let local = network.datagram_address(number(handle));
        let to = train.destination.to;
        if let Some(local) = local {
            let ip = match (train.destination.from, local.ip()) {
                (Some(from), _) => from,
                (None, ip) if ip.is_unspecified() => to.ip(),
                (None, ip) => ip,
            };
            for content in train.datagrams() {
                network.send_datagram(&Datagram {
                    from: SocketAddr::new(ip, local.port()),
                    to,
                    ecn: train.destination.ecn,
                    content: content.to_vec(),
                });
            }
        }
        drop(network);
        let result = Ok(train.content.len());
        self.reports
            .push_back(Completion::TrainSent { slot, result });
    }

    /// A batch is always sent at once.
    pub(super) fn cancel_train(&mut self, _slot: u32) {}

    pub(super) fn close_datagrams(&mut self, handle: Handle) {
        self.network.borrow_mut().close_datagrams(number(handle));
    }

    /// Receives what has arrived, as far as there are buffers.
    fn try_receive_datagrams(&mut self, number: usize) {
        let receiving = self.receiving_datagrams.iter();
        let Some(&(_, socket)) = receiving.clone().find(|known| known.0 == number) else {
            return;
        };
        loop {
            let buffer = self
                .datagram_buffers
                .as_ref()
                .and_then(DatagramBuffer::take);
            let Some(mut buffer) = buffer else {
                self.stop_receiving_datagrams(socket);
                return self.report_train(socket, ReceivedTrain::Nothing, false);
            };
            let mut network = self.network.borrow_mut();
            let Some(datagram) = network.take_datagram(number) else {
                return;
            };
            let ends = network.happens(|conditions| conditions.receive_ends);
            drop(network);
            let Datagram {
                from,
                to,
                ecn,
                content,
            } = datagram;
            system::write_train(buffer.bytes_mut(), from, to.ip(), ecn, &content);
            if ends {
                self.stop_receiving_datagrams(socket);
            }
            self.report_train(socket, ReceivedTrain::Train(buffer), !ends);
            if ends {
                return;
            }
        }
    }
}

fn handle(number: usize) -> Handle {
    Handle::of(number as i32)
}

fn number(handle: Handle) -> usize {
    handle.fd() as usize
}

/// The bytes of a send.
fn pieces(buffers: &SendBuffers) -> Vec<&[u8]> {
    // SAFETY: the caller of `Sim::send` keeps the memory of the buffers until the report.
    unsafe {
        match *buffers {
            SendBuffers::One(bytes, len) => vec![std::slice::from_raw_parts(bytes, len)],
            SendBuffers::Message(message) => {
                let message = &*message;
                let vectors = std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen);
                let piece = |vector: &libc::iovec| {
                    std::slice::from_raw_parts(vector.iov_base.cast(), vector.iov_len)
                };
                vectors.iter().map(piece).collect()
            }
        }
    }
}
