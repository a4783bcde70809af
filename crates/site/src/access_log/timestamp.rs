//! Times in lines, in UTC.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;

use super::escape::digits;

/// The text of the last second, since most lines begin in the same one as the line before.
#[derive(Debug, Default)]
pub(super) struct Timestamps(Second);

#[derive(Debug, Default)]
struct Second {
    since_epoch: u64,
    /// `2026-11-29T17:12:27`
    rfc3339: Vec<u8>,
    /// `29/Nov/2026:17:12:27 +0000`
    common: Vec<u8>,
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

impl Timestamps {
    /// Writes the time as `2026-11-29T17:12:27.123Z` (RFC 3339).
    pub(super) fn rfc3339(&mut self, time: SystemTime, out: &mut Vec<u8>) {
        let since_epoch = since_epoch(time);
        out.extend_from_slice(&self.second(since_epoch.as_secs()).rfc3339);
        out.push(b'.');
        digits(since_epoch.subsec_millis(), 3, out);
        out.push(b'Z');
    }

    /// Writes the time as `29/Nov/2026:17:12:27 +0000`, as the common log format has it.
    pub(super) fn common(&mut self, time: SystemTime, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.second(since_epoch(time).as_secs()).common);
    }

    fn second(&mut self, since_epoch: u64) -> &Second {
        if self.0.since_epoch != since_epoch || self.0.rfc3339.is_empty() {
            self.0.replace(since_epoch);
        }
        &self.0
    }
}

impl Second {
    #[cold]
    fn replace(&mut self, since_epoch: u64) {
        self.since_epoch = since_epoch;
        let seconds = i64::try_from(since_epoch).unwrap_or(i64::MAX);
        let time = OffsetDateTime::from_unix_timestamp(seconds);
        let time = time.unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
        let (hour, minute, second) = time.to_hms();
        self.rfc3339 =
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}").into();
        let month = MONTHS[usize::from(month) - 1];
        self.common =
            format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000").into();
    }
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_forms() {
        let mut times = Timestamps::default();
        let mut written = |time: Duration| {
            let time = SystemTime::UNIX_EPOCH + time;
            let (mut rfc3339, mut common) = (Vec::new(), Vec::new());
            times.rfc3339(time, &mut rfc3339);
            times.common(time, &mut common);
            [rfc3339, common].map(|text| String::from_utf8(text).unwrap())
        };
        assert_eq!(
            written(Duration::from_millis(1_782_753_147_005)),
            ["2026-06-29T17:12:27.005Z", "29/Jun/2026:17:12:27 +0000"]
        );
        assert_eq!(
            written(Duration::from_millis(951_782_400_999)),
            ["2000-02-29T00:00:00.999Z", "29/Feb/2000:00:00:00 +0000"]
        );
        assert_eq!(
            written(Duration::ZERO),
            ["1970-01-01T00:00:00.000Z", "01/Jan/1970:00:00:00 +0000"]
        );
    }
}
