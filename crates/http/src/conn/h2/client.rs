//! A connection of HTTP/2 to an upstream, which the requests of a core share.

use std::convert::Infallible;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use blitz_proto::h2::{self, Code, Received, StreamId, WasReset};
use blitz_proto::{BodyLength, Error, Limits, RequestHead};

use super::drive::Disposition;
use super::driver::{Conn, Driver, Role, Shared};
use super::shortage::{CountedStreams, PooledStreams};
use crate::conn::Protocol;
use crate::conn::streams::liveness::{Liveness, NextCheck, Silence};
use crate::conn::streams::permits::Permits;
use crate::conn::streams::resets::SentResets;
use crate::conn::streams::response::{self, Requesting};
use crate::conn::streams::room::{is_short, usual_room};
use crate::conn::streams::stream::{ResetReason, Stream};
use crate::counters::count;
use crate::error::ClientError;
use crate::exchange::{
    Carrier, ClientFraming, ClientSide, ExchangeId, Link, OpenCarrier, ReceivedHead,
};
use crate::input::Input;
use crate::lifetime::{Lifetime, count_retired};
use crate::options::ClientOptions;
use crate::tls::TlsInfo;
use crate::transport::Transport;
use crate::waiters::Waiters;

/// A connection whose window was used up for this long, with less credit than [`CREDIT_MIN`], gets no more
/// requests for now.
pub(crate) const WINDOW_WAIT: Duration = Duration::from_secs(1);
const CREDIT_MIN: u64 = 16 * 1024;

pub(crate) struct ClientRole {
    pub(super) permits: Permits,
    pub(super) liveness: Liveness,
    pub(super) resets: SentResets,
    /// Since when the connection's window is used up, and all credit that had come until then.
    window_used_up: Option<(Instant, u64)>,
    /// It got no requests when one was to be placed last.
    rested: bool,
    /// The share of this connection in [`PooledStreams`].
    pub(super) counted: CountedStreams,
    /// When it last changed what the windows of its streams begin with.
    pub(super) window_changed: Option<Instant>,
    pooled: Rc<Shared<ClientRole>>,
    /// It has handles, which keep it between requests: it is not parked.
    is_kept: bool,
}

/// Whether a connection takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fitness {
    Usable,
    /// Not for a while, because many requests were reset, or content of others has used up the window.
    Resting,
    /// It is too old.
    Retired,
}

impl Conn<ClientRole> {
    /// A connection that begins with our preface, for requests of this scheme.
    pub(crate) fn client(
        shared: &Rc<Shared<ClientRole>>,
        is_https: bool,
        lifetime: Lifetime,
    ) -> Rc<Conn<ClientRole>> {
        let mut machine = h2::Connection::client(shared.limits(), is_https);
        // The priorities of different clients must not put one before the other.
        machine.set_prioritizes(false);
        let role = ClientRole {
            permits: Permits::new(lifetime),
            liveness: Liveness::new(blitz_reactor::now()),
            resets: SentResets::new(blitz_reactor::now()),
            window_used_up: None,
            rested: false,
            counted: CountedStreams::default(),
            window_changed: None,
            pooled: Rc::clone(shared),
            is_kept: false,
        };
        let conn = Conn::new(machine, role, shared);
        shared.role.note_connection(&conn);
        conn
    }

    /// As [`Conn::client`], for a connection that its handles keep between requests.
    pub(crate) fn kept(
        shared: &Rc<Shared<ClientRole>>,
        is_https: bool,
        lifetime: Lifetime,
    ) -> Rc<Conn<ClientRole>> {
        let conn = Conn::client(shared, is_https, lifetime);
        conn.driver.borrow_mut().role.is_kept = true;
        conn
    }

    /// Drives a connection that its handles keep until it ends. `waiters` are tasks that wait to begin a request.
    pub(crate) async fn drive_kept(self: Rc<Self>, transport: Transport, waiters: Rc<Waiters>) {
        let on_turn_end = || {
            if self.requests_available() > 0 {
                waiters.wake_one();
            }
        };
        let first = Input::default();
        if let Disposition::Park(transport) = self.drive(transport, first, on_turn_end).await {
            self.finish(transport);
        }
        waiters.wake_all();
    }

    /// Drives the connection until it carries no request and none holds a permit. `on_turn_end` is called at
    /// the end of every turn.
    pub(crate) async fn drive(
        &self,
        transport: Transport,
        first: Input,
        on_turn_end: impl Fn(),
    ) -> Disposition {
        self.run(transport, first, None, |never| match never {}, on_turn_end)
            .await
    }

