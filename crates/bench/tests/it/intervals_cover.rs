use blitz_bench::stats::{Interval, Median, Quartiles, Random};
use proptest::prelude::*;

use crate::noise_of_a_machine::{normal, uniform};

const SETS: usize = 1000;

/// In how many of 1,000 sets the interval covers the median 0.
fn covered(count: usize, draw: fn(&mut Random) -> f64) -> usize {
    let mut random = Random::new(count as u64);
    let mut set = || Median::of((0..count).map(|_| draw(&mut random))).expect("there are values");
    let sets = std::iter::repeat_with(&mut set).take(SETS);
    sets.filter(|median| median.interval.contains(0.0)).count()
}

#[test]
fn intervals_of_medians_cover_at_least_95_of_100_sets() {
    // With 5 values it is 93.75.
    for (count, least) in [(5, 920), (6, 950), (7, 950), (15, 950), (40, 950)] {
        let of_normal = covered(count, normal);
        // Skewed, with the median 0.
        let of_exponential = covered(count, |random| -uniform(random).ln() - 2_f64.ln());
        println!("{count} values: {of_normal}, {of_exponential} of {SETS}");
        assert!(of_normal.min(of_exponential) >= least, "{count} values");
    }
}

#[test]
fn ratios_are_those_of_each_round() {
    let median = Median::of_ratios([(1.0, 2.0), (30.0, 40.0), (5.0, 5.0)]).unwrap();
    let whole = Interval {
        low: 0.5,
        high: 1.0,
    };
    assert_eq!((median.value, median.interval), (0.75, whole));
}

proptest! {
    #[test]
    fn the_median_lies_in_its_interval_and_this_among_the_values(
        values in prop::collection::vec(-1e6..1e6_f64, 1..60)
    ) {
        let median = Median::of(values.iter().copied()).unwrap();
        let quartiles = Quartiles::of(values.iter().copied()).unwrap();
        prop_assert!((median.value - quartiles.median).abs() < 1e-6);
        prop_assert_eq!(median.interval_of_95().is_some(), values.len() >= 6);
        prop_assert!(median.interval.contains(median.value));
        prop_assert!(values.contains(&median.interval.low));
        prop_assert!(values.contains(&median.interval.high));
    }
}
