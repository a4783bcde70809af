//! The rate of informational responses to one request.

use std::time::Duration;

use crate::error::ErrorKind;

/// Informational responses (1xx) before the final one: a number at once, and one more for each second. A server may
/// report its progress for hours (102 Processing), and a flood would keep the request alive for nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct InformationalRate {
    /// When as many as ever are allowed again, in seconds of the caller's clock.
    whole_at_s: u32,
}

impl InformationalRate {
    /// Takes one more.
    pub(crate) fn admit(&mut self, at_once_max: usize, now: Duration) -> Result<(), ErrorKind> {
        let now_s = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        let whole_at_s = self.whole_at_s.max(now_s).saturating_add(1);
        if (whole_at_s - now_s) as usize > at_once_max {
            return Err(ErrorKind::TooManyInformational);
        }
        self.whole_at_s = whole_at_s;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(millis: impl Iterator<Item = u64>) -> usize {
        let mut rate = InformationalRate::default();
        millis
            .take_while(|&at| rate.admit(8, Duration::from_millis(at)).is_ok())
            .count()
    }

    #[test]
    fn one_in_a_second_is_allowed_for_hours_and_a_flood_is_not() {
        for start in [0, 5_000_000_000] {
            assert_eq!(admitted((0..20_000).map(|n| start + n * 1_000)), 20_000);
            assert_eq!(admitted((0..20).map(|_| start)), 8);
            // Two in a second use the allowance up.
            assert_eq!(admitted((0..1_000).map(|n| start + n * 500)), 15);
            // A long silence does not save more than is allowed at once.
            let burst = [start]
                .into_iter()
                .chain((0..20).map(|_| start + 3_600_000));
            assert_eq!(admitted(burst), 9);
        }
    }
}
