//! The state of one connection, shared by its task, its exchanges and their handles.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use blitz_proto::h2::{self, Code, Received, StreamId, UpgradeSettings};
use blitz_proto::{Fields, Limits, Name, RequestHead, ResponseHead};
use blitz_reactor::{Buffer, Chunk, Socket};

use super::client::Places;
use super::liveness::Liveness;
use super::shortage::{Counted, PooledStreams};
use super::stream::{Loss, Stream, Streams, wake};
use crate::client::ClientOptions;
use crate::date::http_date;
use crate::exchange::Peer;
use crate::input::Input;
use crate::pool::Term;
use crate::serve::ServeOptions;
use crate::timer::LazyTimer;
use crate::transport::{Resting, Transport};

/// One HTTP/2 connection, of either role.
///
/// Handles name their stream by its number, which is never used again.
pub(crate) struct Wire {
    pub(super) state: RefCell<State>,
    /// The connection's task is at work: what is queued meanwhile leaves when it is done.
    pub(super) is_driven: Cell<bool>,
}

pub(super) struct State {
    /// `None` while parked, and once closed.
    pub(super) socket: Option<Transport>,
    /// What is left of it while parked, if that is more than the socket.
    resting: Option<Resting>,
    /// The time as the machine knows it.
    pub(super) now: Duration,
    pub(super) machine: h2::Connection,
    /// Received and not yet taken by the machine, in order.
    pub(super) input: Input,
    /// The peer sends no more.
    pub(super) fin: bool,
    /// Encoded and not yet queued.
    pub(super) pending: Option<Buffer>,
    pub(super) streams: Streams,
    /// Bytes that all of them have queued for windows to open.
    pub(super) unsent: usize,
    /// What is counted of this connection in [`Shared::pooled`].
    pub(super) counted: Counted,
    /// When a client last changed what the windows of its streams begin with.
    pub(super) window_changed: Option<Instant>,
    /// Streams that wait until fewer are.
    pub(super) crowded: Vec<StreamId>,
    /// Nothing was read when it was tried last, since too much is held.
    pub(super) was_held_back: bool,
    /// Streams that are answered and not yet received to their end, with the time for it.
    pub(super) lingering: VecDeque<(StreamId, Instant)>,
    pub(super) shared: Rc<Shared>,
    /// Whose requests come; of a client nothing is known.
    pub(super) peer: Option<Rc<Peer>>,
    /// What a client has promised of the connection.
    pub(super) places: Places,
    /// The connection's task, while it waits.
    pub(super) task: Option<Waker>,
    pub(super) timer: LazyTimer,
    /// When the bytes began to come that are no whole frame or header section yet.
    pub(super) partial_since: Option<Instant>,
    /// When the connection was first parked after its last stream.
    pub(super) idle_since: Option<Instant>,
    /// When our settings have to be acknowledged, unless they are.
    pub(super) settings_due: Option<Instant>,
    pub(super) liveness: Liveness,
}

/// What the connections of a listener share, or those of a pool.
pub(crate) struct Shared {
    options: Options,
    pub(super) received: RefCell<Received>,
    /// What the connections of a pool have open and hold.
    pub(super) pooled: PooledStreams,
    /// The moment that the machines count time from, which is the first that they asked for.
    epoch: OnceCell<Instant>,
    /// Streams that wait to be used again, so that steady traffic allocates none.
    #[allow(
        clippy::vec_box,
        reason = "a box moves from here to its connection and back"
    )]
    spare: RefCell<Vec<Box<Stream>>>,
}

enum Options {
    Server(Rc<ServeOptions>),
    Client(Rc<ClientOptions>),
}

/// Most streams kept for use by the next.
const SPARE_MAX: usize = 1_024;

impl Shared {
    pub(crate) fn server(options: Rc<ServeOptions>) -> Rc<Shared> {
        Shared::new(Options::Server(options))
    }

    pub(crate) fn client(options: Rc<ClientOptions>) -> Rc<Shared> {
        Shared::new(Options::Client(options))
    }

    fn new(options: Options) -> Rc<Shared> {
        Rc::new(Shared {
            options,
            received: RefCell::default(),
            pooled: PooledStreams::default(),
            epoch: OnceCell::new(),
            spare: RefCell::default(),
        })
    }

