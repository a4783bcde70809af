use std::collections::HashMap;

use blitz_bench::stats::order;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_pair_of_rounds_has_the_same_mean_position_for_each_system(
        systems in 1_usize..16, pair in 0_u32..40, seed: u64
    ) {
        let (first, second) = (order(systems, 2 * pair, seed), order(systems, 2 * pair + 1, seed));
        for system in 0..systems {
            let position = |order: &[usize]| order.iter().position(|&other| other == system);
            let sum = position(&first).zip(position(&second)).map(|(a, b)| a + b);
            prop_assert_eq!(sum, Some(systems - 1));
        }
    }

    #[test]
    fn each_system_follows_each_other_one_equally_often(systems in 2_usize..12, seed: u64) {
        let mut follows = HashMap::new();
        for round in 0..2 * systems as u32 {
            for pair in order(systems, round, seed).windows(2) {
                *follows.entry((pair[0], pair[1])).or_insert(0) += 1;
            }
        }
        prop_assert_eq!(follows.len(), systems * (systems - 1), "every ordered pair");
        prop_assert!(follows.values().all(|&count| count == 2), "{:?}", follows);
    }

    #[test]
    fn equal_seeds_give_equal_orders(systems in 1_usize..16, round in 0_u32..100, seed: u64) {
        prop_assert_eq!(order(systems, round, seed), order(systems, round, seed));
    }
}
