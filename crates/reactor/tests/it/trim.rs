//! Memory that a burst has used goes back to the operating system.

use std::time::Duration;

use blitz_reactor::{counters, sleep, spawn, yield_now};

use crate::{on_both_drivers, pattern, with_outsider, write_all};

/// More than what a core takes for a burst.
const TASKS: usize = 600;

#[test]
fn memory_goes_back_once_a_burst_is_over_and_sockets_go_on() {
    on_both_drivers(|| async {
        let (socket, outsider) = with_outsider().await;
        for _ in 0..TASKS {
            spawn(sleep(Duration::from_millis(20)));
        }
        // What is received meanwhile stays what it is.
        let sent = pattern(40_000);
        write_all(&outsider, &sent);
        let mut held = Vec::new();
        while held
            .iter()
            .map(|slice: &blitz_reactor::Slice| slice.len())
            .sum::<usize>()
            < 40_000
        {
            held.push(socket.recv().await.unwrap().unwrap());
        }
        sleep(Duration::from_millis(1_000)).await;
        assert_eq!(counters().trims, 0, "it may not be over");
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(counters().trims, 1);
        let held: Vec<u8> = held
            .iter()
            .flat_map(|slice| slice.iter().copied())
            .collect();
        assert_eq!(held, sent);
        for round in 0..3_000 {
            write_all(&outsider, &[round as u8; 100]);
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
fn a_core_that_is_never_busy_keeps_its_memory() {
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
fn the_memory_of_a_burst_really_goes_back() {
    // Others would be measured, too.
    if std::env::var_os("BLITZ_TRIM_ALONE").is_none() {
        let ran = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["trim::the_memory_of_a_burst_really_goes_back", "--exact"])
            .env("BLITZ_TRIM_ALONE", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    on_both_drivers(|| async {
        const BYTES: usize = 24 << 20;
        let (socket, outsider) = with_outsider().await;
        let writer = std::thread::spawn(move || {
            write_all(&outsider, &vec![7; BYTES]);
            outsider
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