    #[inline]
    pub(super) fn limits(&self) -> &Limits {
        match &self.options {
            Options::Server(options) => &options.limits,
            Options::Client(options) => &options.limits,
        }
    }

    pub(super) fn is_client(&self) -> bool {
        matches!(self.options, Options::Client(_))
    }

    /// Those of the listener.
    pub(super) fn serving(&self) -> &Rc<ServeOptions> {
        let Options::Server(options) = &self.options else {
            unreachable!("only called on servers")
        };
        options
    }

    /// Those of the pool.
    pub(super) fn asking(&self) -> &Rc<ClientOptions> {
        let Options::Client(options) = &self.options else {
            unreachable!("only called on clients")
        };
        options
    }

    /// A stream, as good as new.
    pub(super) fn stream(&self) -> Box<Stream> {
        match self.spare.borrow_mut().pop() {
            Some(mut stream) => {
                stream.renew();
                stream
            }
            None => Stream::new(),
        }
    }

    /// Keeps the memory of a stream that is over, without content.
    pub(super) fn keep(&self, mut stream: Box<Stream>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_MAX && stream.is_modest() {
            stream.drop_content();
            spare.push(stream);
        }
    }

    pub(super) fn now(&self) -> Duration {
        let now = blitz_reactor::now();
        now.saturating_duration_since(*self.epoch.get_or_init(|| now))
    }
}

impl Wire {
    /// A connection whose client is about to send its preface.
    pub(crate) fn server(peer: Peer, shared: &Rc<Shared>) -> Rc<Wire> {
        let machine = h2::Connection::server(shared.limits());
        Wire::new(machine, Some(peer), Places::until(None), shared)
    }

    /// A connection that begins with our preface, for requests of this scheme in this term.
    pub(crate) fn client(shared: &Rc<Shared>, is_https: bool, term: Term) -> Rc<Wire> {
        let mut machine = h2::Connection::client(shared.limits(), is_https);
        // What different clients wish must not put one before the other.
        machine.set_prioritizes(false);
        let wire = Wire::new(machine, None, Places::until(Some(term)), shared);
        shared.pooled.note_connection(&wire);
        wire
    }

    /// Takes the request over that the connection began with in HTTP/1.1, as stream 1.
    pub(crate) fn upgrade(&self, head: &RequestHead, settings: &UpgradeSettings) -> StreamId {
        self.state.borrow_mut().machine.upgrade(head, settings)
    }

    fn new(
        machine: h2::Connection,
        peer: Option<Peer>,
        places: Places,
        shared: &Rc<Shared>,
    ) -> Rc<Wire> {
        let mut state = State {
            socket: None,
            resting: None,
            now: Duration::ZERO,
            machine,
            input: Input::default(),
            fin: false,
            pending: None,
            streams: Streams::default(),
            unsent: 0,
            counted: Counted::default(),
            window_changed: None,
            crowded: Vec::new(),
            was_held_back: false,
            lingering: VecDeque::new(),
            shared: Rc::clone(shared),
            peer: peer.map(Rc::new),
            places,
            task: None,
            timer: LazyTimer::default(),
            partial_since: None,
            idle_since: None,
            settings_due: Some(blitz_reactor::now() + shared.limits().settings_timeout),
            liveness: Liveness::new(blitz_reactor::now()),
        };
        state.cap_windows();
        let State {
            machine, pending, ..
        } = &mut state;
        machine.start(pending.get_or_insert_with(Buffer::take));
        Rc::new(Wire {
            state: RefCell::new(state),
            is_driven: Cell::new(false),
        })
    }

    /// Runs `act` on a stream if it is still there; what it queued leaves with the others'.
    pub(super) fn in_stream<T>(
        &self,
        stream: StreamId,
        act: impl FnOnce(&mut State, StreamId) -> T,
    ) -> Option<T> {
        let mut state = self.state.borrow_mut();
        if !state.streams.contains_key(&stream) {
            return None;
        }
        let done = act(&mut state, stream);
        if !self.is_driven.get() {
            state.wake_task();
        }
        Some(done)
    }

    /// Keeps what is left of a transport that is parked.
    pub(crate) fn rest(&self, resting: Resting) {
        if let Resting::Tls(_) = resting {
            self.state.borrow_mut().resting = Some(resting);
        }
    }

    /// Puts the transport together again with its socket, which has come back.
    pub(crate) fn wake(&self, socket: Socket) -> Transport {
        match self.state.borrow_mut().resting.take() {
            Some(resting) => resting.wake(socket),
            None => Transport::Plain(socket),
        }
    }

