//! The state of one connection, shared by the handles of its current exchange.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use blitz_proto::h1::{self, Event};
use blitz_proto::{Error, Fields, RequestHead, ResponseHead};
use blitz_reactor::Slice;

use super::client::ClientSide;
use super::inbound::Inbound;
use super::outbound::Outbound;
use super::server::ServerSide;
use crate::recycle::Pooled;
use crate::timer::LazyTimer;
use crate::transport::Transport;

/// Most connection states kept on one shelf.
const SHELF_MAX: usize = 1024;

/// One HTTP/1 connection while it has something to do; an idle one is only a parked socket.
///
/// Handles name the exchange they belong to by its number, so that one that was kept too long
/// finds itself cut off and never touches the next exchange.
pub(crate) struct Wire {
    pub(super) state: RefCell<State>,
    /// The service is being polled: what it queues leaves together, afterwards.
    pub(super) held: Cell<bool>,
}

pub(super) struct State {
    /// `None` once closed or given away.
    pub(super) socket: Option<Transport>,
    /// Number of the current exchange.
    pub(super) exchange: u32,
    /// The connection left HTTP.
    pub(super) is_tunnel: bool,
    pub(super) side: Side,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    pub(super) timer: LazyTimer,
}

pub(super) enum Side {
    Server(ServerSide),
    Client(ClientSide),
}

/// Connection states that wait to be used again, so that steady traffic allocates none.
#[derive(Default)]
pub(crate) struct Shelf(RefCell<Vec<Rc<Wire>>>);

impl Shelf {
    pub(super) fn take(&self) -> Option<Rc<Wire>> {
        self.0.borrow_mut().pop()
    }

    /// Keeps the state of a connection that ended or was parked, unless a handle still sees it.
    #[inline]
    pub(crate) fn put(&self, wire: Rc<Wire>) {
        if !Wire::is_last(&wire) || self.0.borrow().len() == SHELF_MAX {
            return;
        }
        wire.state.borrow_mut().clear();
        self.0.borrow_mut().push(wire);
    }
}

impl Wire {
    pub(super) fn new(socket: Transport, side: Side) -> Rc<Wire> {
        let state = State {
            socket: Some(socket),
            exchange: 0,
            is_tunnel: false,
            side,
            inbound: Inbound::default(),
            outbound: Outbound::default(),
            timer: LazyTimer::default(),
        };
        Rc::new(Wire {
            state: RefCell::new(state),
            held: Cell::new(false),
        })
    }

    /// Whether nobody else refers to the connection.
    pub(super) fn is_last(wire: &Rc<Wire>) -> bool {
        Rc::strong_count(wire) == 1
    }

    /// A handle is done with the connection. The last one on a client puts the state on the shelf
    /// of its pool; on a server that is the task's business.
    pub(crate) fn let_go(wire: Rc<Wire>) {
        if !Wire::is_last(&wire) {
            return;
        }
        let home = match &wire.state.borrow().side {
            Side::Client(side) => side.home.clone(),
            Side::Server(_) => None,
        };
        if let Some(home) = home {
            home.shelf().put(wire);
        }
    }

    /// Runs `act` on the connection if it still is in this exchange.
    #[inline]
    pub(super) fn in_exchange<T>(
        &self,
        exchange: u32,
        act: impl FnOnce(&mut State) -> T,
    ) -> Option<T> {
        let mut state = self.state.borrow_mut();
        if state.exchange != exchange {
            return None;
        }
        let done = act(&mut state);
        if !self.held.get() {
            state.flush();
        }
        Some(done)
    }
}

/// What one step of the machine yields.
pub(super) enum Got {
    NeedMore,
    /// What is left is for the next exchange, or undecided.
    Paused,
    Head(blitz_proto::BodyLength),
    Data(Slice),
    Trailers,
    End,
}

impl State {
    /// The next event in what was received. [`Got::NeedMore`] means that the machine has looked at
    /// all of it, in however many pieces it came (rule 8); only then may a caller wait for more.
    #[inline]
    pub(super) fn step(&mut self) -> Result<Got, Error> {
        // What was got is not taken apart, which would move it once more.
        let got = self.step_through_front();
        if matches!(got, Ok(Got::NeedMore)) && !self.inbound.input.is_empty() {
            return self.step_through_rest();
        }
        got
    }

    #[cold]
    fn step_through_rest(&mut self) -> Result<Got, Error> {
        loop {
            let got = self.step_through_front()?;
            if !matches!(got, Got::NeedMore) || self.inbound.input.is_empty() {
                return Ok(got);
            }
        }
    }

