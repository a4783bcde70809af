//! Hand-written HTTP/2: frames that no library sends, windows that open in odd steps, and a strict
//! account of what the gateway may send.

mod client;
mod receive;
mod server;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use blitz_reactor::simulation::Stream;
use blitz_testing::h2::flag::{END_HEADERS, END_STREAM, PADDED};
use blitz_testing::h2::{PREFACE, frame, kind, literals, settings};
use http_body::Body;

use crate::content::{OutgoingContent, TRAILER};
use crate::ledger::{Ledger, Pulse};
use crate::random::Random;

pub(crate) use client::run;
pub(crate) use server::{UpstreamState, serve};

/// Window of a connection, and of streams unless SETTINGS say otherwise (RFC 9113, section 6.9.2).
const WINDOW_DEFAULT: i64 = 65_535;

/// Payload of a frame, unless SETTINGS allow more.
const PAYLOAD_MAX: usize = 16_384;

/// Queued bytes above which no more content is queued.
const UNWRITTEN_MAX: usize = 65_536;

/// Interval of the checks for running requests.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Changes of the initial window of one connection.
const SETTINGS_CHANGES_MAX: u32 = 4;

/// An unknown type of frames.
const UNKNOWN: u8 = 0xbb;

/// Settings (RFC 9113, section 6.5.2).
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;

pub(super) const REFUSED_STREAM: u32 = 0x7;
pub(super) const CANCEL: u32 = 0x8;
pub(super) const INTERNAL_ERROR: u32 = 0x2;

/// The fields of a head, pseudo-fields included.
pub(crate) type Fields = Vec<(String, String)>;

/// Why an exchange ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Reset(u32),
    Closed,
    /// The content ended early as planned.
    GivenUp,
}

/// A connection. Cloning gives another handle to the same.
#[derive(Clone)]
pub(crate) struct Connection {
    ledger: Rc<Ledger>,
    stream: Rc<Stream>,
    pulse: Pulse,
    state: Rc<RefCell<PeerState>>,
}

struct PeerState {
    random: Random,
    is_client: bool,
    out: Vec<u8>,
    /// Nothing is written behind what is there.
    is_finished: bool,
    is_closed: bool,
    /// The wakers of all waiting tasks.
    waiting: Vec<Waker>,
    streams: BTreeMap<u32, StreamState>,
    accepted: VecDeque<u32>,
    next_id: u32,
    sending: Sendable,
    receiving: receive::Account,
}

/// The settings and windows of the gateway.
struct Sendable {
    window: i64,
    initial: i64,
    /// `None` until its SETTINGS arrive.
    streams_max: Option<u32>,
    has_gone_away: bool,
}

#[derive(Default)]
struct StreamState {
    send_window: i64,
    has_sent_end: bool,
    /// The bytes that the gateway may still send.
    window: i64,
    /// Received, taken and not yet credited.
    owed: u32,
    heads: VecDeque<Fields>,
    content: Vec<u8>,
    has_end: bool,
    reset: Option<u32>,
}

impl StreamState {
    fn is_open(&self) -> bool {
        self.reset.is_none() && !(self.has_sent_end && self.has_end)
    }
}

