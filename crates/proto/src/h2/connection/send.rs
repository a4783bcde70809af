//! Commands that send messages.

use super::{Connection, Role};
use crate::content::{self, ContentLeft, RequestKind};
use crate::error::{Error, ErrorKind, Side};
use crate::h2::encode;
use crate::h2::frame::{self, FrameType, Header, PAYLOAD_MAX, flag};
use crate::h2::settings::WINDOW_DEFAULT;
use crate::h2::stream::{Receiving, Sending};
use crate::h2::{StreamId, UpgradeSettings};
use crate::message::{
    BodyLength, Fields, Method, Name, RequestHead, ResponseHead, Status, TargetForm,
};
use crate::priority::Priority;

/// Bytes of content that are sent after 101 before the client's first frame: some clients read them
/// into the buffer of the response head (32 KiB in curl).
const UPGRADED_BYTES_MAX: u32 = 16 * 1024;

impl Connection {
    /// Opens a stream for a request; `None` if none is
    /// [available](Connection::requests_available).
    ///
    /// The scheme is that of the connection, regardless of the head. CONNECT, plain or extended, opens
    /// a tunnel and ignores `length`.
    pub fn send_request(
        &mut self,
        head: &RequestHead,
        length: BodyLength,
        out: &mut Vec<u8>,
    ) -> Option<StreamId> {
        let Role::Client(scheme) = self.role else {
            panic!("a server sends no requests");
        };
        if self.requests_available() == 0 {
            return None;
        }
        let id = self.next_own;
        self.next_own += 2;
        let is_connect = head.method == Method::Connect;
        debug_assert!(
            !is_connect || head.protocol().is_some() || head.form() == TargetForm::Authority,
            "a CONNECT with neither authority nor protocol"
        );
        let (declared, end) = content::sent_request(head, length);
        let sending = if end { Sending::Done } else { Sending::Body };
        let mut stream = self.new_stream(id, Receiving::Head, sending);
        stream.request = RequestKind::of(head);
        stream.send_left = ContentLeft::of(declared);
        self.streams.insert(stream);
        self.floods.stream_opened();
        encode::request_head(&mut self.encoder, id, head, scheme, declared, end, out);
        Some(StreamId(id))
    }

    /// Appends a 1xx head, for example 100 or 103; 101 does not exist in HTTP/2.
    ///
    /// # Panics
    /// If the status is not informational, or the final head was sent.
    pub fn send_informational(&mut self, stream: StreamId, head: &ResponseHead, out: &mut Vec<u8>) {
        let status = head.status;
        assert!(
            status.is_informational() && status != Status::SWITCHING_PROTOCOLS,
            "{status}"
        );
        let Some(state) = self.streams.get_mut(stream.0) else {
            return;
        };
        if matches!(
            state.receiving,
            Receiving::ResetByPeer | Receiving::ResetByUs
        ) {
            return;
        }
        assert!(
            state.sending == Sending::Head,
            "an informational head after the final one"
        );
        if status == Status::CONTINUE {
            state.expects_continue = false;
        }
        let (encoder, last) = (&mut self.encoder, &mut self.last_sent);
        encode::response_head(encoder, last, stream.0, head, None, false, out);
    }

    /// Appends the final response head. It ends the stream if `length` is `Empty` or `Known(0)`, or if
    /// the method or the status forbids content. Otherwise [`sends_body`](Connection::sends_body) is
    /// true, and content or `send_end` must follow.
    ///
    /// A 2xx to CONNECT opens the tunnel, without length.
    ///
    /// # Panics
    /// If the final head was sent before, or the status is informational.
    #[inline]
    pub fn send_head(
        &mut self,
        stream: StreamId,
        head: &ResponseHead,
        length: BodyLength,
        out: &mut Vec<u8>,
    ) {
        assert!(
            !head.status.is_informational(),
            "{} is not final",
            head.status
        );
        let Some(slot) = self.streams.find(stream.0) else {
            return;
        };
        let state = self.streams.at(slot);
        if matches!(
            state.receiving,
            Receiving::ResetByPeer | Receiving::ResetByUs
        ) {
            return;
        }
        assert!(
            state.sending == Sending::Head,
            "a second final head on one stream"
        );
        let (declared, end) = content::sent_response(state.request, head.status, length);
        state.sending = if end { Sending::Done } else { Sending::Body };
        state.send_left = ContentLeft::of(declared);
        state.expects_continue = false;
        let (encoder, last) = (&mut self.encoder, &mut self.last_sent);
        let is_prioritized =
            encode::response_head(encoder, last, stream.0, head, declared, end, out);
        if is_prioritized {
            self.prioritize(slot, &head.fields);
        }
        if end {
            self.remove_if_closed(slot);
        }
    }

