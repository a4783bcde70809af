//! DATA (RFC 9113, section 6.1): counted at the frame's header, reported as its bytes arrive.

use std::time::Duration;

use super::input::{DataFrameRest, InputState};
use super::{Connection, PING_PROBE};
use crate::error::ErrorKind;
use crate::h2::floods::Flood;
use crate::h2::frame::{self, FrameType, Header, flag};
use crate::h2::stream::Receiving;
use crate::h2::streams::{Slot, StreamEnd};
use crate::h2::{Event, StreamId};

/// DATA with fewer bytes than this counts as small: a gRPC message has at least five.
const SMALL: usize = 4;

impl Connection {
    /// Counts and checks a DATA frame from its header; `padding` is the length of its padding, if it
    /// has any.
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
        // RFC 9113, section 6.9: the whole payload counts against both flow-control windows, also if
        // it is discarded.
        self.flow.take(header.len)?;
        let left = header.len - usize::from(padding.is_some());
        let Some(slot) = self.streams.find(header.stream) else {
            let event = self.content_of_unknown_stream(header, now, out)?;
            return Ok(self.skip_content(header.len, left, event, out));
        };
        let stream = self.streams.at(slot);
        let taken = match stream.receiving {
            Receiving::Body => stream.take_content(header.len, len, end_stream),
            Receiving::ResetByUs => {
                return Ok(self.skip_content(header.len, left, None, out));
            }
            Receiving::Head => Err(ErrorKind::HeadUnexpected),
            Receiving::Done => Err(ErrorKind::StreamClosed),
            // RFC 9113, section 5.1, about a stream closed by RST_STREAM of the peer.
            Receiving::ResetByPeer => return Err(ErrorKind::StreamClosed),
        };
        if let Err(kind) = taken {
            let event = self.stream_error(header.stream, kind, now, out)?;
            return Ok(self.skip_content(header.len, left, Some(event), out));
        }
        stream.expects_continue = false;
        if self.flow.measure(header.len) {
            frame::write(FrameType::Ping, 0, 0, &PING_PROBE, out);
        }
        if overhead > 0 {
            // Padding is released at once, since the caller never sees it.
            stream.held -= overhead as u32;
            self.flow.release(overhead);
        }
        self.announce_credit(out);
        let padding = left - len;
        self.input.state = InputState::Content(DataFrameRest {
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
            1..SMALL => self.floods.note_small_data(self.streams.len(), now),
            _ => Ok(()),
        }
    }

    /// Checks content for a stream that is not in the table.
    #[cold]
    fn content_of_unknown_stream(
        &mut self,
        header: Header,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        let id = header.stream;
        if self.is_idle_id(id) {
            return Err(ErrorKind::FrameUnexpected);
        }
        match self.streams.end_of(id) {
            Some(StreamEnd::ByUs) => self.take_late_content(header.len).map(|()| None),
            Some(StreamEnd::ByPeer) => Err(ErrorKind::StreamClosed),
            // The record of its end is gone, so the error may not be the peer's.
            None => {
                self.take_late_content(header.len)?;
                self.stream_error(id, ErrorKind::StreamClosed, now, out)
                    .map(|_| None)
            }
        }
    }

    /// A client's stream is reset: content may follow that its window still allows.
    pub(super) fn expect_late_content(&mut self, slot: Slot) {
        let window = self.streams.at(slot).receive_window.max(0);
        // The server may have applied a larger window already.
        let change = self.resize.map_or(0, |resize| resize.change.max(0));
        self.late_content_max += window as u64 + change as u64;
    }

    /// Counts content of streams that a client has reset. RFC 9113, section 6.9.1: "A sender MUST NOT send a
    /// flow-controlled frame with a length that exceeds the space available in either of the flow-control windows". Without
    /// the bound a server could send for ever what nobody reads.
    fn take_late_content(&mut self, flow: usize) -> Result<(), ErrorKind> {
        if self.is_server() {
            return Ok(());
        }
        let left = self.late_content_max.checked_sub(flow as u64);
        self.late_content_max = left.ok_or(ErrorKind::FlowControl)?;
        Ok(())
    }

    /// Discards content and returns its bytes to the connection's window.
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

    /// Reports the content in the input; `at` is the offset of `rest` in the input.
    #[inline]
    pub(super) fn content(
        &mut self,
        content: DataFrameRest,
        at: usize,
        rest: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Event> {
        let len = rest.len().min(content.left);
        let padding = (rest.len() - len).min(content.padding);
        *rest = &rest[len + padding..];
        let still = DataFrameRest {
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
            // The caller has reset the stream meanwhile.
            self.flow.release(len);
            self.announce_credit(out);
            return None;
        };
        let end = is_complete && content.end_stream;
        if self.streams.at(slot).receiving == Receiving::ResetByUs {
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
