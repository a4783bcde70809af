//! The server's side of a connection: answering.

use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use blitz_proto::h1;
use blitz_proto::{BodyLength, RequestHead, ResponseHead, Status};
use blitz_reactor::Chunk;

use super::inbound::Body;
use super::outbound::Message;
use super::wire::{Shelf, Side, State, Wire};
use crate::body::{RecvBody, SendBody, Tunnel};
use crate::counters::count;
use crate::decoration::Decoration;
use crate::exchange::Peer;
use crate::recycle::Pooled;
use crate::serve::ServeOptions;
use crate::transport::Transport;

pub(super) struct ServerSide {
    pub(super) machine: h1::Server,
    /// Filled by the machine until the head is complete.
    pub(super) head: Option<Pooled<RequestHead>>,
    pub(super) options: Rc<ServeOptions>,
    pub(super) decoration: Rc<Decoration>,
    /// Who asks; written anew for another connection unless somebody still looks at it.
    pub(super) peer: Rc<Peer>,
    /// The client takes problem+json; of the last request with content, or of a refused head.
    pub(super) takes_problem: bool,
    /// The client went away.
    pub(super) gone: bool,
    /// The exchange's task, while it waits.
    pub(super) task: Option<Waker>,
    /// Who waits for the end of the exchange.
    closed: Option<Waker>,
}

impl ServerSide {
    pub(super) fn new(
        peer: Peer,
        options: &Rc<ServeOptions>,
        decoration: &Rc<Decoration>,
    ) -> ServerSide {
        ServerSide {
            machine: h1::Server::new(&options.limits),
            head: None,
            options: Rc::clone(options),
            decoration: Rc::clone(decoration),
            peer: Rc::new(peer),
            takes_problem: false,
            gone: false,
            task: None,
            closed: None,
        }
    }

    pub(super) fn wake_task(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    pub(super) fn wake_closed(&mut self) {
        if let Some(closed) = self.closed.take() {
            closed.wake();
        }
    }

    pub(super) fn send_continue(&mut self, out: &mut Vec<u8>) {
        self.machine
            .send_informational(&ResponseHead::new(Status::CONTINUE), out);
    }

    /// Ready for another connection of the same listener.
    pub(super) fn clear(&mut self) {
        if !self.machine.is_idle() || !self.machine.keep_alive() {
            self.machine = h1::Server::new(&self.options.limits);
        }
        self.machine.set_empty_lines(0);
        if self.options.tls.is_some()
            && let Some(peer) = Rc::get_mut(&mut self.peer)
        {
            peer.tls = None;
        }
        self.gone = false;
        self.task = None;
        self.closed = None;
    }
}

impl Wire {
    /// The state for a connection that has something to say, from the shelf if possible.
    pub(crate) fn server(
        socket: Transport,
        peer: Peer,
        options: &Rc<ServeOptions>,
        decoration: &Rc<Decoration>,
        shelf: &Shelf,
    ) -> Rc<Wire> {
        if let Some(wire) = shelf.take() {
            let mut state = wire.state.borrow_mut();
            state.socket = Some(socket);
            let side = state.side.server();
            match Rc::get_mut(&mut side.peer) {
                Some(known) => *known = peer,
                None => side.peer = Rc::new(peer),
            }
            drop(state);
            return wire;
        }
        Wire::new_server(socket, peer, options, decoration)
    }

    #[cold]
    fn new_server(
        socket: Transport,
        peer: Peer,
        options: &Rc<ServeOptions>,
        decoration: &Rc<Decoration>,
    ) -> Rc<Wire> {
        let side = ServerSide::new(peer, options, decoration);
        Wire::new(socket, Side::Server(side))
    }

    /// Goes on where only empty lines had come when the connection was parked.
    #[cold]
    pub(crate) fn note_empty_lines(&self, empty_lines: usize) {
        let mut state = self.state.borrow_mut();
        state.side.server().machine.set_empty_lines(empty_lines);
    }

    pub(crate) fn expects_continue(&self, exchange: u32) -> bool {
        self.in_exchange(exchange, |state| {
            state.side.server().machine.expects_continue()
        })
        .unwrap_or(false)
    }

    pub(crate) fn upgrade_requested(&self, exchange: u32) -> bool {
        self.in_exchange(exchange, State::may_upgrade)
            .unwrap_or(false)
    }

    pub(crate) fn send_informational(&self, exchange: u32, head: &ResponseHead) {
        self.in_exchange(exchange, |state| {
            let State { side, outbound, .. } = state;
            side.server()
                .machine
                .send_informational(head, outbound.buffer());
        });
    }

    /// Sends a head; content follows.
    pub(crate) fn start_response(
        wire: Rc<Wire>,
        exchange: u32,
        head: &mut ResponseHead,
        length: BodyLength,
    ) -> SendBody {
        let started = wire.in_exchange(exchange, |state| {
            state.send_head(head, length, length == BodyLength::Empty);
            state.finish_without_content()
        });
        match started {
            Some(true) if length == BodyLength::Empty => SendBody::done(),
            Some(true) => SendBody::discard(),
            // The handle of an exchange that was cut off finds out when it is used.
            Some(false) | None => SendBody::h1(wire, exchange),
        }
    }

