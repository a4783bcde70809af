//! The requests that an address got: how many, how many failed, and how long their responses took.

use std::time::{Duration, Instant};

use blitz_site::Failure;

/// The recent responses are those of the last one to two periods.
const RECENT_PERIOD: Duration = Duration::from_secs(30);

/// The requests that an address got on one core since its name has it. A request that was sent again counts each time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AddressFigures {
    /// Those that ended with a response head or with a failure.
    pub requests: u64,
    /// Those without a connection or a response head, and those with a 5xx.
    pub failures: u64,
    /// Response heads.
    pub responses: ResponseTimes,
    /// The response heads of the last 30 to 60 seconds.
    pub recent: ResponseTimes,
    /// The requests that were sent since the last response head.
    pub unanswered: u64,
    /// How long ago the first of them was sent.
    pub first_unanswered: Option<Duration>,
    /// How long ago the last response head came.
    pub last_response: Option<Duration>,
}

/// Response heads, and the time from the connection to the head, of all of them together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResponseTimes {
    /// How many.
    pub count: u64,
    /// The sum of their times.
    pub time: Duration,
}

impl ResponseTimes {
    /// The mean time, if there are any.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        let count = u32::try_from(self.count).ok().filter(|count| *count > 0)?;
        Some(self.time / count)
    }

    /// With those of another core.
    #[must_use]
    pub fn and(self, other: ResponseTimes) -> ResponseTimes {
        ResponseTimes {
            count: self.count + other.count,
            time: self.time + other.time,
        }
    }
}

/// The figures of an address as they are counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    requests: u64,
    failures: u64,
    responses: ResponseTimes,
    /// The responses before the current period, and its end, which is compared with few instructions.
    period: Option<(ResponseTimes, Instant)>,
    /// The responses before the period before.
    earlier: ResponseTimes,
    /// The requests since the last response head, and when the first of them was sent.
    unanswered: Option<(u64, Instant)>,
    last_response: Option<Instant>,
    /// When it could not be connected to for the last time, and why.
    pub(super) last_failure: Option<(Instant, Failure)>,
}

impl Counts {
    #[inline]
    pub(super) fn sent(&mut self, now: Instant) {
        let (count, since) = self.unanswered.unwrap_or((0, now));
        self.unanswered = Some((count + 1, since));
    }

    #[inline]
    pub(super) fn responded(&mut self, time: Duration, is_failure: bool, now: Instant) {
        self.roll(now);
        self.requests += 1;
        self.failures += u64::from(is_failure);
        self.responses.count += 1;
        self.responses.time += time;
        self.unanswered = None;
        self.last_response = Some(now);
    }

    pub(super) fn failed(&mut self) {
        self.requests += 1;
        self.failures += 1;
    }

    pub(super) fn figures(&mut self, now: Instant) -> AddressFigures {
        self.roll(now);
        let since = |then| now.saturating_duration_since(then);
        AddressFigures {
            requests: self.requests,
            failures: self.failures,
            responses: self.responses,
            recent: ResponseTimes {
                count: self.responses.count - self.earlier.count,
                time: self.responses.time - self.earlier.time,
            },
            unanswered: self.unanswered.map_or(0, |(count, _)| count),
            first_unanswered: self.unanswered.map(|(_, first)| since(first)),
            last_response: self.last_response.map(since),
        }
    }

    #[inline]
    fn roll(&mut self, now: Instant) {
        if self.period.is_none_or(|(_, end)| now >= end) {
            self.begin_period(now);
        }
    }

    #[cold]
    fn begin_period(&mut self, now: Instant) {
        if let Some((before, end)) = self.period {
            self.earlier = match now >= end + RECENT_PERIOD {
                true => self.responses,
                false => before,
            };
        }
        self.period = Some((self.responses, now + RECENT_PERIOD));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_responses_are_forgotten_after_a_minute() {
        let (mut counts, start) = (Counts::default(), Instant::now());
        let recent = |counts: &mut Counts, seconds| {
            let figures = counts.figures(start + Duration::from_secs(seconds));
            (figures.recent.count, figures.recent.mean())
        };
        let (short, long) = (Duration::from_millis(10), Duration::from_millis(30));
        counts.responded(short, false, start);
        counts.responded(long, true, start + Duration::from_secs(20));
        assert_eq!(recent(&mut counts, 20), (2, Some((short + long) / 2)));
        counts.responded(long, false, start + Duration::from_secs(31));
        assert_eq!(recent(&mut counts, 40).0, 3);
        assert_eq!(recent(&mut counts, 61), (1, Some(long)));
        assert_eq!(recent(&mut counts, 200), (0, None));
        counts.failed();
        let figures = counts.figures(start + Duration::from_secs(200));
        assert_eq!((figures.requests, figures.failures), (4, 2));
        assert_eq!(figures.responses.count, 3);
    }
}
