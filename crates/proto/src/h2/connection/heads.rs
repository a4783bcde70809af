//! HEADERS and CONTINUATION (RFC 9113, sections 6.2, 6.10 and 8.1): requests, responses, trailers.

use std::time::Duration;

use super::control::check_dependency;
use super::input::OpenBlock;
use super::{Closing, Connection};
use crate::content::{self, ContentLeft, RequestKind};
use crate::error::{Error, ErrorKind};
use crate::field_section::is_malformed;
use crate::field_section::receive::RequestFacts;
use crate::h2::floods::Flood;
use crate::h2::frame::{self, Header, flag};
use crate::h2::hpack::Malformed;
use crate::h2::section;
use crate::h2::stream::{Receiving, Sending};
use crate::h2::streams::{Slot, StreamEnd};
use crate::h2::{Event, Received, StreamId};
use crate::message::{BodyLength, RequestHead, ResponseHead};
use crate::priority::Priority;

impl From<Malformed> for ErrorKind {
    fn from(Malformed: Malformed) -> ErrorKind {
        ErrorKind::Compression
    }
}

impl Connection {
    #[inline(always)]
    pub(super) fn headers(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Duration,
        received: &mut Received,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        if header.stream == 0 {
            return Err(ErrorKind::FrameUnexpected);
        }
        let mut block = frame::without_padding(header, payload)?;
        if header.has(flag::PRIORITY) {
            block = check_dependency(header.stream, block)?;
        }
        let end_stream = header.has(flag::END_STREAM);
        if header.has(flag::END_HEADERS) {
            return self.head(header.stream, end_stream, block, now, received, out);
        }
        if block.is_empty() {
            self.floods.note(Flood::EmptyFrame, now)?;
        }
        self.input.block = Some(OpenBlock {
            stream: header.stream,
            end_stream,
            continuations: 0,
            bytes: block.to_vec(),
            is_too_long: false,
        });
        Ok(None)
    }

    #[cold]
    pub(super) fn continuation(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Duration,
        received: &mut Received,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        let Some(mut block) = self.input.block.take() else {
            return Err(ErrorKind::FrameUnexpected);
        };
        block.continuations += 1;
        if block.continuations > self.receive_limits.continuations_max {
            return Err(ErrorKind::ContinuationFlood);
        }
        let is_too_long = block.bytes.len() + payload.len() > self.receive_limits.block_bytes_max;
        if is_too_long && !self.may_open(block.stream) {
            return Err(ErrorKind::ContinuationFlood);
        }
        if is_too_long || block.is_too_long {
            block.is_too_long = true;
            block.bytes = Vec::new();
        } else {
            block.bytes.extend_from_slice(payload);
        }
        if header.has(flag::END_HEADERS) && block.is_too_long {
            return Ok(Some(self.refuse_too_long(&block, received)));
        }
        if header.has(flag::END_HEADERS) {
            return self.head(
                block.stream,
                block.end_stream,
                &block.bytes,
                now,
                received,
                out,
            );
        }
        if payload.is_empty() {
            self.floods.note(Flood::EmptyFrame, now)?;
        }
        self.input.block = Some(block);
        Ok(None)
    }

    /// Whether a request may open this stream.
    fn may_open(&self, id: u32) -> bool {
        let is_new = self.is_server() && id > self.last_seen && !id.is_multiple_of(2);
        is_new && !self.is_full() && self.closing != Closing::Final
    }

    fn is_full(&self) -> bool {
        self.streams.len() >= self.own.concurrent_streams_max as usize
    }

    /// Refuses a request whose header block was too long. Its fields are unknown and the state of the
    /// decoder is lost, so that it is the last request of the connection.
    ///
    /// RFC 9113, section 10.5.1: "The field block MUST be processed to ensure a consistent connection
    /// state, unless the connection is closed."
    #[cold]
    fn refuse_too_long(&mut self, block: &OpenBlock, received: &mut Received) -> Event {
        self.last_seen = block.stream;
        self.last_accepted = block.stream;
        self.floods.stream_opened();
        self.closing = Closing::Final;
        self.has_lost_block = true;
        received.request.clear();
        self.refused(
            block.stream,
            block.end_stream,
            ErrorKind::HeadTooLarge,
            &received.request,
        )
    }