    /// Whether it takes more requests. Once it is retired and has none it closes.
    pub(crate) fn fitness(&self, now: Instant, settings: u64) -> Fitness {
        let mut driver = self.driver.borrow_mut();
        if !driver.role.permits.lifetime.has_expired(now, settings) {
            let rests = driver.is_resting(now);
            if rests && !driver.role.rested {
                count(|counters| counters.upstream_rests += 1);
            }
            driver.role.rested = rests;
            return match rests {
                true => Fitness::Resting,
                false => Fitness::Usable,
            };
        }
        let permits = &mut driver.role.permits;
        if !permits.are_retired() {
            permits.retire();
            count_retired();
            driver.needs_task = true;
            driver.wake_if_needed();
        }
        Fitness::Retired
    }

    pub(crate) fn was_made_since(&self, moment: Instant) -> bool {
        let driver = self.driver.borrow();
        driver.role.permits.were_made_since(moment)
    }

    /// Gives a request a permit, if there is one.
    pub(crate) fn reserve(&self) -> bool {
        let mut driver = self.driver.borrow_mut();
        let has_permit = driver.permits_free() > 0;
        driver.role.permits.reserved += usize::from(has_permit);
        has_permit
    }

    /// The same on a connection that was parked or has just been made, and has no request.
    pub(crate) fn reserve_first(&self) {
        self.driver.borrow_mut().role.permits.reserved += 1;
    }

    /// Requests that may be begun now; none while the connection rests.
    pub(crate) fn permits_free(&self) -> usize {
        let mut driver = self.driver.borrow_mut();
        match driver.is_resting(blitz_reactor::now()) {
            true => 0,
            false => driver.permits_free(),
        }
    }

    /// Whether the server's SETTINGS were received.
    pub(crate) fn settings_received(&self) -> bool {
        self.driver.borrow().machine.settings_received()
    }

    /// Whether it has carried a request.
    pub(crate) fn is_used(&self) -> bool {
        self.driver.borrow().role.permits.is_used
    }
}

impl Carrier for Conn<ClientRole> {
    fn start_request(
        &self,
        head: &RequestHead,
        length: BodyLength,
    ) -> Result<(ExchangeId, bool), ClientError> {
        self.with(|driver| driver.start_request(head, length))
    }

    fn return_unused(self: Rc<Self>) {
        self.with(|driver| {
            driver.role.permits.reserved -= 1;
            driver.needs_task = true;
        });
    }

    fn protocol(&self) -> Protocol {
        Protocol::Http2
    }

    fn tls(&self) -> Option<Rc<TlsInfo>> {
        let driver = self.driver.borrow();
        driver.socket.as_ref().and_then(Transport::info).cloned()
    }

    /// Whether the server supports extended CONNECT (RFC 8441), once its SETTINGS were received. For one
    /// caller at a time: until then there is only one permit.
    fn poll_takes_websocket(&self, cx: &mut Context<'_>) -> Poll<Result<bool, ClientError>> {
        let mut driver = self.driver.borrow_mut();
        if driver.machine.settings_received() {
            return Poll::Ready(Ok(driver.machine.allows_extended_connect()));
        }
        if driver.socket.is_none() {
            return Poll::Ready(Err(ClientError::Unprocessed));
        }
        driver.role.permits.await_settling(cx);
        Poll::Pending
    }
}

impl OpenCarrier for Conn<ClientRole> {
    /// Also while the connection rests: there is no other one.
    fn requests_available(&self) -> usize {
        self.driver.borrow().permits_free()
    }

    fn reserve(&self) -> bool {
        Conn::reserve(self)
    }

    fn is_open(&self) -> bool {
        let driver = self.driver.borrow();
        driver.socket.is_some()
            && !driver.machine.is_closing()
            && !driver.role.permits.are_retired()
    }

    fn close(&self) {
        let mut driver = self.driver.borrow_mut();
        if driver.socket.is_none() {
            return;
        }
        let (machine, out) = driver.machine();
        machine.drain_now(out);
        driver.fail_streams(&ResetReason::Reset);
        driver.finish();
        driver.needs_task = true;
        driver.wake_if_needed();
    }

    fn retire(&self) {
        self.with(|driver| {
            driver.role.is_kept = false;
            driver.role.permits.retire();
            driver.needs_task = true;
        });
    }
}

