//! The streams beside the requests: control and QPACK (RFC 9114, section 6.2; RFC 9204, section 4.2).

use std::time::Duration;

use super::{Connection, EARLY_PRIORITIES_MAX, Role};
use crate::error::ErrorKind;
use crate::h3::code::Code;
use crate::h3::floods::Flood;
use crate::h3::frame::{FrameType, Header, read_integer};
use crate::h3::settings::PeerSettings;
use crate::h3::unidirectional::{
    CONTROL, ControlStream, DECODER, DecoderInstruction, DecoderStream, ENCODER, PUSH, Purpose,
};
use crate::h3::{Event, Step, StreamId};
use crate::priority::Priority;

/// Bytes of a SETTINGS frame, and of a PRIORITY_UPDATE.
const SETTINGS_BYTES_MAX: u64 = 4 * 1024;
const PRIORITY_BYTES_MAX: u64 = 1024;

/// Bytes of instructions that are followed before what they insert is counted.
const INSTRUCTION_BYTES_MAX: usize = 256;

/// Bytes of an integer.
const INTEGER_BYTES_MAX: u64 = 8;

impl Connection {
    pub(super) fn unidirectional_input(
        &mut self,
        id: u64,
        input: &[u8],
        has_fin: bool,
        now: Duration,
    ) -> Result<Step, ErrorKind> {
        // RFC 9114, section 6.1: "Clients MUST treat receipt of a server-initiated bidirectional stream as a
        // connection error of type H3_STREAM_CREATION_ERROR".
        if id & 0b10 == 0 {
            return Err(ErrorKind::StreamCreation);
        }
        let at = self
            .unidirectional
            .iter()
            .position(|(other, _)| *other == id);
        let Some(at) = at else {
            return Ok(Step {
                consumed: input.len(),
                event: Event::NeedMore,
            });
        };
        let (_, mut purpose) = self.unidirectional.swap_remove(at);
        let mut consumed = 0;
        let mut event = Event::NeedMore;
        while event == Event::NeedMore && consumed < input.len() {
            let (len, next) = self.read(&mut purpose, &input[consumed..], now)?;
            consumed += len;
            event = next;
        }
        if let Event::Unwanted { .. } = event {
            // It is forgotten, and the rest of it ignored.
            consumed = input.len();
            return Ok(Step { consumed, event });
        }
        let has_ended = has_fin && consumed == input.len();
        match (has_ended, &purpose) {
            // RFC 9114, section 6.2: "A receiver MUST tolerate unidirectional streams being closed or reset
            // prior to the reception of the unidirectional stream header."
            (true, Purpose::Unknown(_)) => self.floods.note(Flood::Stream, now)?,
            (true, _) => return Err(ErrorKind::CriticalStream),
            (false, _) => self.unidirectional.push((id, purpose)),
        }
        Ok(Step { consumed, event })
    }

    /// Reads on in a stream; returns how many bytes it took.
    fn read(
        &mut self,
        purpose: &mut Purpose,
        input: &[u8],
        now: Duration,
    ) -> Result<(usize, Event), ErrorKind> {
        match purpose {
            Purpose::Unknown(partial) => {
                let (len, number) = partial.integer(input);
                let Some(number) = number else {
                    return Ok((len, Event::NeedMore));
                };
                if let Some(known) = self.purpose(number)? {
                    *purpose = known;
                    return Ok((len, Event::NeedMore));
                }
                self.floods.note(Flood::Stream, now)?;
                let code = Code::STREAM_CREATION_ERROR;
                Ok((len, Event::Unwanted { code }))
            }
            Purpose::Control(control) => self.control(control, input, now),
            Purpose::Encoder => {
                let input = &input[..input.len().min(INSTRUCTION_BYTES_MAX)];
                self.instructions(input, now)?;
                Ok((input.len(), Event::NeedMore))
            }
            Purpose::Decoder(decoder) => {
                let next = decoder.next(input);
                let (len, report) = next.map_err(|()| ErrorKind::CompressionReport)?;
                // Nothing that this encoder sends refers to a table of the peer.
                match report {
                    Some(DecoderInstruction::Section | DecoderInstruction::Insertions) => {
                        Err(ErrorKind::CompressionReport)
                    }
                    Some(DecoderInstruction::Cancelled) => {
                        self.floods.note(Flood::Instruction, now)?;
                        Ok((len, Event::NeedMore))
                    }
                    None => Ok((len, Event::NeedMore)),
                }
            }
        }
    }