impl Connection {
    pub(crate) fn start(
        ledger: &Rc<Ledger>,
        stream: Stream,
        is_client: bool,
        seed: u64,
    ) -> Connection {
        let mut random = Random::new(seed);
        let initial = random.one_of(&[0, 1, 500, 16_384, 65_535, 65_535, 200_000]);
        let streams_max = random.one_of(&[3, 10, 100]);
        let mut out = if is_client {
            PREFACE.to_vec()
        } else {
            Vec::new()
        };
        let mut own = vec![(INITIAL_WINDOW_SIZE, initial)];
        if !is_client {
            own.push((MAX_CONCURRENT_STREAMS, streams_max));
        }
        out.extend(settings(&own));
        let state = PeerState {
            random,
            is_client,
            out,
            is_finished: false,
            is_closed: false,
            waiting: Vec::new(),
            streams: BTreeMap::new(),
            accepted: VecDeque::new(),
            next_id: 1,
            sending: Sendable {
                window: WINDOW_DEFAULT,
                initial: WINDOW_DEFAULT,
                streams_max: None,
                has_gone_away: false,
            },
            receiving: receive::Account::new(i64::from(initial), streams_max),
        };
        let connection = Connection {
            ledger: Rc::clone(ledger),
            stream: Rc::new(stream),
            pulse: ledger.pulse(),
            state: Rc::new(RefCell::new(state)),
        };
        let world = &ledger.world;
        world.spawn(connection.clone().write_all());
        world.spawn(connection.clone().receive_all());
        world.spawn(connection.clone().give_credit());
        connection
    }

    pub(crate) fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Whether another request may be sent.
    fn is_usable(&self) -> bool {
        let state = self.state.borrow();
        !state.is_closed && !state.is_finished && !state.sending.has_gone_away
    }

    /// Sends FIN after the queued bytes.
    fn finish(&self) {
        let mut state = self.state.borrow_mut();
        state.is_finished = true;
        state.wake();
    }