    /// One step of the machine, which sees the first piece alone.
    #[inline]
    fn step_through_front(&mut self) -> Result<Got, Error> {
        let Inbound {
            input, trailers, ..
        } = &mut self.inbound;
        let bytes: &[u8] = input.front().map_or(&[], |slice| slice);
        let step = match &mut self.side {
            Side::Server(side) => {
                let head = side.head.get_or_insert_with(Pooled::<RequestHead>::take);
                side.machine.handle_input(bytes, head, trailers)?
            }
            Side::Client(side) => {
                let head = side.head.get_or_insert_with(Pooled::<ResponseHead>::take);
                side.machine.handle_input(bytes, head, trailers)?
            }
        };
        let got = match step.event {
            Event::NeedMore => {
                debug_assert_eq!(step.consumed, bytes.len(), "a piece is taken whole");
                Got::NeedMore
            }
            Event::Paused => Got::Paused,
            Event::Head(length) => Got::Head(length),
            Event::Data(range) => match input.front() {
                Some(slice) => Got::Data(slice.slice(range)),
                None => unreachable!("data is a range of the input"),
            },
            Event::Trailers => Got::Trailers,
            Event::End => Got::End,
        };
        self.inbound.input.consume(step.consumed);
        Ok(got)
    }

    /// Receives once more into the input. `false` after FIN.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.inbound.has_fin() {
            return Poll::Ready(Ok(false));
        }
        self.restore_window();
        self.poll_receive_more(cx)
    }

    /// As [`State::poll_receive`], on top of what is held already.
    #[inline]
    pub(super) fn poll_receive_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Some(socket) = &mut self.socket else {
            return Poll::Ready(Ok(false));
        };
        match socket.poll_recv(cx)? {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(slice)) => {
                self.inbound.push(slice);
                Poll::Ready(Ok(true))
            }
            Poll::Ready(None) => {
                self.inbound.fin_at = Some(blitz_reactor::now());
                Poll::Ready(Ok(false))
            }
        }
    }

    /// Counts what was read ahead of its use, and `more` that will be, against what may be
    /// received: a client that goes on sending is not read without bound.
    pub(super) fn shrink_window(&mut self, more: usize) {
        let ahead = self.inbound.input.bytes() + more;
        if let Some(socket) = &self.socket {
            socket.set_window(self.limits().pipelined_bytes_max.saturating_sub(ahead));
            self.inbound.is_shrunk = true;
        }
    }

    pub(super) fn restore_window(&mut self) {
        if !self.inbound.is_shrunk || !self.inbound.input.is_empty() {
            return;
        }
        self.inbound.is_shrunk = false;
        if let Some(socket) = &self.socket {
            socket.set_window(self.limits().pipelined_bytes_max);
        }
    }

    /// Takes the trailers that the machine has just completed.
    pub(super) fn take_trailers(&mut self) -> Pooled<Fields> {
        std::mem::take(&mut self.inbound.trailers)
    }

    /// Ends the exchange for every handle that is still around; the next one has a new number.
    pub(super) fn cut_handles(&mut self) {
        self.exchange = self.exchange.wrapping_add(1);
        self.inbound.wake_reader();
        if let Side::Server(side) = &mut self.side {
            side.wake_closed();
        }
    }

    /// Forgets the connection, which has no handle left, and keeps the memory.
    #[inline]
    fn clear(&mut self) {
        self.socket = None;
        self.is_tunnel = false;
        self.inbound.clear();
        self.outbound.clear();
        match &mut self.side {
            Side::Server(side) => side.clear(),
            Side::Client(side) => side.clear(),
        }
    }
}

/// The machine's commands that both sides have.
impl Side {
    pub(super) fn send_data_prefix(&mut self, len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        match self {
            Side::Server(side) => side.machine.send_data_prefix(len, out),
            Side::Client(side) => side.machine.send_data_prefix(len, out),
        }
    }

    pub(super) fn send_data_suffix(&mut self, out: &mut Vec<u8>) {
        match self {
            Side::Server(side) => side.machine.send_data_suffix(out),
            Side::Client(side) => side.machine.send_data_suffix(out),
        }
    }

    pub(super) fn send_end(
        &mut self,
        trailers: Option<&Fields>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        match self {
            Side::Server(side) => side.machine.send_end(trailers, out),
            Side::Client(side) => side.machine.send_end(trailers, out),
        }
    }

    pub(super) fn server(&mut self) -> &mut ServerSide {
        let Side::Server(side) = self else {
            unreachable!("only called on servers")
        };
        side
    }

    pub(super) fn client(&mut self) -> &mut ClientSide {
        let Side::Client(side) = self else {
            unreachable!("only called on clients")
        };
        side
    }

    pub(super) fn client_machine(&mut self) -> &mut h1::Client {
        &mut self.client().machine
    }
}
