//! Histograms of durations, whose classic and native buckets come from the same counts.
//!
//! The bounds of both kinds together divide the time axis into cells, and an observation adds one to its cell. A native
//! bucket is one cell, or two if a classic bound lies within it.

/// Upper bounds of the classic buckets, in nanoseconds: from 50 µs to 10 s.
pub const CLASSIC_BOUNDS_NS: [u64; 17] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Schema of the native buckets: 2^[`SCHEMA`] of them for each doubling, so a bound is 1.19 times the one before.
pub const SCHEMA: i32 = 2;

/// Native buckets for each doubling.
const PER_DOUBLING: i64 = 1 << SCHEMA;

/// Durations up to 2^-16 s, 15 µs, are in the zero bucket: they begin and end in the same turn of the core.
const EXPONENT_MIN: i64 = -16;

/// Durations above 2^16 s, 18 hours, are in the last bucket.
const EXPONENT_MAX: i64 = 16;

/// The zero bucket and the native ones.
const BUCKETS: usize = 1 + ((EXPONENT_MAX - EXPONENT_MIN) * PER_DOUBLING) as usize;

/// All bounds but 0.25 s, 0.5 s and 1 s are within a native bucket.
const CELLS: usize = BUCKETS + CLASSIC_BOUNDS_NS.len() - 3;

/// Bounds within a doubling: 2^(1/4), 2^(1/2), 2^(3/4).
const FRACTIONS: [f64; 4] = [
    1.0,
    1.189_207_115_002_721,
    std::f64::consts::SQRT_2,
    1.681_792_830_507_429,
];

/// The bits of a fraction in a number of 64 bits.
const FRACTION_BITS: u64 = (1 << 52) - 1;

const NANOSECONDS: f64 = 1e9;

/// The cells of a bucket.
#[derive(Clone, Copy)]
struct Bucket {
    first_cell: u8,
    /// The classic bound within it: greater durations are in the next cell.
    split_ns: u64,
}

struct Layout {
    buckets: [Bucket; BUCKETS],
    /// How many cells are up to each classic bound.
    cells_up_to: [usize; CLASSIC_BOUNDS_NS.len()],
}

static LAYOUT: Layout = layout();

const fn layout() -> Layout {
    let unsplit = Bucket {
        first_cell: 0,
        split_ns: u64::MAX,
    };
    let mut buckets = [unsplit; BUCKETS];
    let mut cells_up_to = [0; CLASSIC_BOUNDS_NS.len()];
    let (mut cell, mut bound, mut at) = (1, 0, 1);
    while at < BUCKETS {
        buckets[at].first_cell = cell as u8;
        cell += 1;
        let upper = upper_bound(at);
        if bound < CLASSIC_BOUNDS_NS.len() {
            let seconds = CLASSIC_BOUNDS_NS[bound] as f64 / NANOSECONDS;
            if seconds <= upper {
                cells_up_to[bound] = cell;
                if seconds < upper {
                    buckets[at].split_ns = CLASSIC_BOUNDS_NS[bound];
                    cell += 1;
                }
                bound += 1;
            }
        }
        at += 1;
    }
    assert!(cell == CELLS && bound == CLASSIC_BOUNDS_NS.len());
    Layout {
        buckets,
        cells_up_to,
    }
}

/// The upper bound of a bucket in seconds, which belongs to it.
const fn upper_bound(bucket: usize) -> f64 {
    let exponent = EXPONENT_MIN + bucket as i64 / PER_DOUBLING;
    let mut bound = FRACTIONS[bucket % FRACTIONS.len()];
    let mut doublings = exponent;
    while doublings > 0 {
        bound *= 2.0;
        doublings -= 1;
    }
    while doublings < 0 {
        bound /= 2.0;
        doublings += 1;
    }
    bound
}

/// The bucket of a duration: 0 is the zero bucket.
#[inline]
fn bucket_of(ns: u64) -> usize {
    const BOUNDS: [u64; 3] = [
        FRACTIONS[1].to_bits() & FRACTION_BITS,
        FRACTIONS[2].to_bits() & FRACTION_BITS,
        FRACTIONS[3].to_bits() & FRACTION_BITS,
    ];
    let bits = (ns as f64 / NANOSECONDS).to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let fraction = bits & FRACTION_BITS;
    let within = i64::from(fraction > 0)
        + i64::from(fraction > BOUNDS[0])
        + i64::from(fraction > BOUNDS[1])
        + i64::from(fraction > BOUNDS[2]);
    let bucket = (exponent - EXPONENT_MIN) * PER_DOUBLING + within;
    bucket.clamp(0, BUCKETS as i64 - 1) as usize
}

/// Counts of durations. It takes 1,152 bytes, whatever it has counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    cells: [u64; CELLS],
    sum_ns: u64,
}

/// The native buckets of a histogram that have counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeBuckets {
    /// Durations up to [`zero_threshold`].
    pub zero: u64,
    /// Index and count: the bucket with index `i` has durations up to 2^(i / 2^[`SCHEMA`]) s.
    pub positive: Vec<(i32, u64)>,
}

/// The greatest duration of the zero bucket, in seconds.
#[must_use]
pub fn zero_threshold() -> f64 {
    upper_bound(0)
}

impl Histogram {
    /// Without an observation.
    pub(super) const NEW: Histogram = Histogram {
        cells: [0; CELLS],
        sum_ns: 0,
    };

