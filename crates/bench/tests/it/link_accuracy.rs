//! How exactly an emulated link keeps its delay and its rate. The machine may be busy, so each test compares
//! medians or long transfers, and has three attempts.

use std::time::{Duration, Instant};

use crate::link_support::{median, rate, start};

const ATTEMPTS: usize = 3;

/// The delay in each direction differs by less than this.
const DELAY_ERROR_MAX: f64 = 0.0002;

/// The rate differs by less than this part.
const RATE_ERROR_MAX: f64 = 0.02;

/// Measures until a result is accepted. `measure` returns the error of a measurement.
fn attempt(error_max: f64, measure: impl Fn() -> Option<f64>) {
    let mut errors = Vec::new();
    for _ in 0..ATTEMPTS {
        let Some(error) = measure() else {
            return;
        };
        errors.push(error);
        if error.abs() < error_max {
            return;
        }
    }
    panic!("errors of {errors:?}, and at most {error_max} are allowed");
}

/// The median round trip of a link.
fn round_trip(spec: &str) -> Option<Duration> {
    let link = start(spec, 1)?;
    let times = link.udp().round_trips(100);
    eprintln!("{}", link.link.stop());
    Some(median(&times))
}

#[test]
fn the_delay_is_exact() {
    attempt(DELAY_ERROR_MAX, || {
        // The time of the machine itself: two switches between threads in each direction.
        let without = round_trip("delay=0")?;
        let with = round_trip("delay=7ms")?;
        let delay = (with.as_secs_f64() - without.as_secs_f64()) / 2.0;
        eprintln!("{without:?} without a delay, {with:?} with 7 ms: {delay}");
        Some(delay - 0.007)
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
            eprintln!("{spec}: {measured}\n{}", link.link.stop());
            Some(measured / bits - 1.0)
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
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let receiver = std::thread::spawn(move || {
            let mut arrivals = Vec::new();
            while let Ok(length) = receiver.recv(&mut [0; 2048]) {
                arrivals.push((Instant::now(), length + 28));
            }
            arrivals
        });
        // Twice the rate, for a second.
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            for _ in 0..4 {
                udp.server.send(&[1; 1200]).unwrap();
            }
            std::thread::sleep(Duration::from_micros(960));
        }
        let arrivals = receiver.join().unwrap();
        let time = arrivals.last().unwrap().0 - arrivals[0].0;
        let bytes: usize = arrivals[1..].iter().map(|(_, length)| length).sum();
        let measured = bytes as f64 * 8.0 / time.as_secs_f64();
        assert!(link.link.counters().down.dropped > 0);
        eprintln!("udp: {measured}\n{}", link.link.stop());
        Some(measured / 20e6 - 1.0)
    });
}
