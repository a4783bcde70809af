//! The `Date` field, formatted once a second on each core.

use std::cell::Cell;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Length of an IMF-fixdate (RFC 9110, section 5.6.7).
const LENGTH: usize = 29;

thread_local! {
    static CACHE: Cell<(u64, [u8; LENGTH])> = const { Cell::new((u64::MAX, [0; LENGTH])) };
}

/// The wall-clock time of this turn as the value of a `Date` field (RFC 9110, section 6.6.1).
#[must_use]
pub(crate) fn http_date() -> [u8; LENGTH] {
    let now = blitz_reactor::wall_clock();
    let second = now
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (cached, text) = CACHE.get();
    if cached == second {
        return text;
    }
    let text = format(now);
    CACHE.set((second, text));
    text
}

/// The time at which [`http_date`] changes next, unless the wall clock is set before.
pub(crate) fn next_second() -> Instant {
    let since = blitz_reactor::wall_clock().duration_since(UNIX_EPOCH);
    let passed = since.map_or(0, |since| since.subsec_nanos());
    blitz_reactor::now() + Duration::from_nanos(1_000_000_000 - u64::from(passed))
}

fn format(time: std::time::SystemTime) -> [u8; LENGTH] {
    let mut text = [b' '; LENGTH];
    let formatted = httpdate::fmt_http_date(time);
    assert_eq!(formatted.len(), LENGTH, "an IMF-fixdate has a fixed length");
    text.copy_from_slice(formatted.as_bytes());
    text
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn the_example_of_rfc_9110_is_reproduced() {
        let time = UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(&super::format(time), b"Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
