//! One core's records of its requests.

use std::collections::BTreeMap;
use std::time::Duration;

use blitz_http::{ClientConnection, Protocol};

use super::by_request::{self, RequestFigures};
use crate::distribution::{Distribution, Recorder};
use crate::load_result::{Answered, Connects, Counts, Interval, Times};

/// Records the requests of the measured time on one core.
pub(super) struct CoreRecorder {
    /// Of requests whose times differ; the others are in the timeline alone.
    service: Recorder,
    first_byte: Recorder,
    lag: Recorder,
    connects: ConnectRecorder,
    completed: u64,
    wrong: BTreeMap<&'static str, u64>,
    failed: BTreeMap<String, u64>,
    repeated: u64,
    queued: u64,
    /// Of an open loop.
    answered: Option<Answered>,
    /// Counts of a few statuses; there is hardly ever more than one.
    statuses: Vec<(u16, u64)>,
    content_bytes_received: u64,
    content_bytes_sent: u64,
    timeline: Timeline,
    /// End of the last request, whatever became of it.
    last_end: Duration,
    /// Length of the measured time, if it is planned, and requests that ended after it.
    planned: Duration,
    late: u64,
}

#[derive(Default)]
struct ConnectRecorder {
    count: u64,
    resumed: u64,
    tcp: Recorder,
    tls: [Recorder; 2],
    quic: [Recorder; 2],
}

/// The times of one request.
pub(super) struct RequestTimes {
    pub(super) latency: Duration,
    pub(super) service: Duration,
    pub(super) first_byte: Duration,
    /// End of the request, since the start of the measured time.
    pub(super) end: Duration,
}

/// The times of one connection.
pub(super) struct ConnectTimes {
    pub(super) tcp: Option<Duration>,
    /// A TLS handshake over TCP, or a QUIC handshake.
    pub(super) handshake: Option<Duration>,
    pub(super) is_quic: bool,
    pub(super) is_resumed: bool,
}

impl ConnectTimes {
    pub(super) fn of(connection: &ClientConnection) -> ConnectTimes {
        let timings = connection.timings();
        ConnectTimes {
            tcp: timings.connect,
            handshake: timings.handshake,
            is_quic: connection.protocol() == Protocol::Http3,
            is_resumed: timings.is_resumed,
        }
    }
}

/// The records of a core.
#[derive(Default)]
pub(super) struct CoreResult {
    pub(super) counts: Counts,
    pub(super) times: Times,
    pub(super) connects: Connects,
    pub(super) lag: Distribution,
    pub(super) timeline: Vec<Interval>,
    pub(super) by_request: Vec<RequestFigures>,
    /// Length of the measured time.
    pub(super) length: Duration,
    /// Requests that ended after the planned end of it.
    pub(super) late: u64,
    pub(super) answered: Option<Answered>,
}

struct Timeline {
    length: Duration,
    current: usize,
    /// End of the current interval.
    end: Duration,
    latencies: Latencies,
    completed: u64,
    errors: u64,
    bytes: u64,
    done: Vec<Interval>,
    /// Latencies of the intervals before.
    before: Latencies,
}

/// Latencies. A histogram is larger than a cache, so each request counts in one alone where that is possible.
struct Latencies {
    /// Of requests whose service time and time to the first byte are their latency: short responses in a closed loop.
    alike: Recorder,
    others: Recorder,
}

impl CoreRecorder {
    /// The timeline has intervals of this length, and the measured time is planned to have the other one.
    pub(super) fn new(interval: Duration, planned: Option<Duration>) -> CoreRecorder {
        CoreRecorder {
            service: Recorder::new(),
            first_byte: Recorder::new(),
            lag: Recorder::new(),
            connects: ConnectRecorder::default(),
            completed: 0,
            wrong: BTreeMap::new(),
            failed: BTreeMap::new(),
            repeated: 0,
            queued: 0,
            answered: None,
            statuses: Vec::new(),
            content_bytes_received: 0,
            content_bytes_sent: 0,
            timeline: Timeline::new(interval),
            last_end: Duration::ZERO,
            planned: planned.unwrap_or(Duration::MAX),
            late: 0,
        }
    }

