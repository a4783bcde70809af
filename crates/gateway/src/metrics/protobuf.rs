//! The format of Prometheus in protocol buffers, with classic and native histograms: each family is a message
//! `io.prometheus.client.MetricFamily` behind its length.

use std::time::UNIX_EPOCH;

use blitz_site::metrics::{CLASSIC_BOUNDS_NS, SCHEMA, zero_threshold};
use prost::Message;

use super::catalogue::Kind;
use super::family::{Family, Measured, Sample, Value};

/// The messages of all families.
pub(super) fn write(families: &[Family]) -> Vec<u8> {
    let mut out = Vec::new();
    for family in families {
        let message = MetricFamily::of(family);
        message
            .encode_length_delimited(&mut out)
            .expect("memory has room");
    }
    out
}

// Names and numbers are those of `metrics.proto` of Prometheus' client model.

#[derive(Clone, PartialEq, Message)]
pub(super) struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    help: Option<String>,
    #[prost(enumeration = "MetricType", optional, tag = "3")]
    pub(super) kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    pub(super) metric: Vec<Metric>,
    #[prost(string, optional, tag = "5")]
    unit: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    pub(super) counter: Option<Number>,
    #[prost(message, optional, tag = "7")]
    pub(super) histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

/// `Gauge` and `Counter`, which have the same form.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Number {
    #[prost(double, optional, tag = "1")]
    pub(super) value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    pub(super) sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    pub(super) bucket: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    pub(super) zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    pub(super) positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    pub(super) positive_delta: Vec<i64>,
    /// Of the native buckets.
    #[prost(message, repeated, tag = "16")]
    pub(super) exemplars: Vec<Exemplar>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    pub(super) cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    upper_bound: Option<f64>,
    #[prost(message, optional, tag = "3")]
    pub(super) exemplar: Option<Exemplar>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(double, optional, tag = "2")]
    value: Option<f64>,
    #[prost(message, optional, tag = "3")]
    timestamp: Option<Timestamp>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// Consecutive buckets, and how far they are from the end of the span before.
#[derive(Clone, PartialEq, Message)]
pub(super) struct BucketSpan {
    #[prost(sint32, optional, tag = "1")]
    pub(super) offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) length: Option<u32>,
}

impl MetricFamily {
    fn of(family: &Family) -> MetricFamily {
        let description = family.description;
        let kind = match description.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        let samples = family.samples.iter();
        let unit = description.unit();
        MetricFamily {
            name: Some(description.sample_name()),
            help: Some(description.help.to_owned()),
            kind: Some(kind.into()),
            metric: samples
                .map(|sample| Metric::of(sample, description.kind))
                .collect(),
            unit: (!unit.is_empty()).then(|| unit.to_owned()),
        }
    }
}

impl Metric {
    fn of(sample: &Sample, kind: Kind) -> Metric {
        let label = |(name, value): &(&str, String)| LabelPair::new(name, value.clone());
        let mut metric = Metric {
            label: sample.labels.iter().map(label).collect(),
            ..Metric::default()
        };
        let number = match &sample.value {
            Value::Count(count) => *count as f64,
            Value::Number(number) => *number,
            Value::Histogram(measured) => {
                metric.histogram = Some(Histogram::of(measured));
                return metric;
            }
        };
        let number = Number {
            value: Some(number),
        };
        match kind {
            Kind::Counter => metric.counter = Some(number),
            _ => metric.gauge = Some(number),
        }
        metric
    }
}

impl LabelPair {
    fn new(name: &str, value: String) -> LabelPair {
        LabelPair {
            name: Some(name.to_owned()),
            value: Some(value),
        }
    }
}

impl Exemplar {
    fn of(exemplar: &blitz_site::metrics::Exemplar) -> Exemplar {
        let time = exemplar.time.duration_since(UNIX_EPOCH);
        let time = time.unwrap_or_default();
        Exemplar {
            label: vec![
                LabelPair::new("trace_id", exemplar.trace_id.to_string()),
                LabelPair::new("span_id", exemplar.span_id.to_string()),
            ],
            value: Some(exemplar.duration_ns as f64 / 1e9),
            timestamp: Some(Timestamp {
                seconds: time.as_secs() as i64,
                nanos: time.subsec_nanos() as i32,
            }),
        }
    }
}

impl Histogram {
    fn of(measured: &Measured) -> Histogram {
        let histogram = &measured.histogram;
        let native = histogram.native();
        let (spans, deltas) = spans(&native.positive);
        let classic = CLASSIC_BOUNDS_NS.into_iter().zip(histogram.classic());
        let example = measured.exemplar.as_deref();
        let in_bucket = |at| example.filter(|one| one.bucket() == at).map(Exemplar::of);
        Histogram {
            sample_count: Some(histogram.count()),
            sample_sum: Some(histogram.sum_seconds()),
            bucket: classic
                .enumerate()
                .map(|(at, (bound, count))| Bucket {
                    cumulative_count: Some(count),
                    upper_bound: Some(bound as f64 / 1e9),
                    exemplar: in_bucket(at),
                })
                .collect(),
            schema: Some(SCHEMA),
            zero_threshold: Some(zero_threshold()),
            zero_count: Some(native.zero),
            positive_span: spans,
            positive_delta: deltas,
            exemplars: example.map(Exemplar::of).into_iter().collect(),
        }
    }
}

/// Buckets as runs of consecutive ones, and the differences of their counts.
fn spans(buckets: &[(i32, u64)]) -> (Vec<BucketSpan>, Vec<i64>) {
    let (mut spans, mut deltas) = (Vec::<BucketSpan>::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for &(index, count) in buckets {
        match spans.last_mut() {
            Some(BucketSpan {
                length: Some(length),
                ..
            }) if index == next => *length += 1,
            _ => spans.push(BucketSpan {
                offset: Some(index - next),
                length: Some(1),
            }),
        }
        deltas.push(count as i64 - before);
        (next, before) = (index + 1, count as i64);
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::family::Families;

    #[test]
    fn consecutive_buckets_are_a_span() {
        let (found, deltas) = spans(&[(-5, 2), (-4, 7), (3, 1), (4, 1)]);
        let found: Vec<_> = found
            .iter()
            .map(|span| (span.offset, span.length))
            .collect();
        // The first offset is that of the index, the others are gaps.
        assert_eq!(found, [(Some(-5), Some(2)), (Some(6), Some(2))]);
        assert_eq!(deltas, [2, 5, -6, 0]);
        assert_eq!(spans(&[]), (Vec::new(), Vec::new()));
    }

    #[test]
    fn each_family_is_behind_its_length() {
        let mut families = Families::default();
        families.count("blitz_retries", 3);
        families.gauge("blitz_cores", 2.0);
        let bytes = write(&families.0);
        let mut rest = bytes.as_slice();
        let retries = MetricFamily::decode_length_delimited(&mut rest).unwrap();
        assert_eq!(retries.name.as_deref(), Some("blitz_retries_total"));
        assert_eq!(retries.metric[0].counter, Some(Number { value: Some(3.0) }));
        let cores = MetricFamily::decode_length_delimited(&mut rest).unwrap();
        assert_eq!(cores.kind, Some(MetricType::Gauge as i32));
        assert!(rest.is_empty());
    }
}
