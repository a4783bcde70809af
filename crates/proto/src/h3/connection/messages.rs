//! Requests, responses and trailers: the frames of their streams (RFC 9114, section 4.1).

use std::time::Duration;

use super::{BLOCKED_MAX, Connection, Role};
use crate::content::{self, ContentLeft, RequestKind};
use crate::error::{Error, ErrorKind};
use crate::field_section::is_malformed;
use crate::field_section::receive::RequestFacts;
use crate::h3::code::Code;
use crate::h3::floods::{Flood, SMALL_DATA_BYTES};
use crate::h3::frame::{FrameType, Header};
use crate::h3::qpack::Prefix;
use crate::h3::section;
use crate::h3::stream::{Parsing, Receiving, Sending, Stream};
use crate::h3::{Event, Received, Step};
use crate::message::{BodyLength, RequestHead, ResponseHead};

/// The rest of the input.
struct Rest<'i> {
    bytes: &'i [u8],
    /// Bytes that were consumed.
    consumed: usize,
    has_fin: bool,
}

impl<'i> Rest<'i> {
    fn take(&mut self, len: usize) -> &'i [u8] {
        let (taken, bytes) = self.bytes.split_at(len);
        self.bytes = bytes;
        self.consumed += len;
        taken
    }

    /// As much as there is of `left` bytes.
    fn available(&self, left: u64) -> usize {
        usize::try_from(left).map_or(self.bytes.len(), |left| left.min(self.bytes.len()))
    }

    /// Whether the stream ends here.
    fn is_end(&self) -> bool {
        self.has_fin && self.bytes.is_empty()
    }
}

impl Connection {
    pub(super) fn request_input(
        &mut self,
        id: u64,
        stream: &mut Stream,
        input: &[u8],
        has_fin: bool,
        now: Duration,
        received: &mut Received,
    ) -> Result<Step, ErrorKind> {
        let mut rest = Rest {
            bytes: input,
            consumed: 0,
            has_fin,
        };
        let event = self.next_event(id, stream, &mut rest, now, received)?;
        Ok(Step {
            consumed: rest.consumed,
            event,
        })
    }