    /// Appends the header of a DATA frame for as many of `len` bytes of content as the windows allow,
    /// and returns their number. The caller must send exactly these bytes next, before any other output
    /// of the connection. With `end`, the `len` bytes are the last of the message; the frame that
    /// contains the last of them ends the stream.
    ///
    /// 0 means that a window is closed, unless `len` is 0: call [`mark_ready`](Connection::mark_ready)
    /// for the stream; [`next_to_send`](Connection::next_to_send) returns it when it may send again.
    ///
    /// # Errors
    /// More content than declared, or less with `end`, or content in a message without content: reset
    /// the stream.
    #[inline]
    pub fn send_data(
        &mut self,
        stream: StreamId,
        len: usize,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Result<usize, Error> {
        let Some(slot) = self.streams.find(stream.0) else {
            return Ok(0);
        };
        let state = self.streams.at(slot);
        if state.sending != Sending::Body {
            return match state.receiving {
                Receiving::ResetByPeer | Receiving::ResetByUs => Ok(0),
                _ if len == 0 && state.sending == Sending::Done => Ok(0),
                _ => Err(Error::new(ErrorKind::BodyForbidden, Side::Sending)),
            };
        }
        let window = state.send_window.min(self.flow.send_window).max(0) as usize;
        let now = len.min(window).min(PAYLOAD_MAX);
        let is_last = end && now == len;
        if now == 0 && !is_last {
            return Ok(0);
        }
        let left = state.send_left.after(now as u64);
        let left = left.ok_or(Error::new(ErrorKind::BodyTooLong, Side::Sending))?;
        if is_last && !left.may_end() {
            return Err(Error::new(ErrorKind::BodyTooShort, Side::Sending));
        }
        state.send_left = left;
        state.send_window -= now as i32;
        self.flow.send_window -= now as i32;
        self.floods.content_sent(now, now == len.min(PAYLOAD_MAX));
        let flags = if is_last { flag::END_STREAM } else { 0 };
        let header = Header {
            len: now,
            kind: FrameType::Data,
            flags,
            stream: stream.0,
        };
        out.extend_from_slice(&header.to_bytes());
        if is_last {
            state.sending = Sending::Done;
            self.remove_if_closed(slot);
        }
        Ok(now)
    }

    /// Ends the message, with trailers if given. Does nothing if the message has ended already.
    ///
    /// # Errors
    /// Less content than declared, or no head yet: reset the stream.
    pub fn send_end(
        &mut self,
        stream: StreamId,
        trailers: Option<&Fields>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let Some(slot) = self.streams.find(stream.0) else {
            return Ok(());
        };
        let state = self.streams.at(slot);
        match state.sending {
            Sending::Done => return Ok(()),
            Sending::Head => return Err(Error::new(ErrorKind::BodyForbidden, Side::Sending)),
            Sending::Body if !state.send_left.may_end() => {
                return Err(Error::new(ErrorKind::BodyTooShort, Side::Sending));
            }
            Sending::Body => state.sending = Sending::Done,
        }
        // RFC 9113, section 8.5: of a tunnel, frames other than DATA "MUST be treated as a stream error".
        let trailers = trailers.filter(|_| state.request != RequestKind::Connect);
        let encoder = &mut self.encoder;
        let has_trailers =
            trailers.is_some_and(|trailers| encode::trailers(encoder, stream.0, trailers, out));
        if !has_trailers {
            self.floods.content_sent(0, true);
            frame::write(FrameType::Data, flag::END_STREAM, stream.0, &[], out);
        }
        self.remove_if_closed(slot);
        Ok(())
    }

    /// Declares that the caller has more content for this stream. One call suffices until
    /// [`next_to_send`](Connection::next_to_send) returns the stream.
    pub fn mark_ready(&mut self, stream: StreamId) {
        let Some(state) = self.streams.get_mut(stream.0) else {
            return;
        };
        if state.sending != Sending::Body {
            return;
        }
        state.is_blocked = state.send_window <= 0;
        if !state.is_blocked {
            self.schedule.add(stream.0, state.priority);
        }
    }

    /// The next stream to send content on; its mark as ready is removed. `None` if no stream is ready,
    /// or no window is open.
    ///
    /// The caller sends one frame: it calls [`send_data`](Connection::send_data) once, and marks the
    /// stream again if it has more content. Streams are ordered by urgency; within one urgency, in the
    /// order of requests or round-robin according to the client's `incremental` parameter. No stream
    /// starves (RFC 9218, section 10).
    pub fn next_to_send(&mut self) -> Option<StreamId> {
        if self.flow.send_window <= 0 {
            return None;
        }
        while let Some(id) = self.schedule.next() {
            let Some(stream) = self.streams.get_mut(id) else {
                continue;
            };
            if stream.send_window > 0 {
                return Some(StreamId(id));
            }
            stream.is_blocked = true;
        }
        None
    }

    /// Accepts an HTTP/1.1 request to upgrade to HTTP/2 as stream 1, with a complete request (RFC 7540,
    /// section 3.2; rule 15). Call it after [`start`](Connection::start), before the client's preface
    /// arrives.
    pub fn upgrade(&mut self, head: &RequestHead, settings: &UpgradeSettings) -> StreamId {
        assert!(
            self.is_server() && self.last_seen == 0,
            "an upgrade after the first stream"
        );
        self.peer = settings.0;
        self.encoder
            .set_peer_size(self.peer.header_table_size as usize);
        self.window_withheld = WINDOW_DEFAULT - UPGRADED_BYTES_MAX;
        self.flow.send_window = UPGRADED_BYTES_MAX as i32;
        (self.last_seen, self.last_accepted) = (1, 1);
        self.floods.stream_opened();
        let mut stream = self.new_stream(1, Receiving::Done, Sending::Head);
        if head.method == Method::Head {
            stream.request = RequestKind::Head;
        }
        if let Some(value) = head.fields.get(Name::Priority).filter(|_| self.prioritizes) {
            stream.priority = Priority::parse(value);
        }
        self.streams.insert(stream);
        StreamId(1)
    }
}
