//! Memory is given back to the operating system after a burst.

use std::time::Duration;

use blitz_reactor::{Slice, counters, sleep, spawn, yield_now};

use crate::{on_both_drivers, pattern, with_blocking_peer, write_all};

/// More than the minimum of a burst.
const TASKS: usize = 600;

#[test]
fn memory_is_given_back_after_a_burst_and_sockets_keep_working() {
    on_both_drivers(|| async {
        let (socket, peer_stream) = with_blocking_peer().await;
        for _ in 0..TASKS {
            spawn(sleep(Duration::from_millis(20)));
        }
        // Bytes that are received meanwhile do not change.
        let sent = pattern(40_000);
        write_all(&peer_stream, &sent);
        let mut held = Vec::new();
        while held.iter().map(|slice: &Slice| slice.len()).sum::<usize>() < 40_000 {
            held.push(socket.recv().await.unwrap().unwrap());
        }
        sleep(Duration::from_millis(1_000)).await;
        assert_eq!(counters().trims, 0, "the burst is not over");
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(counters().trims, 1);
        let held: Vec<u8> = held
            .iter()
            .flat_map(|slice| slice.iter().copied())
            .collect();
        assert_eq!(held, sent);
        for round in 0..3_000 {
            write_all(&peer_stream, &[round as u8; 100]);
            let mut left = 100;
            while left > 0 {
                let bytes = socket.recv().await.unwrap().unwrap();
                assert!(bytes.iter().all(|byte| *byte == round as u8));
                left -= bytes.len();
            }
        }
        assert_eq!(counters().trims, 1, "nothing has happened since");
    });
}

#[test]
fn a_core_without_a_burst_keeps_its_memory() {
    on_both_drivers(|| async {
        for _ in 0..100 {
            spawn(yield_now());
        }
        sleep(Duration::from_millis(2_500)).await;
        assert_eq!(counters().trims, 0);
    });
}

/// Pages of the process that are in memory.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = status.split(' ').nth(1).unwrap();
    pages.parse::<usize>().unwrap() * 4096
}

#[test]
fn the_resident_memory_shrinks_after_a_burst() {
    // The measurement includes other tests of the process.
    if std::env::var_os("BLITZ_TRIM_ALONE").is_none() {
        let ran = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["trim::the_resident_memory_shrinks_after_a_burst", "--exact"])
            .env("BLITZ_TRIM_ALONE", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    on_both_drivers(|| async {
        const BYTES: usize = 24 << 20;
        let (socket, peer_stream) = with_blocking_peer().await;
        let writer = std::thread::spawn(move || {
            write_all(&peer_stream, &vec![7; BYTES]);
            peer_stream
        });
        let mut held = Vec::new();
        let mut received = 0;
        while received < BYTES {
            let slice = socket.recv().await.unwrap().unwrap();
            received += slice.len();
            held.push(slice);
        }
        let _outsider = writer.join().unwrap();
        let before = resident_bytes();
        drop(held);
        sleep(Duration::from_millis(2_500)).await;
        assert_eq!(counters().trims, 1);
        let after = resident_bytes();
        assert!(before - after.min(before) > BYTES / 2, "{before} {after}");
    });
}

#[test]
fn memory_is_given_back_after_a_burst_of_copies() {
    on_both_drivers(|| async {
        let copies: Vec<Slice> = (0..6 * 1_024)
            .map(|_| Slice::from_buffer(vec![7; 1_024].into()))
            .collect();
        sleep(Duration::from_millis(50)).await;
        drop(copies);
        sleep(Duration::from_millis(2_500)).await;
        assert_eq!(counters().trims, 1);
    });
}
