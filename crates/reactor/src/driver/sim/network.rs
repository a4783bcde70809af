//! The network of a simulation: listeners, and connections whose two ends belong to cores or peers.
//!
//! An end writes into its send buffer. From there segments arrive in the receive buffer of the other
//! end, after the delay of the connection and as fast as its bandwidth allows, as long as that buffer
//! has room. FIN follows the last byte; a reset discards the bytes that have not arrived.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use super::conditions::Conditions;
use super::datagrams::DatagramSockets;
use super::events::{EventKind, Events};
use super::id::{Id, Owner};
use crate::socket::{Address, SocketKey};
use crate::timer::Random;

/// Number of the first listener; sockets have the numbers below.
const LISTENERS: usize = 1 << 24;

/// First retransmission of a SYN; each next one waits twice as long (RFC 6298, section 2).
const SYN_TIMEOUT: Duration = Duration::from_secs(1);

/// Retransmissions of a SYN before connecting fails, as Linux counts (`tcp_syn_retries`).
const SYN_RETRIES: u32 = 6;

/// Longest time in which a report is late, in microseconds.
const LATE_MAX_US: u64 = 2_000;

/// The network as the cores and peers of a simulation share it.
pub(crate) type SharedNetwork = Rc<RefCell<Network>>;

/// The result of a read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transfer {
    Bytes(usize),
    Fin,
    WouldBlock,
    Failed(i32),
}

pub(crate) struct Network {
    pub(crate) now: Duration,
    base: Instant,
    pub(crate) random: Random,
    pub(crate) conditions: Conditions,
    ends: Vec<Option<ConnectionEnd>>,
    vacant: Vec<usize>,
    listeners: Vec<Option<NetworkListener>>,
    pub(super) datagram_sockets: DatagramSockets,
    /// Addresses whose packets are dropped.
    black_holes: Vec<Address>,
    /// The first packets of connections that nobody accepted, with the time of their arrival.
    not_accepted: Vec<(Duration, Address)>,
    events: Events,
    serial: u64,
    next_port: u16,
    /// Sockets and listeners of each core whose operations may complete.
    pub(super) ready: Vec<Vec<usize>>,
    trace: Option<Vec<String>>,
}

/// One end of a connection.
struct ConnectionEnd {
    id: Id,
    owner: Owner,
    /// The other end, from when the connection is established until that end is gone.
    other: Option<Id>,
    local: Option<SocketAddr>,
    remote: Address,
    delay: Duration,
    bytes_per_ms: u64,
    /// Written and not yet arrived.
    outbox: VecDeque<u8>,
    outbox_max: usize,
    fin: Fin,
    /// A delivery is scheduled.
    is_delivering: bool,
    /// Arrived and not yet read.
    inbox: VecDeque<u8>,
    inbox_max: usize,
    has_fin: bool,
    /// The error that the connection failed with; after the first write, `EPIPE`.
    error: Option<i32>,
    /// Closing it resets the connection.
    resets: bool,
    is_connecting: bool,
    syn_retries: u32,
    is_marked: bool,
    key: Option<SocketKey>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fin {
    No,
    /// Behind the last byte of the outbox.
    Queued,
    Arrived,
}

struct NetworkListener {
    address: Address,
    owner: Owner,
    backlog: VecDeque<Id>,
    is_marked: bool,
    waker: Option<Waker>,
}

/// Time, randomness and events.
impl Network {
    pub(crate) fn new(seed: u64, conditions: Conditions) -> Network {
        Network {
            now: Duration::ZERO,
            base: Instant::now(),
            random: Random::new(seed),
            conditions,
            ends: Vec::new(),
            vacant: Vec::new(),
            listeners: Vec::new(),
            datagram_sockets: DatagramSockets::default(),
            black_holes: Vec::new(),
            not_accepted: Vec::new(),
            events: Events::default(),
            serial: 0,
            next_port: 30_000,
            ready: Vec::new(),
            trace: None,
        }
    }

    pub(crate) fn instant(&self) -> Instant {
        self.base + self.now
    }

