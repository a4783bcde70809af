//! Splits input of any size into frames.

use std::time::Duration;

use super::Connection;
use crate::error::{Error, ErrorKind};
use crate::h2::floods::Flood;
use crate::h2::frame::{FrameType, Header, PAYLOAD_MAX, PREFACE, flag};
use crate::h2::{Event, Received, Step};

/// The state of the frame that is being received.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) state: InputState,
    /// The received part of a header, or of a payload that must be complete. Each byte is copied here
    /// at most once, and most bytes never: complete frames are parsed in the input.
    partial: Vec<u8>,
    /// The header block that CONTINUATION frames must complete.
    pub(super) block: Option<OpenBlock>,
}

/// A header block without END_HEADERS so far.
#[derive(Debug)]
pub(super) struct OpenBlock {
    pub(super) stream: u32,
    pub(super) end_stream: bool,
    pub(super) continuations: u32,
    pub(super) bytes: Vec<u8>,
    /// It exceeds the limit: its bytes are discarded.
    pub(super) is_too_long: bool,
}

#[derive(Debug)]
pub(super) enum InputState {
    /// This many bytes of the client's preface were received.
    Preface(usize),
    Header,
    /// A payload that must be complete before it is parsed.
    Payload(Header),
    /// The length of the padding of DATA.
    Padding(Header),
    /// Content, which is reported as it arrives.
    Content(DataFrameRest),
    /// Number of bytes to discard.
    Skip(usize),
    /// The connection failed: input is discarded.
    Closed,
}

/// The remaining part of a DATA frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct DataFrameRest {
    pub(super) stream: u32,
    pub(super) left: usize,
    pub(super) padding: usize,
    pub(super) end_stream: bool,
}

impl Input {
    pub(super) fn new(expects_preface: bool) -> Input {
        Input {
            state: if expects_preface {
                InputState::Preface(0)
            } else {
                InputState::Header
            },
            partial: Vec::new(),
            block: None,
        }
    }

    pub(super) fn is_partial(&self) -> bool {
        let in_frame = matches!(self.state, InputState::Payload(_) | InputState::Padding(_))
            || matches!(self.state, InputState::Preface(matched) if matched > 0);
        in_frame || !self.partial.is_empty() || self.block.is_some()
    }

    pub(super) fn close(&mut self) {
        *self = Input::new(false);
        self.state = InputState::Closed;
    }

    pub(super) fn memory(&self) -> usize {
        self.partial.capacity()
            + self
                .block
                .as_ref()
                .map_or(0, |block| block.bytes.capacity())
    }

    /// The header at the front of `rest`, if it is complete.
    #[inline]
    fn take_header(&mut self, rest: &mut &[u8]) -> Option<Header> {
        if self.partial.is_empty()
            && let Some((bytes, after)) = rest.split_first_chunk()
        {
            *rest = after;
            return Some(Header::parse(bytes));
        }
        self.gather(rest, Header::LEN)?;
        let header = self.partial.first_chunk().map(Header::parse);
        self.partial.clear();
        header
    }

    /// Moves bytes to `partial` until it holds `len` bytes.
    fn gather(&mut self, rest: &mut &[u8], len: usize) -> Option<()> {
        let (bytes, after) = rest.split_at(rest.len().min(len - self.partial.len()));
        self.partial.extend_from_slice(bytes);
        *rest = after;
        (self.partial.len() == len).then_some(())
    }
}

/// Memory of `partial` above this size is freed after the frame.
const PARTIAL_KEPT_MAX: usize = 512;

impl Connection {
    /// Takes one step through the input: frames up to the first that causes an event.
    ///
    /// `now` is the time since any fixed moment; only its differences matter, for limits on rates.
    /// Immediate replies, such as acknowledgements, are appended to `out`.
    ///
    /// # Errors
    /// The violated rule. The caller must close the connection after sending `out`, which ends in a
    /// GOAWAY; further input is discarded.
    #[inline]
    pub fn handle_input(
        &mut self,
        input: &[u8],
        now: Duration,
        received: &mut Received,
        out: &mut Vec<u8>,
    ) -> Result<Step, Error> {
        // The common last call for an input.
        if input.is_empty() && matches!(self.input.state, InputState::Header) && !self.refusing {
            return Ok(Step {
                consumed: 0,
                event: Event::NeedMore,
            });
        }
        let mut rest = input;
        match self.advance(input, &mut rest, now, received, out) {
            Ok(event) => Ok(Step {
                consumed: input.len() - rest.len(),
                event,
            }),
            Err(kind) => Err(self.connection_error(kind, out)),
        }
    }

