//! The client's end of an HTTP/1 connection.

use std::time::Duration;

use super::body::BodyFraming;
use super::encode::{self, FramingField};
use super::finder::LineLimits;
use super::framing::ConnectionOptions;
use super::head::{ResponseFacts, parse_response};
use super::outgoing::Outgoing;
use super::section::SectionBuffer;
use super::{Event, Step};
use crate::error::{Error, ErrorKind, Side};
use crate::informational::InformationalRate;
use crate::limits::Limits;
use crate::message::{BodyLength, Fields, Method, Name, RequestHead, ResponseHead, Status};
use crate::section_max::SectionMax;

/// The client's end of one connection: requests out, responses in, one exchange at a time.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    section: SectionBuffer,
    reading: Reading,
    sending: Outgoing,
    method: Method,
    asked_for_upgrade: bool,
    informational: InformationalRate,
    /// Informational responses to this request were received.
    has_informational: bool,
    /// The request has content, which its server may leave unread.
    has_content: bool,
    /// Both sides keep the connection, and no event so far forbids its reuse.
    keep_alive: bool,
    /// The timeout that the server announced with its last final response.
    keep_alive_timeout_s: Option<u32>,
    /// The current exchange is the last one.
    draining: bool,
}

/// The state of the response.
#[derive(Debug)]
enum Reading {
    /// No request was sent yet, or the last exchange is over: input is an error.
    Idle,
    Head,
    Body(BodyFraming),
    Tunnel,
    /// Refused: input is discarded.
    Closed,
}

impl Client {
    /// A machine at the start of a connection, or between two exchanges.
    #[must_use]
    pub fn new(limits: &Limits) -> Client {
        Client {
            limits: limits.clone(),
            section: SectionBuffer::new(LineLimits::of_head(
                SectionMax::of_responses(limits),
                limits.request_line_bytes_max,
            )),
            reading: Reading::Idle,
            sending: Outgoing::Done,
            method: Method::Get,
            asked_for_upgrade: false,
            informational: InformationalRate::default(),
            has_informational: false,
            has_content: false,
            keep_alive: true,
            keep_alive_timeout_s: None,
            draining: false,
        }
    }

    /// Appends a request head in origin form with `Host` from the authority, framing and
    /// `Connection`; conflicting fields of the head are skipped.
    ///
    /// # Panics
    /// If the previous exchange is not complete, or the connection is not reusable.
    pub fn send_request(&mut self, head: &RequestHead, length: BodyLength, out: &mut Vec<u8>) {
        assert!(
            self.reusable(),
            "a request on a connection that is not reusable"
        );
        let upgrade = head.fields.contains(Name::Upgrade);
        self.reading = Reading::Head;
        self.sending = Outgoing::content(length);
        self.method = head.method;
        self.asked_for_upgrade = upgrade;
        self.informational = InformationalRate::default();
        self.has_informational = false;
        self.keep_alive = !self.draining;
        let framing = match length {
            BodyLength::Known(length) => FramingField::Length(length),
            BodyLength::NothingButTrailers => FramingField::Length(0),
            BodyLength::Unknown => FramingField::Chunked,
            BodyLength::Empty if head.method.anticipates_content() => FramingField::Length(0),
            BodyLength::Empty => FramingField::None,
        };
        let options = ConnectionOptions {
            close: self.draining,
            keep_alive: false,
            upgrade: false,
            http2_settings: false,
        };
        encode::request_head(head, framing, options, out);
        self.has_content = !matches!(framing, FramingField::None | FramingField::Length(0));
    }

    /// The bytes of content that are left to send, if their number alone frames them.
    #[must_use]
    pub fn content_left(&self) -> Option<u64> {
        self.sending.content_left()
    }

    /// Appends the framing before `len` bytes of content, and counts them.
    ///
    /// # Errors
    /// More content than declared: abort the connection.
    pub fn send_data_prefix(&mut self, len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        self.sending
            .data_prefix(len, out)
            .map_err(|kind| self.abort(kind))
    }

    /// Appends the framing after the same bytes of content.
    pub fn send_data_suffix(&mut self, out: &mut Vec<u8>) {
        self.sending.data_suffix(out);
    }

