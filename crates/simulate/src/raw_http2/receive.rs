//! Received frames, and whether windows and settings allow them.

use std::collections::VecDeque;
use std::future::poll_fn;

use blitz_testing::h2::flag::{ACK, END_HEADERS, END_STREAM};
use blitz_testing::h2::{Frame, PREFACE, kind, settings};

use super::{
    Connection, Fields, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, PeerState,
    SETTINGS_CHANGES_MAX, StreamState, WINDOW_DEFAULT,
};

/// Bytes of one read.
const READ_BYTES: usize = 16 * 1024;

/// The dynamic table of HPACK until SETTINGS say otherwise (RFC 9113, section 6.5.2).
const TABLE_BYTES: u32 = 4_096;

/// The windows that were announced, and what is left of them.
pub(super) struct Account {
    window: i64,
    owed: u32,
    pub(super) initial: i64,
    /// The bytes by which each SETTINGS frame that is not yet acknowledged reduces the windows of
    /// streams.
    unacknowledged: VecDeque<i64>,
    /// The initial window that was announced last.
    announced: i64,
    changes: u32,
    streams_max: u32,
    has_acknowledged: bool,
    decoder: httlib_hpack::Decoder<'static>,
    /// The stream and flags of a head whose last part is still to come, and the parts.
    block: Option<(u32, u8, Vec<u8>)>,
}

impl Account {
    pub(super) fn new(initial: i64, streams_max: u32) -> Account {
        // Until it has seen our settings, the gateway may use the window of HTTP/2 itself.
        Account {
            window: WINDOW_DEFAULT,
            owed: 0,
            initial: initial.max(WINDOW_DEFAULT),
            unacknowledged: VecDeque::from([(WINDOW_DEFAULT - initial).max(0)]),
            announced: initial,
            changes: 0,
            streams_max,
            has_acknowledged: false,
            decoder: httlib_hpack::Decoder::with_dynamic_size(TABLE_BYTES),
            block: None,
        }
    }
}

impl Connection {
    /// Receives until the connection ends.
    pub(super) async fn receive_all(self) {
        let mut received = Vec::new();
        let mut has_preface = self.state.borrow().is_client;
        let mut piece = vec![0; READ_BYTES];
        loop {
            let read = poll_fn(|cx| self.stream.poll_read(cx, &mut piece)).await;
            let n = read.unwrap_or(0);
            self.pulse.set(self.ledger.world.now());
            received.extend_from_slice(&piece[..n]);
            let mut state = self.state.borrow_mut();
            if !has_preface && received.len() >= PREFACE.len() {
                has_preface = true;
                if received.drain(..PREFACE.len()).as_slice() != PREFACE {
                    self.ledger
                        .violate("an upstream got another preface".to_owned());
                }
            }
            let mut frames = &received[..];
            while has_preface && let Some(frame) = Frame::take(&mut frames) {
                if let Err(why) = state.handle(&frame) {
                    let (kind, id) = (frame.kind, frame.stream);
                    self.ledger.violate(format!(
                        "frame of type {kind} on stream {id} of a hand-written peer: {why}"
                    ));
                    state.is_closed = true;
                }
            }
            let rest = frames.len();
            received.drain(..received.len() - rest);
            state.is_closed |= n == 0;
            state.wake();
            if state.is_closed {
                return;
            }
        }
    }
}