impl Driver<ClientRole> {
    /// Whether so many requests were reset that the server may soon end the connection with the requests of
    /// others (rule 19), or the server reads hardly any of the content that was sent to it (rule 14).
    #[inline]
    fn is_resting(&mut self, now: Instant) -> bool {
        let is_used_up = self
            .role
            .window_used_up
            .is_some_and(|(since, _)| now.saturating_duration_since(since) >= WINDOW_WAIT);
        is_used_up || self.role.resets.are_many(self.shared.limits())
    }

    /// Notes since when the connection's window is used up. While much of the content is still queued, the
    /// path is slow and not the server.
    fn note_window(&mut self) {
        let socket = self.socket.as_ref();
        let is_sending = socket.is_some_and(|socket| socket.queued() as u64 >= CREDIT_MIN);
        let used_up = &mut self.role.window_used_up;
        *used_up = self.machine.awaits_credit().map(|credit| match *used_up {
            Some((since, before)) if credit - before < CREDIT_MIN && !is_sending => (since, before),
            _ => (blitz_reactor::now(), credit),
        });
    }

    fn permits_free(&self) -> usize {
        let ClientRole {
            permits, liveness, ..
        } = &self.role;
        if self.socket.is_none() || liveness.is_ping_pending() {
            return 0;
        }
        let open = self.machine.stream_count();
        let available = match self.machine.settings_received() {
            true => self.machine.requests_available(),
            // The server's limit comes while these are on their way.
            false => self
                .shared
                .options
                .requests_before_settings
                .saturating_sub(open),
        };
        permits.free(open, available)
    }

    /// Sends the head of a request with a permit; whether content follows.
    fn start_request(
        &mut self,
        head: &RequestHead,
        length: BodyLength,
    ) -> Result<(ExchangeId, bool), ClientError> {
        self.role.permits.reserved -= 1;
        self.needs_task = true;
        if self.socket.is_none() {
            return Err(ClientError::Unprocessed);
        }
        if !self.machine.accepts_head(head) {
            return Err(ClientError::HeadTooLarge);
        }
        self.choose_first_window();
        let (machine, out) = self.machine();
        let Some(stream) = machine.send_request(head, length, out) else {
            return Err(ClientError::Unprocessed);
        };
        let mut state = self.shared.spare.take();
        let has_content = self.machine.sends_body(stream);
        let is_reused = std::mem::replace(&mut self.role.permits.is_used, true);
        state.begin_request(head, has_content, is_reused);
        if self.streams.is_empty() {
            self.role.liveness.expect(blitz_reactor::now());
        }
        let has_sender = has_content && !state.is_connect;
        self.insert_stream(stream, state);
        self.count_streams();
        Ok((stream.into(), has_sender))
    }
}

impl Driver<ClientRole> {
    /// Ready if a server has not acknowledged a PING in time; sends PING to one that is silent for too long.
    pub(super) fn poll_liveness(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = blitz_reactor::now();
        match self.role.liveness.next {
            NextCheck::Later => return Poll::Pending,
            NextCheck::At(due) if self.timer.is_set(now, due) => return Poll::Pending,
            NextCheck::At(_) | NextCheck::Now => {}
        }
        if self.streams.is_empty() {
            self.role.liveness.next = NextCheck::Later;
            return Poll::Pending;
        }
        let until = match self.role.liveness.check(now, self.shared.limits()) {
            Silence::Over => return Poll::Ready(()),
            Silence::Wait(until) => until,
            Silence::Ping(until) => {
                let (machine, out) = self.machine();
                machine.ping(out);
                self.flush();
                until
            }
        };
        self.role.liveness.next = NextCheck::At(until);
        // Only to be woken then: it lies in the future.
        let _ = self.timer.poll_due(until, cx);
        Poll::Pending
    }
}

impl Role for ClientRole {
    type Options = ClientOptions;
    type Shared = PooledStreams;
    type Side = ClientSide;
    type Arrived = Infallible;
    const CHARGES_PARTIAL_HEADS: bool = false;

    fn limits(options: &ClientOptions) -> &Limits {
        &options.limits
    }

    /// A response belongs to a request that waits for it.
    fn head_arrived(
        driver: &mut Driver<ClientRole>,
        stream: StreamId,
        received: &mut Received,
        length: BodyLength,
        has_ended: bool,
    ) -> Option<Infallible> {
        let state = driver.stream(stream)?;
        state.push_head(&mut received.response, length, has_ended);
        if has_ended {
            driver.role.permits.answered();
        }
        None
    }

    fn refused(_: &mut Driver<ClientRole>, _: StreamId, _: Error, _: &Received) {}