    fn next_event(
        &mut self,
        id: u64,
        stream: &mut Stream,
        rest: &mut Rest<'_>,
        now: Duration,
        received: &mut Received,
    ) -> Result<Event, ErrorKind> {
        loop {
            if stream.receiving == Receiving::Reset {
                rest.take(rest.bytes.len());
                return Ok(Event::NeedMore);
            }
            let event = match &mut stream.parsing {
                Parsing::Header(partial) => {
                    let (len, header) = partial.header(rest.bytes);
                    let has_begun = !partial.is_empty();
                    rest.take(len);
                    match header {
                        Some(header) => self.frame(id, stream, header, rest, now)?,
                        None if !rest.has_fin => return Ok(Event::NeedMore),
                        None if has_begun => return Err(ErrorKind::FrameSize),
                        None => return self.end(id, stream, rest, now),
                    }
                }
                Parsing::Data(_) if rest.bytes.is_empty() => return incomplete(rest),
                Parsing::Data(left) => {
                    let len = rest.available(*left);
                    *left -= len as u64;
                    if *left == 0 {
                        stream.parsing = Parsing::START;
                    }
                    let start = rest.consumed;
                    rest.take(len);
                    self.content(id, stream, start..start + len, rest, now)?
                }
                &mut Parsing::Section(left) => match gather(stream, left, rest) {
                    Gathered::Part if rest.has_fin => return Err(ErrorKind::FrameSize),
                    Gathered::Part => return Ok(Event::NeedMore),
                    Gathered::Now(section) => {
                        self.section(id, stream, section, rest, now, received)?
                    }
                    Gathered::Before(section) => {
                        self.section(id, stream, &section, rest, now, received)?
                    }
                },
                Parsing::Blocked(_) if self.blocked.contains(&id) => return Ok(Event::Blocked),
                &mut Parsing::Blocked(prefix) => {
                    let section = std::mem::take(&mut stream.section);
                    stream.parsing = Parsing::START;
                    self.decode(id, stream, (&prefix, &section), rest, now, received)?
                }
                Parsing::LongSection(left) | Parsing::Ignored(left) => {
                    let len = rest.available(*left);
                    *left -= len as u64;
                    rest.take(len);
                    if *left > 0 {
                        return incomplete(rest);
                    }
                    self.end_ignored(id, stream, rest, now, received)?
                }
            };
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    /// The header of a frame has arrived.
    fn frame(
        &mut self,
        id: u64,
        stream: &mut Stream,
        header: Header,
        rest: &Rest<'_>,
        now: Duration,
    ) -> Result<Option<Event>, ErrorKind> {
        let Header { kind, len } = header;
        match (kind, stream.receiving) {
            (FrameType::Data, Receiving::Body | Receiving::Discarded) => {
                let is_last = rest.has_fin && rest.bytes.len() as u64 == len;
                if len == 0 {
                    self.floods.note(Flood::EmptyFrame, now)?;
                } else if len < SMALL_DATA_BYTES && !is_last {
                    let streams = self.streams.len() as u32 + 1;
                    self.floods.note_small_data(streams, now)?;
                }
                if len > 0 {
                    stream.parsing = Parsing::Data(len);
                }
                match stream.receive_left.after(len) {
                    Some(left) => stream.receive_left = left,
                    None if stream.receiving == Receiving::Discarded => {}
                    None => {
                        let kind = ErrorKind::ContentLengthMismatch;
                        return self.stream_error(id, stream, kind, now).map(Some);
                    }
                }
                Ok(None)
            }
            (FrameType::Headers, Receiving::Discarded) => {
                self.floods.note(Flood::UnknownFrame, now)?;
                // RFC 9204, section 2.2.2.2: it will not be decoded.
                self.decoder.cancel(id, &mut self.decoder_output);
                stream.parsing = Parsing::Ignored(len);
                Ok(None)
            }
            // RFC 9114, section 4.4: "Once the CONNECT method has completed, only DATA frames are permitted".
            (FrameType::Headers, Receiving::Body) if stream.request == RequestKind::Connect => {
                Err(ErrorKind::FrameUnexpected)
            }
            (FrameType::Headers, Receiving::Head | Receiving::Body) => {
                stream.parsing = match len <= self.limits.block_bytes_max as u64 {
                    true => Parsing::Section(len),
                    false => Parsing::LongSection(len),
                };
                Ok(None)
            }
            (FrameType::Unknown, _) => {
                self.floods.note(Flood::UnknownFrame, now)?;
                stream.parsing = Parsing::Ignored(len);
                Ok(None)
            }
            // RFC 9114, section 7.2.5: "A client MUST treat receipt of a PUSH_PROMISE frame that contains a
            // larger push ID than the client has advertised as a connection error of H3_ID_ERROR."
            (FrameType::PushPromise, _) if self.role == Role::Client => Err(ErrorKind::StreamId),
            _ => Err(ErrorKind::FrameUnexpected),
        }
    }

    /// A piece of content has arrived.
    fn content(
        &mut self,
        id: u64,
        stream: &mut Stream,
        range: std::ops::Range<usize>,
        rest: &Rest<'_>,
        now: Duration,
    ) -> Result<Option<Event>, ErrorKind> {
        self.floods.content_received(range.len());
        // The client did not wait for 100 (Continue).
        stream.expects_continue = false;
        let end = rest.is_end() && matches!(stream.parsing, Parsing::Header(_));
        if stream.receiving == Receiving::Discarded {
            return Ok(None);
        }
        if end {
            if let Err(kind) = stream.check_length() {
                return self.stream_error(id, stream, kind, now).map(Some);
            }
            stream.receiving = Receiving::Done;
        }
        Ok(Some(Event::Data { range, end }))
    }

    /// The stream ends between two frames.
    fn end(
        &mut self,
        id: u64,
        stream: &mut Stream,
        rest: &Rest<'_>,
        now: Duration,
    ) -> Result<Event, ErrorKind> {
        match stream.receiving {
            // RFC 9114, section 4.1: "If a client-initiated stream terminates without enough of the HTTP
            // message to provide a complete response, the server SHOULD abort its response stream with the
            // error code H3_REQUEST_INCOMPLETE."
            Receiving::Head => {
                let kind = match self.role {
                    Role::Server => ErrorKind::RequestIncomplete,
                    Role::Client => ErrorKind::ClosedBeforeResponse,
                };
                self.stream_error(id, stream, kind, now)
            }
            Receiving::Body => match stream.check_length() {
                Err(kind) => self.stream_error(id, stream, kind, now),
                Ok(()) => {
                    stream.receiving = Receiving::Done;
                    Ok(Event::Data {
                        range: rest.consumed..rest.consumed,
                        end: true,
                    })
                }
            },
            Receiving::Discarded => {
                stream.receiving = Receiving::Done;
                Ok(Event::NeedMore)
            }
            Receiving::Done | Receiving::Reset => Ok(Event::NeedMore),
        }
    }

    /// A complete field section: decodes it, or has it wait for instructions.
    fn section(
        &mut self,
        id: u64,
        stream: &mut Stream,
        section: &[u8],
        rest: &Rest<'_>,
        now: Duration,
        received: &mut Received,
    ) -> Result<Option<Event>, ErrorKind> {
        let prefix = self.decoder.prefix(section)?;
        if self.decoder.is_blocked(&prefix) {
            // RFC 9204, section 2.1.2: more blocked streams than were allowed are
            // QPACK_DECOMPRESSION_FAILED.
            if self.blocked.len() >= BLOCKED_MAX {
                return Err(ErrorKind::Compression);
            }
            self.blocked.push(id);
            stream.section = section.to_vec();
            stream.parsing = Parsing::Blocked(prefix);
            return Ok(Some(Event::Blocked));
        }
        self.decode(id, stream, (&prefix, section), rest, now, received)
    }

    /// Decodes a field section whose instructions have arrived.
    fn decode(
        &mut self,
        id: u64,
        stream: &mut Stream,
        (prefix, section): (&Prefix, &[u8]),
        rest: &Rest<'_>,
        now: Duration,
        received: &mut Received,
    ) -> Result<Option<Event>, ErrorKind> {
        let end = rest.is_end();
        let limits = &self.limits.section;
        let decoder = &self.decoder;
        let event = match (stream.receiving, self.role) {
            (Receiving::Head, Role::Server) => {
                let head = &mut received.request;
                let repeat = &mut self.repeated_request;
                let facts = section::request(decoder, repeat, (prefix, section), limits, head)?;
                self.decoder
                    .acknowledge(prefix, id, &mut self.decoder_output);
                self.request(id, stream, facts, end, head, now)?
            }
            (Receiving::Head, Role::Client) => {
                let head = &mut received.response;
                let repeat = &mut self.repeated_response;
                let declared = section::response(decoder, repeat, (prefix, section), limits, head)?;
                self.decoder
                    .acknowledge(prefix, id, &mut self.decoder_output);
                let outcome =
                    declared.and_then(|declared| self.response(stream, end, declared, head, now));
                match outcome {
                    Ok(length) => Event::Head { length, end },
                    Err(kind) => self.stream_error(id, stream, kind, now)?,
                }
            }
            _ => {
                let fields = &mut received.trailers;
                let decoded = section::trailers(decoder, prefix, section, limits, fields)?;
                self.decoder
                    .acknowledge(prefix, id, &mut self.decoder_output);
                match decoded.and_then(|()| stream.check_length()) {
                    Ok(()) => {
                        stream.receiving = Receiving::Done;
                        Event::Trailers
                    }
                    Err(kind) => self.stream_error(id, stream, kind, now)?,
                }
            }
        };
        Ok(Some(event))
    }

    fn request(
        &mut self,
        id: u64,
        stream: &mut Stream,
        facts: Result<RequestFacts, ErrorKind>,
        end: bool,
        head: &RequestHead,
        now: Duration,
    ) -> Result<Event, ErrorKind> {
        let facts = match facts {
            Ok(facts) => facts,
            Err(kind) if is_malformed(kind) => return self.stream_error(id, stream, kind, now),
            Err(kind) => return Ok(self.refuse(stream, end, kind, head)),
        };
        if end && !matches!(facts.content_length, None | Some(0)) {
            return self.stream_error(id, stream, ErrorKind::ContentLengthMismatch, now);
        }
        stream.receiving = if end {
            Receiving::Done
        } else {
            Receiving::Body
        };
        stream.request = RequestKind::of(head);
        stream.receive_left = ContentLeft::of(facts.content_length);
        stream.expects_continue = facts.expects_continue && !end;
        if let Some(priority) = facts.priority
            && !stream.is_reprioritized
        {
            stream.priority = priority;
        }
        let length = content::received_length(facts.content_length, end);
        Ok(Event::Head { length, end })
    }

    /// Has the caller respond to a request whose content is not reported.
    fn refuse(&self, stream: &mut Stream, end: bool, kind: ErrorKind, head: &RequestHead) -> Event {
        stream.receiving = if end {
            Receiving::Done
        } else {
            Receiving::Discarded
        };
        stream.request = RequestKind::of(head);
        let error = Error::new(kind, self.side());
        Event::Refused { error }
    }

    /// A frame was passed over.
    fn end_ignored(
        &mut self,
        id: u64,
        stream: &mut Stream,
        rest: &Rest<'_>,
        now: Duration,
        received: &mut Received,
    ) -> Result<Option<Event>, ErrorKind> {
        let is_section = matches!(stream.parsing, Parsing::LongSection(_));
        stream.parsing = Parsing::START;
        match is_section {
            true => self
                .refuse_long_section(id, stream, rest, now, received)
                .map(Some),
            false => Ok(None),
        }
    }

    /// A field section was passed over because it is too long. Others do not depend on it.
    #[cold]
    fn refuse_long_section(
        &mut self,
        id: u64,
        stream: &mut Stream,
        rest: &Rest<'_>,
        now: Duration,
        received: &mut Received,
    ) -> Result<Event, ErrorKind> {
        self.decoder.cancel(id, &mut self.decoder_output);
        match (stream.receiving, self.role) {
            (Receiving::Head, Role::Server) => {
                received.request.clear();
                let head = &received.request;
                Ok(self.refuse(stream, rest.is_end(), ErrorKind::HeadTooLarge, head))
            }
            (Receiving::Head, Role::Client) => {
                self.stream_error(id, stream, ErrorKind::HeadTooLarge, now)
            }
            _ => self.stream_error(id, stream, ErrorKind::TrailersTooLarge, now),
        }
    }

    fn response(
        &self,
        stream: &mut Stream,
        end: bool,
        declared: Option<u64>,
        head: &ResponseHead,
        now: Duration,
    ) -> Result<BodyLength, ErrorKind> {
        if head.status.is_informational() {
            let rate = &mut stream.informational;
            let max = self.limits.informational_max;
            return content::received_informational(rate, max, now, end);
        }
        stream.receiving = Receiving::Body;
        let (left, length) = content::received_response(stream.request, head, declared, end);
        stream.receive_left = left;
        if end {
            stream.check_length()?;
            stream.receiving = Receiving::Done;
        }
        Ok(length)
    }

    /// The peer broke a rule on one stream.
    fn stream_error(
        &mut self,
        id: u64,
        stream: &mut Stream,
        kind: ErrorKind,
        now: Duration,
    ) -> Result<Event, ErrorKind> {
        let is_early = stream.sending == Sending::Head;
        stream.receiving = Receiving::Reset;
        stream.section = Vec::new();
        self.decoder.cancel(id, &mut self.decoder_output);
        self.floods.stream_reset(is_early, now)?;
        Ok(Event::Reset {
            error: Error::new(kind, self.side()),
            code: Code::of(kind),
        })
    }
}

/// A field section that arrives.
enum Gathered<'i> {
    /// Its end has not arrived.
    Part,
    /// All of it is in the input.
    Now(&'i [u8]),
    /// Some of it came before.
    Before(Vec<u8>),
}

/// Takes what there is of a field section.
fn gather<'i>(stream: &mut Stream, left: u64, rest: &mut Rest<'i>) -> Gathered<'i> {
    let len = rest.available(left);
    let taken = rest.take(len);
    if (len as u64) < left {
        stream.section.extend_from_slice(taken);
        stream.parsing = Parsing::Section(left - len as u64);
        return Gathered::Part;
    }
    stream.parsing = Parsing::START;
    if stream.section.is_empty() {
        return Gathered::Now(taken);
    }
    let mut section = std::mem::take(&mut stream.section);
    section.extend_from_slice(taken);
    Gathered::Before(section)
}

/// A frame has begun and its end has not arrived. RFC 9114, section 7.1: a frame that a stream ends within is
/// H3_FRAME_ERROR.
fn incomplete(rest: &Rest<'_>) -> Result<Event, ErrorKind> {
    match rest.has_fin {
        true => Err(ErrorKind::FrameSize),
        false => Ok(Event::NeedMore),
    }
}