    pub(crate) fn keep_trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.replace(Vec::new()).unwrap_or_default()
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>12.6} {}", self.now.as_secs_f64(), line()));
        }
    }

    pub(super) fn schedule(&mut self, after: Duration, kind: EventKind) {
        self.events.push(self.now + after, kind);
    }

    pub(crate) fn wake_after(&mut self, after: Duration, waker: Waker) {
        self.schedule(after, EventKind::Wake(waker));
    }

    /// When the next event happens.
    pub(crate) fn next_event(&self) -> Option<Duration> {
        self.events.next_at()
    }

    /// Runs the events that are due.
    pub(crate) fn run_events(&mut self) {
        while let Some(kind) = self.events.pop(self.now) {
            match kind {
                EventKind::Deliver(id) => self.deliver(id),
                EventKind::Syn(id) => self.syn(id),
                EventKind::Connected(id, error) => self.connected(id, error),
                EventKind::Reset(id) => self.reset(id, libc::ECONNRESET),
                EventKind::Remove(id) => self.remove(id),
                EventKind::Recheck(id) => self.mark(id),
                EventKind::Datagram(datagram) => self.datagram_arrives(*datagram),
                EventKind::Wake(waker) => waker.wake(),
            }
        }
    }
}

/// Notifications of cores and peers.
impl Network {
    pub(crate) fn add_core(&mut self) -> usize {
        self.ready.push(Vec::new());
        self.ready.len() - 1
    }

    pub(crate) fn is_ready(&self, core: usize) -> bool {
        !self.ready[core].is_empty()
    }

    /// The sockets and listeners of a core whose operations may complete, in random order.
    pub(crate) fn take_ready(&mut self, core: usize) -> Vec<usize> {
        let mut ready = std::mem::take(&mut self.ready[core]);
        for last in (1..ready.len()).rev() {
            let other = (self.random.next() % (last as u64 + 1)) as usize;
            ready.swap(last, other);
        }
        for &number in &ready {
            if Network::is_datagram_socket(number) {
                self.unmark_datagram_socket(number);
            } else if number >= LISTENERS {
                if let Some(listening) = &mut self.listeners[number - LISTENERS] {
                    listening.is_marked = false;
                }
            } else if let Some(end) = &mut self.ends[number] {
                end.is_marked = false;
            }
        }
        ready
    }

    pub(crate) fn is_listener(number: usize) -> bool {
        number >= LISTENERS && !Network::is_datagram_socket(number)
    }

    /// Adds a socket or listener to the ready ones of its core.
    pub(crate) fn mark_number(&mut self, number: usize) {
        let (owner, is_marked) = if number >= LISTENERS {
            match &mut self.listeners[number - LISTENERS] {
                Some(listening) => (listening.owner, &mut listening.is_marked),
                None => return,
            }
        } else {
            match &mut self.ends[number] {
                Some(end) => (end.owner, &mut end.is_marked),
                None => return,
            }
        };
        if let Owner::Core(core) = owner
            && !std::mem::replace(is_marked, true)
        {
            self.ready[core].push(number);
        }
    }

    fn mark(&mut self, id: Id) {
        if self.end(id).is_some() {
            self.mark_number(id.number);
        }
    }

    /// Whether a report is late, with the probability that the conditions give; it is then tried again.
    pub(crate) fn is_late(&mut self, number: usize) -> bool {
        let late = self.happens(|conditions| conditions.late);
        if late && let Some(id) = self.id_of(number) {
            let after = 1 + self.random.next() % LATE_MAX_US;
            self.schedule(Duration::from_micros(after), EventKind::Recheck(id));
        }
        late
    }

    /// Notifies the owner that reading may succeed.
    fn wake_reader(&mut self, id: Id) {
        self.mark(id);
        if let Some(waker) = self.end(id).and_then(|end| end.reader.take()) {
            waker.wake();
        }
    }

    /// Notifies the owner that writing may succeed, or that the socket is connected.
    fn wake_writer(&mut self, id: Id) {
        self.mark(id);
        if let Some(waker) = self.end(id).and_then(|end| end.writer.take()) {
            waker.wake();
        }
    }
}