    /// Opens a stream for the response to a refused request.
    fn refused(&mut self, id: u32, end: bool, kind: ErrorKind, head: &RequestHead) -> Event {
        let receiving = if end {
            Receiving::Done
        } else {
            Receiving::Body
        };
        let mut stream = self.new_stream(id, receiving, Sending::Head);
        stream.request = RequestKind::of(head);
        self.streams.insert(stream);
        Event::Refused {
            stream: StreamId(id),
            error: Error::new(kind, self.side()),
        }
    }

    /// Handles a header block on a known stream that can no longer be decoded.
    #[cold]
    fn undecodable_head(
        &mut self,
        slot: Slot,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        let stream = self.streams.at(slot);
        let id = stream.id;
        match stream.receiving {
            Receiving::Head | Receiving::Body => self
                .stream_error(id, ErrorKind::Compression, now, out)
                .map(Some),
            _ => self.count_stray_frame(now).map(|()| None),
        }
    }

    /// Handles a complete header block.
    #[inline(always)]
    fn head(
        &mut self,
        id: u32,
        end: bool,
        block: &[u8],
        now: Duration,
        received: &mut Received,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        let Some(slot) = self.streams.find(id) else {
            if self.is_server() && id > self.last_seen {
                return self.request(id, end, block, now, received, out);
            }
            return self.head_of_unknown_stream(id, block, now, out);
        };
        match self.streams.at(slot).receiving {
            Receiving::Head => self.response(slot, end, block, now, received, out),
            _ if self.has_lost_block => self.undecodable_head(slot, now, out),
            Receiving::Body => self
                .trailers(slot, end, block, now, received, out)
                .map(Some),
            Receiving::ResetByUs => {
                self.count_stray_frame(now)?;
                section::ignored(&mut self.decoder, block)?;
                Ok(None)
            }
            // RFC 9113, section 5.1, half-closed (remote): "If an endpoint receives additional
            // frames, other than WINDOW_UPDATE, PRIORITY, or RST_STREAM, for a stream that is in
            // this state, it MUST respond with a stream error of type STREAM_CLOSED."
            Receiving::Done => {
                section::ignored(&mut self.decoder, block)?;
                self.stream_error(id, ErrorKind::StreamClosed, now, out)
                    .map(Some)
            }
            Receiving::ResetByPeer => Err(ErrorKind::StreamClosed),
        }
    }

    /// Handles a header block for a stream that is not in the table and cannot be opened.
    #[cold]
    fn head_of_unknown_stream(
        &mut self,
        id: u32,
        block: &[u8],
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        if self.is_idle_id(id) {
            return Err(ErrorKind::StreamId);
        }
        self.ignore_block(block)?;
        match self.streams.end_of(id) {
            Some(StreamEnd::ByUs) => self.count_stray_frame(now).map(|()| None),
            Some(StreamEnd::ByPeer) => Err(ErrorKind::StreamClosed),
            // RFC 9113, section 5.1.1: "The identifier of a newly established stream MUST be
            // numerically greater than all streams that the initiating endpoint has opened".
            None if self.streams.remembers_all() => Err(ErrorKind::StreamId),
            None => self
                .stream_error(id, ErrorKind::StreamClosed, now, out)
                .map(|_| None),
        }
    }

    /// Opens a stream for a request, in a server.
    #[inline(always)]
    fn request(
        &mut self,
        id: u32,
        end: bool,
        block: &[u8],
        now: Duration,
        received: &mut Received,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        if id.is_multiple_of(2) {
            return Err(ErrorKind::StreamId);
        }
        self.last_seen = id;
        self.floods.stream_opened();
        if self.is_full() || self.closing == Closing::Final {
            return self.refuse_request(id, block, now, out);
        }
        self.last_accepted = id;
        let head = &mut received.request;
        let (decoder, repeat) = (&mut self.decoder, &mut self.repeated_request);
        match section::request(decoder, repeat, block, &self.receive_limits.section, head)? {
            Ok(facts) => self.accept(id, end, facts, head, now, out).map(Some),
            Err(kind) if is_malformed(kind) => self.stream_error(id, kind, now, out).map(Some),
            Err(kind) => Ok(Some(self.refused(id, end, kind, head))),
        }
    }

