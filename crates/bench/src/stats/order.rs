//! The order in which each round runs the systems.
//!
//! A machine drifts, and a run leaves warm or cold caches to the next one. Two rounds in a row have opposite
//! orders (A B, B A), so that each system has the same mean position in them. The orders themselves are a
//! design of Williams: over a cycle of rounds, each system runs equally often directly after each other one
//! (E. J. Williams: Experimental designs balanced for the estimation of residual effects of treatments,
//! Australian Journal of Scientific Research A 2, 1949).

use crate::random::Random;

/// The indices of `systems` systems in the order of the round, which is counted from 0.
///
/// After 2 × `systems` rounds the orders repeat. An odd number of rounds ends in the middle of a pair.
pub fn order(systems: usize, round: u32, seed: u64) -> Vec<usize> {
    if systems == 0 {
        return Vec::new();
    }
    let mut random = Random::new(seed);
    let mut labels: Vec<usize> = (0..systems).collect();
    random.shuffle(&mut labels);
    let mut shifts: Vec<usize> = (0..systems).collect();
    random.shuffle(&mut shifts);
    let (pair, half) = (round as usize / 2, round as usize % 2);
    let shift = shifts[pair % systems];
    let shifted = |place: usize| labels[(zigzag(place, systems) + shift) % systems];
    let mut order: Vec<usize> = (0..systems).map(shifted).collect();
    // A B, B A, B A, A B: systems at the joint of two pairs change as well.
    if half == 1 {
        order.reverse();
    }
    order
}

/// 0, n − 1, 1, n − 2, …: all differences of neighbours are different.
fn zigzag(place: usize, count: usize) -> usize {
    match place % 2 {
        0 => place / 2,
        _ => count - 1 - place / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_systems_alternate_as_abba() {
        for seed in 0..10 {
            let orders: Vec<_> = (0..4).map(|round| order(2, round, seed)).collect();
            let (first, second) = (orders[0][0], orders[0][1]);
            assert_eq!(orders[1], [second, first]);
            assert_eq!(orders[2], [second, first]);
            assert_eq!(orders[3], [first, second]);
        }
    }

    #[test]
    fn one_system_and_none_have_an_order() {
        assert_eq!(order(1, 5, 1), [0]);
        assert!(order(0, 5, 1).is_empty());
    }
}
