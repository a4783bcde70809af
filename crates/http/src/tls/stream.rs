//! One TLS connection: decrypts received records and encrypts queued content.

use std::fmt::Display;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use blitz_reactor::{Buffer, Chunk, Slice, Socket};
use rustls::Error;

use super::error::TlsError;
use super::failure_log::{log_client_failure, log_upstream_failure};
use super::info::TlsInfo;
use super::server::Choice;
use super::session::{CONTENT_BYTES_MAX, Processed, Session, record_bytes};
use crate::counters::count;
use crate::input::Input;

/// A TLS session with its unread content. An idle one holds no buffer.
pub(crate) struct TlsStream {
    pub(super) session: Session,
    /// Records of an incomplete handshake message, followed by an incomplete record.
    gathered: Option<Buffer>,
    /// Bytes of `gathered` that the session has processed but not consumed.
    seen: usize,
    /// Maximum length of an incomplete handshake message.
    seen_max: usize,
    /// Unread content.
    content: Input,
    end: ReceiveState,
    pub(super) info: Option<Rc<TlsInfo>>,
    /// The server name, and on a server the chosen certificate, until both are part of `info`.
    pub(super) choice: Option<Choice>,
    close_notify_sent: bool,
    /// The start of the incomplete handshake, later of an incomplete record.
    since: Option<Instant>,
}

/// Whether and how receiving ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReceiveState {
    Open,
    /// The peer sent close_notify.
    Closed,
    /// The connection ended without close_notify; an attacker may have truncated it.
    Truncated,
    Failed(TlsError),
}

/// The result of processing received bytes.
pub(crate) enum ReadOutcome {
    /// Decrypted content.
    Content(Slice),
    /// No content yet: the handshake or a record is incomplete, or the records had no content.
    NoContent,
    /// The peer has closed the connection, or TLS has failed.
    Ended,
}

impl TlsStream {
    pub(super) fn new(session: Session, handshake_bytes_max: usize) -> TlsStream {
        TlsStream {
            session,
            gathered: None,
            seen: 0,
            seen_max: handshake_bytes_max,
            content: Input::default(),
            end: ReceiveState::Open,
            info: None,
            choice: None,
            close_notify_sent: false,
            since: Some(blitz_reactor::now()),
        }
    }

    pub(crate) fn info(&self) -> Option<&Rc<TlsInfo>> {
        self.info.as_ref()
    }

    pub(crate) fn is_truncated(&self) -> bool {
        self.end == ReceiveState::Truncated
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end != ReceiveState::Open
    }

    /// Whether there is unread content.
    pub(crate) fn holds_content(&self) -> bool {
        !self.content.is_empty()
    }

    pub(crate) fn failure(&self) -> Option<TlsError> {
        match self.end {
            ReceiveState::Failed(error) => Some(error),
            ReceiveState::Open | ReceiveState::Closed | ReceiveState::Truncated => None,
        }
    }

    /// The start of an incomplete handshake or record, for its deadline.
    pub(crate) fn incomplete_since(&self) -> Option<Instant> {
        self.since
    }

    /// Processes bytes that the caller has received.
    pub(crate) fn handle_received(&mut self, slice: Slice, socket: &Socket) -> ReadOutcome {
        self.receive(slice, socket);
        match self.content.pop() {
            Some(content) => ReadOutcome::Content(content),
            None if self.has_ended() => ReadOutcome::Ended,
            None => ReadOutcome::NoContent,
        }
    }