    /// A correct response.
    #[inline]
    pub(super) fn completed(&mut self, times: &RequestTimes, received: u64, sent: u64) {
        self.completed += 1;
        self.content_bytes_received += received;
        self.content_bytes_sent += sent;
        self.last_end = times.end;
        self.late += u64::from(times.end > self.planned);
        self.timeline.move_to(times.end);
        self.timeline.completed += 1;
        self.timeline.bytes += received;
        let latencies = &mut self.timeline.latencies;
        if times.service == times.latency && times.first_byte == times.latency {
            latencies.alike.record(times.latency);
        } else {
            latencies.others.record(times.latency);
            self.service.record(times.service);
            self.first_byte.record(times.first_byte);
        }
    }

    #[inline]
    pub(super) fn status(&mut self, status: u16) {
        match self.statuses.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += 1,
            None => self.statuses.push((status, 1)),
        }
    }

    #[cold]
    pub(super) fn wrong(&mut self, what: &'static str, at: Duration) {
        self.last_end = at;
        *self.wrong.entry(what).or_default() += 1;
        self.timeline.move_to(at);
        self.timeline.errors += 1;
    }

    #[cold]
    pub(super) fn failed(&mut self, error: String, at: Duration) {
        self.last_end = at;
        *self.failed.entry(error).or_default() += 1;
        self.timeline.move_to(at);
        self.timeline.errors += 1;
    }

    #[cold]
    pub(super) fn repeated(&mut self) {
        self.repeated += 1;
    }

    #[cold]
    pub(super) fn queued(&mut self) {
        self.queued += 1;
    }

    /// A correct response of an open loop came in the measured time, whenever its request was planned.
    pub(super) fn answered(&mut self, received: u64) {
        let answered = self.answered.get_or_insert_default();
        answered.completed += 1;
        answered.content_bytes_received += received;
    }

    pub(super) fn lag(&mut self, lag: Duration) {
        self.lag.record(lag);
    }

    pub(super) fn connected(&mut self, times: &ConnectTimes) {
        let connects = &mut self.connects;
        connects.count += 1;
        connects.resumed += u64::from(times.is_resumed);
        if let Some(tcp) = times.tcp {
            connects.tcp.record(tcp);
        }
        if let Some(handshake) = times.handshake {
            let kind = match times.is_quic {
                true => &mut connects.quic,
                false => &mut connects.tls,
            };
            kind[usize::from(times.is_resumed)].record(handshake);
        }
    }

    /// When the last request ended, since the start of the measured time.
    pub(super) fn last_end(&self) -> Duration {
        self.last_end
    }

    /// Everything, with intervals up to `end` of the measured time.
    pub(super) fn finish(self, end: Duration) -> CoreResult {
        let owned = |(name, count): (&'static str, u64)| (name.to_owned(), count);
        let ConnectRecorder {
            count,
            resumed,
            tcp,
            tls,
            quic,
        } = self.connects;
        let (timeline, latencies) = self.timeline.finish(end);
        let with_alike = |recorder: Recorder| {
            let mut all = recorder.distribution();
            all.merge(&latencies.alike.distribution());
            all
        };
        CoreResult {
            counts: Counts {
                completed: self.completed,
                wrong: self.wrong.into_iter().map(owned).collect(),
                failed: self.failed,
                unfinished: 0,
                repeated: self.repeated,
                queued: self.queued,
                statuses: self.statuses.into_iter().collect(),
                content_bytes_received: self.content_bytes_received,
                content_bytes_sent: self.content_bytes_sent,
            },
            times: Times {
                latency: latencies.distribution(),
                service: with_alike(self.service),
                first_byte: with_alike(self.first_byte),
            },
            connects: Connects {
                count,
                resumed,
                tcp: tcp.distribution(),
                tls: tls[0].distribution(),
                tls_resumed: tls[1].distribution(),
                quic: quic[0].distribution(),
                quic_resumed: quic[1].distribution(),
            },
            lag: self.lag.distribution(),
            timeline,
            by_request: Vec::new(),
            length: end,
            late: self.late,
            answered: self.answered,
        }
    }
}

impl Latencies {
    fn new() -> Latencies {
        Latencies {
            alike: Recorder::new(),
            others: Recorder::new(),
        }
    }

