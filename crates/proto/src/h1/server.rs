//! The server's end of an HTTP/1 connection.

use super::body::BodyFraming;
use super::encode::{self, FramingField};
use super::finder::LineLimits;
use super::framing::ConnectionOptions;
use super::head::{RequestFacts, parse_request};
use super::outgoing::Outgoing;
use super::section::SectionBuffer;
use super::{Event, Step};
use crate::error::{Error, ErrorKind, Side};
use crate::limits::Limits;
use crate::message::{
    BodyLength, Fields, Method, Name, RequestHead, ResponseHead, Status, Version,
};
use crate::section_max::SectionMax;

/// The server's end of one connection: requests in, responses out, one exchange at a time
/// (rule 17).
///
/// An instance that [`is_idle`](Server::is_idle) may be dropped and replaced by a new one at the next
/// byte, if the caller carries [`empty_lines`](Server::empty_lines) over.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    section: SectionBuffer,
    /// Empty lines since the last request of the connection.
    empty_lines: usize,
    reading: Reading,
    sending: Outgoing,
    exchange: ExchangeFacts,
    /// The current exchange is the last one.
    draining: bool,
}

/// The state of the request.
#[derive(Debug)]
enum Reading {
    Head,
    Body(BodyFraming),
    /// Complete; further input waits for the response.
    Done,
    Tunnel,
    /// Refused, or the last exchange is over: input is discarded.
    Closed,
}

/// Properties of the request's head that the rest of the exchange needs.
#[derive(Debug, Clone, Copy)]
struct ExchangeFacts {
    method: Method,
    version: Version,
    keep_alive: bool,
    expects_continue: bool,
    wants_upgrade: bool,
    wants_h2c: bool,
    /// Input arrived before the upgrade was accepted or refused.
    holds_input: bool,
}

impl ExchangeFacts {
    const NONE: ExchangeFacts = ExchangeFacts {
        method: Method::Get,
        version: Version::Http11,
        keep_alive: true,
        expects_continue: false,
        wants_upgrade: false,
        wants_h2c: false,
        holds_input: false,
    };
}

impl Server {
    /// The state at the start of a connection, or between two exchanges.
    #[must_use]
    pub fn new(limits: &Limits) -> Server {
        Server {
            limits: limits.clone(),
            section: SectionBuffer::new(LineLimits::of_head(
                SectionMax::of_requests(limits),
                limits.request_line_bytes_max,
            )),
            empty_lines: 0,
            reading: Reading::Head,
            sending: Outgoing::Head,
            exchange: ExchangeFacts::NONE,
            draining: false,
        }
    }

    /// Takes one step through the input.
    ///
    /// A head is collected in `head`, which its first byte clears, trailers in `trailers`. Pass the
    /// same two until the request's `End`.
    ///
    /// # Errors
    /// The violated rule. Further input is discarded; one response may still be sent if
    /// [`response_started`](Server::response_started) is false, and the caller must close the
    /// connection. After a refusal, `head` holds the fields before the fault.
    #[inline]
    pub fn handle_input(
        &mut self,
        input: &[u8],
        head: &mut RequestHead,
        trailers: &mut Fields,
    ) -> Result<Step, Error> {
        // A head that arrives byte by byte must cost the sender more than the server.
        if let &[byte] = input
            && self.section.take_in_line(byte)
        {
            return Ok(Step {
                consumed: 1,
                event: Event::NeedMore,
            });
        }
        if input == b"\n" {
            return self.step_line_feed(head, trailers);
        }
        match self.reading {
            // Most requests have no content.
            Reading::Body(BodyFraming::Length(0)) => {
                self.reading = Reading::Done;
                Ok(Step {
                    consumed: 0,
                    event: Event::End,
                })
            }
            Reading::Body(_) => self.step_other(input, trailers),
            _ => self.step(input, head, trailers),
        }
    }

    /// The client closed its sending side. Between requests, and after a complete one, that is no
    /// error: the current response is completed (rule 16), and the connection then closes.
    ///
    /// # Errors
    /// The request is incomplete.
    pub fn handle_eof(&mut self) -> Result<(), Error> {
        self.draining = true;
        let truncated = match &self.reading {
            Reading::Head if !self.section.is_empty() => ErrorKind::TruncatedHead,
            Reading::Body(_) => ErrorKind::TruncatedBody,
            _ => return Ok(()),
        };
        Err(self.refuse(truncated))
    }

