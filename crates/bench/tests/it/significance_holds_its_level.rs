use blitz_bench::stats::{Comparison, Difference, PAIRS_MIN, Random, compare, compare_sets};
use proptest::prelude::*;

use crate::noise_of_a_machine::{Noise, rounds};

const SETS: usize = 1000;
const NOISES: [Noise; 4] = [
    Noise::Normal(0.025),
    Noise::LogNormal(0.025),
    Noise::HeavyTails,
    Noise::Drift { run: 0.03 },
];

/// How many of 1,000 sets show this difference.
fn count(noise: Noise, ratio: f64, pairs: usize, difference: Difference) -> usize {
    let mut random = Random::new(pairs as u64);
    let mut set = || compare(&rounds(noise, ratio, pairs, &mut random)).expect("valid values");
    let sets = std::iter::repeat_with(&mut set).take(SETS);
    sets.filter(|set| set.difference == difference).count()
}

/// How many of 1,000 sets of equal systems show a difference.
fn wrong(noise: Noise, pairs: usize) -> usize {
    let directions = [Difference::Smaller, Difference::Larger].into_iter();
    directions
        .map(|difference| count(noise, 1.0, pairs, difference))
        .sum()
}

#[test]
fn equal_systems_differ_in_at_most_five_of_a_hundred_sets() {
    for noise in NOISES {
        for pairs in [6, 7, 15] {
            let wrong = wrong(noise, pairs);
            println!("{noise:?}, {pairs} rounds: {wrong} of {SETS}");
            assert!(wrong <= SETS / 20, "{noise:?}, {pairs} rounds: {wrong}");
        }
    }
}

#[test]
fn three_percent_are_found_in_four_of_five_sets_of_fifteen_rounds() {
    let drift = Noise::Drift { run: 0.02 };
    for (noise, least) in [
        (Noise::Normal(0.02), 800),
        (drift, 800),
        (Noise::Normal(0.025), 770),
    ] {
        for (ratio, expected) in [
            (1.03, Difference::Larger),
            (1.0 / 1.03, Difference::Smaller),
        ] {
            let found = count(noise, ratio, 15, expected);
            println!("{noise:?}, {ratio:.2}: {found} of {SETS}");
            assert!(found >= least, "{noise:?}, {ratio}: {found}");
        }
    }
}

#[test]
fn ten_percent_are_found_despite_outliers_and_in_the_least_rounds() {
    for (noise, pairs) in [(Noise::HeavyTails, 15), (Noise::Normal(0.02), PAIRS_MIN)] {
        let found = count(noise, 1.1, pairs, Difference::Larger);
        println!("{noise:?}, {pairs} rounds: {found} of {SETS}");
        assert!(found >= 750, "{noise:?}: {found}");
    }
}

/// How many of 1,000 pairs of sets, measured one after the other, show this difference.
fn count_of_sets(noise: Noise, ratio: f64, sizes: (usize, usize), wanted: Difference) -> usize {
    let mut random = Random::new((sizes.0 * 100 + sizes.1) as u64);
    let mut compared = || {
        // The machine does not drift between the sets: no test could tell that from a difference.
        let mut set = |ratio, size| -> Vec<f64> {
            let one = |_| rounds(noise, ratio, 1, &mut random)[0];
            (0..size).map(one).map(|(value, _)| value).collect()
        };
        let (values, base) = (set(ratio, sizes.0), set(1.0, sizes.1));
        compare_sets(&values, &base).expect("enough valid values")
    };
    let all = std::iter::repeat_with(&mut compared).take(SETS);
    all.filter(|comparison| comparison.difference == wanted)
        .count()
}

#[test]
fn equal_sets_without_pairs_differ_in_at_most_five_of_a_hundred() {
    // The exact level is at most 4.6 %: 46 of 1,000 on average. By chance more than 64 differ in 3 of 1,000 such tests.
    for noise in &NOISES[..3] {
        for sizes in [(4, 4), (5, 5), (7, 7), (15, 15), (7, 15)] {
            let count = |wanted| count_of_sets(*noise, 1.0, sizes, wanted);
            let wrong = count(Difference::Smaller) + count(Difference::Larger);
            println!("{noise:?}, {sizes:?} rounds: {wrong} of {SETS}");
            assert!(wrong <= 64, "{noise:?}, {sizes:?} rounds: {wrong}");
        }
    }
}

