//! Commands that send messages.

use super::{Connection, Role};
use crate::content::{self, ContentLeft, RequestKind};
use crate::error::{Error, ErrorKind, Side};
use crate::h2::encode;
use crate::h2::frame::{self, Header, Kind, PAYLOAD_MAX, flag};
use crate::h2::settings::WINDOW_DEFAULT;
use crate::h2::stream::{Receiving, Sending};
use crate::h2::{StreamId, UpgradeSettings};
use crate::message::{
    BodyLength, Fields, Method, Name, RequestHead, ResponseHead, Status, TargetForm,
};
use crate::priority::Priority;

/// Content that is sent after 101 before the client has said anything in HTTP/2: what comes right
/// behind the 101 has to fit into what some clients read heads into (curl's is 32 KiB).
const UPGRADED_BYTES_MAX: u32 = 16 * 1024;

impl Connection {
    /// Opens a stream for a request; `None` if none is
    /// [available](Connection::requests_available).
    ///
    /// The scheme is that of the connection, whatever the head says. CONNECT, plain or extended,
    /// opens a tunnel and needs no length.
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
        if matches!(state.receiving, Receiving::Reset | Receiving::GivenUp) {
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

    /// Appends the final response head. It ends the stream if `length` is `Empty` or `Known(0)`, or
    /// the request or the status have no content; otherwise content or `send_end` have to follow,
    /// [`sends_body`](Connection::sends_body) says which.
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
        if matches!(state.receiving, Receiving::Reset | Receiving::GivenUp) {
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

    /// Appends the header of a DATA frame for as many of `len` bytes of content as may be sent now,
    /// and says how many these are: exactly so many the caller has to send next, before anything
    /// else of this connection. `end` says that nothing follows the `len` bytes; once all of them
    /// may be sent, the stream ends with them.
    ///
    /// 0 means that a window is closed, unless `len` is 0: [`mark_ready`](Connection::mark_ready)
    /// the stream, and [`next_to_send`](Connection::next_to_send) will name it in time.
    ///
    /// # Errors
    /// More content than declared, or with `end` less, or content where none belongs: reset the
    /// stream.
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
                Receiving::Reset | Receiving::GivenUp => Ok(0),
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
        self.floods.content_sent(now);
        let flags = if is_last { flag::END_STREAM } else { 0 };
        let header = Header {
            len: now,
            kind: Kind::Data,
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

    /// Ends the message, with trailers if there are any. Does nothing if it has ended already.
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
        let encoder = &mut self.encoder;
        let has_trailers =
            trailers.is_some_and(|trailers| encode::trailers(encoder, stream.0, trailers, out));
        if !has_trailers {
            frame::write(Kind::Data, flag::END_STREAM, stream.0, &[], out);
        }
        self.remove_if_closed(slot);
        Ok(())
    }

    /// The caller has content for this stream, more than it could send. Once is enough until
    /// [`next_to_send`](Connection::next_to_send) names it.
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

    /// The stream whose turn it is to send content; it is not marked as ready any more. `None` if
    /// nobody has anything to send, or no window for it.
    ///
    /// A turn is one frame: send what [`send_data`](Connection::send_data) allows once, and mark
    /// the stream again if it has more. Streams go by urgency, within one urgency in the order of
    /// requests or by turns as the client wishes, and none starves (RFC 9218, section 10).
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

    /// Takes a request that came over HTTP/1.1 and asked to go on with HTTP/2, as stream 1, whose
    /// request is complete (RFC 7540, section 3.2; rule 15). Call it after
    /// [`start`](Connection::start); the client's preface is still to come.
    pub fn upgrade(&mut self, head: &RequestHead, settings: &UpgradeSettings) -> StreamId {
        assert!(
            self.is_server() && self.last_seen == 0,
            "an upgrade in the middle"
        );
        self.peer = settings.0;
        self.encoder
            .set_peer_size(self.peer.header_table_size as usize);
        self.withheld = WINDOW_DEFAULT - UPGRADED_BYTES_MAX;
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
