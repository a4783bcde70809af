//! Whether the peer is still there.
//!
//! A connection that has died in silence would hold all requests of a core until their deadlines.
//! So a server that is silent while requests wait is asked with PING, gets no more requests until it
//! says something, and is given up when it does not. One that answers PING and nothing else, as it
//! may with long polls, is asked ever more rarely: servers count PINGs, too.

use std::task::{Context, Poll};
use std::time::Instant;

use blitz_proto::Limits;

use super::client::Client;
use super::driver::Driver;

/// How much longer the next silence may be, each time that nothing but PING was answered.
const SILENCE_GROWTH: u32 = 4;
/// How often it grows.
const SILENCE_STEPS_MAX: u32 = 3;

#[derive(Debug)]
pub(super) struct Liveness {
    /// When something last came, or before it there was first a reason to expect something.
    heard: Instant,
    /// When PING was sent, if nothing came since.
    pinged: Option<Instant>,
    /// Something came since there was last a new reason to expect something.
    is_heard: bool,
    /// PINGs in a row after which no message went on.
    answered: u32,
    next: Next,
}

/// When there is something to look at.
#[derive(Debug)]
enum Next {
    /// Now, since something has changed.
    Now,
    At(Instant),
    /// When something changes.
    Later,
}

/// What to do about a silence.
#[derive(Debug, PartialEq, Eq)]
enum Silence {
    Wait(Instant),
    /// Send PING now, and wait for its answer until then.
    Ping(Instant),
    Over,
}

impl Liveness {
    pub(super) fn new(now: Instant) -> Liveness {
        Liveness {
            heard: now,
            pinged: None,
            is_heard: true,
            answered: 0,
            next: Next::Now,
        }
    }

    /// There is a reason to expect something that there was not before. As long as nothing has come
    /// for the one before, which was perhaps given up, the silence goes on.
    pub(super) fn expect(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_heard) {
            self.heard = now;
        }
        self.next = Next::Now;
    }

    /// Bytes came.
    #[inline]
    pub(super) fn hear(&mut self) {
        self.heard = blitz_reactor::now();
        self.is_heard = true;
        if self.pinged.take().is_some() {
            self.next = Next::Now;
        }
    }

    /// A message began or went on.
    #[inline]
    pub(super) fn progress(&mut self) {
        if self.answered != 0 {
            self.answered = 0;
            self.next = Next::Now;
        }
    }

    /// Whether the peer was asked and has said nothing yet.
    #[inline]
    pub(super) fn is_doubtful(&self) -> bool {
        self.pinged.is_some()
    }

    fn check(&mut self, now: Instant, limits: &Limits) -> Silence {
        if let Some(pinged) = self.pinged {
            let until = pinged + limits.ping_timeout;
            return match now >= until {
                true => Silence::Over,
                false => Silence::Wait(until),
            };
        }
        let steps = self.answered.min(SILENCE_STEPS_MAX);
        let until = self.heard + limits.ping_after * SILENCE_GROWTH.pow(steps);
        if now < until {
            return Silence::Wait(until);
        }
        self.pinged = Some(now);
        self.answered += 1;
        Silence::Ping(now + limits.ping_timeout)
    }
}

impl Driver<Client> {
    /// Ready if a server gives no sign of life; sends PING to one that is silent for too long.
    pub(super) fn poll_liveness(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = blitz_reactor::now();
        match self.role.liveness.next {
            Next::Later => return Poll::Pending,
            Next::At(due) if self.timer.is_set(now, due) => return Poll::Pending,
            Next::At(_) | Next::Now => {}
        }
        if self.streams.is_empty() {
            self.role.liveness.next = Next::Later;
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
        self.role.liveness.next = Next::At(until);
        // Only to be woken then: it lies in the future.
        let _ = self.timer.poll_due(until, cx);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limits() -> Limits {
        Limits {
            ping_after: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(20),
            ..Limits::default()
        }
    }

    #[test]
    fn a_silent_server_is_sent_ping_and_then_given_up() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut liveness = Liveness::new(began);
        assert_eq!(liveness.check(at(4), &limits()), Silence::Wait(at(5)));
        assert_eq!(liveness.check(at(5), &limits()), Silence::Ping(at(25)));
        assert!(liveness.is_doubtful());
        assert_eq!(liveness.check(at(24), &limits()), Silence::Wait(at(25)));
        assert_eq!(liveness.check(at(25), &limits()), Silence::Over);
    }

    #[test]
    fn requests_that_are_given_up_one_after_the_other_do_not_hide_a_silence() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut liveness = Liveness::new(began);
        for second in [1, 3] {
            liveness.expect(at(second));
            let silence = liveness.check(at(second + 1), &limits());
            assert_eq!(silence, Silence::Wait(at(6)));
        }
        liveness.expect(at(6));
        assert_eq!(liveness.check(at(6), &limits()), Silence::Ping(at(26)));
        // Nor does it lift the doubt.
        liveness.expect(at(7));
        assert!(liveness.is_doubtful());
    }

    /// A gRPC server ends a connection with the fourth PING in a row that comes within five minutes
    /// of the one before.
    #[test]
    fn a_server_that_answers_nothing_but_ping_is_sent_it_ever_more_rarely() {
        let began = Instant::now();
        let mut liveness = Liveness::new(began);
        let mut asked = Vec::new();
        for second in 0..1500 {
            let now = began + Duration::from_secs(second);
            if let Silence::Ping(_) = liveness.check(now, &limits()) {
                asked.push(second);
                (liveness.heard, liveness.pinged) = (now, None);
            }
        }
        assert_eq!(asked, [5, 25, 105, 425, 745, 1065, 1385]);
        liveness.progress();
        let now = began + Duration::from_secs(1500);
        assert!(matches!(liveness.check(now, &limits()), Silence::Ping(_)));
    }
}
