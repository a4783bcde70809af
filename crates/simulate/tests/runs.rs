//! Runs of the checker, and that they follow from their seeds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// `cargo xtask simulate` has many more, of optimised code with the same assertions.
#[test]
fn fifty_runs_pass() {
    let next = AtomicU64::new(1);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > 50 {
                        break;
                    }
                    if let Err(failure) = blitz_simulate::run(seed, false) {
                        panic!("{failure}");
                    }
                }
            });
        }
    });
}

#[test]
fn a_run_follows_from_its_seed() {
    // 1 and 20 have reloads. 234 has peers with TLS. The others have clients of HTTP/3: 12, 49, 58 and 77 with moves, 58
    // with a drain. 5 has a set.
    for seed in [1, 4, 5, 9, 234, 20, 12, 49, 58, 77] {
        let trace = |seed| match blitz_simulate::run(seed, true) {
            Ok(summary) => summary.trace,
            Err(failure) => panic!("{failure}"),
        };
        let (once, again) = (trace(seed), trace(seed));
        let differs = once
            .iter()
            .zip(&again)
            .position(|(one, other)| one != other);
        assert!(once.len() > 100, "{} events", once.len());
        assert_eq!(
            differs.map(|at| (&once[at], &again[at])),
            None,
            "the runs of seed {seed} differ"
        );
        assert_eq!(once.len(), again.len());
    }
}
