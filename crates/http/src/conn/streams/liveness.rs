//! Whether the peer is still reachable.
//!
//! A dead connection would hold all requests of a core until their deadlines. A server that is silent while requests
//! wait therefore gets PING, gets no more requests until a byte arrives, and is disconnected when none does. A server
//! that acknowledges PING and sends nothing else, as with long polls, gets PING ever more rarely, because servers limit
//! PINGs.

use std::time::Instant;

use blitz_proto::Limits;

/// The growth of the permitted silence, each time that nothing but an acknowledgement of PING arrives.
const SILENCE_GROWTH: u32 = 4;
/// How often it grows.
const SILENCE_STEPS_MAX: u32 = 3;

#[derive(Debug)]
pub(in crate::conn) struct Liveness {
    /// The time at which bytes last arrived, or a later time at which the first request began to wait.
    heard: Instant,
    /// The time at which PING was sent, if nothing has arrived since.
    pinged: Option<Instant>,
    /// Bytes arrived since a request last began to wait.
    is_heard: bool,
    /// PINGs in a row without progress of a message.
    answered: u32,
    /// When to check next.
    pub(in crate::conn) next: NextCheck,
}

/// When to check next.
#[derive(Debug)]
pub(in crate::conn) enum NextCheck {
    /// Now, since the state has changed.
    Now,
    At(Instant),
    /// When the state changes.
    Later,
}

/// The action on a silence.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::conn) enum Silence {
    Wait(Instant),
    /// Send PING now, and wait for its acknowledgement until then.
    Ping(Instant),
    Over,
}

impl Liveness {
    pub(in crate::conn) fn new(now: Instant) -> Liveness {
        Liveness {
            heard: now,
            pinged: None,
            is_heard: true,
            answered: 0,
            next: NextCheck::Now,
        }
    }

    /// A request begins to wait. If nothing has arrived since an earlier one, which may have been
    /// cancelled, the silence continues.
    pub(in crate::conn) fn expect(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_heard) {
            self.heard = now;
        }
        self.next = NextCheck::Now;
    }

    /// Bytes came.
    #[inline]
    pub(in crate::conn) fn bytes_received(&mut self) {
        self.heard = blitz_reactor::now();
        self.is_heard = true;
        if self.pinged.take().is_some() {
            self.next = NextCheck::Now;
        }
    }

    /// A message began or continued.
    #[inline]
    pub(in crate::conn) fn progress(&mut self) {
        if self.answered != 0 {
            self.answered = 0;
            self.next = NextCheck::Now;
        }
    }

    /// Whether a PING was sent and nothing has arrived since.
    #[inline]
    pub(in crate::conn) fn is_ping_pending(&self) -> bool {
        self.pinged.is_some()
    }

    pub(in crate::conn) fn check(&mut self, now: Instant, limits: &Limits) -> Silence {
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
        assert!(liveness.is_ping_pending());
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
        // The PING stays pending.
        liveness.expect(at(7));
        assert!(liveness.is_ping_pending());
    }

    /// A gRPC server ends a connection at the fourth PING in a row that comes within five minutes of the one before.
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
