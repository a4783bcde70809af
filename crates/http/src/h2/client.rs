//! The client's side of a connection: places for requests, and what a stream is waited for.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use blitz_proto::h2::{Code, StreamId};
use blitz_proto::{BodyLength, Method, RequestHead, ResponseHead};

use super::stream::{Body, Loss, Message, note, wake};
use super::wire::{State, Wire};
use crate::body::{RecvBody, SendBody};
use crate::client::{Response, ResponseEvent};
use crate::error::{BodyError, ClientError};
use crate::pool::{Term, count_retired};
use crate::recycle::Pooled;
use crate::tls::TlsInfo;
use crate::transport::Transport;

/// How many requests a client may begin.
pub(super) struct Places {
    /// Promised to requests that have not begun.
    pub(super) reserved: usize,
    /// What the server showed to be too much for it, whatever it allows.
    limit: usize,
    /// It has carried a request.
    has_served: bool,
    /// Who waits for the server to say what it takes.
    settling: Option<Waker>,
    /// Until when there are any.
    term: Option<Term>,
}

impl Places {
    pub(super) fn until(term: Option<Term>) -> Places {
        Places {
            reserved: 0,
            limit: usize::MAX,
            has_served: false,
            settling: None,
            term,
        }
    }

    /// The server refused a stream while it worked on `open` others. One that refuses even the
    /// only one gets no more on this connection.
    pub(super) fn refused(&mut self, open: usize) {
        self.limit = self.limit.min(open);
    }

    /// Nothing more is to be asked on this connection.
    pub(super) fn are_none(&self) -> bool {
        self.limit == 0
    }

    /// The server has said what it takes, or never will.
    pub(super) fn settled(&mut self) {
        wake(&mut self.settling);
    }

    /// It answered one in full, so it may be given another.
    pub(super) fn answered(&mut self) {
        if self.limit > 0 {
            self.limit = self.limit.saturating_add(1);
        }
    }
}

/// The response of one stream, before its body.
#[derive(Default)]
pub(super) struct Answer {
    /// Received and not yet taken.
    heads: VecDeque<(Pooled<ResponseHead>, BodyLength)>,
    /// Why no more will come.
    failed: Option<ClientError>,
    /// The final head was received.
    has_final: bool,
    /// Some head was received.
    heard: bool,
    /// The response was taken to its end, or nobody wants it.
    is_read: bool,
    /// Other requests went over the connection before.
    reused: bool,
    /// When the request was begun.
    since: Option<Instant>,
}

impl Answer {
    pub(super) fn clear(&mut self) {
        self.heads.clear();
        *self = Answer {
            heads: std::mem::take(&mut self.heads),
            ..Answer::default()
        };
    }

    pub(super) fn fail(&mut self, loss: &Loss) {
        if self.has_final || self.failed.is_some() {
            return;
        }
        let reused = self.reused;
        self.failed = Some(match *loss {
            Loss::Malformed(error) => ClientError::Malformed(error),
            Loss::Refused => ClientError::Unprocessed,
            Loss::Reset | Loss::Truncated if self.heard => ClientError::Truncated,
            Loss::Reset | Loss::Truncated => ClientError::Reset { reused },
        });
    }
}

impl Wire {
    /// Whether it is too old for more requests; when it has none it closes.
    pub(crate) fn is_retired(&self, now: Instant, settings: u64) -> bool {
        let mut state = self.state.borrow_mut();
        let is_over = state
            .places
            .term
            .is_none_or(|term| term.is_over(now, settings));
        if is_over && !state.places.are_none() {
            state.places.limit = 0;
            state.wake_task();
            count_retired();
        }
        is_over
    }

    pub(crate) fn was_made_since(&self, moment: Instant) -> bool {
        let term = self.state.borrow().places.term;
        term.is_some_and(|term| term.was_made_since(moment))
    }

    /// Promises a place to a request, if there is one.
    pub(crate) fn reserve(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let has_place = state.places_free() > 0;
        state.places.reserved += usize::from(has_place);
        has_place
    }

    /// The same on a connection that was parked or has just been made, and has no request.
    pub(crate) fn reserve_first(&self) {
        self.state.borrow_mut().places.reserved += 1;
    }

    /// A place will not be used.
    pub(crate) fn give_back(&self) {
        self.with(|state| state.places.reserved -= 1);
    }

    /// Requests that may be begun now.
    pub(crate) fn places_free(&self) -> usize {
        self.state.borrow().places_free()
    }

    /// Whether the server has said how much it takes.
    pub(crate) fn is_settled(&self) -> bool {
        self.state.borrow().machine.peer_has_spoken()
    }