    /// Waits until `f` finds a value in the state.
    async fn wait<T>(&self, mut f: impl FnMut(&mut PeerState) -> Option<T>) -> T {
        poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            match f(&mut state) {
                Some(value) => Poll::Ready(value),
                None => {
                    state.waiting.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Opens a stream with a request, once the gateway allows another.
    async fn open(&self, fields: &[(&str, String)], has_ended: bool) -> Result<u32, Lost> {
        self.wait(|state| {
            if state.is_closed || state.sending.has_gone_away {
                return Some(Err(Lost::Closed));
            }
            let open = state.streams.values().filter(|stream| stream.is_open());
            if open.count() >= state.sending.streams_max? as usize {
                return None;
            }
            let id = state.next_id;
            state.next_id += 2;
            state.insert(id);
            state.send_head(id, fields, has_ended);
            Some(Ok(id))
        })
        .await
    }

    /// The next stream that the gateway has opened; `None` at the end of the connection.
    async fn accept(&self) -> Option<u32> {
        self.wait(|state| match state.accepted.pop_front() {
            Some(id) => Some(Some(id)),
            None => state.is_closed.then_some(None),
        })
        .await
    }

    fn send_head(&self, id: u32, fields: &[(&str, String)], has_ended: bool) {
        self.state.borrow_mut().send_head(id, fields, has_ended);
    }

    /// Processes no requests after the stream `last`.
    fn go_away(&self, last: u32) {
        let payload = [last.to_be_bytes(), [0; 4]].concat();
        self.state.borrow_mut().write(kind::GOAWAY, 0, 0, &payload);
    }

    /// Ignores a stream after GOAWAY.
    fn ignore(&self, id: u32) {
        self.state.borrow_mut().streams.remove(&id);
    }

    fn reset(&self, id: u32, code: u32) {
        let mut state = self.state.borrow_mut();
        if let Some(stream) = state.streams.get_mut(&id)
            && stream.is_open()
        {
            stream.reset = Some(code);
            state.write(kind::RST_STREAM, 0, id, &code.to_be_bytes());
        }
        state.streams.remove(&id);
        state.wake();
    }

    /// Sends content and its end as far as windows allow.
    async fn send_content(&self, id: u32, mut content: OutgoingContent) -> Result<(), Lost> {
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut content).poll_frame(cx)).await {
            let frame = frame.map_err(|_| Lost::GivenUp)?;
            if let Some(fields) = frame.trailers_ref() {
                let value = fields.get(TRAILER).and_then(|value| value.to_str().ok());
                let value = value.unwrap_or_default().to_owned();
                return self.send_end(id, Some((TRAILER, value)));
            }
            let mut left = frame.into_data().unwrap_or_default();
            while !left.is_empty() {
                let n = self.wait(|state| state.send_some(id, &left)).await?;
                drop(left.split_to(n));
            }
        }
        self.send_end(id, None)
    }

    fn send_end(&self, id: u32, trailer: Option<(&'static str, String)>) -> Result<(), Lost> {
        let mut state = self.state.borrow_mut();
        match state.streams.get(&id) {
            None => return Err(Lost::Closed),
            Some(stream) if let Some(code) = stream.reset => return Err(Lost::Reset(code)),
            Some(_) => {}
        }
        match trailer {
            Some(field) => state.send_head(id, &[field], true),
            None => {
                state.end(id);
                state.write(kind::DATA, END_STREAM, id, &[]);
            }
        }
        Ok(())
    }

    /// The next head of a stream.
    async fn head(&self, id: u32) -> Result<Fields, Lost> {
        self.wait(|state| {
            let is_closed = state.is_closed;
            let Some(stream) = state.streams.get_mut(&id) else {
                return Some(Err(Lost::Closed));
            };
            match (stream.heads.pop_front(), stream.reset) {
                (Some(head), _) => Some(Ok(head)),
                (None, Some(code)) => Some(Err(Lost::Reset(code))),
                (None, None) => is_closed.then_some(Err(Lost::Closed)),
            }
        })
        .await
    }

    /// The next piece of a content; `None` at its end, behind which trailers may stand.
    async fn content(&self, id: u32) -> Result<Option<Vec<u8>>, Lost> {
        self.wait(|state| {
            let is_closed = state.is_closed;
            let Some(stream) = state.streams.get_mut(&id) else {
                return Some(Err(Lost::Closed));
            };
            if !stream.content.is_empty() {
                let piece = std::mem::take(&mut stream.content);
                state.taken(id, piece.len());
                return Some(Ok(Some(piece)));
            }
            match (stream.has_end, stream.reset) {
                (true, _) => Some(Ok(None)),
                (false, Some(code)) => Some(Err(Lost::Reset(code))),
                (false, None) => is_closed.then_some(Err(Lost::Closed)),
            }
        })
        .await
    }

    /// The trailers, if the content has ended with some.
    fn trailers(&self, id: u32) -> Option<Fields> {
        let mut state = self.state.borrow_mut();
        state.streams.get_mut(&id)?.heads.pop_front()
    }

    /// Removes a stream that has ended in both directions.
    fn forget(&self, id: u32) {
        let mut state = self.state.borrow_mut();
        if state
            .streams
            .get(&id)
            .is_some_and(|stream| !stream.is_open())
        {
            state.streams.remove(&id);
        }
    }

    /// Writes the queued bytes in pieces.
    async fn write_all(self) {
        let mut random = Random::new(self.state.borrow_mut().random.next());
        let piece_max = random.one_of(&[5, 100, 20_000, 100_000]);
        loop {
            let out = self.wait(|state| {
                let out = std::mem::take(&mut state.out);
                let is_over = out.is_empty() && (state.is_closed || state.is_finished);
                (is_over || !out.is_empty()).then_some(out)
            });
            let out = out.await;
            if out.is_empty() {
                return self.stream.shutdown_write();
            }
            for piece in out.chunks(random.within(1..=piece_max) as usize) {
                let mut left = piece;
                while !left.is_empty() {
                    let written = poll_fn(|cx| self.stream.poll_write(cx, left)).await;
                    let Ok(n) = written else { return };
                    left = &left[n..];
                }
                self.pulse.set(self.ledger.world.now());
            }
            // There is room for more.
            self.state.borrow_mut().wake();
        }
    }

    /// Sends the credit that was held back, and opens initial windows of 0.
    async fn give_credit(self) {
        loop {
            let pause = {
                let mut state = self.state.borrow_mut();
                if state.is_closed || state.is_finished {
                    return;
                }
                state.settle_credit();
                Duration::from_micros(state.random.within(1_000..=100_000))
            };
            self.ledger.world.sleep(pause).await;
        }
    }
}

impl PeerState {
    fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    fn insert(&mut self, id: u32) {
        let stream = StreamState {
            send_window: self.sending.initial,
            window: self.receiving.initial,
            ..StreamState::default()
        };
        self.streams.insert(id, stream);
    }

    fn end(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.has_sent_end = true;
        }
    }

    fn write(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        self.out.extend(frame(kind, flags, id, payload));
        self.make_noise();
        self.wake();
    }

    /// Frames that are allowed everywhere and change nothing.
    fn make_noise(&mut self) {
        if !self.random.chance(40) || self.is_finished {
            return;
        }
        let payload = self.random.next().to_be_bytes();
        let id = self.next_id.saturating_sub(2) | 1;
        match self.random.within(0..=3) {
            0 => self.out.extend(frame(kind::PING, 0, 0, payload)),
            1 => self
                .out
                .extend(frame(kind::PRIORITY, 0, id, [0, 0, 0, 0, 7])),
            2 => self.out.extend(frame(UNKNOWN, payload[0], id, payload)),
            _ => self.change_window(),
        }
    }

    /// Sends a head in one or more frames, padded or not.
    fn send_head(&mut self, id: u32, fields: &[(&str, String)], has_ended: bool) {
        if has_ended {
            self.end(id);
        }
        let block = literals(fields.iter().map(|(name, value)| (*name, value.as_str())));
        let cut = match self.random.chance(300) {
            true => self.random.within(0..=block.len() as u64) as usize,
            false => block.len(),
        };
        let (first, mut rest) = block.split_at(cut);
        let mut flags = if has_ended { END_STREAM } else { 0 };
        let mut payload = first.to_vec();
        if self.random.chance(200) {
            flags |= PADDED;
            let padding = self.random.within(0..=255) as u8;
            payload.insert(0, padding);
            payload.extend(std::iter::repeat_n(0, usize::from(padding)));
        }
        if rest.is_empty() {
            flags |= END_HEADERS;
        }
        self.out.extend(frame(kind::HEADERS, flags, id, payload));
        while !rest.is_empty() {
            let cut = self.random.within(1..=rest.len() as u64) as usize;
            let (now, later) = rest.split_at(cut);
            let flags = if later.is_empty() { END_HEADERS } else { 0 };
            self.out.extend(frame(kind::CONTINUATION, flags, id, now));
            rest = later;
        }
        self.make_noise();
        self.wake();
    }

    /// Sends a DATA frame if windows and the socket allow. Returns its bytes.
    fn send_some(&mut self, id: u32, content: &[u8]) -> Option<Result<usize, Lost>> {
        let Some(stream) = self.streams.get(&id) else {
            return Some(Err(Lost::Closed));
        };
        if let Some(code) = stream.reset {
            return Some(Err(Lost::Reset(code)));
        }
        if self.is_closed {
            return Some(Err(Lost::Closed));
        }
        let window = self.sending.window.min(stream.send_window).max(0) as usize;
        if window == 0 || self.out.len() > UNWRITTEN_MAX {
            return None;
        }
        let most = window.min(content.len()).min(PAYLOAD_MAX);
        let n = match self.random.chance(200) {
            true => self.random.within(1..=most as u64) as usize,
            false => most,
        };
        let padding = self.random.within(0..=255) as usize;
        let is_padded = n + 1 + padding <= window.min(PAYLOAD_MAX) && self.random.chance(200);
        let (flags, payload) = match is_padded {
            true => {
                let padding = std::iter::repeat_n(0, padding);
                let length = std::iter::once(padding.len() as u8);
                let padded = length.chain(content[..n].iter().copied()).chain(padding);
                (PADDED, padded.collect())
            }
            false => (0, content[..n].to_vec()),
        };
        self.sending.window -= payload.len() as i64;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.send_window -= payload.len() as i64;
        }
        self.write(kind::DATA, flags, id, &payload);
        Some(Ok(n))
    }
}
