//! The text of OpenMetrics 1.0, with classic buckets.

use std::fmt::Write;
use std::time::UNIX_EPOCH;

use blitz_site::metrics::Exemplar;

use super::catalogue::{Description, Kind};
use super::family::{Family, Labels, Measured, Sample, Value};

/// The classic bounds in seconds, as OpenMetrics has them in canonical form.
const BOUNDS: [&str; 17] = [
    "5e-05", "0.0001", "0.00025", "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05",
    "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0",
];

/// The text of all families.
pub(super) fn write(families: &[Family]) -> String {
    let mut out = Writer(String::new());
    for family in families {
        out.head(family.description);
        for sample in &family.samples {
            out.sample(&family.description.sample_name(), sample);
        }
    }
    out.0.push_str("# EOF\n");
    out.0
}

struct Writer(String);

impl Writer {
    fn head(&mut self, description: &Description) {
        let kind = match description.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let Description { name, help, .. } = description;
        let unit = description.unit();
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
        if !unit.is_empty() {
            self.line(format_args!("# UNIT {name} {unit}"));
        }
    }

    fn sample(&mut self, name: &str, sample: &Sample) {
        match &sample.value {
            Value::Count(count) => self.value(name, "", &sample.labels, None, count),
            Value::Number(number) => self.value(name, "", &sample.labels, None, number),
            Value::Histogram(measured) => self.histogram(name, &sample.labels, measured),
        }
    }

    fn histogram(&mut self, name: &str, labels: &Labels, measured: &Measured) {
        let Measured {
            histogram,
            exemplar,
        } = measured;
        let count = histogram.count();
        let example = exemplar.as_deref();
        let example = example.map(|one| (one.bucket(), shown(one)));
        let counts = histogram.classic().into_iter().chain([count]);
        for (at, (bound, up_to)) in BOUNDS.into_iter().chain(["+Inf"]).zip(counts).enumerate() {
            let example = example.as_ref().filter(|(bucket, _)| *bucket == at);
            let example = example.map_or("", |(_, text)| text);
            let value = format_args!("{up_to}{example}");
            self.value(name, "_bucket", labels, Some(bound), value);
        }
        self.value(name, "_sum", labels, None, histogram.sum_seconds());
        self.value(name, "_count", labels, None, count);
    }

    fn value(
        &mut self,
        name: &str,
        suffix: &str,
        labels: &Labels,
        bound: Option<&str>,
        value: impl std::fmt::Display,
    ) {
        self.0.push_str(name);
        self.0.push_str(suffix);
        let bound = bound.map(|bound| ("le", bound));
        let labels = labels.iter().map(|(label, text)| (*label, text.as_str()));
        let mut separator = '{';
        for (label, text) in labels.chain(bound) {
            self.0.push(separator);
            self.0.push_str(label);
            self.0.push_str("=\"");
            self.escaped(text);
            self.0.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.0.push('}');
        }
        self.line(format_args!(" {value}"));
    }

    fn escaped(&mut self, text: &str) {
        for letter in text.chars() {
            match letter {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to memory cannot fail.
        let _ = self.0.write_fmt(line);
        self.0.push('\n');
    }
}

/// An example as it stands behind the count of its bucket.
fn shown(exemplar: &Exemplar) -> String {
    let Exemplar {
        trace_id,
        span_id,
        duration_ns,
        time,
    } = exemplar;
    let seconds = *duration_ns as f64 / 1e9;
    let time = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = time.as_millis() as f64 / 1e3;
    format!(" # {{trace_id=\"{trace_id}\",span_id=\"{span_id}\"}} {seconds} {time}")
}

#[cfg(test)]
mod tests {
    use blitz_site::metrics::CLASSIC_BOUNDS_NS;

    use super::*;
    use crate::metrics::family::Families;

    fn families() -> Families {
        let mut families = Families::default();
        families.count("blitz_retries", 3);
        families.count("blitz_retries_over_budget", 0);
        let labels = vec![
            ("version", "1.0\"\\\n".to_owned()),
            ("revision", "é".to_owned()),
        ];
        families.add("blitz_build_info", labels, Value::Number(1.0));
        families.count("process_cpu_seconds", 2);
        families
    }

    #[test]
    fn open_metrics_has_types_units_and_an_end() {
        assert_eq!(
            write(&families().0),
            "# HELP blitz_retries Requests that were sent again.\n\
             # TYPE blitz_retries counter\n\
             blitz_retries_total 3\n\
             # HELP blitz_build_info The running version, always 1.\n\
             # TYPE blitz_build_info gauge\n\
             blitz_build_info{version=\"1.0\\\"\\\\\\n\",revision=\"é\"} 1\n\
             # HELP process_cpu_seconds Processor time of the process.\n\
             # TYPE process_cpu_seconds counter\n\
             # UNIT process_cpu_seconds seconds\n\
             process_cpu_seconds_total 2\n\
             # EOF\n"
        );
    }

    #[test]
    fn the_bounds_are_those_of_the_histogram() {
        for (text, ns) in BOUNDS.into_iter().zip(CLASSIC_BOUNDS_NS) {
            let seconds: f64 = text.parse().unwrap();
            assert_eq!((seconds * 1e9).round() as u64, ns);
        }
    }
}
