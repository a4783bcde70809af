//! The deadlines of an exchange.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use blitz_proto::Limits;

use super::framing::{ClientFraming, ServerFraming, Transmission};
use super::state::{BodyState, ExchangeState, MessageState};

/// A deadline that a server's exchange can miss (rule 18). [`Limits`] has the time of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// The client reads nothing of the queue: `send_stall_timeout`.
    SendStall,
    /// Nothing moves in a tunnel: `stream_idle_timeout`.
    TunnelIdle,
    /// The client has ended its direction and was sent nothing since: `half_close_grace` (rule 16).
    HalfClose,
    /// Too little has come of the content before the response has begun: `body_rate_min` after
    /// `body_rate_grace`, or nothing for `body_idle_timeout`.
    RequestRate,
    /// Nothing came of the content after the response has begun: `body_idle_timeout`.
    RequestIdle,
    /// Nothing moves in either direction of an exchange without a minimum rate:
    /// `stream_idle_timeout`.
    StreamIdle,
}

/// Ready with the deadline that was missed; otherwise the task will be woken at the next.
#[inline]
pub(super) fn poll_server_deadline<F: ServerFraming>(
    framing: &mut F,
    id: F::Id,
    is_service_done: bool,
    cx: &mut Context<'_>,
) -> Poll<Deadline> {
    let Some(exchange) = framing.exchange(id) else {
        return Poll::Pending;
    };
    let is_receiving = matches!(exchange.receiving.body, BodyState::Open);
    // Another task sends the response.
    let is_sent_elsewhere = is_service_done && exchange.message == MessageState::Open;
    let has_any = is_receiving || exchange.is_tunnel || is_sent_elsewhere;
    if !has_any && !framing.may_wait_for_client(id) {
        return Poll::Pending;
    }
    let transmission = framing.transmission(id);
    let Some((exchange, limits)) = framing.exchange_and_limits(id) else {
        return Poll::Pending;
    };
    let Some((due, deadline)) = exchange.next_deadline(&transmission, limits) else {
        return Poll::Pending;
    };
    exchange.timer.poll_due(due, cx).map(|()| deadline)
}

impl ExchangeState {
    fn next_deadline(
        &mut self,
        transmission: &Transmission,
        limits: &Limits,
    ) -> Option<(Instant, Deadline)> {
        let now = blitz_reactor::now();
        let progress = transmission.progress;
        let moved = || self.receiving.last.max(progress).unwrap_or(now);
        let stall = (transmission.unsent > 0 || self.message == MessageState::Open).then(|| {
            // A writer in another task does not run this code, so the check is repeated later.
            let since = match transmission.unsent {
                0 => now,
                _ => progress.unwrap_or(now),
            };
            (since + limits.send_stall_timeout, Deadline::SendStall)
        });
        if self.is_tunnel {
            let idle = self.stream_idle_timeout(limits);
            let idle = (moved() + idle, Deadline::TunnelIdle);
            return earlier(stall, Some(idle));
        }
        let half_close = transmission.half_closed.zip(limits.half_close_grace);
        let half_close = half_close.map(|(ended, grace)| {
            // Only time in which nothing is queued counts; else the stall decides.
            let since = match transmission.unsent {
                0 => progress.map_or(ended, |progress| progress.max(ended)),
                _ => now,
            };
            (since + grace, Deadline::HalfClose)
        });
        let first = earlier(stall, half_close);
        if !matches!(self.receiving.body, BodyState::Open) {
            return first;
        }
        let body = if self.has_no_min_rate {
            let idle = self.stream_idle_timeout(limits);
            (moved() + idle, Deadline::StreamIdle)
        } else {
            self.body_deadline(transmission, limits)
        };
        earlier(first, Some(body))
    }