    /// Appends a 1xx head other than 101, for example 100 or 103; appends nothing for an HTTP/1.0
    /// client.
    pub fn send_informational(&mut self, head: &ResponseHead, out: &mut Vec<u8>) {
        let status = head.status;
        assert!(
            status.is_informational() && status != Status::SWITCHING_PROTOCOLS,
            "{status}"
        );
        assert!(
            self.sending == Outgoing::Head,
            "an informational head after the final one"
        );
        if status == Status::CONTINUE {
            self.exchange.expects_continue = false;
        }
        // RFC 9110, section 15.2: "A server MUST NOT send a 1xx response to an HTTP/1.0 client."
        if self.exchange.version == Version::Http11 {
            encode::response_head(head, out);
        }
    }

    /// Appends the final response head, or 101, with generated framing and `Connection`; conflicting
    /// fields of the head are skipped.
    ///
    /// # Panics
    /// If no response is due, or the status is informational and not 101.
    #[inline]
    pub fn send_head(&mut self, head: &ResponseHead, length: BodyLength, out: &mut Vec<u8>) {
        assert!(
            self.sending == Outgoing::Head,
            "a second final head in one exchange"
        );
        let switches = head.status == Status::SWITCHING_PROTOCOLS;
        assert!(
            switches || !head.status.is_informational(),
            "{} is not final",
            head.status
        );
        if switches || (self.exchange.method == Method::Connect && head.status.is_success()) {
            return self.open_tunnel(head, out);
        }
        self.sending = self.content_of(head.status, length);
        let found = encode::begin_response(head, out);
        self.decide_keep_alive(found.connection && has_close(&head.fields));
        let framing = match length {
            BodyLength::Known(length) if head.status != Status::NO_CONTENT => {
                FramingField::Length(length)
            }
            BodyLength::Unknown if matches!(self.sending, Outgoing::Chunked { .. }) => {
                FramingField::Chunked
            }
            BodyLength::NothingButTrailers if head.status != Status::NO_CONTENT => {
                FramingField::Length(0)
            }
            BodyLength::Empty if !head.status.forbids_content() => FramingField::Length(0),
            _ => FramingField::None,
        };
        let is_http10 = self.exchange.version == Version::Http10;
        let options = ConnectionOptions {
            close: !self.exchange.keep_alive,
            keep_alive: self.exchange.keep_alive && is_http10,
            upgrade: false,
            http2_settings: false,
        };
        encode::finish_head(found, framing, options, out);
    }

    /// Whether content follows the head that was sent: false for HEAD, 204, 304 and empty bodies,
    /// true in a tunnel.
    #[must_use]
    pub fn sends_body(&self) -> bool {
        self.sending.has_content()
    }

    /// Whether the client sees from the response itself that it is cut off: the end of the connection
    /// does not delimit it (RFC 9112, section 6.3), and it is no tunnel.
    #[must_use]
    pub fn delimits_response(&self) -> bool {
        matches!(
            self.sending,
            Outgoing::Head | Outgoing::Length(_) | Outgoing::Chunked { .. }
        )
    }

    /// The bytes of content that are left to send, if their number alone frames them.
    #[must_use]
    pub fn content_left(&self) -> Option<u64> {
        self.sending.content_left()
    }

    /// Appends the framing before `len` bytes of content, and counts them.
    ///
    /// # Errors
    /// More content than declared, or content in a message without content: abort the connection.
    pub fn send_data_prefix(&mut self, len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        self.sending
            .data_prefix(len, out)
            .map_err(|kind| self.abort(kind))
    }

    /// Appends the framing after the same bytes of content.
    pub fn send_data_suffix(&mut self, out: &mut Vec<u8>) {
        self.sending.data_suffix(out);
    }

    /// Ends the response; trailers are sent if the content is chunked.
    ///
    /// # Errors
    /// Less content than declared: abort the connection.
    pub fn send_end(&mut self, trailers: Option<&Fields>, out: &mut Vec<u8>) -> Result<(), Error> {
        self.sending
            .end(trailers, out)
            .map_err(|kind| self.abort(kind))
    }

