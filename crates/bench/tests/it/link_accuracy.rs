//! How exactly an emulated link keeps its delay and its rate.
//!
//! The tests measure real time, so they run only where all tests have to (`.ci/run --full networks`). Each compares
//! medians or long transfers, and has three attempts.

use std::thread;
use std::time::{Duration, Instant};

use blitz_bench::link::LinkReport;

use crate::link_support::{median, rate, skip, start, tries_all};

const ATTEMPTS: usize = 3;

/// The delay in each direction differs by less than this, in seconds.
const DELAY_ERROR_MAX: f64 = 0.0002;

/// The rate differs by less than this part.
const RATE_ERROR_MAX: f64 = 0.02;

/// An error, and the report of the link that had it.
type Measured = (f64, LinkReport);

/// Measures until an error is small enough. `measure` gives none on a machine without links.
fn attempt(error_max: f64, measure: impl Fn() -> Option<Measured>) {
    if !tries_all() {
        skip("it measures real time (BLITZ_TRY_ALL=1 runs it)");
        return;
    }
    let mut reports = String::new();
    let mut is_valid = false;
    for _ in 0..ATTEMPTS {
        let Some((error, report)) = measure() else {
            return;
        };
        if error.abs() < error_max {
            return;
        }
        is_valid |= report.invalid().is_none();
        reports += &format!("error    {error}, at most {error_max} is allowed\n{report}\n");
    }
    assert!(!is_valid, "{reports}");
    skip(&format!("the machine is too busy\n{reports}"));
}

/// The median round trip, if a datagram is sent each 20 ms: threads that have slept for long need more time
/// to wake up.
fn round_trip(spec: &str, pause_ms: u64) -> Option<(Duration, LinkReport)> {
    let link = start(spec, 1)?;
    let pause = Duration::from_millis(pause_ms);
    let times = link.udp().round_trips(100, pause);
    Some((median(&times), link.link.stop()))
}

#[test]
fn the_delay_is_exact() {
    attempt(DELAY_ERROR_MAX, || {
        // The time of the machine itself.
        let (without, _) = round_trip("delay=0", 20)?;
        let (with, report) = round_trip("delay=7ms", 6)?;
        let delay = (with.as_secs_f64() - without.as_secs_f64()) / 2.0;
        Some((delay - 0.007, report))
    });
}

#[test]
fn tcp_has_the_configured_rate() {
    for (spec, bits) in [
        ("delay=5ms,rate=20mbit", 20e6),
        ("delay=2ms,rate=100mbit", 100e6),
    ] {
        attempt(RATE_ERROR_MAX, || {
            let link = start(spec, 1)?;
            let bytes = bits / 8.0 * 1.5;
            let rate = rate(&link.tcp().download(bytes as usize));
            // A packet of 1,500 bytes has 1,448 of content: the headers of IPv4 and TCP, and timestamps.
            let measured = rate * 8.0 * 1500.0 / 1448.0;
            Some((measured / bits - 1.0, link.link.stop()))
        });
    }
}

#[test]
fn udp_has_the_configured_rate() {
    attempt(RATE_ERROR_MAX, || {
        let link = start("down:rate=20mbit,down:queue=64k", 1)?;
        let udp = link.udp();
        let receiver = udp.client.try_clone().unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        let receiver = thread::spawn(move || {
            let mut arrivals = Vec::new();
            let mut bytes = 0;
            while let Ok(length) = receiver.recv(&mut [0; 2048]) {
                // With the headers of UDP and IPv4.
                bytes += length + 28;
                arrivals.push((Instant::now(), bytes));
            }
            arrivals
        });
        // Twice the rate, for a second.
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            for _ in 0..4 {
                udp.server.send(&[1; 1200]).unwrap();
            }
            thread::sleep(Duration::from_micros(960));
        }
        let measured = rate(&receiver.join().unwrap()) * 8.0;
        assert!(link.link.counters().down.dropped > 0);
        Some((measured / 20e6 - 1.0, link.link.stop()))
    });
}