    pub(crate) fn poll_recv(
        &mut self,
        socket: &Socket,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Slice>>> {
        loop {
            if let Some(content) = self.content.pop() {
                return Poll::Ready(Ok(Some(content)));
            }
            match self.end {
                ReceiveState::Open => {}
                ReceiveState::Closed | ReceiveState::Truncated => return Poll::Ready(Ok(None)),
                ReceiveState::Failed(error) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
                }
            }
            match socket.poll_recv(cx)? {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(slice)) => self.receive(slice, socket),
                Poll::Ready(None) => self.end = ReceiveState::Truncated,
            }
        }
    }

    /// The length of the unread content and of an incomplete record.
    pub(crate) fn unread_bytes(&mut self, socket: &Socket) -> usize {
        self.unread_content(socket) + self.gathered.as_ref().map_or(0, |bytes| bytes.len())
    }

    /// The length of the unread content. The socket's bytes are processed first, since they need not be
    /// content: a server may send tickets at any time.
    pub(crate) fn unread_content(&mut self, socket: &Socket) -> usize {
        while self.end == ReceiveState::Open && socket.unread_bytes() > 0 {
            match socket.try_recv() {
                Some(Ok(Some(slice))) => self.receive(slice, socket),
                _ => break,
            }
        }
        self.content.bytes()
    }

    /// Queues `content` in records of its size, at most 16 KiB each (rule 21).
    pub(crate) fn send(&mut self, socket: &Socket, content: &Chunk) {
        if self.close_notify_sent || matches!(self.end, ReceiveState::Failed(_)) {
            return;
        }
        for piece in content.chunks(CONTENT_BYTES_MAX) {
            let mut out = Buffer::take();
            let held = self.gathered.as_mut().map_or(&mut [][..], |held| held);
            if let Err(error) = self.session.encrypt(piece, held, &mut out) {
                return self.fail(&error, socket);
            }
            send(out, socket);
        }
    }

    /// Sends close_notify, so that the peer can distinguish the end from truncation (RFC 8446,
    /// section 6.1).
    pub(crate) fn send_close_notify(&mut self, socket: &Socket) {
        let can_send = self.info.is_some() && !matches!(self.end, ReceiveState::Failed(_));
        if !can_send || std::mem::replace(&mut self.close_notify_sent, true) {
            return;
        }
        let mut out = Buffer::take();
        let held = self.gathered.as_mut().map_or(&mut [][..], |held| held);
        if self.session.close_notify(held, &mut out).is_ok() {
            send(out, socket);
        }
    }

    /// Sends a client's first message.
    pub(super) fn start(&mut self, socket: &Socket) {
        let mut out = Buffer::take();
        let done = self.session.process(&mut [], &mut out);
        self.apply(&done, socket);
        send(out, socket);
    }

    /// The server name of the client's SNI, if it is known already.
    pub(crate) fn server_name(&self) -> Option<&str> {
        match &self.info {
            Some(info) => info.server_name.as_deref(),
            None => self.choice.as_ref()?.server_name.as_deref(),
        }
    }

    /// The facts about a client, also while the handshake is incomplete.
    #[cold]
    pub(crate) fn facts(&self) -> Option<Rc<TlsInfo>> {
        let incomplete = || TlsInfo::of_incomplete(self.session.common(), self.choice.clone());
        self.info.clone().or_else(|| incomplete().map(Rc::new))
    }

    /// Records a failure, counts it and logs it.
    pub(super) fn fail_with(&mut self, error: TlsError, socket: &Socket) {
        self.record_failure(error, &error, socket);
    }

    /// Processes received bytes and sends TLS's own messages.
    pub(super) fn receive(&mut self, mut slice: Slice, socket: &Socket) {
        let mut out = Buffer::take();
        while self.end == ReceiveState::Open && !slice.is_empty() {
            match self.gathered.take() {
                Some(gathered) => self.complete(gathered, &mut slice, &mut out, socket),
                None => self.decrypt(&mut slice, &mut out, socket),
            }
        }
        self.note_handshake();
        if self.info.is_some() && self.gathered.is_none() {
            self.since = None;
        }
        send(out, socket);
    }

    /// Decrypts the complete records at the front of `slice` in place. Their contents are moved
    /// together into one slice, however small the records are.
    fn decrypt(&mut self, slice: &mut Slice, out: &mut Buffer, socket: &Socket) {
        if slice.try_mut().is_none() {
            let mut copy = Buffer::take();
            copy.extend_from_slice(slice);
            *slice = Slice::from_buffer(copy);
        }
        let Some(bytes) = slice.try_mut() else {
            unreachable!("the copy has no other owner")
        };
        let (mut at, mut seen, mut records) = (0, 0, 0);
        let mut content = 0..0;
        while let Some(end) = record_bytes(&bytes[at..]).map(|len| at + len)
            && end <= bytes.len()
        {
            let done = self.session.process(&mut bytes[at..end], out);
            if let Some(range) = &done.content {
                let range = range.start + at..range.end + at;
                if content.is_empty() {
                    content = range;
                } else {
                    let len = range.len();
                    bytes.copy_within(range, content.end);
                    content.end += len;
                }
            }
            at += done.consumed;
            seen = end - at;
            records += 1;
            self.apply(&done, socket);
            if seen > 0 || self.end != ReceiveState::Open {
                break;
            }
        }
        count(|counters| counters.tls.records_in_place += records);
        if !content.is_empty() {
            self.content.push(slice.slice(content));
        }
        slice.advance(at);
        self.hold(slice, seen);
    }

    /// Keeps the incomplete rest, of which the session has processed `seen` bytes. The rest is
    /// copied, since otherwise the peer decides how long the receive buffer is pinned (rule 3).
    fn hold(&mut self, slice: &mut Slice, seen: usize) {
        let is_incomplete = seen > 0 || record_bytes(slice).is_none_or(|len| len > slice.len());
        if self.end != ReceiveState::Open || slice.is_empty() || !is_incomplete {
            return;
        }
        let n = if seen > 0 { seen } else { slice.len() };
        let mut gathered = Buffer::take();
        gathered.extend_from_slice(&slice[..n]);
        slice.advance(n);
        self.seen = seen;
        self.gathered = Some(gathered);
        if self.info.is_some() {
            self.since = Some(blitz_reactor::now());
        }
    }

    /// Appends bytes of `slice` to the gathered record, and processes the record once complete.
    fn complete(
        &mut self,
        mut gathered: Buffer,
        slice: &mut Slice,
        out: &mut Buffer,
        socket: &Socket,
    ) {
        while let Some(missing) = missing(&gathered[self.seen..])
            && !slice.is_empty()
        {
            let n = missing.min(slice.len());
            gathered.extend_from_slice(&slice[..n]);
            slice.advance(n);
        }
        if missing(&gathered[self.seen..]).is_some() {
            self.gathered = Some(gathered);
            return;
        }
        count(|counters| counters.tls.records_gathered += 1);
        let done = self.session.process(&mut gathered, out);
        self.apply(&done, socket);
        if let Some(range) = done.content {
            let mut content = Slice::from_buffer(gathered);
            content.truncate(range.end);
            content.advance(range.start);
            self.content.push(content);
            self.seen = 0;
            return;
        }
        gathered.drain(..done.consumed);
        self.seen = gathered.len();
        if self.seen > self.seen_max && self.end == ReceiveState::Open {
            self.fail_with(TlsError::HandshakeTooLarge, socket);
        } else if self.seen > 0 {
            self.gathered = Some(gathered);
        }
    }

    fn apply(&mut self, done: &Processed, socket: &Socket) {
        self.keep_choice();
        if let Some(error) = &done.failed {
            self.fail(error, socket);
        } else if done.closed {
            self.end = ReceiveState::Closed;
        }
    }

    fn fail(&mut self, error: &Error, socket: &Socket) {
        self.record_failure(TlsError::new(error), error, socket);
    }

    #[cold]
    fn record_failure(&mut self, error: TlsError, cause: &dyn Display, socket: &Socket) {
        let is_server = self.session.is_server();
        self.end = ReceiveState::Failed(error);
        count(|counters| counters.tls.count_failure(is_server, error.rule()));
        let log = match is_server {
            true => log_client_failure,
            false => log_upstream_failure,
        };
        log(socket.peer(), self.server_name(), error, cause);
    }
}

/// Missing bytes of a record, or of its header if that is incomplete; `None` if complete.
fn missing(record: &[u8]) -> Option<usize> {
    let wanted = match record_bytes(record) {
        Some(wanted) => wanted,
        None => super::session::HEADER_BYTES,
    };
    wanted
        .checked_sub(record.len())
        .filter(|&missing| missing > 0)
}

/// Not inlined: only the path for clear text contains the socket's inlined code.
#[inline(never)]
fn send(out: Buffer, socket: &Socket) {
    if !out.is_empty() {
        socket.send(out);
    }
}
