//! Whether the rate of responses has become steady.

/// Windows that are compared.
const WINDOWS: usize = 4;

/// The greatest difference of a window from their mean.
const DIFFERENCE_MAX: f64 = 0.05;

/// Whether the last windows had nearly as many responses as each other. `counts` holds the responses of windows of one
/// length, oldest first. Few responses vary by chance: twice their standard deviation is allowed as well.
pub(super) fn is_steady(counts: &[u64]) -> bool {
    let Some(last) = counts.len().checked_sub(WINDOWS).map(|at| &counts[at..]) else {
        return false;
    };
    let mean = last.iter().sum::<u64>() as f64 / WINDOWS as f64;
    let allowed = (DIFFERENCE_MAX * mean).max(2.0 * mean.sqrt());
    mean > 0.0
        && last
            .iter()
            .all(|&count| (count as f64 - mean).abs() <= allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_steady_when_four_windows_agree() {
        assert!(!is_steady(&[1_000, 1_000, 1_000]));
        assert!(is_steady(&[10, 1_000, 1_020, 990, 1_010]));
        assert!(!is_steady(&[10_000, 11_000, 12_000, 13_000]));
        assert!(!is_steady(&[0, 0, 0, 0]));
        assert!(is_steady(&[20, 24, 18, 22]));
    }
}