    /// Ends the request; trailers are sent if the content is chunked. The connection is not used again after them
    /// (rule 11): some servers stop reading at the last chunk, and take what follows for the next request.
    ///
    /// # Errors
    /// Less content than declared: abort the connection.
    pub fn send_end(&mut self, trailers: Option<&Fields>, out: &mut Vec<u8>) -> Result<(), Error> {
        let is_chunked = matches!(self.sending, Outgoing::Chunked { .. });
        self.keep_alive &= !(is_chunked && trailers.is_some_and(Fields::has_trailers));
        self.sending
            .end(trailers, out)
            .map_err(|kind| self.abort(kind))
    }

    /// Takes one step through the input: `Head` for each informational response and for the final
    /// one, then content, `Trailers`, `End`. Of the former the machine must be told the time, by
    /// [`informational_arrived`](Client::informational_arrived). A head is collected in `head`, which is cleared with
    /// its first byte: present the same one until it is complete, likewise `trailers`.
    ///
    /// # Errors
    /// The violated rule, also for bytes that belong to no request. The caller must close the connection.
    pub fn handle_input(
        &mut self,
        input: &[u8],
        head: &mut ResponseHead,
        trailers: &mut Fields,
    ) -> Result<Step, Error> {
        match &mut self.reading {
            Reading::Head => self.step_head(input, head),
            Reading::Body(body) => {
                let step = body
                    .step(input, trailers)
                    .map_err(|kind| self.refuse(kind))?;
                if step.event == Event::End {
                    self.reading = Reading::Idle;
                    // Surplus bytes must count at once, or the connection could be pooled first.
                    self.keep_alive &= step.consumed == input.len();
                }
                Ok(step)
            }
            _ if input.is_empty() => Ok(Step {
                consumed: 0,
                event: Event::NeedMore,
            }),
            Reading::Idle => Err(self.refuse(ErrorKind::UnexpectedBytes)),
            Reading::Tunnel => Ok(Step {
                consumed: input.len(),
                event: Event::Data(0..input.len()),
            }),
            Reading::Closed => Ok(Step {
                consumed: input.len(),
                event: Event::NeedMore,
            }),
        }
    }

    /// An informational response was received at `now`, a time of the caller's clock.
    ///
    /// # Errors
    /// They come too fast. The caller must close the connection.
    pub fn informational_arrived(&mut self, now: Duration) -> Result<(), Error> {
        let admitted = self.informational.admit(self.limits.informational_max, now);
        admitted.map_err(|kind| self.refuse(kind))
    }

    /// The server closed its sending side: `End` if that completes a close-delimited response or a
    /// tunnel, `NeedMore` if no response was due.
    ///
    /// # Errors
    /// The response is incomplete or did not begin.
    pub fn handle_eof(&mut self) -> Result<Event, Error> {
        self.keep_alive = false;
        let truncated = match &self.reading {
            Reading::Idle | Reading::Closed => return Ok(Event::NeedMore),
            Reading::Tunnel | Reading::Body(BodyFraming::UntilClose) => {
                self.reading = Reading::Idle;
                return Ok(Event::End);
            }
            Reading::Head if self.section.is_empty() && !self.has_informational => {
                ErrorKind::ClosedBeforeResponse
            }
            Reading::Head => ErrorKind::TruncatedHead,
            Reading::Body(_) => ErrorKind::TruncatedBody,
        };
        Err(self.refuse(truncated))
    }

    /// The next request carries `Connection: close`.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// The request, with its content, was sent completely.
    #[must_use]
    pub fn request_done(&self) -> bool {
        self.sending == Outgoing::Done
    }

    /// The final response, with its content, was received completely.
    #[must_use]
    pub fn response_done(&self) -> bool {
        matches!(self.reading, Reading::Idle)
    }

    /// The head of the final response was received, and nothing but `End` follows.
    #[must_use]
    pub fn response_ends_with_head(&self) -> bool {
        matches!(self.reading, Reading::Body(BodyFraming::Length(0)))
    }

    /// The head of the final response was received.
    #[must_use]
    pub fn response_started(&self) -> bool {
        !matches!(self.reading, Reading::Head)
    }

    /// Interim responses were received, and no byte of the final response.
    #[must_use]
    pub fn has_only_interim(&self) -> bool {
        matches!(self.reading, Reading::Head) && self.section.is_empty() && self.has_informational
    }

    /// After 101, or 2xx to CONNECT: input is opaque `Data`, and the caller writes the output.
    #[must_use]
    pub fn is_tunnel(&self) -> bool {
        matches!(self.reading, Reading::Tunnel)
    }

    /// Whether another request may use the connection (rule 11): the response was complete and
    /// self-delimited, the request was sent completely and without trailers, no surplus byte arrived, and both sides keep
    /// the connection alive.
    #[must_use]
    pub fn reusable(&self) -> bool {
        self.keep_alive && self.request_done() && self.response_done()
    }