    /// Runs `act` on the connection; what it queued leaves with the others'.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.borrow_mut();
        let done = act(&mut state);
        if !self.is_driven.get() {
            state.wake_task();
        }
        done
    }

    /// Whether the settings of a connection that is parked have been acknowledged; if not, the time
    /// that is left for it.
    pub(crate) fn settings_patience(&self) -> Option<Duration> {
        let state = self.state.borrow();
        let due = state.settings_due?;
        let is_open = !state.machine.settings_acknowledged();
        is_open.then(|| due.saturating_duration_since(blitz_reactor::now()))
    }

    /// How long a connection that is about to be parked may still be idle: only streams renew that
    /// time, PING does not (rule 18).
    pub(crate) fn idle_left(&self, idle_timeout: Duration) -> Duration {
        let now = blitz_reactor::now();
        let mut state = self.state.borrow_mut();
        let since = *state.idle_since.get_or_insert(now);
        (since + idle_timeout).saturating_duration_since(now)
    }

    /// Says good-bye on a parked connection whose client has not acknowledged our settings.
    pub(crate) fn give_up(&self, transport: Transport) {
        let mut state = self.state.borrow_mut();
        state.socket = Some(transport);
        state.give_up();
    }

    /// Says good-bye on a connection without streams.
    pub(crate) fn finish(&self, transport: Transport) {
        let mut state = self.state.borrow_mut();
        state.socket = Some(transport);
        let (machine, out) = state.machine();
        machine.drain_now(out);
        state.close_politely();
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.uncount_streams();
    }
}

impl State {
    pub(super) fn limits(&self) -> &Limits {
        self.shared.limits()
    }

    /// The machine, and where it writes.
    pub(super) fn machine(&mut self) -> (&mut h2::Connection, &mut Buffer) {
        let pending = self.pending.get_or_insert_with(Buffer::take);
        (&mut self.machine, pending)
    }

    pub(super) fn stream(&mut self, stream: StreamId) -> Option<&mut Stream> {
        self.streams.get_mut(&stream).map(|stream| &mut **stream)
    }

    pub(super) fn wake_task(&mut self) {
        wake(&mut self.task);
    }

    /// Queues what was encoded; it leaves with everything else that is queued in this turn.
    pub(super) fn flush(&mut self) {
        if let Some(buffer) = self.pending.take_if(|buffer| !buffer.is_empty())
            && let Some(socket) = &mut self.socket
        {
            socket.send(Chunk::from(buffer));
        }
    }

    /// Small pieces are copied behind what is encoded already, large ones are queued as they are
    /// (rule 3).
    pub(super) fn append(&mut self, chunk: Chunk) {
        if chunk.len() < self.limits().slice_bytes_min {
            self.machine().1.extend_from_slice(&chunk);
        } else {
            self.flush();
            if let Some(socket) = &mut self.socket {
                socket.send(chunk);
            }
        }
    }

    /// Bytes that wait for the peer to take them.
    pub(super) fn queued(&self) -> usize {
        let pending = self.pending.as_ref().map_or(0, |buffer| buffer.len());
        pending + self.socket.as_ref().map_or(0, Transport::queued)
    }

    /// `Date` and `Server`, where they are missing.
    pub(super) fn decorate(&self, head: &mut ResponseHead) {
        let options = self.shared.serving();
        let fields: &mut Fields = &mut head.fields;
        if options.date && !fields.contains(Name::Date) {
            fields.append(Name::Date, http_date());
        }
        if let Some(server) = &options.server
            && !fields.contains(Name::Server)
        {
            fields.append(Name::Server, server);
        }
    }

    /// The connection is lost.
    pub(super) fn lose_peer(&mut self, loss: &Loss) {
        for stream in self.streams.values_mut() {
            stream.lose_peer(loss);
        }
        self.places.settled();
    }

    /// Resets a stream and sends the reset.
    pub(super) fn reset(&mut self, stream: StreamId, code: Code) {
        let (machine, out) = self.machine();
        machine.reset(stream, code, out);
    }

    /// Lets the client read what was sent, although it may still be sending (rule 16).
    pub(super) fn close_politely(&mut self) {
        self.flush();
        if let Some(socket) = self.socket.take() {
            socket.finish();
        }
    }
}