    /// Counts a duration.
    #[inline]
    pub(super) fn observe(&mut self, ns: u64) {
        let bucket = &LAYOUT.buckets[bucket_of(ns)];
        let cell = usize::from(bucket.first_cell) + usize::from(ns > bucket.split_ns);
        self.cells[cell] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Adds the counts of another one.
    pub fn add(&mut self, other: &Histogram) {
        for (sum, count) in self.cells.iter_mut().zip(other.cells) {
            *sum += count;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// The number of observations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.cells.iter().sum()
    }

    /// The sum of all observations in seconds.
    #[must_use]
    pub fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / NANOSECONDS
    }

    /// The number of observations up to each of [`CLASSIC_BOUNDS_NS`].
    #[must_use]
    pub fn classic(&self) -> [u64; CLASSIC_BOUNDS_NS.len()] {
        let (mut counts, mut at, mut sum) = ([0; CLASSIC_BOUNDS_NS.len()], 0, 0);
        for (count, end) in counts.iter_mut().zip(LAYOUT.cells_up_to) {
            sum += self.cells[at..end].iter().sum::<u64>();
            at = end;
            *count = sum;
        }
        counts
    }

    /// The native buckets.
    #[must_use]
    pub fn native(&self) -> NativeBuckets {
        let ends = LAYOUT.buckets[1..].iter().map(|next| next.first_cell);
        let ends = ends.map(usize::from).chain([CELLS]);
        let buckets = LAYOUT.buckets.iter().zip(ends);
        let counts = buckets.map(|(bucket, end)| {
            let cells = &self.cells[usize::from(bucket.first_cell)..end];
            cells.iter().sum::<u64>()
        });
        let mut positive = Vec::new();
        let mut zero = 0;
        for (at, count) in counts.enumerate() {
            match at {
                0 => zero = count,
                _ if count > 0 => {
                    let index = EXPONENT_MIN * PER_DOUBLING + at as i64;
                    positive.push((index as i32, count));
                }
                _ => {}
            }
        }
        NativeBuckets { zero, positive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations_ns: &[u64]) -> Histogram {
        let mut histogram = Histogram::NEW;
        durations_ns.iter().for_each(|ns| histogram.observe(*ns));
        histogram
    }

    /// Durations at, just below and just above every bound, and many between.
    fn durations() -> Vec<u64> {
        let native = (0..BUCKETS).map(|bucket| (upper_bound(bucket) * NANOSECONDS) as u64);
        let bounds = native.chain(CLASSIC_BOUNDS_NS);
        let mut all: Vec<u64> = bounds
            .flat_map(|bound| [bound - 1, bound, bound + 1])
            .collect();
        let mut state = 7_u64;
        all.extend((0..20_000).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 8) >> (state % 56)
        }));
        all.extend([0, 1, u64::MAX / 2]);
        all
    }

    #[test]
    fn classic_counts_are_those_of_a_comparison_with_each_bound() {
        let durations = durations();
        let histogram = of(&durations);
        for (bound, count) in CLASSIC_BOUNDS_NS.into_iter().zip(histogram.classic()) {
            let expected = durations.iter().filter(|ns| **ns <= bound).count();
            assert_eq!(count, expected as u64, "{bound}");
        }
        assert_eq!(histogram.count(), durations.len() as u64);
    }

    #[test]
    fn each_duration_is_within_its_native_bucket() {
        for ns in durations() {
            let seconds = ns as f64 / NANOSECONDS;
            let native = of(&[ns]).native();
            match native.positive.as_slice() {
                [] => {
                    assert_eq!(native.zero, 1);
                    assert!(seconds <= zero_threshold(), "{ns}");
                }
                [(index, 1)] => {
                    let bound = |index: i32| 2_f64.powf(f64::from(index) / 4.0);
                    // The last bits of a bound differ by the way in which it is computed.
                    let is_above = seconds > bound(index - 1) * (1.0 - 1e-12);
                    let is_last = *index == (EXPONENT_MAX * PER_DOUBLING) as i32;
                    assert!(is_above, "{ns}: {index}");
                    assert!(
                        is_last || seconds <= bound(*index) * (1.0 + 1e-12),
                        "{ns}: {index}"
                    );
                }
                other => panic!("{ns}: {other:?}"),
            }
        }
    }

    /// Both kinds say the same: up to a classic bound are all native buckets below it.
    #[test]
    fn classic_and_native_counts_agree() {
        let histogram = of(&durations());
        let native = histogram.native();
        let sum: u64 = native.positive.iter().map(|(_, count)| count).sum();
        assert_eq!(native.zero + sum, histogram.count());
        // 1 s is a bound of both.
        let to_one_second = native.positive.iter().filter(|(index, _)| *index <= 0);
        let to_one_second: u64 = to_one_second.map(|(_, count)| count).sum();
        assert_eq!(native.zero + to_one_second, histogram.classic()[13]);
    }

    #[test]
    fn sums_are_those_of_all_observations() {
        let mut sum = of(&[1_000_000_000, 20_000_000]);
        sum.add(&of(&[1_000_000_000, 3_000]));
        let mut expected = of(&[3_000, 20_000_000]);
        expected.observe(1_000_000_000);
        expected.observe(1_000_000_000);
        assert_eq!(sum, expected);
        assert_eq!(sum.count(), 4);
        assert!((sum.sum_seconds() - 2.020_003).abs() < 1e-9);
    }

    #[test]
    fn its_memory_is_the_stated_one() {
        assert_eq!(size_of::<Histogram>(), 1_152);
    }
}