/// Listeners.
impl Network {
    /// Listens; cores may share an address. Returns the number, and the address with its port.
    pub(crate) fn listen(
        &mut self,
        owner: Owner,
        address: &Address,
    ) -> Result<(usize, Address), i32> {
        let address = match address {
            Address::Tcp(tcp) if tcp.port() == 0 => {
                Address::Tcp(SocketAddr::new(tcp.ip(), self.fresh_port()))
            }
            address => address.clone(),
        };
        let mut there = self.listeners.iter().flatten();
        let is_taken = there.any(|listening| {
            listening.address == address
                && (listening.owner == owner
                    || listening.owner == Owner::Peer
                    || owner == Owner::Peer)
        });
        if is_taken {
            return Err(libc::EADDRINUSE);
        }
        self.listeners.push(Some(NetworkListener {
            address: address.clone(),
            owner,
            backlog: VecDeque::new(),
            is_marked: false,
            waker: None,
        }));
        Ok((LISTENERS + self.listeners.len() - 1, address))
    }

    /// The next connection of the backlog; the owner of the listener becomes its owner.
    pub(crate) fn accept(&mut self, number: usize, cx: Option<&Context<'_>>) -> Option<Id> {
        let listening = self.listeners[number - LISTENERS].as_mut()?;
        let owner = listening.owner;
        let next = listening.backlog.pop_front();
        if next.is_none() {
            listening.waker = cx.map(|cx| cx.waker().clone());
        }
        let id = next?;
        if let Some(end) = self.end(id) {
            end.owner = owner;
        }
        self.note(|| format!("accept {}", id.number));
        Some(id)
    }

    pub(crate) fn has_backlog(&self, number: usize) -> bool {
        let listening = self.listeners[number - LISTENERS].as_ref();
        listening.is_some_and(|listening| !listening.backlog.is_empty())
    }

    /// From now on all packets to this address are dropped.
    pub(crate) fn add_black_hole(&mut self, address: &Address) {
        self.black_holes.push(address.clone());
    }

    /// Packets to this address arrive again.
    pub(crate) fn remove_black_hole(&mut self, address: &Address) {
        self.black_holes.retain(|one| one != address);
    }

    pub(crate) fn take_not_accepted(&mut self) -> Vec<(Duration, Address)> {
        std::mem::take(&mut self.not_accepted)
    }

    /// Closes a listener. Connections of its backlog are reset.
    pub(crate) fn close_listener(&mut self, number: usize) {
        if let Some(listening) = self.listeners[number - LISTENERS].take() {
            for id in listening.backlog {
                self.reset_on_close(id.number);
                self.close(id.number);
            }
        }
    }
}

/// Connections.
impl Network {
    /// A socket that is not connected.
    pub(crate) fn open(&mut self, owner: Owner, remote: &Address) -> Id {
        let local = match remote {
            Address::Tcp(remote) => {
                let local = match remote.ip() {
                    IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                    IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
                };
                Some(SocketAddr::new(local, self.fresh_port()))
            }
            Address::Unix(_) => None,
        };
        let delay = Duration::from_micros(self.draw(|conditions| &conditions.delay_us));
        let bytes_per_ms = self.draw(|conditions| &conditions.bytes_per_ms);
        self.insert(owner, local, remote.clone(), delay, bytes_per_ms)
    }

