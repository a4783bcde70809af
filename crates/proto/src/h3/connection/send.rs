//! Commands that send messages. Each appends to its own stream, and says whether that ends.

use super::{Closing, Connection, Role};
use crate::content::{self, ContentLeft, RequestKind};
use crate::error::{Error, ErrorKind, Side};
use crate::field_section::send;
use crate::h3::StreamId;
use crate::h3::frame;
use crate::h3::stream::{Receiving, Sending, Stream};
use crate::message::{BodyLength, Fields, Name, RequestHead, ResponseHead, Status};
use crate::priority::PriorityOverride;

impl Connection {
    /// Whether a client may send another request, on the next stream that it opens. RFC 9114, section 5.2:
    /// "Endpoints MUST NOT initiate new requests or promise new pushes on the connection after receipt of a GOAWAY
    /// frame from the peer."
    #[must_use]
    pub fn may_request(&self) -> bool {
        self.closing == Closing::No && self.peer_limit.is_none()
    }

    /// Whether the peer accepts a request of this size (RFC 9114, section 4.2.2).
    #[must_use]
    pub fn accepts_size(&self, head: &RequestHead) -> bool {
        let max = self
            .peer
            .map_or(u64::MAX, |peer| peer.field_section_size_max);
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        send::request_fits(head, "https", max)
    }

    /// Whether the peer accepts extended CONNECT (RFC 9220).
    #[must_use]
    pub fn accepts_connect_protocol(&self) -> bool {
        self.peer.is_some_and(|peer| peer.connect_protocol)
    }

    /// Appends a request on a stream that the client has opened; true if that ends it. CONNECT, plain or
    /// extended, opens a tunnel and ignores `length`.
    ///
    /// # Panics
    /// If this is a server.
    pub fn send_request(
        &mut self,
        stream: StreamId,
        head: &RequestHead,
        length: BodyLength,
        out: &mut Vec<u8>,
    ) -> bool {
        assert!(self.role == Role::Client, "a server sends no requests");
        self.next_request = self.next_request.max(stream.0 + 4);
        let (declared, end) = content::sent_request(head, length);
        let mut state = Stream::new(if end { Sending::Done } else { Sending::Body });
        state.request = RequestKind::of(head);
        state.send_left = ContentLeft::of(declared);
        self.streams.insert(stream.0, state);
        self.floods.stream_opened();
        let encoder = &mut self.encoder;
        frame::write(frame::HEADERS, out, |out| {
            encoder.begin(out);
            send::request_head(encoder, head, "https", declared, out);
        });
        end
    }

    /// Appends a 1xx head, for example 100 or 103; 101 does not exist in HTTP/3.
    ///
    /// # Panics
    /// If the status is not informational, or the final head was sent.
    pub fn send_informational(&mut self, stream: StreamId, head: &ResponseHead, out: &mut Vec<u8>) {
        let status = head.status;
        assert!(
            status.is_informational() && status != Status::SWITCHING_PROTOCOLS,
            "{status}"
        );
        let Some(state) = self.live(stream) else {
            return;
        };
        assert!(
            state.sending == Sending::Head,
            "an informational head after the final one"
        );
        if status == Status::CONTINUE {
            state.expects_continue = false;
        }
        self.write_response(head, None, out);
    }

    /// Appends the final response head; true if that ends the stream: if `length` is `Empty` or `Known(0)`, or
    /// if the method or the status forbids content. Otherwise content or `send_end` must follow.
    ///
    /// A 2xx to CONNECT opens the tunnel, without length.
    ///
    /// # Panics
    /// If the final head was sent before, or the status is informational.
    pub fn send_head(
        &mut self,
        stream: StreamId,
        head: &ResponseHead,
        length: BodyLength,
        out: &mut Vec<u8>,
    ) -> bool {
        let status = head.status;
        assert!(!status.is_informational(), "{status} is not final");
        let Some(state) = self.live(stream) else {
            return false;
        };
        assert!(
            state.sending == Sending::Head,
            "a second final head on one stream"
        );
        let (declared, end) = content::sent_response(state.request, status, length);
        state.sending = if end { Sending::Done } else { Sending::Body };
        state.send_left = ContentLeft::of(declared);
        state.expects_continue = false;
        if let Some(value) = head.fields.get(Name::Priority) {
            state.priority_override = PriorityOverride::parse(value);
            state.priority = state.priority_override.over(state.priority);
        }
        self.write_response(head, declared, out);
        self.remove_if_closed(stream);
        end
    }

