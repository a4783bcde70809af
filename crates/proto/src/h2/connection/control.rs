//! Control frames: all frames that carry no part of a message.

use std::time::Duration;

use super::{Closing, Connection, EARLY_PRIORITIES_MAX, PING_CALLER, PING_DRAIN, PING_PROBE, Role};
use crate::error::{Error, ErrorKind};
use crate::h2::code::Code;
use crate::h2::floods::Flood;
use crate::h2::frame::{self, FrameType, Header, flag};
use crate::h2::settings::WINDOW_DEFAULT;
use crate::h2::stream::{Receiving, Sending};
use crate::h2::streams::StreamEnd;
use crate::h2::{Event, StreamId};
use crate::priority::Priority;

impl Connection {
    /// RFC 9113, section 6.5.
    pub(super) fn settings(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind> {
        if header.stream != 0 {
            return Err(ErrorKind::FrameUnexpected);
        }
        self.floods.note(Flood::Settings, now)?;
        if header.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(ErrorKind::FrameSize);
            }
            self.note_acknowledgement(out);
            return Ok(());
        }
        self.settings_received = true;
        self.flow
            .grow_send_window(std::mem::take(&mut self.window_withheld))?;
        let before = self.peer.window;
        self.peer.apply(payload, !self.is_server())?;
        self.encoder
            .set_peer_size(self.peer.header_table_size as usize);
        // RFC 9113, section 6.9.2: "a receiver MUST adjust the size of all stream flow-control
        // windows that it maintains by the difference between the new value and the old value."
        let change = i64::from(self.peer.window) - i64::from(before);
        if change != 0 {
            for stream in self.streams.iter_mut() {
                stream.grow_send_window(change)?;
                if stream.is_blocked && stream.send_window > 0 {
                    stream.is_blocked = false;
                    self.schedule.add(stream.id, stream.priority);
                }
            }
        }
        frame::write(FrameType::Settings, flag::ACK, 0, &[], out);
        Ok(())
    }

    fn note_acknowledgement(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.own_acknowledged, true) {
            return self.note_resize(out);
        }
        self.decoder
            .set_size_limit(self.own.header_table_size as usize);
        let surplus = WINDOW_DEFAULT.saturating_sub(self.own.window) as i32;
        for stream in self.streams.iter_mut() {
            stream.receive_window -= surplus;
            let target = self.flow.stream_target(stream.grown);
            // The credit so far may have been too small to announce for the larger window.
            if let Some(increment) = stream.credit(target) {
                frame::write_window_update(stream.id, increment, out);
            }
        }
    }

    /// Applies a change of the initial window, after its acknowledgement, to the streams that were open
    /// at the change; the server used the old windows until then.
    #[cold]
    fn note_resize(&mut self, out: &mut Vec<u8>) {
        let Some(resize) = self.resize.take() else {
            return;
        };
        for stream in self.streams.iter_mut() {
            if stream.id < resize.first {
                stream.receive_window += resize.change;
                let target = self.flow.stream_target(stream.grown);
                // The change may have cancelled credit that was announced meanwhile, and there may be
                // no received bytes left whose release would announce credit again.
                if let Some(increment) = stream.credit(target) {
                    frame::write_window_update(stream.id, increment, out);
                }
            }
        }
    }

    /// RFC 9113, section 6.9.
    pub(super) fn window_update(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        let increment = frame::only_number(payload)? & frame::ID_MASK;
        self.floods.note(Flood::WindowUpdate, now)?;
        if header.stream == 0 {
            if increment == 0 {
                return Err(ErrorKind::WindowIncrement);
            }
            return self.flow.grow_send_window(increment).map(|()| None);
        }
        let Some(stream) = self.streams.get_mut(header.stream) else {
            return match self.is_idle_id(header.stream) {
                true => Err(ErrorKind::FrameUnexpected),
                false => Ok(None),
            };
        };
        if matches!(
            stream.receiving,
            Receiving::ResetByPeer | Receiving::ResetByUs
        ) {
            return Ok(None);
        }
        // RFC 9113, section 6.9: "A receiver MUST treat the receipt of a WINDOW_UPDATE frame with
        // a flow-control window increment of 0 as a stream error".
        let grown = match increment {
            0 => Err(ErrorKind::WindowIncrement),
            _ => stream.grow_send_window(i64::from(increment)),
        };
        if stream.is_blocked && stream.send_window > 0 {
            stream.is_blocked = false;
            self.schedule.add(stream.id, stream.priority);
        }
        match grown {
            Ok(()) => Ok(None),
            Err(kind) => self.stream_error(header.stream, kind, now, out).map(Some),
        }
    }

    /// RFC 9113, section 6.4.
    pub(super) fn rst_stream(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Duration,
    ) -> Result<Option<Event>, ErrorKind> {
        let code = Code(frame::only_number(payload)?);
        if self.is_idle_id(header.stream) {
            return Err(ErrorKind::FrameUnexpected);
        }
        let Some(slot) = self.streams.find(header.stream) else {
            return self.count_stray_frame(now).map(|()| None);
        };
        let stream = self.streams.at(slot);
        if matches!(
            stream.receiving,
            Receiving::ResetByPeer | Receiving::ResetByUs
        ) {
            return self.count_stray_frame(now).map(|()| None);
        }
        let is_early = stream.sending == Sending::Head;
        self.end_stream(slot, Receiving::ResetByPeer);
        if self.is_server() {
            self.floods.stream_reset(is_early, now)?;
        }
        let kind = match self.role {
            Role::Client(_) if code == Code::REFUSED_STREAM => ErrorKind::PeerRefused,
            _ => ErrorKind::PeerReset,
        };
        let error = Error::new(kind, self.side());
        Ok(Some(Event::Reset {
            stream: StreamId(header.stream),
            error,
            code,
        }))
    }

    /// Counts a frame on a closed stream. A client sends a few that cross the server's frames. A server
    /// may reset every stream to which it has responded early, so its frames are not counted.
    pub(super) fn count_stray_frame(&mut self, now: Duration) -> Result<(), ErrorKind> {
        match self.is_server() {
            true => self.floods.note(Flood::StrayFrame, now),
            false => Ok(()),
        }
    }

    /// RFC 9113, section 6.7.
    pub(super) fn pinged(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ErrorKind> {
        if header.stream != 0 {
            return Err(ErrorKind::FrameUnexpected);
        }
        let content: [u8; 8] = payload.try_into().map_err(|_| ErrorKind::FrameSize)?;
        if !header.has(flag::ACK) {
            self.floods.note(Flood::Ping, now)?;
            frame::write(FrameType::Ping, flag::ACK, 0, &content, out);
            return Ok(None);
        }
        self.floods.note(Flood::PingAck, now)?;
        match content {
            PING_CALLER => return Ok(Some(Event::Pong)),
            PING_PROBE => self.flow.end_probe(),
            PING_DRAIN if self.closing == Closing::Announced => self.drain_now(out),
            _ => {}
        }
        Ok(None)
    }

    /// RFC 9113, section 6.8.
    pub(super) fn go_away(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Duration,
    ) -> Result<Option<Event>, ErrorKind> {
        if header.stream != 0 {
            return Err(ErrorKind::FrameUnexpected);
        }
        self.floods.note(Flood::GoAway, now)?;
        let (last, rest) = frame::split_id(payload)?;
        let code = rest.first_chunk().ok_or(ErrorKind::FrameSize)?;
        // "Endpoints MUST NOT increase the value they send in the last stream identifier".
        self.peer_last = Some(self.peer_last.map_or(last, |before| before.min(last)));
        self.refusing = !self.is_server();
        Ok(Some(Event::GoAway {
            code: Code(u32::from_be_bytes(*code)),
        }))
    }

    /// The next stream above the last one in the peer's GOAWAY.
    #[cold]
    pub(super) fn next_refused(&mut self) -> Option<Event> {
        let last = self.peer_last?;
        let Some(id) = self
            .streams
            .iter()
            .map(|stream| stream.id)
            .find(|&id| id > last)
        else {
            self.refusing = false;
            return None;
        };
        let slot = self.streams.find(id)?;
        self.remove(slot, StreamEnd::ByPeer);
        let error = Error::new(ErrorKind::PeerRefused, self.side());
        Some(Event::Reset {
            stream: StreamId(id),
            error,
            code: Code::REFUSED_STREAM,
        })
    }

    /// PRIORITY; it is deprecated, so only its form is checked (RFC 9113, section 5.3.2).
    pub(super) fn priority(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Duration,
    ) -> Result<(), ErrorKind> {
        self.floods.note(Flood::Priority, now)?;
        if header.stream == 0 {
            return Err(ErrorKind::FrameUnexpected);
        }
        if payload.len() != 5 {
            return Err(ErrorKind::FrameSize);
        }
        check_dependency(header.stream, payload).map(|_| ())
    }

    /// RFC 9218, section 7.1.
    pub(super) fn priority_update(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Duration,
    ) -> Result<(), ErrorKind> {
        self.floods.note(Flood::Priority, now)?;
        // "Servers MUST NOT send PRIORITY_UPDATE frames. If a client receives a PRIORITY_UPDATE
        // frame, it MUST respond with a connection error of type PROTOCOL_ERROR."
        if !self.is_server() || header.stream != 0 {
            return Err(ErrorKind::FrameUnexpected);
        }
        let (id, value) = frame::split_id(payload)?;
        // Blitz pushes nothing, so only requests have priorities.
        if id.is_multiple_of(2) {
            return Err(ErrorKind::FrameUnexpected);
        }
        if !self.prioritizes {
            return Ok(());
        }
        let priority = Priority::parse(value);
        if let Some(stream) = self.streams.get_mut(id) {
            stream.priority = stream.priority_override.over(priority);
            self.schedule.change(id, stream.priority);
        } else if id > self.last_seen {
            self.early_priorities.retain(|(other, _)| *other != id);
            if self.early_priorities.len() < EARLY_PRIORITIES_MAX {
                self.early_priorities.push((id, priority));
            }
        }
        Ok(())
    }

    /// Whether a stream is idle (RFC 9113, section 5.1).
    pub(super) fn is_idle_id(&self, id: u32) -> bool {
        // Only clients open streams, with odd numbers; 0 is no stream.
        id.is_multiple_of(2)
            || match self.role {
                Role::Server => id > self.last_seen,
                Role::Client(_) => id >= self.next_own,
            }
    }
}

/// Checks the five bytes of a dependency, in PRIORITY and HEADERS; returns the bytes after them.
pub(super) fn check_dependency(stream: u32, payload: &[u8]) -> Result<&[u8], ErrorKind> {
    let (parent, rest) = frame::split_id(payload)?;
    let (_weight, rest) = rest.split_first().ok_or(ErrorKind::FrameSize)?;
    // RFC 7540, section 5.3.1: "A stream cannot depend on itself."
    if parent == stream {
        return Err(ErrorKind::StreamDependency);
    }
    Ok(rest)
}