    fn insert(
        &mut self,
        owner: Owner,
        local: Option<SocketAddr>,
        remote: Address,
        delay: Duration,
        bytes_per_ms: u64,
    ) -> Id {
        self.serial += 1;
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.ends.push(None);
            self.ends.len() - 1
        });
        let id = Id {
            number,
            serial: self.serial,
        };
        let outbox_max = self.draw(|conditions| &conditions.buffer_bytes) as usize;
        let inbox_max = self.draw(|conditions| &conditions.buffer_bytes) as usize;
        self.ends[number] = Some(ConnectionEnd {
            id,
            owner,
            other: None,
            local,
            remote,
            delay,
            bytes_per_ms,
            outbox: VecDeque::new(),
            outbox_max,
            fin: Fin::No,
            is_delivering: false,
            inbox: VecDeque::new(),
            inbox_max,
            has_fin: false,
            error: None,
            resets: false,
            is_connecting: false,
            syn_retries: 0,
            is_marked: false,
            key: None,
            reader: None,
            writer: None,
        });
        id
    }

    pub(super) fn fresh_port(&mut self) -> u16 {
        self.next_port = self.next_port.wrapping_add(1).max(1_024);
        self.next_port
    }

    pub(crate) fn connect(&mut self, number: usize) {
        let Some(end) = &mut self.ends[number] else {
            return;
        };
        end.is_connecting = true;
        let (id, delay) = (end.id, end.delay);
        self.schedule(delay, EventKind::Syn(id));
    }

    fn syn(&mut self, id: Id) {
        let Some(end) = self.end(id) else { return };
        if end.owner == Owner::Closed {
            return;
        }
        let (address, delay, bytes_per_ms) = (end.remote.clone(), end.delay, end.bytes_per_ms);
        let local = end.local;
        let is_first = end.syn_retries == 0;
        let now = self.now;
        if self.black_holes.contains(&address) {
            if is_first {
                self.not_accepted.push((now, address));
            }
            return self.send_syn_again(id);
        }
        let listening: Vec<usize> = (0..self.listeners.len())
            .filter(|&place| {
                let listening = self.listeners[place].as_ref();
                listening.is_some_and(|listening| listening.address == address)
            })
            .collect();
        if listening.is_empty() {
            self.not_accepted.push((now, address));
            return self.schedule(delay, EventKind::Connected(id, libc::ECONNREFUSED));
        }
        let place = listening[(self.random.next() % listening.len() as u64) as usize];
        let backlog_max = self.conditions.backlog;
        let is_full = self.listeners[place].as_ref().is_some_and(|listening| {
            listening.owner != Owner::Peer && listening.backlog.len() >= backlog_max
        });
        if is_full {
            return self.send_syn_again(id);
        }
        let server_local = match &address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        };
        let remote = local.map_or(address, Address::Tcp);
        let server = self.insert(Owner::Closed, server_local, remote, delay, bytes_per_ms);
        if let Some(end) = self.end(server) {
            end.other = Some(id);
        }
        if let Some(end) = self.end(id) {
            end.other = Some(server);
        }
        self.note(|| format!("connection {} to {}", id.number, server.number));
        if let Some(listening) = &mut self.listeners[place] {
            listening.backlog.push_back(server);
            if let Some(waker) = listening.waker.take() {
                waker.wake();
            }
        }
        self.mark_number(LISTENERS + place);
        self.schedule(delay, EventKind::Connected(id, 0));
    }

    fn send_syn_again(&mut self, id: Id) {
        let Some(end) = self.end(id) else { return };
        end.syn_retries += 1;
        let wait = SYN_TIMEOUT * (1 << (end.syn_retries - 1));
        match end.syn_retries > SYN_RETRIES {
            true => self.schedule(wait, EventKind::Connected(id, libc::ETIMEDOUT)),
            false => self.schedule(wait, EventKind::Syn(id)),
        }
    }

    fn connected(&mut self, id: Id, error: i32) {
        let Some(end) = self.end(id) else { return };
        end.is_connecting = false;
        if error != 0 {
            end.error = Some(error);
        }
        self.wake_writer(id);
    }

    /// The result of connecting: `None` while it is pending, else 0 or an error.
    pub(crate) fn connect_result(&mut self, number: usize) -> Option<i32> {
        let end = self.ends[number].as_mut()?;
        match end.is_connecting {
            true => None,
            false => Some(end.error.unwrap_or(0)),
        }
    }

    pub(crate) fn set_key(&mut self, number: usize, key: SocketKey) {
        if let Some(end) = &mut self.ends[number] {
            end.key = Some(key);
        }
    }

    pub(crate) fn key(&self, number: usize) -> Option<SocketKey> {
        self.ends[number].as_ref().and_then(|end| end.key)
    }

    pub(crate) fn id_of(&self, number: usize) -> Option<Id> {
        self.ends.get(number)?.as_ref().map(|end| end.id)
    }

    pub(crate) fn local(&self, number: usize) -> Option<SocketAddr> {
        self.ends[number].as_ref().and_then(|end| end.local)
    }

    pub(crate) fn remote(&self, number: usize) -> Option<SocketAddr> {
        match &self.ends[number].as_ref()?.remote {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        }
    }

    /// The number of open sockets, including closed ones with bytes in flight, but no UDP sockets of peers.
    pub(crate) fn open_sockets(&self) -> usize {
        self.ends.iter().flatten().count() + self.open_datagram_sockets()
    }

    fn end(&mut self, id: Id) -> Option<&mut ConnectionEnd> {
        let end = self.ends.get_mut(id.number)?.as_mut();
        end.filter(|end| end.id == id)
    }

    /// Whether a read would return bytes, FIN or an error.
    pub(crate) fn is_readable(&self, number: usize) -> bool {
        self.ends[number]
            .as_ref()
            .is_some_and(|end| !end.inbox.is_empty() || end.has_fin || end.error.is_some())
    }

    /// Whether a read would return bytes.
    pub(crate) fn has_input(&self, number: usize) -> bool {
        let end = self.ends[number].as_ref();
        end.is_some_and(|end| !end.inbox.is_empty())
    }

    /// Reads into `buffer`.
    pub(crate) fn read(&mut self, number: usize, buffer: &mut [u8]) -> Transfer {
        let Some(end) = &mut self.ends[number] else {
            return Transfer::Failed(libc::EBADF);
        };
        let id = end.id;
        if end.inbox.is_empty() {
            return match (end.has_fin, end.error) {
                (_, Some(error)) => Transfer::Failed(error),
                (true, None) => Transfer::Fin,
                (false, None) => Transfer::WouldBlock,
            };
        }
        let n = end.inbox.len().min(buffer.len());
        let (first, second) = end.inbox.as_slices();
        let from_first = first.len().min(n);
        buffer[..from_first].copy_from_slice(&first[..from_first]);
        buffer[from_first..n].copy_from_slice(&second[..n - from_first]);
        end.inbox.drain(..n);
        let other = end.other;
        self.note(|| format!("read {} {n}", id.number));
        // There is room again, so the peer's bytes can arrive.
        if let Some(other) = other {
            self.schedule_delivery(other);
        }
        Transfer::Bytes(n)
    }

    /// Writes as many bytes as there is room for.
    pub(crate) fn write(&mut self, number: usize, bytes: &[u8]) -> Transfer {
        let Some(end) = &mut self.ends[number] else {
            return Transfer::Failed(libc::EBADF);
        };
        if let Some(error) = end.error {
            // Only the first call returns the cause, as in the kernel.
            end.error = Some(libc::EPIPE);
            return Transfer::Failed(error);
        }
        if end.fin != Fin::No {
            return Transfer::Failed(libc::EPIPE);
        }
        let n = bytes.len().min(end.outbox_max - end.outbox.len());
        if n == 0 {
            return Transfer::WouldBlock;
        }
        end.outbox.extend(&bytes[..n]);
        let id = end.id;
        self.note(|| format!("write {} {n}", id.number));
        self.schedule_delivery(id);
        Transfer::Bytes(n)
    }

    /// Stores the waker of a task that waits for input.
    pub(crate) fn await_input(&mut self, number: usize, waker: &Waker) {
        if let Some(end) = &mut self.ends[number] {
            end.reader = Some(waker.clone());
        }
    }

    pub(crate) fn await_room(&mut self, number: usize, waker: &Waker) {
        if let Some(end) = &mut self.ends[number] {
            end.writer = Some(waker.clone());
        }
    }

    pub(crate) fn shutdown_write(&mut self, number: usize) {
        let Some(end) = &mut self.ends[number] else {
            return;
        };
        if end.fin == Fin::No {
            end.fin = Fin::Queued;
            let id = end.id;
            self.note(|| format!("shutdown {number}"));
            self.schedule_delivery(id);
        }
    }

    /// Makes the next close reset the connection.
    pub(crate) fn reset_on_close(&mut self, number: usize) {
        if let Some(end) = &mut self.ends[number] {
            end.resets = true;
        }
    }

    /// Closes. Unread input resets the connection (RFC 9293, section 3.6.1).
    pub(crate) fn close(&mut self, number: usize) {
        let Some(end) = &mut self.ends[number] else {
            return;
        };
        let (id, other, delay) = (end.id, end.other, end.delay);
        end.owner = Owner::Closed;
        end.reader = None;
        end.writer = None;
        end.key = None;
        let resets = end.resets || !end.inbox.is_empty();
        self.note(|| format!("close {number}{}", if resets { " with reset" } else { "" }));
        let is_over = self.end(id).is_none_or(|end| end.error.is_some());
        match other {
            Some(other) if !is_over => {
                if resets {
                    // Earlier segments arrive before the reset.
                    self.schedule(delay, EventKind::Reset(other));
                    self.schedule(delay, EventKind::Remove(id));
                } else {
                    self.shutdown_write(number);
                    self.remove_if_done(id);
                }
            }
            _ => self.remove(id),
        }
    }

    fn remove_if_done(&mut self, id: Id) {
        let Some(end) = self.end(id) else { return };
        if end.owner == Owner::Closed && end.fin == Fin::Arrived {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: Id) {
        if self.end(id).is_some() {
            self.ends[id.number] = None;
            self.vacant.push(id.number);
        }
    }

    /// The connection of this end fails.
    fn reset(&mut self, id: Id, error: i32) {
        let Some(end) = self.end(id) else { return };
        if end.owner == Owner::Closed && !self.is_in_backlog(id) {
            return self.remove(id);
        }
        let Some(end) = self.end(id) else { return };
        end.error = Some(error);
        end.outbox.clear();
        // The end that has sent the reset drops its unsent bytes.
        if let Some(other) = end.other.take()
            && self
                .end(other)
                .is_some_and(|end| end.owner == Owner::Closed)
            && !self.is_in_backlog(other)
        {
            self.remove(other);
        }
        self.note(|| format!("reset {}", id.number));
        self.wake_reader(id);
        self.wake_writer(id);
    }

    fn is_in_backlog(&self, id: Id) -> bool {
        let mut listening = self.listeners.iter().flatten();
        listening.any(|listening| listening.backlog.contains(&id))
    }

    fn schedule_delivery(&mut self, id: Id) {
        let Some(end) = self.end(id) else { return };
        let has_more = !end.outbox.is_empty() || end.fin == Fin::Queued;
        if has_more && end.other.is_some() && !std::mem::replace(&mut end.is_delivering, true) {
            let delay = end.delay;
            self.schedule(delay, EventKind::Deliver(id));
        }
    }

    fn deliver(&mut self, id: Id) {
        let segment = self.draw(|conditions| &conditions.segment_bytes) as usize;
        let Some(end) = self.end(id) else { return };
        end.is_delivering = false;
        let Some(other) = end.other else { return };
        let is_accepted_or_waits = self
            .end(other)
            .is_some_and(|end| end.owner != Owner::Closed)
            || self.is_in_backlog(other);
        let Some(end) = self.end(id) else { return };
        if !is_accepted_or_waits && !end.outbox.is_empty() {
            // The other end is closed.
            let delay = end.delay;
            end.outbox.clear();
            return self.schedule(delay, EventKind::Reset(id));
        }
        let mut arriving: VecDeque<u8> = VecDeque::new();
        let room = self
            .end(other)
            .map_or(0, |other| other.inbox_max - other.inbox.len());
        let Some(end) = self.end(id) else { return };
        let n = end.outbox.len().min(segment).min(room);
        if n == end.outbox.len() {
            std::mem::swap(&mut arriving, &mut end.outbox);
        } else {
            // Copied as two slices: byte by byte it would be most of a simulation's work.
            let (first, second) = end.outbox.as_slices();
            let from_first = first.len().min(n);
            arriving.extend(&first[..from_first]);
            arriving.extend(&second[..n - from_first]);
            end.outbox.drain(..n);
        }
        let fin = end.outbox.is_empty() && end.fin == Fin::Queued;
        if fin {
            end.fin = Fin::Arrived;
        }
        let is_blocked = n == 0 && !fin;
        let has_more = !end.outbox.is_empty() || end.fin == Fin::Queued;
        let pause = Duration::from_micros(1 + n as u64 * 1_000 / end.bytes_per_ms);
        if has_more && !is_blocked {
            end.is_delivering = true;
            self.schedule(pause, EventKind::Deliver(id));
        }
        if let Some(end) = self.end(other) {
            end.inbox.append(&mut arriving);
            end.has_fin |= fin;
        }
        self.note(|| {
            let fin = if fin { " FIN" } else { "" };
            format!("arrive {} {n}{fin}", other.number)
        });
        if n > 0 || fin {
            self.wake_reader(other);
            self.wake_writer(id);
        }
        self.remove_if_done(id);
    }
}
