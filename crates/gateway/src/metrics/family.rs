//! Families of metrics with their samples, as the formats write them.

use blitz_site::metrics::{Exemplar, Histogram};

use super::catalogue::{Description, describe};

/// Some labels of a sample, in the order of writing.
pub(super) type Labels = Vec<(&'static str, String)>;

/// The samples of a metric.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) description: &'static Description,
    pub(super) samples: Vec<Sample>,
}

impl Family {
    fn push(&mut self, sample: Sample) {
        let described = self.description.labels;
        let mut labels = sample.labels.iter();
        debug_assert!(labels.all(|(label, _)| described.contains(label)));
        self.samples.push(sample);
    }
}

#[derive(Debug)]
pub(super) struct Sample {
    pub(super) labels: Labels,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    Count(u64),
    Number(f64),
    Histogram(Box<Measured>),
}

/// A histogram with an example of its observations.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) histogram: Histogram,
    pub(super) exemplar: Option<Box<Exemplar>>,
}

impl Measured {
    /// Adds that of another core; the later example stays.
    pub(super) fn add(&mut self, histogram: &Histogram, exemplar: Option<&Exemplar>) {
        self.histogram.add(histogram);
        let known = self.exemplar.as_ref().map(|known| known.time);
        if let Some(exemplar) = exemplar.filter(|other| known < Some(other.time)) {
            self.exemplar = Some(Box::new(exemplar.clone()));
        }
    }
}

/// Families in the order in which they are written.
#[derive(Debug, Default)]
pub(super) struct Families(pub(super) Vec<Family>);

impl Families {
    pub(super) fn add(&mut self, name: &'static str, labels: Labels, value: Value) {
        let sample = Sample { labels, value };
        let known = self.0.iter_mut().rev();
        let mut known = known.filter(|family| family.description.name == name);
        match known.next() {
            Some(family) => family.push(sample),
            None => {
                let mut family = Family {
                    description: describe(name),
                    samples: Vec::new(),
                };
                family.push(sample);
                self.0.push(family);
            }
        }
    }

    /// Adds a counter, if it has counted.
    pub(super) fn count(&mut self, name: &'static str, count: u64) {
        self.count_with(name, Labels::new(), count);
    }

    /// The same with labels.
    pub(super) fn count_with(&mut self, name: &'static str, labels: Labels, count: u64) {
        if count > 0 {
            self.add(name, labels, Value::Count(count));
        }
    }

    /// Adds a counter with one label for each of its parts that has counted.
    pub(super) fn count_parts<T: Into<String>>(
        &mut self,
        name: &'static str,
        label: &'static str,
        parts: impl IntoIterator<Item = (T, u64)>,
    ) {
        for (text, count) in parts {
            self.count_with(name, vec![(label, text.into())], count);
        }
    }

    /// Adds counters whose names follow this prefix.
    pub(super) fn count_named(
        &mut self,
        prefix: &str,
        named: impl Iterator<Item = (&'static str, u64)>,
    ) {
        for (name, count) in named {
            let description = describe(&format!("{prefix}{name}"));
            self.count(description.name, count);
        }
    }

    /// Adds a gauge.
    pub(super) fn gauge(&mut self, name: &'static str, value: f64) {
        self.add(name, Labels::new(), Value::Number(value));
    }
}