    fn advance(
        &mut self,
        input: &[u8],
        rest: &mut &[u8],
        now: Duration,
        received: &mut Received,
        out: &mut Vec<u8>,
    ) -> Result<Event, ErrorKind> {
        if self.refusing
            && let Some(event) = self.next_refused()
        {
            return Ok(event);
        }
        loop {
            let event = match self.input.state {
                InputState::Header => {
                    let Some(header) = self.input.take_header(rest) else {
                        return Ok(Event::NeedMore);
                    };
                    self.begin_frame(header, rest, now, received, out)?
                }
                InputState::Payload(header) => {
                    if self.input.gather(rest, header.len).is_none() {
                        return Ok(Event::NeedMore);
                    }
                    self.gathered_frame(header, now, received, out)?
                }
                InputState::Padding(header) => {
                    let Some((&padding, after)) = rest.split_first() else {
                        return Ok(Event::NeedMore);
                    };
                    *rest = after;
                    self.begin_content(header, Some(padding), now, out)?
                }
                InputState::Content(content) => {
                    if rest.is_empty() && content.left + content.padding > 0 {
                        return Ok(Event::NeedMore);
                    }
                    self.content(content, input.len() - rest.len(), rest, out)
                }
                InputState::Skip(left) => {
                    let (skipped, after) = rest.split_at(rest.len().min(left));
                    *rest = after;
                    if skipped.len() < left {
                        self.input.state = InputState::Skip(left - skipped.len());
                        return Ok(Event::NeedMore);
                    }
                    self.input.state = InputState::Header;
                    None
                }
                InputState::Preface(matched) => {
                    self.preface(matched, rest)?;
                    if rest.is_empty() {
                        return Ok(Event::NeedMore);
                    }
                    None
                }
                InputState::Closed => {
                    *rest = &[];
                    return Ok(Event::NeedMore);
                }
            };
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    /// RFC 9113, section 3.4: "Clients and servers MUST treat an invalid connection preface as a
    /// connection error".
    fn preface(&mut self, matched: usize, rest: &mut &[u8]) -> Result<(), ErrorKind> {
        let (bytes, after) = rest.split_at(rest.len().min(PREFACE.len() - matched));
        if !PREFACE[matched..].starts_with(bytes) {
            return Err(ErrorKind::Preface);
        }
        *rest = after;
        let matched = matched + bytes.len();
        self.input.state = if matched == PREFACE.len() {
            InputState::Header
        } else {
            InputState::Preface(matched)
        };
        Ok(())
    }

    /// Selects the handling of a frame from its header.
    #[inline(always)]
    fn begin_frame(
        &mut self,
        header: Header,
        rest: &mut &[u8],
        now: Duration,
        received: &mut Received,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        self.check_header(header)?;
        match header.kind {
            FrameType::Data if header.has(flag::PADDED) => {
                // RFC 9113, section 6.1: the length of the padding is part of the payload.
                if header.len == 0 {
                    return Err(ErrorKind::FrameSize);
                }
                self.input.state = InputState::Padding(header);
                Ok(None)
            }
            FrameType::Data => self.begin_content(header, None, now, out),
            FrameType::Unknown => {
                self.floods.note(Flood::UnknownFrame, now)?;
                self.input.state = InputState::Skip(header.len);
                Ok(None)
            }
            _ => match rest.split_at_checked(header.len) {
                Some((payload, after)) => {
                    *rest = after;
                    self.frame(header, payload, now, received, out)
                }
                None => {
                    self.input.state = InputState::Payload(header);
                    Ok(None)
                }
            },
        }
    }

    /// Checks the rules that do not depend on the payload.
    #[inline]
    fn check_header(&self, header: Header) -> Result<(), ErrorKind> {
        // RFC 9113, section 4.2: "An endpoint MUST send an error code of FRAME_SIZE_ERROR if a
        // frame exceeds the size defined in SETTINGS_MAX_FRAME_SIZE".
        if header.len > PAYLOAD_MAX {
            return Err(self.too_long(header));
        }
        if !self.settings_received && header.kind != FrameType::Settings {
            return Err(ErrorKind::Preface);
        }
        match &self.input.block {
            // RFC 9113, section 4.3: "Any other frame [...] MUST be treated as a connection error",
            // within a header block.
            Some(block)
                if header.kind != FrameType::Continuation || header.stream != block.stream =>
            {
                Err(ErrorKind::FrameUnexpected)
            }
            None if header.kind == FrameType::Continuation => Err(ErrorKind::FrameUnexpected),
            _ => Ok(()),
        }
    }

    /// The rule that a frame above the maximum breaks. A server of HTTP/1 begins with `HTTP/`.
    #[cold]
    fn too_long(&self, header: Header) -> ErrorKind {
        const HTT: usize = u32::from_be_bytes([0, b'H', b'T', b'T']) as usize;
        let is_http1 = header.len == HTT && header.flags == b'/';
        match is_http1 && !self.settings_received && !self.is_server() {
            true => ErrorKind::PrefaceNotUnderstood,
            false => ErrorKind::FrameSize,
        }
    }

    #[cold]
    fn gathered_frame(
        &mut self,
        header: Header,
        now: Duration,
        received: &mut Received,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        self.input.state = InputState::Header;
        let mut payload = std::mem::take(&mut self.input.partial);
        let outcome = self.frame(header, &payload, now, received, out);
        if payload.capacity() <= PARTIAL_KEPT_MAX {
            payload.clear();
            self.input.partial = payload;
        }
        outcome
    }

    /// Handles a frame whose payload is complete.
    #[inline(always)]
    fn frame(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Duration,
        received: &mut Received,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        match header.kind {
            FrameType::Headers => self.headers(header, payload, now, received, out),
            FrameType::Continuation => self.continuation(header, payload, now, received, out),
            FrameType::WindowUpdate => self.window_update(header, payload, now, out),
            FrameType::RstStream => self.rst_stream(header, payload, now),
            FrameType::Settings => self.settings(header, payload, now, out).map(|()| None),
            FrameType::Ping => self.pinged(header, payload, now, out),
            FrameType::GoAway => self.go_away(header, payload, now),
            FrameType::Priority => self.priority(header, payload, now).map(|()| None),
            FrameType::PriorityUpdate => self.priority_update(header, payload, now).map(|()| None),
            FrameType::PushPromise => Err(ErrorKind::PushUnexpected),
            FrameType::Data | FrameType::Unknown => Ok(None),
        }
    }
}