    /// When too little will have come of the request's content if nothing comes until then. Time in
    /// which no reader waits for it, or nothing is received from the connection, does not count. A reader in
    /// another task does not run this code, so the check is repeated later.
    fn body_deadline(
        &mut self,
        transmission: &Transmission,
        limits: &Limits,
    ) -> (Instant, Deadline) {
        let pace = &mut self.receiving.pace;
        pace.share(transmission.received);
        if transmission.is_held_back {
            pace.forgive();
        }
        let silence = pace.silence_due(limits.body_idle_timeout);
        if self.message == MessageState::Due {
            let later = || blitz_reactor::now() + limits.body_rate_grace;
            let due = pace.rate_due(limits).unwrap_or_else(later);
            return (due.min(silence), Deadline::RequestRate);
        }
        (silence, Deadline::RequestIdle)
    }
}

fn earlier(
    one: Option<(Instant, Deadline)>,
    other: Option<(Instant, Deadline)>,
) -> Option<(Instant, Deadline)> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.0 < one.0 { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// Ready when a server has been silent for too long before its response head, counted from the last
/// byte of the request that it took.
pub(super) fn poll_response_deadline<F: ClientFraming>(
    framing: &mut F,
    id: F::Id,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let started = framing.wait_start(id).unwrap_or_else(blitz_reactor::now);
    let response_timeout = framing.options().response_timeout;
    let Some((exchange, limits)) = framing.exchange_and_limits(id) else {
        return Poll::Pending;
    };
    let timeout = match exchange.has_no_min_rate {
        true => exchange.stream_idle_timeout(limits),
        false => exchange
            .options
            .response_timeout
            .unwrap_or(response_timeout),
    };
    if exchange.timer.poll_due(started + timeout, cx).is_pending() {
        return Poll::Pending;
    }
    poll_later_deadline(framing, id, timeout, cx)
}

/// The server may have taken some of the request since it was begun, or wait for the rest of it, also
/// if its response has begun.
#[cold]
fn poll_later_deadline<F: ClientFraming>(
    framing: &mut F,
    id: F::Id,
    timeout: Duration,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let started = framing.wait_start(id).unwrap_or_else(blitz_reactor::now);
    let transmission = framing.transmission(id);
    let awaits_content = transmission.unsent == 0 && framing.awaits_content(id);
    let Some((exchange, limits)) = framing.exchange_and_limits(id) else {
        return Poll::Pending;
    };
    // The request's sender has its own deadline, of `body_idle_timeout`, which usually ends first.
    let timeout = match awaits_content {
        true => timeout.max(limits.body_idle_timeout + limits.body_rate_grace),
        false => timeout,
    };
    let since = transmission
        .progress
        .map_or(started, |progress| progress.max(started));
    exchange.timer.poll_due(since + timeout, cx)
}

/// Ready when a server has been silent for too long within the content of its response, or slower
/// than the minimum rate.
pub(super) fn poll_client_deadline<F: ClientFraming>(
    framing: &mut F,
    id: F::Id,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let body_timeout = framing.options().body_timeout;
    let received = framing.transmission(id).received;
    let Some((exchange, limits)) = framing.exchange_and_limits(id) else {
        return Poll::Pending;
    };
    if exchange.is_tunnel {
        return Poll::Pending;
    }
    let body_timeout = exchange.options.body_timeout.unwrap_or(body_timeout);
    let timeout = exchange.stream_idle_timeout(limits);
    let pace = &mut exchange.receiving.pace;
    pace.share(received);
    if !exchange.has_no_min_rate {
        let due = pace.response_due(body_timeout, limits);
        if exchange.timer.poll_due(due, cx).is_pending() {
            return Poll::Pending;
        }
        return poll_later_deadline(framing, id, body_timeout, cx);
    }
    // The server may listen for as long as there is something to listen to.
    let silence = pace.silence_due(timeout);
    let progress = framing.transmission(id).progress;
    let Some(exchange) = framing.exchange(id) else {
        return Poll::Pending;
    };
    let due = progress.map_or(silence, |progress| silence.max(progress + timeout));
    exchange.timer.poll_due(due, cx)
}
