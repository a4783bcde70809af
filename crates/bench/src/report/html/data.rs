//! The raw data of a report, within its page.

use std::borrow::Cow;
use std::fmt::Write;

use super::super::escape::{Html, json_in_script};
use super::super::model::Report;
use crate::distribution::Distribution;

/// Above this size, distributions are attached with fewer buckets.
const DATA_BYTES_MAX: usize = 4 << 20;
/// Relative width of a bucket then.
const COARSE_WIDTH: f64 = 0.005;

pub(super) fn write(out: &mut String, report: &Report) {
    let (json, is_coarse) = data(report);
    let name = super::file_name(report);
    let kilobytes = crate::number::bytes(json.len() as f64);
    let _ = write!(
        out,
        "<section>\n<h2 id=\"data\">Raw data</h2>\n\
         <p>This page contains all its data as JSON ({kilobytes}), in the element <code>report-data</code>.</p>\n"
    );
    if is_coarse {
        out.push_str(
            "<p>To keep the page small, the attached distributions have a resolution of 0.5 %. \
             The figures of the page were computed before, at 0.1 %.</p>\n",
        );
    }
    let _ = write!(
        out,
        "<p class=\"screen\"><a id=\"download\" download=\"{0}\" hidden>Save {0}</a></p>\n</section>\n\
         <script type=\"application/json\" id=\"report-data\">{1}</script>\n",
        Html(&name),
        json_in_script(&json)
    );
}

/// The report as JSON, and whether its distributions have fewer buckets than the report has.
fn data(report: &Report) -> (String, bool) {
    let json = |report: &Report| serde_json::to_string(report).unwrap_or_default();
    let whole = json(report);
    if whole.len() <= DATA_BYTES_MAX {
        return (whole, false);
    }
    let mut report = Cow::Borrowed(report);
    for section in &mut report.to_mut().sections {
        let distributions = section
            .latencies
            .iter_mut()
            .flat_map(|set| &mut set.distributions);
        for named in distributions {
            named.distribution = coarse(&named.distribution);
        }
    }
    (json(&report), true)
}

/// The same samples in fewer buckets.
fn coarse(distribution: &Distribution) -> Distribution {
    let mut buckets: Vec<(u64, u64)> = Vec::new();
    for &(value, count) in &distribution.buckets {
        match buckets.last_mut() {
            Some((first, total)) if value as f64 <= *first as f64 * (1.0 + COARSE_WIDTH) => {
                *total += count;
            }
            _ => buckets.push((value, count)),
        }
    }
    Distribution {
        buckets,
        ..distribution.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::model::{LatencySet, NamedDistribution, Section};
    use super::*;
    use crate::Recorder;

    fn distribution() -> Distribution {
        let mut recorder = Recorder::new();
        for step in 1..=100_000_u32 {
            recorder.record(Duration::from_nanos(997) * step);
        }
        recorder.distribution()
    }

    #[test]
    fn a_coarse_distribution_has_the_same_samples_and_nearly_the_same_percentiles() {
        let (fine, coarse) = (distribution(), coarse(&distribution()));
        assert!(coarse.buckets.len() * 3 < fine.buckets.len());
        let samples: u64 = coarse.buckets.iter().map(|(_, count)| count).sum();
        assert_eq!(samples, fine.count);
        for quantile in [0.1, 0.5, 0.99, 0.9999] {
            let ratio = coarse.quantile(quantile).unwrap().as_secs_f64()
                / fine.quantile(quantile).unwrap().as_secs_f64();
            assert!((0.9949..=1.0).contains(&ratio), "{quantile}: {ratio}");
        }
    }

    #[test]
    fn the_attached_data_is_bounded() {
        let named = NamedDistribution {
            name: "blitz".to_owned(),
            distribution: distribution(),
        };
        let report = |sets: usize| {
            let mut report = Report::new("", "", "");
            let set = LatencySet {
                distributions: vec![named.clone()],
                ..LatencySet::default()
            };
            report.sections = vec![Section {
                latencies: vec![set; sets],
                ..Section::default()
            }];
            report
        };
        let (json, is_coarse) = data(&report(1));
        assert!(!is_coarse);
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report(1));
        let (json, is_coarse) = data(&report(100));
        assert!(is_coarse && json.len() < DATA_BYTES_MAX);
    }
}