    fn write_response(&mut self, head: &ResponseHead, declared: Option<u64>, out: &mut Vec<u8>) {
        let encoder = &mut self.encoder;
        frame::write(frame::HEADERS, out, |out| {
            encoder.begin(out);
            send::response_head(encoder, head, out);
            send::length(encoder, declared, out);
        });
    }

    /// Appends the header of a DATA frame of `len` bytes. The caller must append exactly these next to the
    /// stream. With `is_last` they end the message; true if they end the stream.
    ///
    /// # Errors
    /// The message has no content, or another length.
    pub fn send_data(
        &mut self,
        stream: StreamId,
        len: usize,
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let error = |kind| Err(Error::new(kind, Side::Sending));
        let Some(state) = self.live(stream) else {
            return Ok(false);
        };
        if state.sending != Sending::Body {
            return match len > 0 && !state.is_stopped {
                true => error(ErrorKind::BodyForbidden),
                false => Ok(false),
            };
        }
        let Some(left) = state.send_left.after(len as u64) else {
            return error(ErrorKind::BodyTooLong);
        };
        if is_last && !left.may_end() {
            return error(ErrorKind::BodyTooShort);
        }
        state.send_left = left;
        if is_last {
            state.sending = Sending::Done;
        }
        if len > 0 {
            frame::write_header(frame::DATA, len as u64, out);
        }
        self.remove_if_closed(stream);
        Ok(is_last)
    }

    /// Appends the end of a message: its trailers, if there are any to send, and the request was not CONNECT. True if
    /// that ends the stream.
    ///
    /// # Errors
    /// Content is missing.
    pub fn send_end(
        &mut self,
        stream: StreamId,
        trailers: Option<&Fields>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let Some(state) = self.live(stream) else {
            return Ok(false);
        };
        if state.sending != Sending::Body {
            return Ok(false);
        }
        if !state.send_left.may_end() {
            return Err(Error::new(ErrorKind::BodyTooShort, Side::Sending));
        }
        state.sending = Sending::Done;
        // RFC 9114, section 4.4: "Once the CONNECT method has completed, only DATA frames are permitted".
        let may_follow = state.request != RequestKind::Connect;
        let trailers = trailers.filter(|trailers| may_follow && trailers.has_trailers());
        if let Some(trailers) = trailers {
            let encoder = &mut self.encoder;
            frame::write(frame::HEADERS, out, |out| {
                encoder.begin(out);
                send::trailers(encoder, trailers, out);
            });
        }
        self.remove_if_closed(stream);
        Ok(true)
    }

    /// Whether content or the end of a message is to be sent.
    #[must_use]
    pub fn sends_body(&self, stream: StreamId) -> bool {
        let state = self.streams.get(&stream.0);
        state.is_some_and(|state| state.sending == Sending::Body)
    }

    /// Whether the final head was sent.
    #[must_use]
    pub fn response_started(&self, stream: StreamId) -> bool {
        let state = self.streams.get(&stream.0);
        state.is_none_or(|state| state.sending != Sending::Head)
    }

    /// Whether the client waits for 100 before it sends content.
    #[must_use]
    pub fn expects_continue(&self, stream: StreamId) -> bool {
        let state = self.streams.get(&stream.0);
        state.is_some_and(|state| state.expects_continue)
    }

    /// Whether nothing more of the peer's message will come.
    #[must_use]
    pub fn receive_done(&self, stream: StreamId) -> bool {
        let state = self.streams.get(&stream.0);
        state.is_none_or(|state| matches!(state.receiving, Receiving::Done | Receiving::Reset))
    }

    /// A stream that was not reset.
    fn live(&mut self, stream: StreamId) -> Option<&mut Stream> {
        let state = self.streams.get_mut(&stream.0)?;
        (state.receiving != Receiving::Reset).then_some(state)
    }

    fn remove_if_closed(&mut self, stream: StreamId) {
        if self
            .streams
            .get(&stream.0)
            .is_some_and(|state| state.is_closed())
        {
            self.streams.remove(&stream.0);
        }
    }
}