impl PeerState {
    fn handle(&mut self, frame: &Frame) -> Result<(), String> {
        let is_block = frame.kind == kind::CONTINUATION;
        if is_block != self.receiving.block.is_some() {
            return Err("it interrupts a head".to_owned());
        }
        match frame.kind {
            kind::DATA => self.take_in_data(frame),
            kind::HEADERS => {
                let content = frame.content().ok_or("too much padding")?.to_vec();
                self.receiving.block = Some((frame.stream, frame.flags, content));
                self.end_block(frame.has(END_HEADERS))
            }
            kind::CONTINUATION => {
                let block = self
                    .receiving
                    .block
                    .as_mut()
                    .filter(|it| it.0 == frame.stream);
                let (_, _, bytes) = block.ok_or("it belongs to another stream")?;
                bytes.extend_from_slice(&frame.payload);
                self.end_block(frame.has(END_HEADERS))
            }
            kind::RST_STREAM => {
                let code = frame.number().ok_or("too short")?;
                if let Some(stream) = self.streams.get_mut(&frame.stream) {
                    // NO_ERROR after a complete response stops the rest of the request.
                    stream.reset = Some(code);
                }
                Ok(())
            }
            kind::SETTINGS if frame.has(ACK) => self.take_in_acknowledgement(),
            kind::SETTINGS => {
                self.take_in_settings(frame);
                self.write(kind::SETTINGS, ACK, 0, &[]);
                Ok(())
            }
            kind::PING if !frame.has(ACK) => {
                self.write(kind::PING, ACK, 0, &frame.payload);
                Ok(())
            }
            kind::GOAWAY => {
                self.sending.has_gone_away = true;
                match frame.payload.get(4..8) {
                    Some([0, 0, 0, 0]) => Ok(()),
                    code => Err(format!("GOAWAY with code {code:?}")),
                }
            }
            kind::WINDOW_UPDATE => {
                let increment = i64::from(frame.number().ok_or("too short")?);
                match frame.stream {
                    0 => self.sending.window += increment,
                    id => {
                        if let Some(stream) = self.streams.get_mut(&id) {
                            stream.send_window += increment;
                        }
                    }
                }
                match increment {
                    0 => Err("an increment of 0".to_owned()),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn take_in_settings(&mut self, frame: &Frame) {
        let limit = self.sending.streams_max.unwrap_or(100);
        self.sending.streams_max = Some(limit);
        for (id, value) in frame.settings() {
            match id {
                MAX_CONCURRENT_STREAMS => self.sending.streams_max = Some(value),
                INITIAL_WINDOW_SIZE => {
                    let growth = i64::from(value) - self.sending.initial;
                    self.sending.initial += growth;
                    let streams = self.streams.values_mut();
                    streams.for_each(|stream| stream.send_window += growth);
                }
                _ => {}
            }
        }
    }

    fn take_in_acknowledgement(&mut self) -> Result<(), String> {
        let account = &mut self.receiving;
        let lost = account.unacknowledged.pop_front();
        let lost = lost.ok_or("nothing is to be acknowledged")?;
        account.has_acknowledged = true;
        account.initial -= lost;
        let streams = self.streams.values_mut();
        streams.for_each(|stream| stream.window -= lost);
        Ok(())
    }

    fn take_in_data(&mut self, frame: &Frame) -> Result<(), String> {
        let (flow, content) = (frame.payload.len(), frame.content());
        let content = content.ok_or("too much padding")?;
        let account = &mut self.receiving;
        account.window -= flow as i64;
        account.owed += flow as u32;
        if flow > 0 && account.window < 0 {
            return Err(format!(
                "{} bytes beyond the connection's window",
                -account.window
            ));
        }
        if let Some(stream) = self.streams.get_mut(&frame.stream) {
            stream.window -= flow as i64;
            if flow > 0 && stream.window < 0 {
                return Err(format!(
                    "{} bytes beyond the stream's window",
                    -stream.window
                ));
            }
            if stream.has_end {
                return Err("the message has ended".to_owned());
            }
            stream.owed += (flow - content.len()) as u32;
            stream.content.extend_from_slice(content);
            stream.has_end |= frame.has(END_STREAM);
        }
        if self.random.chance(600) {
            self.credit_connection();
        }
        Ok(())
    }

    fn end_block(&mut self, is_complete: bool) -> Result<(), String> {
        if !is_complete {
            return Ok(());
        }
        let Some((id, flags, mut block)) = self.receiving.block.take() else {
            return Ok(());
        };
        let mut decoded = Vec::new();
        let result = self.receiving.decoder.decode(&mut block, &mut decoded);
        result.map_err(|error| format!("{error:?}"))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let fields: Fields = decoded
            .into_iter()
            .map(|(name, value, _)| (text(name), text(value)))
            .collect();
        for (name, value) in &fields {
            let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
            if !is_lower || matches!(&name[..], "connection" | "transfer-encoding" | "upgrade") {
                return Err(format!("field {name}: {value}"));
            }
        }
        if !self.is_client && !self.streams.contains_key(&id) {
            self.accept_stream(id)?;
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            if stream.has_end {
                return Err("the message has ended".to_owned());
            }
            stream.heads.push_back(fields);
            stream.has_end |= flags & END_STREAM != 0;
        }
        Ok(())
    }

    fn accept_stream(&mut self, id: u32) -> Result<(), String> {
        if id < self.next_id {
            // The stream was reset.
            return Ok(());
        }
        self.next_id = id + 2;
        let open = self.streams.values().filter(|stream| stream.is_open());
        let (open, most) = (open.count(), self.receiving.streams_max as usize);
        if self.receiving.has_acknowledged && open >= most {
            return Err(format!("{open} streams are open and {most} are allowed"));
        }
        self.insert(id);
        self.accepted.push_back(id);
        Ok(())
    }

    /// Counts consumed content, and sends a part of the credit at once.
    pub(super) fn taken(&mut self, id: u32, bytes: usize) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.owed += bytes as u32;
        }
        if self.random.chance(600) {
            self.credit_stream(id);
        }
    }

    /// Sends all credit that was held back, and opens an initial window of 0.
    pub(super) fn settle_credit(&mut self) {
        let ids: Vec<u32> = self.streams.keys().copied().collect();
        ids.into_iter().for_each(|id| self.credit_stream(id));
        self.credit_connection();
        if self.receiving.announced < 1_000 && self.random.chance(500) {
            self.announce_window(65_535);
        }
    }

    fn credit_connection(&mut self) {
        let increment = std::mem::take(&mut self.receiving.owed);
        if increment > 0 {
            let increment = increment + self.extra_credit();
            self.receiving.window += i64::from(increment);
            self.write(kind::WINDOW_UPDATE, 0, 0, &increment.to_be_bytes());
        }
    }

    fn credit_stream(&mut self, id: u32) {
        let extra = self.extra_credit();
        let is_wanted = |stream: &&mut StreamState| stream.owed > 0 && stream.is_open();
        let Some(stream) = self.streams.get_mut(&id).filter(is_wanted) else {
            return;
        };
        let increment = std::mem::take(&mut stream.owed) + extra;
        stream.window += i64::from(increment);
        self.write(kind::WINDOW_UPDATE, 0, id, &increment.to_be_bytes());
    }

    /// Windows may grow beyond what they were.
    fn extra_credit(&mut self) -> u32 {
        self.random.one_of(&[0, 0, 1, 7, 1_000, 20_000])
    }

    /// Announces another initial window, which may leave those of streams below zero.
    pub(super) fn change_window(&mut self) {
        if self.receiving.changes < SETTINGS_CHANGES_MAX {
            self.receiving.changes += 1;
            let initial = self.random.one_of(&[0, 1_000, 65_535, 200_000]);
            self.announce_window(initial);
        }
    }

    fn announce_window(&mut self, initial: u32) {
        let account = &mut self.receiving;
        let growth = i64::from(initial) - account.announced;
        account.announced = i64::from(initial);
        // A larger window applies at once, a smaller one when the gateway acknowledges it.
        account.unacknowledged.push_back((-growth).max(0));
        account.initial += growth.max(0);
        let streams = self.streams.values_mut();
        streams.for_each(|stream| stream.window += growth.max(0));
        self.out.extend(settings(&[(INITIAL_WINDOW_SIZE, initial)]));
        self.wake();
    }
}