    fn distribution(&self) -> Distribution {
        let mut all = self.alike.distribution();
        all.merge(&self.others.distribution());
        all
    }

    /// Moves everything to `to`.
    fn move_to(&mut self, to: &mut Latencies) {
        self.alike.move_to(&mut to.alike);
        self.others.move_to(&mut to.others);
    }
}

impl Timeline {
    fn new(length: Duration) -> Timeline {
        Timeline {
            length,
            current: 0,
            end: length,
            latencies: Latencies::new(),
            completed: 0,
            errors: 0,
            bytes: 0,
            done: Vec::new(),
            before: Latencies::new(),
        }
    }

    /// Makes the interval of a moment the current one. Requests that end out of order belong to the current one.
    #[inline]
    fn move_to(&mut self, at: Duration) {
        if at >= self.end {
            self.advance(at);
        }
    }

    #[cold]
    fn advance(&mut self, at: Duration) {
        let wanted = (at.as_nanos() / self.length.as_nanos().max(1)) as usize;
        while self.current < wanted {
            self.close(self.length);
            self.current += 1;
        }
        self.end = self.length * (self.current as u32 + 1);
    }

    fn close(&mut self, length: Duration) {
        let start = self.length * self.current as u32;
        self.done.push(Interval {
            end_s: (start + length).as_secs_f64(),
            length_s: length.as_secs_f64(),
            completed: std::mem::take(&mut self.completed),
            errors: std::mem::take(&mut self.errors),
            content_bytes_received: std::mem::take(&mut self.bytes),
            latency: self.latencies.distribution(),
        });
        self.latencies.move_to(&mut self.before);
    }

    /// The intervals up to `end`, and the latencies of all of them.
    fn finish(mut self, end: Duration) -> (Vec<Interval>, Latencies) {
        self.advance(end.saturating_sub(Duration::from_nanos(1)));
        let start = self.length * self.current as u32;
        let left = end.saturating_sub(start).min(self.length);
        if !left.is_zero() || self.completed + self.errors > 0 {
            self.close(left);
        }
        (self.done, self.before)
    }
}

impl CoreResult {
    /// Requests without a response count with the time for which they have waited, which their latency exceeds: left
    /// out, they would make percentiles too low.
    pub(super) fn add_unfinished(&mut self, waited: impl Iterator<Item = Duration>) {
        let mut recorder = Recorder::new();
        for waited in waited {
            self.counts.unfinished += 1;
            recorder.record(waited);
        }
        self.times.latency.merge(&recorder.distribution());
    }

    /// Adds what another core has recorded.
    pub(super) fn merge(&mut self, other: CoreResult) {
        self.counts.merge(other.counts);
        by_request::merge(&mut self.by_request, other.by_request);
        self.times.latency.merge(&other.times.latency);
        self.times.service.merge(&other.times.service);
        self.times.first_byte.merge(&other.times.first_byte);
        self.connects.merge(&other.connects);
        self.lag.merge(&other.lag);
        self.length = self.length.max(other.length);
        self.late += other.late;
        if let Some(other) = other.answered {
            self.answered.get_or_insert_default().merge(&other);
        }
        for (index, interval) in other.timeline.into_iter().enumerate() {
            match self.timeline.get_mut(index) {
                Some(ours) => ours.merge(&interval),
                None => self.timeline.push(interval),
            }
        }
    }
}

impl Counts {
    fn merge(&mut self, other: Counts) {
        self.completed += other.completed;
        self.unfinished += other.unfinished;
        self.repeated += other.repeated;
        self.queued += other.queued;
        self.content_bytes_received += other.content_bytes_received;
        self.content_bytes_sent += other.content_bytes_sent;
        for (name, count) in other.wrong {
            *self.wrong.entry(name).or_default() += count;
        }
        for (name, count) in other.failed {
            *self.failed.entry(name).or_default() += count;
        }
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
    }
}

impl Answered {
    fn merge(&mut self, other: &Answered) {
        self.completed += other.completed;
        self.content_bytes_received += other.content_bytes_received;
        self.length_s = self.length_s.max(other.length_s);
    }
}

