//! Datagrams: the UDP sockets of the network.
//!
//! A batch that is sent travels as single datagrams, which are lost, delayed, doubled and reordered one by
//! one.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

use super::events::{Datagram, EventKind};
use super::id::Owner;
use super::network::Network;

/// Number of the first UDP socket; listeners have the numbers below.
const DATAGRAM_SOCKETS: usize = 1 << 25;

/// Bytes that a UDP socket holds until they are received; further datagrams are lost.
const INBOX_BYTES_MAX: usize = 256 * 1024;

/// The UDP sockets of the network.
#[derive(Default)]
pub(super) struct DatagramSockets(Vec<Option<DatagramSocket>>);

struct DatagramSocket {
    address: SocketAddr,
    owner: Owner,
    inbox: VecDeque<Datagram>,
    inbox_bytes: usize,
    is_marked: bool,
    /// The peer that waits for a datagram.
    reader: Option<Waker>,
}

impl Network {
    pub(crate) fn is_datagram_socket(number: usize) -> bool {
        number >= DATAGRAM_SOCKETS
    }

    pub(super) fn unmark_datagram_socket(&mut self, number: usize) {
        if let Some(socket) = &mut self.datagram_sockets.0[number - DATAGRAM_SOCKETS] {
            socket.is_marked = false;
        }
    }

    /// Binds; several sockets may share an address. Returns the number, and the address with its port.
    pub(crate) fn bind_datagrams(
        &mut self,
        owner: Owner,
        address: SocketAddr,
    ) -> (usize, SocketAddr) {
        let address = match address.port() {
            0 => SocketAddr::new(address.ip(), self.fresh_port()),
            _ => address,
        };
        self.datagram_sockets.0.push(Some(DatagramSocket {
            address,
            owner,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            is_marked: false,
            reader: None,
        }));
        let number = DATAGRAM_SOCKETS + self.datagram_sockets.0.len() - 1;
        (number, address)
    }

    pub(crate) fn mark_datagram_socket(&mut self, number: usize) {
        if let Some(socket) = &mut self.datagram_sockets.0[number - DATAGRAM_SOCKETS]
            && !std::mem::replace(&mut socket.is_marked, true)
            && let Owner::Core(core) = socket.owner
        {
            self.ready[core].push(number);
        }
    }

    /// Sends one datagram.
    pub(crate) fn send_datagram(&mut self, datagram: &Datagram) {
        let is_lost = datagram.content.len() > self.conditions.datagram_bytes_max
            || self.happens(|conditions| conditions.datagram_lost);
        let copies = match self.happens(|conditions| conditions.datagram_twice) {
            _ if is_lost => 0,
            true => 2,
            false => 1,
        };
        let bytes = datagram.content.len();
        let Datagram { from, to, .. } = *datagram;
        self.note(|| format!("datagram {from} to {to} {bytes} bytes, {copies} times"));
        for _ in 0..copies {
            let delay = self.draw(|conditions| &conditions.datagram_delay_us);
            let arrival = EventKind::Datagram(Box::new(datagram.clone()));
            self.schedule(Duration::from_micros(delay), arrival);
        }
    }

    /// A datagram arrives at one of the sockets of its address, always the same for one sender.
    pub(super) fn datagram_arrives(&mut self, datagram: Datagram) {
        let Datagram { from, to, .. } = datagram;
        if datagram.content.is_empty() {
            return;
        }
        let is_bound = |socket: &DatagramSocket| {
            let ip = socket.address.ip();
            socket.address.port() == to.port() && (ip == to.ip() || ip.is_unspecified())
        };
        let sockets = self.datagram_sockets.0.iter().enumerate();
        let bound: Vec<usize> = sockets
            .filter(|(_, socket)| socket.as_ref().is_some_and(is_bound))
            .map(|(place, _)| place)
            .collect();
        if bound.is_empty() {
            return;
        }
        let place = bound[usize::from(from.port()) % bound.len()];
        if let Some(socket) = &mut self.datagram_sockets.0[place] {
            let bytes = datagram.content.len();
            if socket.inbox_bytes + bytes > INBOX_BYTES_MAX {
                return;
            }
            socket.inbox_bytes += bytes;
            socket.inbox.push_back(datagram);
            socket.reader.take().into_iter().for_each(Waker::wake);
        }
        self.mark_datagram_socket(DATAGRAM_SOCKETS + place);
    }

    pub(crate) fn take_datagram(&mut self, number: usize) -> Option<Datagram> {
        let socket = self.datagram_sockets.0[number - DATAGRAM_SOCKETS].as_mut()?;
        let datagram = socket.inbox.pop_front()?;
        socket.inbox_bytes -= datagram.content.len();
        Some(datagram)
    }

    /// Stores the waker of a peer that waits for a datagram.
    pub(crate) fn await_datagram(&mut self, number: usize, waker: &Waker) {
        if let Some(socket) = &mut self.datagram_sockets.0[number - DATAGRAM_SOCKETS] {
            socket.reader = Some(waker.clone());
        }
    }

    /// The number of open UDP sockets of cores.
    pub(super) fn open_datagram_sockets(&self) -> usize {
        let sockets = self.datagram_sockets.0.iter().flatten();
        sockets.filter(|socket| socket.owner != Owner::Peer).count()
    }

    pub(crate) fn datagram_address(&self, number: usize) -> Option<SocketAddr> {
        let socket = self.datagram_sockets.0[number - DATAGRAM_SOCKETS].as_ref()?;
        Some(socket.address)
    }

    /// Closes a socket; what has arrived is lost.
    pub(crate) fn close_datagrams(&mut self, number: usize) {
        self.datagram_sockets.0[number - DATAGRAM_SOCKETS] = None;
    }
}