    /// Sends a complete answer.
    #[inline]
    pub(crate) fn send_response(&self, exchange: u32, head: &mut ResponseHead, content: Chunk) {
        self.in_exchange(exchange, |state| state.send_whole(head, content));
    }

    /// Sends 101, or 2xx to CONNECT; from then on both directions are opaque.
    pub(crate) fn start_tunnel(wire: Rc<Wire>, exchange: u32, head: &mut ResponseHead) -> Tunnel {
        wire.in_exchange(exchange, |state| {
            assert!(
                state.may_upgrade(),
                "a tunnel answers a complete request to upgrade"
            );
            state.send_head(head, BodyLength::Empty, true);
            assert!(
                state.side.server().machine.is_tunnel(),
                "{} opens no tunnel",
                head.status
            );
            state.is_tunnel = true;
            state.inbound.begin_body(BodyLength::Unknown);
            count(|counters| counters.upgrades += 1);
        });
        let recv = RecvBody::h1(Rc::clone(&wire), exchange, BodyLength::Unknown);
        Tunnel {
            recv,
            send: SendBody::h1(wire, exchange),
        }
    }

    /// Ends the exchange without an answer.
    pub(crate) fn abort(&self, exchange: u32) {
        self.in_exchange(exchange, |state| {
            state.outbound.message = Message::Cut;
            state.side.server().wake_task();
        });
    }

    pub(crate) fn poll_closed(&self, exchange: u32, cx: &mut Context<'_>) -> Poll<()> {
        self.in_exchange(exchange, |state| {
            let side = state.side.server();
            if side.gone {
                return Poll::Ready(());
            }
            side.closed = Some(cx.waker().clone());
            Poll::Pending
        })
        .unwrap_or(Poll::Ready(()))
    }

    /// Nobody will answer.
    pub(crate) fn drop_responder(&self, exchange: u32) {
        self.in_exchange(exchange, |state| {
            state.outbound.message = Message::Missing;
            state.side.server().wake_task();
        });
    }
}

impl State {
    /// Nothing of the request is outstanding that a tunnel could take for its own bytes.
    fn may_upgrade(&mut self) -> bool {
        self.side.server().machine.upgrade_requested() && self.inbound.is_body_complete()
    }

    /// Encodes the head of the final response, and decides whether the connection goes on.
    /// `is_whole` says that the answer is given in one go.
    fn send_head(&mut self, head: &mut ResponseHead, length: BodyLength, is_whole: bool) {
        let must_close = self.must_close_after_response(is_whole);
        let State { side, outbound, .. } = self;
        let side = side.server();
        if must_close {
            side.machine.drain();
        }
        let out = outbound.buffer();
        side.machine.send_head(head, length, out);
        side.decoration.add(&head.fields, out);
        let class = usize::from(head.status.class()).clamp(1, 5) - 1;
        count(|counters| counters.responses[class] += 1);
        outbound.message = Message::Open;
    }

    /// Whether it is already known that no request can follow this one.
    #[inline]
    fn must_close_after_response(&mut self, is_whole: bool) -> bool {
        let wants_upgrade = self.side.server().machine.upgrade_requested();
        // In which protocol are the bytes that came after the request? Nobody knows (rule 15).
        let refuses_upgrade = wants_upgrade && !self.nothing_received();
        let inbound = &self.inbound;
        let is_unusable = match inbound.body {
            Body::Done => false,
            Body::Failed(_) => true,
            // An answer under way may still be made of the rest of the body.
            Body::Open if !is_whole => false,
            Body::Open | Body::Unwanted => {
                inbound.pace.bytes_left() > self.limits().discard_bytes_max as u64
            }
        };
        let left = inbound.has_fin() && inbound.input.is_empty();
        refuses_upgrade || is_unusable || left || self.side.server().options.drain.is_triggered()
    }

    /// Completes the answer if no content is left to send.
    #[inline]
    pub(super) fn finish_without_content(&mut self) -> bool {
        let State { side, outbound, .. } = self;
        let machine = &mut side.server().machine;
        if machine.sends_body() {
            return false;
        }
        if !machine.response_done() {
            let ended = machine.send_end(None, outbound.buffer());
            debug_assert!(ended.is_ok(), "no content was due");
        }
        self.end_message();
        true
    }

    #[inline]
    pub(super) fn send_whole(&mut self, head: &mut ResponseHead, content: Chunk) {
        let bytes = content.len();
        let length = match bytes {
            0 if head.status.forbids_content() => BodyLength::Empty,
            _ => BodyLength::Known(bytes as u64),
        };
        self.send_head(head, length, true);
        let State { side, outbound, .. } = self;
        let machine = &mut side.server().machine;
        if machine.sends_body() {
            // A known length needs no framing, but the machine counts.
            let counted = machine.send_data_prefix(bytes, outbound.buffer());
            debug_assert!(counted.is_ok(), "the content has its own length");
            self.append(content);
        }
        let completed = self.finish_without_content();
        debug_assert!(completed, "everything was sent");
    }
}