    /// Follows instructions of the peer's encoder, and counts them and what they insert: few bytes may insert many.
    fn instructions(&mut self, input: &[u8], now: Duration) -> Result<(), ErrorKind> {
        let version = self.decoder.version();
        let before = self.decoder.inserted_bytes() / 1024;
        self.decoder
            .handle_instructions(input)
            .map_err(|_| ErrorKind::CompressionInstruction)?;
        for _ in 0..self.decoder.version().wrapping_sub(version) {
            self.floods.note(Flood::Instruction, now)?;
        }
        for _ in before..self.decoder.inserted_bytes() / 1024 {
            self.floods.note(Flood::Insertion, now)?;
        }
        self.decoder
            .acknowledge_insertions(&mut self.decoder_output);
        Ok(())
    }

    /// The peer has reset a stream.
    pub(super) fn close_unidirectional(&mut self, id: u64, now: Duration) -> Result<(), ErrorKind> {
        if id & 0b10 == 0 {
            return Err(ErrorKind::StreamCreation);
        }
        let at = self
            .unidirectional
            .iter()
            .position(|(other, _)| *other == id);
        match at.map(|at| self.unidirectional.swap_remove(at).1) {
            None => Ok(()),
            Some(Purpose::Unknown(_)) => self.floods.note(Flood::Stream, now),
            Some(_) => Err(ErrorKind::CriticalStream),
        }
    }

    /// The purpose of a stream of this type; `None` if it has none.
    fn purpose(&mut self, number: u64) -> Result<Option<Purpose>, ErrorKind> {
        let (at, purpose) = match number {
            CONTROL => (0, Purpose::Control(ControlStream::default())),
            ENCODER => (1, Purpose::Encoder),
            DECODER => (2, Purpose::Decoder(DecoderStream::default())),
            PUSH if self.role == Role::Server => return Err(ErrorKind::StreamCreation),
            // RFC 9114, section 4.6: no push was allowed.
            PUSH => return Err(ErrorKind::StreamId),
            _ => return Ok(None),
        };
        match std::mem::replace(&mut self.seen[at], true) {
            false => Ok(Some(purpose)),
            true => Err(ErrorKind::StreamCreation),
        }
    }

    /// Takes bytes of the control stream, up to the end of a frame. Returns how many.
    fn control(
        &mut self,
        control: &mut ControlStream,
        input: &[u8],
        now: Duration,
    ) -> Result<(usize, Event), ErrorKind> {
        let Some((header, left)) = &mut control.frame else {
            let (len, header) = control.header.header(input);
            if let Some(header) = header {
                self.control_frame(header, now)?;
                control.frame = Some((header, header.len));
                if header.len == 0 {
                    return Ok((len, self.end_control_frame(control, now)?));
                }
            }
            return Ok((len, Event::NeedMore));
        };
        let len = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
        *left -= len as u64;
        if header.kind != FrameType::Unknown {
            control.payload.extend_from_slice(&input[..len]);
        }
        match *left {
            0 => Ok((len, self.end_control_frame(control, now)?)),
            _ => Ok((len, Event::NeedMore)),
        }
    }

    /// The header of a frame has arrived on the control stream.
    fn control_frame(&mut self, header: Header, now: Duration) -> Result<(), ErrorKind> {
        let Header { kind, len } = header;
        // RFC 9114, section 6.2.1: "If the first frame of the control stream is any other frame type, this
        // MUST be treated as a connection error of type H3_MISSING_SETTINGS."
        if self.peer.is_none() && kind != FrameType::Settings {
            return Err(ErrorKind::SettingsMissing);
        }
        let len_max = match kind {
            FrameType::Settings if self.peer.is_some() => return Err(ErrorKind::FrameUnexpected),
            FrameType::Settings => SETTINGS_BYTES_MAX,
            FrameType::GoAway | FrameType::CancelPush => INTEGER_BYTES_MAX,
            FrameType::MaxPushId if self.role == Role::Server => INTEGER_BYTES_MAX,
            FrameType::RequestPriority | FrameType::PushPriority if self.role == Role::Server => {
                PRIORITY_BYTES_MAX
            }
            FrameType::Unknown => {
                self.floods.note(Flood::UnknownFrame, now)?;
                u64::MAX
            }
            _ => return Err(ErrorKind::FrameUnexpected),
        };
        match len <= len_max {
            true => Ok(()),
            false => Err(ErrorKind::FrameSize),
        }
    }

