use blitz_bench::stats::{Percentile, Reading};
use proptest::prelude::*;

const ALL: [Percentile; 6] = [
    Percentile::P50,
    Percentile::P90,
    Percentile::P99,
    Percentile::P99_9,
    Percentile::P99_99,
    Percentile::P99_999,
];

#[test]
fn higher_percentiles_need_more_samples() {
    for pair in ALL.windows(2) {
        assert!(pair[0].share() < pair[1].share());
        assert!(pair[0].samples_needed() < pair[1].samples_needed());
        assert!(!pair[1].is_carried_by(pair[0].samples_needed()));
    }
    let reading = Percentile::P99_9.read(9_999, || unreachable!("it is not carried"));
    let (samples, needed) = (9_999, 10_000);
    assert_eq!(reading, Reading::NotEnoughSamples { samples, needed });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn at_least_ten_samples_lie_beyond_a_value(
        mut samples in prop::collection::vec(0.0..1e6_f64, 0..3000), which in 0..ALL.len()
    ) {
        samples.sort_by(f64::total_cmp);
        if let Reading::Value(value) = ALL[which].of_sorted(&samples) {
            let at_or_beyond = samples.iter().filter(|sample| **sample >= value).count();
            prop_assert!(at_or_beyond >= 10);
            prop_assert!(samples.contains(&value));
        } else {
            prop_assert!((samples.len() as u64) < ALL[which].samples_needed());
        }
    }
}