    fn stream_reset(driver: &mut Driver<ClientRole>, _: StreamId, reason: &ResetReason) {
        if let ResetReason::Refused = reason {
            let open = driver.machine.stream_count();
            driver.role.permits.refused(open);
        }
    }

    /// Requests that may have caused an error are not sent again: they would end the next connection as
    /// well, with the requests of others.
    fn go_away(driver: &mut Driver<ClientRole>, code: Code) {
        if code == Code::NO_ERROR {
            return;
        }
        tracing::debug!(%code, "upstream ends the connection with an error");
        for stream in driver.machine.suspects().into_iter().flatten() {
            if let Some(state) = driver.stream(stream) {
                state.response.is_suspect = true;
            }
        }
    }

    fn reset_sent(driver: &mut Driver<ClientRole>, was_reset: WasReset) {
        let is_early = was_reset == WasReset::BeforeResponse;
        let now = blitz_reactor::now();
        driver
            .role
            .resets
            .note(is_early, now, driver.shared.limits());
    }

    fn message_received(&mut self) {
        self.permits.answered();
    }

    fn resumed(&mut self) {
        // The timer wakes the task of the connection's last time.
        self.liveness.expect(blitz_reactor::now());
    }

    fn bytes_received(&mut self) {
        self.liveness.bytes_received();
    }

    fn progressed(&mut self) {
        self.liveness.progress();
    }

    fn settings_known(&mut self) {
        self.permits.settings_known();
    }

    /// A server that has ended takes no more requests.
    fn ended(driver: &mut Driver<ClientRole>) {
        driver.socket = None;
    }

    fn failed(_: &Driver<ClientRole>, error: Error) -> ResetReason {
        tracing::debug!(rule = error.rule(), "upstream connection ended");
        ResetReason::Malformed(error)
    }

    fn is_reserved(&self) -> bool {
        self.permits.reserved > 0
    }

    fn is_retired(&self) -> bool {
        self.permits.are_retired()
    }

    fn may_park(&self) -> bool {
        !self.is_kept
    }

    fn is_ping_pending(&self) -> bool {
        self.liveness.is_ping_pending()
    }

    fn poll_silence(driver: &mut Driver<ClientRole>, cx: &mut Context<'_>) -> Poll<()> {
        driver.poll_liveness(cx).map(|()| {
            tracing::debug!("upstream connection answers no PING");
            count(|counters| counters.upstream_silent += 1);
        })
    }

    fn before_waiting(driver: &mut Driver<ClientRole>, _: &mut Context<'_>) {
        driver.note_window();
    }

    fn cap_windows(driver: &mut Driver<ClientRole>) {
        let share = blitz_reactor::fair_share();
        let is_short = is_short(share, driver.limits());
        driver.cap_windows_of_upstream(share, is_short);
    }

    /// Only the stream counts, since the requests of others must not wait for one whom the server lets
    /// wait.
    fn room(driver: &Driver<ClientRole>) -> Option<usize> {
        Some(usual_room(blitz_reactor::fair_share(), driver.limits()))
    }

    fn streams_changed(driver: &mut Driver<ClientRole>) {
        driver.count_streams();
    }
}

impl ClientFraming for Driver<ClientRole> {
    fn options(&self) -> &ClientOptions {
        &self.shared.options
    }

    fn wait_start(&mut self, id: StreamId) -> Option<Instant> {
        self.stream(id)?.response.wait_start
    }

    fn poll_head(
        &mut self,
        id: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ClientError>> {
        response::poll_head(self, id, cx)
    }

    fn awaits_content(&mut self, id: StreamId) -> bool {
        response::awaits_content(self, id)
    }

    fn has_response(&mut self, id: StreamId) -> bool {
        response::has_response(self, id)
    }

    fn settle(&mut self, id: StreamId) {
        response::settle(self, id);
    }

    fn response_taken(&mut self, id: StreamId) {
        response::response_taken(self, id);
    }

    fn cancel(&mut self, id: StreamId) {
        self.reset(id, Code::CANCEL);
    }

    fn abandon(&mut self, id: StreamId) {
        self.close_stream(id, Some(Code::CANCEL));
    }
}

impl Requesting for Driver<ClientRole> {
    fn request(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.stream(id)
    }

    /// If the stream is still open for the server, it is reset.
    fn close_request(&mut self, id: StreamId) {
        self.close_stream(id, Some(Code::CANCEL));
    }
}

impl Drop for ClientRole {
    fn drop(&mut self) {
        self.pooled.role.uncount(&mut self.counted);
    }
}
