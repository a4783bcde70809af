//! A connection of HTTP/1.1 on a server.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll};

use blitz_proto::h1;
use blitz_proto::{BodyLength, Error, Fields, Limits, RequestHead, ResponseHead, Version};

use super::driver::{Driver, Role};
use crate::default_headers::DefaultHeaders;
use crate::error::Refusal;
use crate::exchange::{BodyState, Link, Peer, ServerFraming, ServerSide, refuse, refuse_request};
use crate::free_list::FreeList;
use crate::options::ServeOptions;
use crate::recycle::Pooled;
use crate::transport::Transport;

/// One connection while it has something to do; an idle one is only a parked socket.
pub(crate) struct ServerConn {
    pub(super) driver: RefCell<Driver<ServerRole>>,
    /// The service is being polled: what it queues leaves together, afterwards.
    pub(super) is_held: Cell<bool>,
}

pub(crate) struct ServerRole {
    pub(super) machine: h1::Server,
    /// Filled by the machine until the head is complete.
    pub(super) head: Option<Pooled<RequestHead>>,
    pub(super) options: Rc<ServeOptions>,
    default_headers: Rc<DefaultHeaders>,
    /// The client; written anew for another connection unless something still refers to it.
    pub(super) peer: Rc<Peer>,
}

impl ServerConn {
    /// The state for a connection that has received bytes, from the free list if possible.
    pub(crate) fn new(
        socket: Transport,
        peer: Peer,
        options: &Rc<ServeOptions>,
        default_headers: &Rc<DefaultHeaders>,
        free: &FreeList<ServerConn>,
    ) -> Rc<ServerConn> {
        let Some(conn) = free.take() else {
            return ServerConn::allocate(socket, ServerRole::new(peer, options, default_headers));
        };
        let mut driver = conn.driver.borrow_mut();
        driver.socket = Some(socket);
        if !Rc::ptr_eq(&driver.role.default_headers, default_headers) {
            driver.role.default_headers = Rc::clone(default_headers);
        }
        match Rc::get_mut(&mut driver.role.peer) {
            Some(slot) => *slot = peer,
            None => driver.role.peer = Rc::new(peer),
        }
        drop(driver);
        conn
    }

    #[cold]
    fn allocate(socket: Transport, role: ServerRole) -> Rc<ServerConn> {
        Rc::new(ServerConn {
            driver: RefCell::new(Driver::new(Some(socket), role)),
            is_held: Cell::new(false),
        })
    }

    /// Continues where only empty lines had come when the connection was parked.
    #[cold]
    pub(crate) fn note_empty_lines(&self, empty_lines: usize) {
        let mut driver = self.driver.borrow_mut();
        driver.role.machine.set_empty_lines(empty_lines);
    }

    /// Ready for another connection of the same listener.
    pub(crate) fn clear(&self) {
        let mut driver = self.driver.borrow_mut();
        driver.clear();
        driver.role.clear();
    }
}

impl Link for ServerConn {
    type Framing = Driver<ServerRole>;

    #[inline]
    fn with<T>(&self, act: impl FnOnce(&mut Driver<ServerRole>) -> T) -> T {
        let mut driver = self.driver.borrow_mut();
        let done = act(&mut driver);
        if !self.is_held.get() {
            driver.flush();
        }
        done
    }

    #[inline]
    fn look<T>(&self, act: impl FnOnce(&mut Driver<ServerRole>) -> T) -> T {
        act(&mut self.driver.borrow_mut())
    }
}

impl ServerRole {
    pub(super) fn new(
        peer: Peer,
        options: &Rc<ServeOptions>,
        default_headers: &Rc<DefaultHeaders>,
    ) -> ServerRole {
        ServerRole {
            machine: h1::Server::new(&options.limits),
            head: None,
            options: Rc::clone(options),
            default_headers: Rc::clone(default_headers),
            peer: Rc::new(peer),
        }
    }

    fn clear(&mut self) {
        if !self.machine.is_idle() || !self.machine.keep_alive() {
            self.machine = h1::Server::new(&self.options.limits);
            // A part of a head would stay charged to the core.
            self.head = None;
        }
        self.machine.set_empty_lines(0);
        if self.options.tls.is_some()
            && let Some(peer) = Rc::get_mut(&mut self.peer)
        {
            peer.tls = None;
        }
    }
}

impl Role for ServerRole {
    type Side = ServerSide;

    #[inline]
    fn limits(&self) -> &Limits {
        &self.options.limits
    }

    #[inline]
    fn usual_window(&self) -> usize {
        self.options.limits.pipelined_bytes_max
    }

    #[inline]
    fn handle_input(&mut self, bytes: &[u8], trailers: &mut Fields) -> Result<h1::Step, Error> {
        let head = self.head.get_or_insert_with(Pooled::<RequestHead>::take);
        self.machine.handle_input(bytes, head, trailers)
    }

