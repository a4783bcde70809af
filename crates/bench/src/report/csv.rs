//! The figures of a run of the generator as CSV (RFC 4180 with `\n`), for spreadsheets and scripts.

use std::fmt::Write;

use crate::distribution::Distribution;
use crate::load_result::{Interval, LoadResult};

/// Percentiles per nine of the percentile axis.
const STEPS_PER_NINE: u32 = 10;

/// The distributions of a run: `distribution,percentile,latency_ns`, ten percentiles for each nine, as far as samples
/// carry them, then the longest sample as percentile 100.
#[must_use]
pub fn percentiles_csv(result: &LoadResult) -> String {
    let mut out = String::from("distribution,percentile,latency_ns\n");
    let connects = &result.connects;
    for (name, distribution) in [
        ("latency", &result.times.latency),
        ("service", &result.times.service),
        ("first_byte", &result.times.first_byte),
        ("tcp_connect", &connects.tcp),
        ("tls_handshake", &connects.tls),
        ("tls_handshake_resumed", &connects.tls_resumed),
        ("quic_handshake", &connects.quic),
        ("quic_handshake_resumed", &connects.quic_resumed),
        ("generator_lag", &result.generator.lag),
    ] {
        write_percentiles(&mut out, name, distribution);
    }
    out
}

/// The intervals of a run, one row each. Percentiles that the samples of an interval do not carry are empty.
#[must_use]
pub fn timeline_csv(result: &LoadResult) -> String {
    let mut out = String::from(
        "end_s,length_s,completed,errors,content_bytes_received,latency_p50_ns,latency_p99_ns,latency_max_ns\n",
    );
    for interval in &result.timeline {
        write_interval(&mut out, interval);
    }
    out
}

fn write_percentiles(out: &mut String, name: &str, distribution: &Distribution) {
    let quantiles = (0..).map(|step: u32| {
        let nines = f64::from(step) / f64::from(STEPS_PER_NINE);
        1.0 - 10f64.powf(-nines)
    });
    for quantile in quantiles.take_while(|&quantile| distribution.carries(quantile)) {
        if let Some(time) = distribution.quantile(quantile) {
            let percentile = quantile * 100.0;
            let _ = writeln!(out, "{name},{percentile:.6},{}", time.as_nanos());
        }
    }
    if distribution.count > 0 {
        let _ = writeln!(out, "{name},100,{}", distribution.max_ns);
    }
}

fn write_interval(out: &mut String, interval: &Interval) {
    let Interval {
        end_s,
        length_s,
        completed,
        errors,
        content_bytes_received,
        latency,
    } = interval;
    let percentile = |quantile| {
        let time = latency.percentile(quantile);
        time.map_or_else(String::new, |time| time.as_nanos().to_string())
    };
    let (p50, p99) = (percentile(0.5), percentile(0.99));
    let max = match latency.count {
        0 => String::new(),
        _ => latency.max_ns.to_string(),
    };
    let _ = writeln!(
        out,
        "{end_s:.3},{length_s:.3},{completed},{errors},{content_bytes_received},{p50},{p99},{max}"
    );
}

#[cfg(test)]
mod tests {
    use super::super::load::tests::result;
    use super::*;

    #[test]
    fn each_nine_has_ten_percentiles_as_far_as_samples_carry_them() {
        let csv = percentiles_csv(&result());
        let latency: Vec<&str> = csv
            .lines()
            .filter(|line| line.starts_with("latency,"))
            .collect();
        // 10,000 samples carry three nines; the first percentile is 0 and the last the longest sample.
        assert_eq!(latency.len(), 3 * 10 + 1 + 1);
        assert!(latency[0].starts_with("latency,0.000000,"));
        assert!(latency[30].starts_with("latency,99.900000,"));
        assert_eq!(latency[31], "latency,100,10000000");
        assert!(!csv.contains("quic_handshake"));
    }

    #[test]
    fn an_interval_without_responses_has_no_latency() {
        let csv = timeline_csv(&result());
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines[2], "2.000,1.000,0,3,0,,,");
        assert!(lines.iter().all(|line| line.split(',').count() == 8));
    }
}
