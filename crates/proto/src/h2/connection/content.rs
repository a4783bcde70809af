//! DATA (RFC 9113, section 6.1): counted when the frame begins, passed on as its bytes come.

use std::time::Duration;

use super::input::{Content, InputState};
use super::{Connection, PING_PROBE};
use crate::error::ErrorKind;
use crate::h2::floods::Flood;
use crate::h2::frame::{self, Header, Kind, flag};
use crate::h2::stream::Receiving;
use crate::h2::streams::End;
use crate::h2::{Event, StreamId};

/// DATA with fewer bytes than this is small: a message of gRPC has at least five.
const SMALL: usize = 4;

impl Connection {
    /// Decides about the content of a frame; the length of its padding was read before, if it has
    /// one.
    #[inline]
    pub(super) fn begin_content(
        &mut self,
        header: Header,
        padding: Option<u8>,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        if header.stream == 0 {
            return Err(ErrorKind::FrameUnexpected);
        }
        let overhead = padding.map_or(0, |padding| usize::from(padding) + 1);
        let len = header
            .len
            .checked_sub(overhead)
            .ok_or(ErrorKind::FramePadding)?;
        let end_stream = header.has(flag::END_STREAM);
        self.note_content(len, end_stream, now)?;
        // RFC 9113, section 6.9: "Both flow-control windows" count the whole payload, whatever
        // becomes of it.
        self.flow.take(header.len)?;
        if self.flow.begin_probe() {
            frame::write(Kind::Ping, 0, 0, &PING_PROBE, out);
        }
        let left = header.len - usize::from(padding.is_some());
        let Some(slot) = self.streams.find(header.stream) else {
            let event = self.content_of_nobody(header.stream, now, out)?;
            return Ok(self.skip_content(header.len, left, event, out));
        };
        let stream = self.streams.at(slot);
        let taken = match stream.receiving {
            Receiving::Body => stream.take_content(header.len, len, end_stream),
            Receiving::Discarded | Receiving::GivenUp => {
                if end_stream && stream.receiving == Receiving::Discarded {
                    stream.receiving = Receiving::Done;
                    self.remove_if_closed(slot);
                }
                return Ok(self.skip_content(header.len, left, None, out));
            }
            Receiving::Head => Err(ErrorKind::HeadUnexpected),
            Receiving::Done => Err(ErrorKind::StreamClosed),
            // RFC 9113, section 5.1, about a stream closed by RST_STREAM of the peer.
            Receiving::Reset => return Err(ErrorKind::StreamClosed),
        };
        if let Err(kind) = taken {
            let event = self.fault(header.stream, kind, now, out)?;
            return Ok(self.skip_content(header.len, left, Some(event), out));
        }
        stream.expects_continue = false;
        if overhead > 0 {
            // Padding is of no use to anybody.
            stream.held -= overhead as u32;
            self.flow.release(overhead);
        }
        self.announce_credit(out);
        let padding = left - len;
        self.input.state = InputState::Content(Content {
            stream: header.stream,
            left: len,
            padding,
            end_stream,
        });
        Ok(None)
    }

    fn note_content(&mut self, len: usize, end: bool, now: Duration) -> Result<(), ErrorKind> {
        self.floods.content_received(len);
        match len {
            _ if end => Ok(()),
            0 => self.floods.note(Flood::EmptyFrame, now),
            1..SMALL => self.floods.note(Flood::SmallData, now),
            _ => Ok(()),
        }
    }

    /// Content for a stream that is not in the table.
    #[cold]
    fn content_of_nobody(
        &mut self,
        id: u32,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        if self.is_idle_id(id) {
            return Err(ErrorKind::FrameUnexpected);
        }
        match self.streams.end_of(id) {
            Some(End::ByUs) => Ok(None),
            Some(End::ByPeer) => Err(ErrorKind::StreamClosed),
            // Too long ago to be sure whose fault it is.
            None => self
                .fault(id, ErrorKind::StreamClosed, now, out)
                .map(|_| None),
        }
    }

    /// Lets the connection's window stay as it was, although nobody wants these bytes.
    #[cold]
    fn skip_content(
        &mut self,
        flow: usize,
        left: usize,
        event: Option<Event>,
        out: &mut Vec<u8>,
    ) -> Option<Event> {
        self.flow.release(flow);
        self.announce_credit(out);
        self.input.state = InputState::Skip(left);
        event
    }

    /// Passes on what there is of the content; `at` is where `rest` is in the input.
    #[inline]
    pub(super) fn content(
        &mut self,
        content: Content,
        at: usize,
        rest: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Event> {
        let len = rest.len().min(content.left);
        let padding = (rest.len() - len).min(content.padding);
        *rest = &rest[len + padding..];
        let still = Content {
            left: content.left - len,
            padding: content.padding - padding,
            ..content
        };
        let is_complete = still.left + still.padding == 0;
        self.input.state = if is_complete {
            InputState::Header
        } else {
            InputState::Content(still)
        };
        let stream = StreamId(content.stream);
        let Some(slot) = self.streams.find(content.stream) else {
            // The caller gave the stream up meanwhile.
            self.flow.release(len);
            self.announce_credit(out);
            return None;
        };
        let end = is_complete && content.end_stream;
        if self.streams.at(slot).receiving == Receiving::GivenUp {
            self.flow.release(len);
            return None;
        }
        if end {
            self.streams.at(slot).receiving = Receiving::Done;
            self.remove_if_closed(slot);
        }
        let range = at..at + len;
        (end || len > 0).then_some(Event::Data { stream, range, end })
    }
}