    fn ends_with_fin(&mut self) -> bool {
        self.machine.handle_eof().is_ok()
    }

    fn send_data_prefix(&mut self, len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        self.machine.send_data_prefix(len, out)
    }

    fn send_data_suffix(&mut self, out: &mut Vec<u8>) {
        self.machine.send_data_suffix(out);
    }

    fn send_end(&mut self, trailers: Option<&Fields>, out: &mut Vec<u8>) -> Result<(), Error> {
        self.machine.send_end(trailers, out)
    }

    fn has_content_to_send(&self) -> bool {
        self.machine.sends_body()
    }

    fn content_left(&self) -> Option<u64> {
        self.machine.content_left()
    }

    fn is_message_sent(&self) -> bool {
        self.machine.response_done()
    }

    fn body_failed(driver: &mut Driver<ServerRole>) {
        driver.exchange.wake_task();
    }

    fn send_failed(driver: &mut Driver<ServerRole>) {
        driver.exchange.is_gone = true;
        driver.exchange.wake_task();
    }
}

impl ServerFraming for Driver<ServerRole> {
    const VERSION: Version = Version::Http11;

    fn options(&self) -> &Rc<ServeOptions> {
        &self.role.options
    }

    fn peer(&self) -> &Rc<Peer> {
        &self.role.peer
    }

    fn expects_continue(&self, _: u64) -> bool {
        self.role.machine.expects_continue()
    }

    fn is_upgrade_requested(&mut self, _: u64) -> bool {
        self.role.machine.upgrade_requested() && self.exchange.receiving.is_complete()
    }

    fn send_informational(&mut self, _: u64, head: &ResponseHead) {
        let (role, out) = self.parts();
        role.machine.send_informational(head, out);
    }

    #[inline]
    fn send_head(&mut self, _: u64, head: &mut ResponseHead, length: BodyLength, is_whole: bool) {
        let must_close = self.must_close_after_response(is_whole);
        let (role, out) = self.parts();
        if must_close {
            role.machine.drain();
        }
        role.machine.send_head(head, length, out);
        role.default_headers.add(&head.fields, out);
    }

    fn send_tunnel_head(&mut self, id: u64, head: &mut ResponseHead) {
        self.send_head(id, head, BodyLength::Empty, true);
        assert!(
            self.role.machine.is_tunnel(),
            "{} opens no tunnel",
            head.status
        );
        self.exchange.begin_body(BodyLength::Unknown);
    }

    fn is_response_started(&self, _: u64) -> bool {
        self.role.machine.response_started()
    }

    fn close_if_exclusive(&mut self) {
        self.role.machine.drain();
    }

    fn discard(&mut self, _: u64) {}

    #[inline]
    fn may_wait_for_client(&mut self, _: u64) -> bool {
        self.has_fin() || self.queued() > 0
    }

    #[inline]
    fn poll_client_gone(&mut self, _: u64, cx: &mut Context<'_>) -> Poll<()> {
        self.read_ahead(cx);
        match self.exchange.is_gone {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Driver<ServerRole> {
    /// Whether it is already known that no request can follow this one.
    #[inline]
    fn must_close_after_response(&mut self, is_whole: bool) -> bool {
        let wants_upgrade = self.role.machine.upgrade_requested();
        // The protocol of the bytes after the request is unknown (rule 15).
        let refuses_upgrade = wants_upgrade && !self.is_nothing_received();
        let receiving = &self.exchange.receiving;
        let is_unusable = match receiving.body {
            BodyState::Done => false,
            BodyState::Failed(_) => true,
            // A response under way may still be made of the rest of the body.
            BodyState::Open if !is_whole => false,
            BodyState::Open | BodyState::Unwanted => {
                receiving.pace.bytes_left().unwrap_or(0)
                    > self.role.options.limits.discard_bytes_max as u64
            }
        };
        let has_left = self.has_fin() && self.input.is_empty();
        let options = &self.role.options;
        let makes_room = options.close_at_limit && blitz_reactor::sockets_limit().0;
        refuses_upgrade || is_unusable || has_left || makes_room || options.drain.is_triggered()
    }

    pub(super) fn is_nothing_received(&mut self) -> bool {
        let unread = self.socket.as_mut().map_or(0, Transport::unread_bytes);
        self.input.is_empty() && !self.has_fin() && unread == 0
    }

    /// Refuses a head that is malformed or incomplete; the fields before the fault are known.
    #[cold]
    pub(super) fn refuse_head(&mut self, refusal: Refusal) {
        // After this head it belongs to no request.
        let mut head = self.role.head.take();
        let id = self.number;
        match &mut head {
            Some(head) => {
                head.keep_refused();
                refuse_request(self, id, refusal, head);
            }
            None => refuse(self, id, refusal, None, false),
        }
    }
}