    /// Accepts no further request after this exchange: the next head carries `Connection: close`.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether no exchange is open and no byte of the next one has arrived.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_between = self.request_done() && self.response_done() && self.keep_alive();
        let is_new = matches!(self.reading, Reading::Head) && self.section.is_empty();
        is_between || is_new
    }

    /// Empty lines since the connection's last request.
    #[must_use]
    pub fn empty_lines(&self) -> usize {
        self.empty_lines
    }

    /// Carries the number of empty lines over from the previous instance of the same connection.
    pub fn set_empty_lines(&mut self, empty_lines: usize) {
        self.empty_lines = empty_lines;
    }

    /// Whether the client waits for `100 Continue` before it sends the content.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.exchange.expects_continue
    }

    /// Whether the request is a CONNECT, or requests an upgrade to another protocol with its `Upgrade`
    /// field (h2c does not count, rule 15). Until the response head is sent, input after the request
    /// is `Paused`.
    #[must_use]
    pub fn upgrade_requested(&self) -> bool {
        self.exchange.wants_upgrade
    }

    /// Whether the request is a valid request to upgrade this connection to HTTP/2: it has no content
    /// and names no other protocol (RFC 7540, section 3.2; rule 15). A caller that accepts it writes
    /// 101 and drops this value; a caller that ignores it responds as to any other request.
    #[inline]
    #[must_use]
    pub fn h2c_requested(&self) -> bool {
        self.exchange.wants_h2c
    }

    /// After 101, or 2xx to CONNECT: input is opaque `Data`, and the caller writes the output.
    #[must_use]
    pub fn is_tunnel(&self) -> bool {
        matches!(self.reading, Reading::Tunnel)
    }

    /// The request, with its content, was received completely.
    #[must_use]
    pub fn request_done(&self) -> bool {
        matches!(
            self.reading,
            Reading::Done | Reading::Tunnel | Reading::Closed
        )
    }

    /// The head of the final response was sent.
    #[must_use]
    pub fn response_started(&self) -> bool {
        self.sending != Outgoing::Head
    }

    /// The response was sent completely.
    #[must_use]
    pub fn response_done(&self) -> bool {
        self.sending == Outgoing::Done
    }

    /// Whether the connection stays open after this exchange. The value is final when the response
    /// head was sent. If the request's content is incomplete when the response is done, the caller
    /// must read and discard the rest, or close the connection.
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        self.exchange.keep_alive && !self.draining
    }

    #[inline(never)]
    fn step_line_feed(
        &mut self,
        head: &mut RequestHead,
        trailers: &mut Fields,
    ) -> Result<Step, Error> {
        match self.section.take_line_feed(&mut head.fields) {
            Ok(true) => Ok(Step {
                consumed: 1,
                event: Event::NeedMore,
            }),
            Ok(false) => self.step(b"\n", head, trailers),
            Err(kind) => Err(self.refuse(kind)),
        }
    }

    fn step(
        &mut self,
        input: &[u8],
        head: &mut RequestHead,
        trailers: &mut Fields,
    ) -> Result<Step, Error> {
        if matches!(self.reading, Reading::Done) && self.response_done() && !input.is_empty() {
            self.begin_exchange();
        }
        match self.reading {
            Reading::Head => self.step_head(input, head),
            _ => self.step_other(input, trailers),
        }
    }

    /// A step in any state except `Head`.
    #[inline(never)]
    fn step_other(&mut self, input: &[u8], trailers: &mut Fields) -> Result<Step, Error> {
        let more = |consumed| {
            Ok(Step {
                consumed,
                event: Event::NeedMore,
            })
        };
        match &mut self.reading {
            Reading::Body(body) => {
                let step = body
                    .step(input, trailers)
                    .map_err(|kind| self.refuse(kind))?;
                if step.consumed > 0 {
                    // The client did not wait for 100 (Continue).
                    self.exchange.expects_continue = false;
                }
                if step.event == Event::End {
                    self.reading = Reading::Done;
                }
                Ok(step)
            }
            _ if input.is_empty() => more(0),
            Reading::Head => unreachable!("`step_head` takes heads"),
            Reading::Done => {
                self.exchange.holds_input |= self.exchange.wants_upgrade;
                Ok(Step {
                    consumed: 0,
                    event: Event::Paused,
                })
            }
            Reading::Tunnel => Ok(Step {
                consumed: input.len(),
                event: Event::Data(0..input.len()),
            }),
            Reading::Closed => more(input.len()),
        }
    }

    #[inline]
    fn step_head(&mut self, input: &[u8], head: &mut RequestHead) -> Result<Step, Error> {
        let taken = match self.section.take(input, &mut head.fields) {
            Ok(taken) => taken,
            Err(kind) => return Err(self.refuse_head(kind, &head.fields)),
        };
        let consumed = taken.consumed;
        if !taken.complete {
            return Ok(Step {
                consumed,
                event: Event::NeedMore,
            });
        }
        if head.fields.block.len() == b"\r\n".len() {
            return self.skip_empty_line(input, consumed, head);
        }
        let facts = match parse_request(head, &self.section) {
            Ok(facts) => facts,
            Err(kind) => return Err(self.refuse_head(kind, &head.fields)),
        };
        self.apply_facts(head, facts);
        Ok(Step {
            consumed,
            event: Event::Head(facts.length),
        })
    }

    // RFC 9112, section 2.2: "a server that is expecting to receive and parse a request-line SHOULD
    // ignore at least one empty line (CRLF) received prior to the request-line."
    #[cold]
    fn skip_empty_line(
        &mut self,
        input: &[u8],
        consumed: usize,
        head: &mut RequestHead,
    ) -> Result<Step, Error> {
        self.empty_lines += 1;
        if self.empty_lines > self.limits.empty_lines_max {
            return Err(self.refuse(ErrorKind::EmptyLines));
        }
        let mut step = self.step(&input[consumed..], head, &mut Fields::new())?;
        step.consumed += consumed;
        Ok(step)
    }

    fn apply_facts(&mut self, head: &RequestHead, facts: RequestFacts) {
        self.empty_lines = 0;
        self.exchange = ExchangeFacts {
            method: head.method,
            version: head.version,
            keep_alive: facts.keep_alive,
            expects_continue: facts.expects_continue,
            wants_upgrade: facts.wants_upgrade || head.method == Method::Connect,
            wants_h2c: facts.wants_h2c && head.method != Method::Connect,
            holds_input: false,
        };
        self.reading = Reading::Body(match facts.length {
            BodyLength::Empty | BodyLength::NothingButTrailers => BodyFraming::Length(0),
            BodyLength::Known(length) => BodyFraming::Length(length),
            BodyLength::Unknown => {
                BodyFraming::chunked(&self.limits, SectionMax::of_trailers(&self.limits))
            }
        });
    }

    /// Ends a complete exchange; a next request may begin if the connection stays open.
    fn begin_exchange(&mut self) {
        if !self.keep_alive() {
            self.reading = Reading::Closed;
            return;
        }
        self.reading = Reading::Head;
        self.sending = Outgoing::Head;
        self.exchange = ExchangeFacts::NONE;
    }

    /// The state for sending content of this length with this status to this client.
    fn content_of(&self, status: Status, length: BodyLength) -> Outgoing {
        let is_http10 = self.exchange.version == Version::Http10;
        match length {
            _ if status.forbids_content() || self.exchange.method == Method::Head => {
                Outgoing::NoContent
            }
            BodyLength::Unknown if is_http10 => Outgoing::UntilClose,
            length => Outgoing::content(length),
        }
    }

    /// Decides whether the connection stays open; the head then declares it.
    fn decide_keep_alive(&mut self, has_close: bool) {
        let exchange = &mut self.exchange;
        // After a refused upgrade or CONNECT the protocol of held bytes is unknown (rule 15); and a
        // client that received no 100 (Continue) may send its content or omit it.
        let is_unclear =
            exchange.holds_input || exchange.method == Method::Connect || exchange.expects_continue;
        let ends_by_close = self.sending == Outgoing::UntilClose;
        exchange.keep_alive &= !(is_unclear || has_close || ends_by_close || self.draining);
        exchange.expects_continue = false;
        exchange.wants_upgrade = false;
    }

    fn open_tunnel(&mut self, head: &ResponseHead, out: &mut Vec<u8>) {
        assert!(
            self.exchange.wants_upgrade,
            "101 without a request for an upgrade"
        );
        assert!(
            matches!(self.reading, Reading::Done),
            "101 before the request is complete"
        );
        self.reading = Reading::Tunnel;
        self.sending = Outgoing::Tunnel;
        self.exchange.keep_alive = false;
        self.exchange.wants_upgrade = false;
        encode::response_head(head, out);
    }

    /// Refuses a head of which these fields were received. The response to a HEAD request has no
    /// content even then (RFC 9110, section 9.3.2).
    #[cold]
    fn refuse_head(&mut self, kind: ErrorKind, known: &Fields) -> Error {
        if known.block.starts_with(b"HEAD ") {
            self.exchange.method = Method::Head;
        }
        self.refuse(kind)
    }

    #[cold]
    fn refuse(&mut self, kind: ErrorKind) -> Error {
        self.reading = Reading::Closed;
        self.exchange.keep_alive = false;
        self.exchange.expects_continue = false;
        Error::new(kind, Side::Request)
    }

    #[cold]
    fn abort(&mut self, kind: ErrorKind) -> Error {
        self.exchange.keep_alive = false;
        Error::new(kind, Side::Sending)
    }
}

/// Whether `Connection` contains `close`.
#[cold]
fn has_close(fields: &Fields) -> bool {
    fields.get_all(Name::Connection).any(|value| {
        value
            .split(|&byte| byte == b',')
            .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
    })
}