    /// How long the server keeps the connection open without a request, in seconds, if it announced that
    /// with its last response (`Keep-Alive`).
    #[must_use]
    pub fn keep_alive_timeout_s(&self) -> Option<u32> {
        self.keep_alive_timeout_s
    }

    fn step_head(&mut self, input: &[u8], head: &mut ResponseHead) -> Result<Step, Error> {
        // Other input may never contain a line end; the client should not wait for the deadline.
        if !self.section.may_begin(&head.fields, input, b"HTTP/") {
            return Err(self.refuse(ErrorKind::StatusLine));
        }
        let taken = match self.section.take(input, &mut head.fields) {
            Ok(taken) => taken,
            Err(ErrorKind::RequestLineTooLong) => {
                return Err(self.refuse(ErrorKind::StatusLineTooLong));
            }
            Err(kind) => return Err(self.refuse(kind)),
        };
        let consumed = taken.consumed;
        if !taken.complete {
            return Ok(Step {
                consumed,
                event: Event::NeedMore,
            });
        }
        let facts =
            parse_response(head, &self.section, self.method).map_err(|kind| self.refuse(kind))?;
        let length = self
            .apply_facts(head, facts)
            .map_err(|kind| self.refuse(kind))?;
        Ok(Step {
            consumed,
            event: Event::Head(length),
        })
    }

    /// Applies a head to the state; returns the length of content that it declares (RFC 9112, section
    /// 6.3).
    fn apply_facts(
        &mut self,
        head: &ResponseHead,
        facts: ResponseFacts,
    ) -> Result<BodyLength, ErrorKind> {
        let status = head.status;
        if status.is_informational() && status != Status::SWITCHING_PROTOCOLS {
            self.has_informational = true;
            return Ok(BodyLength::Empty);
        }
        let is_connected = self.method == Method::Connect && status.is_success();
        if status == Status::SWITCHING_PROTOCOLS || is_connected {
            // RFC 9110, section 7.8: "A sender of Upgrade MUST also send an "Upgrade" connection option"; without it
            // the field is not meant for this connection. Neither can the server switch before the request is complete.
            let is_upgraded = self.asked_for_upgrade && facts.upgrades;
            if !(is_connected || is_upgraded) || !self.request_done() {
                return Err(ErrorKind::SwitchingUnrequested);
            }
            self.reading = Reading::Tunnel;
            self.sending = Outgoing::Tunnel;
            self.keep_alive = false;
            return Ok(BodyLength::Empty);
        }
        self.keep_alive_timeout_s = facts.keep_alive_timeout_s;
        // A final response before the end of the request closes the connection (rule 12).
        self.keep_alive &= facts.keep_alive && self.request_done();
        // So does a refusal or a redirect: its server may not have read the content that was sent, and take it for the
        // next request.
        self.keep_alive &= !self.has_content || status.is_success();
        // So does a refused upgrade: hyper 1.12 still expects it, and cuts off the last response of the connection.
        self.keep_alive &= !self.asked_for_upgrade;
        let has_no_content = status.forbids_content() || self.method == Method::Head;
        // Content that a faulty server sends late would be parsed as the next response.
        let declares_content = facts.is_chunked || matches!(facts.length, BodyLength::Known(1..));
        self.keep_alive &= !(has_no_content && declares_content);
        let (body, length) = match facts.length {
            BodyLength::Unknown if status.forbids_content() => {
                (BodyFraming::Length(0), BodyLength::Empty)
            }
            length if has_no_content => (BodyFraming::Length(0), length),
            BodyLength::Known(length) => (BodyFraming::Length(length), facts.length),
            _ if facts.is_chunked => (self.chunked(), facts.length),
            _ => {
                self.keep_alive = false;
                (BodyFraming::UntilClose, BodyLength::Unknown)
            }
        };
        self.reading = Reading::Body(body);
        Ok(length)
    }

    fn chunked(&self) -> BodyFraming {
        BodyFraming::chunked(&self.limits, SectionMax::of_responses(&self.limits))
    }

    #[cold]
    fn refuse(&mut self, kind: ErrorKind) -> Error {
        self.reading = Reading::Closed;
        self.keep_alive = false;
        Error::new(kind, Side::Response)
    }

    #[cold]
    fn abort(&mut self, kind: ErrorKind) -> Error {
        self.keep_alive = false;
        Error::new(kind, Side::Sending)
    }
}