    /// Whether the server takes extended CONNECT (RFC 8441), once it has said so. For one caller at
    /// a time: until then there is only one place.
    ///
    /// # Errors
    /// The connection ended before.
    pub(crate) fn poll_extended_connect(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, ClientError>> {
        let mut state = self.state.borrow_mut();
        if state.machine.peer_has_spoken() {
            return Poll::Ready(Ok(state.machine.takes_extended_connect()));
        }
        if state.socket.is_none() {
            return Poll::Ready(Err(ClientError::Unprocessed));
        }
        note(&mut state.places.settling, cx);
        Poll::Pending
    }

    /// What the TLS handshake has established.
    pub(crate) fn tls(&self) -> Option<Rc<TlsInfo>> {
        let state = self.state.borrow();
        state.socket.as_ref().and_then(Transport::info).cloned()
    }

    /// Whether it has carried a request.
    pub(crate) fn has_served(&self) -> bool {
        self.state.borrow().places.has_served
    }

    /// Sends the head of a request, in the place that was promised to it.
    ///
    /// # Errors
    /// The connection takes none any more.
    pub(crate) fn start_request(
        wire: &Rc<Wire>,
        head: &RequestHead,
        length: BodyLength,
    ) -> Result<(SendBody, StreamId), ClientError> {
        let (stream, has_content) = wire.with(|state| state.start_request(head, length))?;
        let send = match has_content {
            true => SendBody::h2(Rc::clone(wire), stream),
            false => SendBody::done(),
        };
        Ok((send, stream))
    }

    /// The next response head.
    pub(crate) fn poll_response(
        wire: &Rc<Wire>,
        stream: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseEvent, ClientError>> {
        let mut state = wire.state.borrow_mut();
        let (head, length) = match state.poll_head(stream, cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => {
                // Resets leave with what else is queued.
                state.wake_task();
                return Poll::Ready(Err(error));
            }
            Poll::Ready(Ok(arrived)) => arrived,
        };
        if head.status.is_informational() {
            return Poll::Ready(Ok(ResponseEvent::Informational(head)));
        }
        let is_tunnel =
            head.status.is_success() && state.stream(stream).is_some_and(|stream| stream.is_tunnel);
        let is_done = !is_tunnel && state.finish_empty(stream);
        drop(state);
        let body = match is_done {
            true => RecvBody::done(length),
            false => RecvBody::h2(Rc::clone(wire), stream, length),
        };
        let upgraded = is_tunnel.then(|| SendBody::h2(Rc::clone(wire), stream));
        Poll::Ready(Ok(ResponseEvent::Final(Response {
            head,
            body,
            upgraded,
        })))
    }

    /// The server may take its time with the response.
    pub(crate) fn be_patient(&self, stream: StreamId) {
        if let Some(known) = self.state.borrow_mut().stream(stream) {
            known.is_patient = true;
        }
    }

    /// Nobody wants the response.
    pub(crate) fn drop_response_stream(&self, stream: StreamId) {
        self.in_stream(stream, State::drop_recv);
    }
}

impl State {
    fn places_free(&self) -> usize {
        if self.socket.is_none() || self.liveness.is_doubtful() {
            return 0;
        }
        let open = self.machine.stream_count();
        let allowed = match self.machine.peer_has_spoken() {
            true => {
                let limit = self.places.limit.saturating_sub(open);
                self.machine.requests_available().min(limit)
            }
            // One to begin with; the server's limit comes while it is on its way.
            false => 1_usize.saturating_sub(open),
        };
        allowed.saturating_sub(self.places.reserved)
    }

    fn start_request(
        &mut self,
        head: &RequestHead,
        length: BodyLength,
    ) -> Result<(StreamId, bool), ClientError> {
        self.places.reserved -= 1;
        if self.socket.is_none() {
            return Err(ClientError::Unprocessed);
        }
        self.choose_first_window();
        let (machine, out) = self.machine();
        let Some(stream) = machine.send_request(head, length, out) else {
            return Err(ClientError::Unprocessed);
        };
        let mut known = self.shared.stream();
        known.is_tunnel = head.method == Method::Connect;
        let has_content = self.machine.sends_body(stream);
        known.sending.message = match has_content {
            true => Message::Open,
            false => Message::Done,
        };
        let now = blitz_reactor::now();
        if self.streams.is_empty() {
            self.liveness.expect(now);
        }
        known.answer.since = Some(now);
        known.answer.reused = std::mem::replace(&mut self.places.has_served, true);
        let has_sender = has_content && !known.is_tunnel;
        self.streams.insert(stream, known);
        self.count_streams();
        Ok((stream, has_sender))
    }

    /// A response head has arrived.
    pub(super) fn take_in_head(
        &mut self,
        stream: StreamId,
        head: Pooled<ResponseHead>,
        length: BodyLength,
        has_ended: bool,
    ) {
        let Some(known) = self.stream(stream) else {
            return;
        };
        let answer = &mut known.answer;
        answer.heard = true;
        if !head.status.is_informational() {
            answer.has_final = true;
            known.receiving.body = if has_ended { Body::Done } else { Body::Open };
            known.receiving.pace.declare(length);
        }
        answer.heads.push_back((head, length));
        known.receiving.arrived();
        if has_ended {
            self.places.answered();
        }
    }

    fn poll_head(
        &mut self,
        stream: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Pooled<ResponseHead>, BodyLength), ClientError>> {
        let Some(known) = self.streams.get_mut(&stream) else {
            return Poll::Ready(Err(ClientError::Cancelled));
        };
        if let Some(arrived) = known.answer.heads.pop_front() {
            return Poll::Ready(Ok(arrived));
        }
        let error = match known.answer.failed.take() {
            Some(error) => error,
            None => {
                note(&mut known.receiving.reader, cx);
                let since = known.answer.since.unwrap_or(known.sending.progress);
                let limit = match known.is_patient {
                    true => self.shared.limits().stream_idle_timeout,
                    false => self.shared.asking().response_timeout,
                };
                let due = since.max(known.sending.progress) + limit;
                if known.timer.poll_due(due, cx).is_pending() {
                    return Poll::Pending;
                }
                ClientError::TimedOut
            }
        };
        self.close_stream(stream, Some(Code::CANCEL));
        Poll::Ready(Err(error))
    }

    /// Whether the response has nothing but its head, and is complete.
    fn finish_empty(&mut self, stream: StreamId) -> bool {
        let Some(known) = self.stream(stream) else {
            return false;
        };
        let receiving = &known.receiving;
        let is_done = matches!(receiving.body, Body::Done)
            && receiving.parts.is_empty()
            && receiving.trailers.is_none();
        if is_done {
            self.finish_reading(stream);
            // The connection may have nothing left to carry.
            self.wake_task();
        }
        is_done
    }

    /// The response was taken to its end.
    pub(super) fn finish_reading(&mut self, stream: StreamId) {
        if let Some(known) = self.stream(stream) {
            known.answer.is_read = true;
            self.settle(stream);
        }
    }

    /// A client forgets a stream when nobody has anything to do with it any more; if the server
    /// has, it is told that it need not.
    pub(super) fn settle(&mut self, stream: StreamId) {
        let is_settled = self.stream(stream).is_some_and(|known| {
            let is_sending = known.sending.message == Message::Open && !known.is_gone;
            known.answer.is_read && !is_sending
        });
        if is_settled {
            self.close_stream(stream, Some(Code::CANCEL));
        }
    }

    /// The request will not be completed. An answer that came early may still be read to its end;
    /// without one the request is given up.
    pub(super) fn give_up_request(&mut self, stream: StreamId) {
        let is_answered = self.stream(stream).is_some_and(|known| {
            (known.answer.has_final || known.answer.failed.is_some()) && !known.is_tunnel
        });
        if is_answered {
            self.settle(stream);
        } else {
            self.close_stream(stream, Some(Code::CANCEL));
        }
    }

    /// Whether the server has been silent for too long within a body.
    pub(super) fn poll_body_deadline(
        &mut self,
        stream: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<BodyError> {
        let shared = Rc::clone(&self.shared);
        let body_timeout = shared.asking().body_timeout;
        let stream_idle_timeout = shared.limits().stream_idle_timeout;
        let Some(known) = self.stream(stream).filter(|known| !known.is_tunnel) else {
            return Poll::Pending;
        };
        let pace = &known.receiving.pace;
        let due = match known.is_patient {
            // The server may listen for as long as there is something to listen to.
            true => {
                let heard = known.sending.progress + stream_idle_timeout;
                pace.silence_due(stream_idle_timeout).max(heard)
            }
            false => pace.response_due(body_timeout, shared.limits()),
        };
        if known.timer.poll_due(due, cx).is_pending() {
            return Poll::Pending;
        }
        known.receiving.body = Body::Failed(BodyError::TimedOut);
        self.reset(stream, Code::CANCEL);
        Poll::Ready(BodyError::TimedOut)
    }
}