    #[inline(always)]
    fn accept(
        &mut self,
        id: u32,
        end: bool,
        facts: RequestFacts,
        head: &RequestHead,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Result<Event, ErrorKind> {
        if end && !matches!(facts.content_length, None | Some(0)) {
            return self.stream_error(id, ErrorKind::ContentLengthMismatch, now, out);
        }
        let receiving = if end {
            Receiving::Done
        } else {
            Receiving::Body
        };
        let mut stream = self.new_stream(id, receiving, Sending::Head);
        stream.request = RequestKind::of(head);
        stream.receive_left = ContentLeft::of(facts.content_length);
        stream.expects_continue = facts.expects_continue && !end;
        if self.prioritizes {
            let early = if self.early_priorities.is_empty() {
                None
            } else {
                self.early_priority(id)
            };
            stream.priority = early.or(facts.priority).unwrap_or(Priority::UNSTATED);
        }
        self.streams.insert(stream);
        let length = content::received_length(facts.content_length, end);
        Ok(Event::Head {
            stream: StreamId(id),
            length,
            end,
        })
    }

    /// The priority that a PRIORITY_UPDATE set before the stream was opened; removes this entry and
    /// those of lower streams.
    #[cold]
    fn early_priority(&mut self, id: u32) -> Option<Priority> {
        let found = self.early_priorities.iter().find(|(other, _)| *other == id);
        let priority = found.map(|(_, priority)| *priority);
        self.early_priorities.retain(|(other, _)| *other > id);
        priority
    }

    /// Refuses a request beyond the limit of streams, or after the final GOAWAY.
    #[cold]
    fn refuse_request(
        &mut self,
        id: u32,
        block: &[u8],
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        self.ignore_block(block)?;
        if self.closing == Closing::Final {
            // The GOAWAY already covers this stream.
            self.streams.note_closed(id, StreamEnd::ByUs);
            return Ok(None);
        }
        self.stream_error(id, ErrorKind::StreamLimit, now, out)
            .map(Some)
    }

    /// Decodes a block for the sake of the decoder's table.
    fn ignore_block(&mut self, block: &[u8]) -> Result<(), ErrorKind> {
        match self.has_lost_block {
            true => Ok(()),
            false => Ok(section::ignored(&mut self.decoder, block)?),
        }
    }

    /// Handles a response head, in a client.
    fn response(
        &mut self,
        slot: Slot,
        end: bool,
        block: &[u8],
        now: Duration,
        received: &mut Received,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        let head = &mut received.response;
        let (decoder, repeat) = (&mut self.decoder, &mut self.repeated_response);
        let declared =
            section::response(decoder, repeat, block, &self.receive_limits.section, head)?;
        let id = self.streams.at(slot).id;
        let outcome =
            declared.and_then(|declared| self.take_response(slot, end, declared, head, now));
        match outcome {
            Ok(length) => {
                self.remove_if_closed(slot);
                Ok(Some(Event::Head {
                    stream: StreamId(id),
                    length,
                    end,
                }))
            }
            Err(kind) => self.stream_error(id, kind, now, out).map(Some),
        }
    }

    fn take_response(
        &mut self,
        slot: Slot,
        end: bool,
        declared: Option<u64>,
        head: &ResponseHead,
        now: Duration,
    ) -> Result<BodyLength, ErrorKind> {
        let informational_max = self.receive_limits.informational_max;
        let stream = self.streams.at(slot);
        if head.status.is_informational() {
            let rate = &mut stream.informational;
            return content::received_informational(rate, informational_max, now, end);
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

    fn trailers(
        &mut self,
        slot: Slot,
        end: bool,
        block: &[u8],
        now: Duration,
        received: &mut Received,
        out: &mut Vec<u8>,
    ) -> Result<Event, ErrorKind> {
        let limits = &self.receive_limits.section;
        let decoded = section::trailers(&mut self.decoder, block, limits, &mut received.trailers)?;
        let stream = self.streams.at(slot);
        let id = stream.id;
        // RFC 9113, section 8.1: "An endpoint that receives a HEADERS frame without the END_STREAM
        // flag set after receiving the HEADERS frame that opens a request or after receiving a
        // final (non-informational) status code MUST treat the corresponding request or response
        // as malformed".
        let ended = match end {
            true => stream.check_length(),
            false => Err(ErrorKind::HeadUnexpected),
        };
        match decoded.and(ended) {
            Ok(()) => {
                stream.receiving = Receiving::Done;
                self.remove_if_closed(slot);
                Ok(Event::Trailers {
                    stream: StreamId(id),
                })
            }
            Err(kind) => self.stream_error(id, kind, now, out),
        }
    }
}