impl Connects {
    fn merge(&mut self, other: &Connects) {
        self.count += other.count;
        self.resumed += other.resumed;
        self.tcp.merge(&other.tcp);
        self.tls.merge(&other.tls);
        self.tls_resumed.merge(&other.tls_resumed);
        self.quic.merge(&other.quic);
        self.quic_resumed.merge(&other.quic_resumed);
    }
}

impl Interval {
    fn merge(&mut self, other: &Interval) {
        self.end_s = self.end_s.max(other.end_s);
        self.length_s = self.length_s.max(other.length_s);
        self.completed += other.completed;
        self.errors += other.errors;
        self.content_bytes_received += other.content_bytes_received;
        self.latency.merge(&other.latency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(end_ms: u64) -> RequestTimes {
        RequestTimes {
            latency: Duration::from_millis(2),
            service: Duration::from_millis(1),
            first_byte: Duration::from_millis(1),
            end: Duration::from_millis(end_ms),
        }
    }

    #[test]
    fn requests_belong_to_the_interval_in_which_they_end() {
        let mut recorder = CoreRecorder::new(Duration::from_millis(100), None);
        for end in [10, 90, 110, 350, 340] {
            recorder.completed(&times(end), 5, 0);
        }
        recorder.wrong("status", Duration::from_millis(360));
        let mut result = recorder.finish(Duration::from_millis(420));
        result.add_unfinished([Duration::from_secs(6); 3].into_iter());
        let completed: Vec<u64> = result.timeline.iter().map(|it| it.completed).collect();
        assert_eq!(completed, [2, 1, 0, 2, 0]);
        assert_eq!(result.timeline[3].errors, 1);
        assert!((result.timeline[4].length_s - 0.02).abs() < 1e-9);
        assert_eq!(result.counts.completed, 5);
        assert_eq!(result.counts.unfinished, 3);
        assert_eq!(
            (result.times.latency.count, result.times.service.count),
            (8, 5)
        );
        assert!(result.times.latency.quantile(0.9).unwrap() > Duration::from_millis(5_990));
        assert_eq!(result.counts.content_bytes_received, 25);
        assert_eq!(result.timeline[0].latency.count, 2);
    }

    #[test]
    fn each_time_of_a_request_is_recorded() {
        let mut recorder = CoreRecorder::new(Duration::from_millis(100), None);
        let alike = RequestTimes {
            latency: Duration::from_millis(1),
            ..times(50)
        };
        for _ in 0..2 {
            recorder.completed(&alike, 0, 0);
        }
        recorder.completed(&times(60), 0, 0);
        recorder.completed(&times(150), 0, 0);
        let result = recorder.finish(Duration::from_millis(200));
        let ms = |of: &Distribution| (of.count, of.sum_ns / 1e6);
        let near =
            |(count, sum): (u64, f64), expected: f64| count == 4 && (sum - expected).abs() < 0.01;
        assert!(near(ms(&result.times.latency), 6.0), "{:?}", result.times);
        assert!(near(ms(&result.times.service), 4.0), "{:?}", result.times);
        assert!(
            near(ms(&result.times.first_byte), 4.0),
            "{:?}",
            result.times
        );
        let counts: Vec<u64> = result.timeline.iter().map(|it| it.latency.count).collect();
        assert_eq!(counts, [3, 1]);
    }

    #[test]
    fn an_end_on_a_boundary_opens_no_empty_interval() {
        let mut recorder = CoreRecorder::new(Duration::from_millis(100), None);
        recorder.completed(&times(150), 0, 0);
        let result = recorder.finish(Duration::from_millis(200));
        assert_eq!(result.timeline.len(), 2);
    }

    #[test]
    fn cores_add_up() {
        let mut first = CoreRecorder::new(Duration::from_millis(100), None);
        let mut second = CoreRecorder::new(Duration::from_millis(100), None);
        first.completed(&times(50), 1, 0);
        first.status(200);
        second.completed(&times(150), 1, 0);
        second.status(200);
        second.failed("no response in time".to_owned(), Duration::from_millis(10));
        let mut sum = first.finish(Duration::from_millis(100));
        sum.merge(second.finish(Duration::from_millis(200)));
        assert_eq!(sum.counts.statuses[&200], 2);
        assert_eq!(sum.counts.errors(), 1);
        assert_eq!(sum.times.latency.count, 2);
        assert_eq!(sum.timeline.len(), 2);
    }
}