#[test]
fn five_percent_are_found_without_pairs() {
    for (sizes, ratio, least) in [((7, 7), 1.08, 900), ((15, 15), 1.05, 900)] {
        for (ratio, expected) in [
            (ratio, Difference::Larger),
            (1.0 / ratio, Difference::Smaller),
        ] {
            let found = count_of_sets(Noise::Normal(0.025), ratio, sizes, expected);
            println!("{sizes:?} rounds, {ratio:.2}: {found} of {SETS}");
            assert!(found >= least, "{sizes:?}, {ratio}: {found}");
        }
    }
}

/// Pairs of positive values, and what a round does to both values of its pair.
fn pairs_and_drift() -> impl Strategy<Value = Vec<((f64, f64), f64)>> {
    let value = 0.5..2.0_f64;
    let pair = (value.clone(), value);
    prop::collection::vec((pair, 0.1..10.0_f64), PAIRS_MIN..20)
}

fn inverse(comparison: &Comparison) -> Difference {
    match comparison.difference {
        Difference::Smaller => Difference::Larger,
        Difference::Larger => Difference::Smaller,
        same => same,
    }
}

fn is_near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-9
}

proptest! {
    #[test]
    fn exchanged_systems_have_the_inverse_result(set in pairs_and_drift()) {
        let pairs: Vec<_> = set.iter().map(|(pair, _)| *pair).collect();
        let exchanged: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
        let (one, other) = (compare(&pairs).unwrap(), compare(&exchanged).unwrap());
        prop_assert_eq!(inverse(&one), other.difference);
        prop_assert!(is_near(one.ratio, 1.0 / other.ratio));
        prop_assert!(is_near(one.interval.low, 1.0 / other.interval.high));
        prop_assert_eq!(one.dominance, -other.dominance);
    }

    #[test]
    fn the_drift_of_a_round_changes_nothing(set in pairs_and_drift()) {
        let still: Vec<_> = set.iter().map(|(pair, _)| *pair).collect();
        let drifting: Vec<_> = set.iter().map(|((a, b), drift)| (a * drift, b * drift)).collect();
        let (still, drifting) = (compare(&still).unwrap(), compare(&drifting).unwrap());
        prop_assert_eq!(still.difference, drifting.difference);
        prop_assert!(is_near(still.ratio, drifting.ratio));
    }

    #[test]
    fn the_ratio_lies_in_its_interval_and_a_difference_excludes_one(set in pairs_and_drift()) {
        let pairs: Vec<_> = set.iter().map(|(pair, _)| *pair).collect();
        let comparison = compare(&pairs).unwrap();
        prop_assert!(comparison.interval.contains(comparison.ratio));
        let is_significant = comparison.difference.is_significant();
        prop_assert!(!(is_significant && comparison.interval.contains(1.0)), "{}", comparison.text());
    }

    #[test]
    fn exchanged_sets_have_the_inverse_result(
        values in prop::collection::vec(0.5..2.0_f64, 4..20),
        base in prop::collection::vec(0.5..2.0_f64, 4..20),
    ) {
        let one = compare_sets(&values, &base).unwrap();
        let other = compare_sets(&base, &values).unwrap();
        prop_assert_eq!(inverse(&one), other.difference);
        prop_assert!(is_near(one.ratio, 1.0 / other.ratio));
        prop_assert!(is_near(one.interval.low, 1.0 / other.interval.high));
        prop_assert_eq!(one.dominance, -other.dominance);
        prop_assert!(one.interval.contains(one.ratio));
    }

    #[test]
    fn units_and_the_order_of_rounds_change_nothing(
        values in prop::collection::vec(0.5..2.0_f64, 4..20),
        base in prop::collection::vec(0.5..2.0_f64, 4..20),
        unit in 0.001..1000.0_f64,
    ) {
        let one = compare_sets(&values, &base).unwrap();
        let scale = |values: &[f64]| values.iter().rev().map(|v| v * unit).collect::<Vec<_>>();
        let other = compare_sets(&scale(&values), &scale(&base)).unwrap();
        prop_assert_eq!(one.difference, other.difference);
        prop_assert!(is_near(one.ratio, other.ratio));
    }
}