    fn end_control_frame(
        &mut self,
        control: &mut ControlStream,
        now: Duration,
    ) -> Result<Event, ErrorKind> {
        let Some((header, _)) = control.frame.take() else {
            return Ok(Event::NeedMore);
        };
        let payload = std::mem::take(&mut control.payload);
        match header.kind {
            FrameType::Settings => {
                self.peer = Some(PeerSettings::parse(&payload)?);
                Ok(Event::NeedMore)
            }
            FrameType::GoAway => {
                self.floods.note(Flood::Announcement, now)?;
                self.peer_goes_away(single(&payload)?)
            }
            FrameType::MaxPushId => {
                self.floods.note(Flood::Announcement, now)?;
                let id = single(&payload)?;
                // RFC 9114, section 7.2.7: "A MAX_PUSH_ID frame cannot reduce the maximum push ID".
                match self.push_max.replace(id) {
                    Some(before) if before > id => Err(ErrorKind::StreamId),
                    _ => Ok(Event::NeedMore),
                }
            }
            FrameType::CancelPush => {
                single(&payload)?;
                // There is no push that could be cancelled.
                Err(ErrorKind::StreamId)
            }
            FrameType::RequestPriority => self.reprioritize(&payload, now),
            // RFC 9218, section 7.2: a push that was not promised.
            FrameType::PushPriority => Err(ErrorKind::StreamId),
            _ => Ok(Event::NeedMore),
        }
    }

    fn peer_goes_away(&mut self, id: u64) -> Result<Event, ErrorKind> {
        // RFC 9114, section 5.2: "Receiving a GOAWAY containing a larger identifier than previously received
        // MUST be treated as a connection error of type H3_ID_ERROR."
        let is_larger = self.peer_limit.is_some_and(|before| id > before);
        // RFC 9114, section 7.2.6: to a client it names a request, to a server a push.
        let is_wrong = self.role == Role::Client && !StreamId(id).is_request();
        if is_larger || is_wrong {
            return Err(ErrorKind::StreamId);
        }
        self.peer_limit = Some(id);
        Ok(Event::GoAway { from: StreamId(id) })
    }

    fn reprioritize(&mut self, payload: &[u8], now: Duration) -> Result<Event, ErrorKind> {
        self.floods.note(Flood::Priority, now)?;
        let (id, len) = read_integer(payload).ok_or(ErrorKind::FrameSize)?;
        // RFC 9218, section 7.2: an identifier that is no request is H3_ID_ERROR.
        if !StreamId(id).is_request() {
            return Err(ErrorKind::StreamId);
        }
        let priority = Priority::parse(&payload[len..]);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.priority = stream.priority_override.over(priority);
            stream.is_reprioritized = true;
            let stream = StreamId(id);
            return Ok(Event::Reprioritized { stream });
        }
        if id >= self.next_request {
            self.early_priorities.retain(|(other, _)| *other != id);
            if self.early_priorities.len() < EARLY_PRIORITIES_MAX {
                self.early_priorities.push((id, priority));
            }
        }
        Ok(Event::NeedMore)
    }

    /// The priority that was set before the stream was opened; removes it and those of lower streams.
    pub(super) fn early_priority(&mut self, id: u64) -> Option<Priority> {
        let found = self.early_priorities.iter().find(|(other, _)| *other == id);
        let priority = found.map(|(_, priority)| *priority);
        self.early_priorities.retain(|(other, _)| *other > id);
        priority
    }
}

/// The only integer of a payload.
fn single(payload: &[u8]) -> Result<u64, ErrorKind> {
    match read_integer(payload) {
        Some((value, len)) if len == payload.len() => Ok(value),
        _ => Err(ErrorKind::FrameSize),
    }
}
