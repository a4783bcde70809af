//! Figures of two results compared: which are worse, and by how much.

use super::saved::{FigureKey, Saved, Series};
use crate::report::Direction;
use crate::stats::{self, Difference, Median, compare, compare_sets};

/// How the rounds of the two results belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounds {
    /// They ran interleaved: the values of a round are a pair.
    Paired,
    /// The results were measured one after the other.
    Apart,
}

/// A figure that both results have.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Compared {
    pub(super) key: FigureKey,
    pub(super) unit: String,
    pub(super) better: Direction,
    pub(super) base: Vec<f64>,
    pub(super) new: Vec<f64>,
    /// `None` if there are too few values for a verdict.
    pub(super) comparison: Option<stats::Comparison>,
    pub(super) finding: Finding,
}

/// The finding of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// Significantly worse, by more than the threshold.
    Regression,
    /// Significantly worse, by no more than the threshold.
    SlightlyWorse,
    Better,
    /// Another program has changed significantly: the machine, or its version, was another one.
    ControlChanged,
    /// No significant difference, and none of more than 5 %.
    Equal,
    /// No significant difference, and one of more than 5 % is not excluded.
    Undecided,
    /// Too few rounds, or values that cannot be compared: no verdict.
    NoVerdict,
}

/// Two results, figure by figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Comparison {
    pub(super) compared: Vec<Compared>,
    pub(super) only_in_base: Vec<FigureKey>,
    pub(super) only_in_new: Vec<FigureKey>,
}

impl Comparison {
    /// `at_most` is the share by which a figure may become worse.
    pub(super) fn of(base: &Saved, new: &Saved, rounds: Rounds, at_most: f64) -> Comparison {
        let mut comparison = Comparison::default();
        let is_same_load = base.load_differences(new).is_empty();
        let find = |saved, key| find(saved, key).filter(|_| is_same_load);
        for series in &base.series {
            match find(new, &series.key) {
                Some(other) => {
                    let compared = Compared::of(series, other, rounds, at_most);
                    comparison.compared.push(compared);
                }
                None => comparison.only_in_base.push(series.key.clone()),
            }
        }
        let only = new
            .series
            .iter()
            .filter(|series| find(base, &series.key).is_none());
        comparison.only_in_new = only.map(|series| series.key.clone()).collect();
        comparison
    }

    /// Whether at least one figure has a verdict.
    pub(super) fn has_verdict(&self) -> bool {
        let mut findings = self.compared.iter().map(|compared| compared.finding);
        findings.any(|finding| finding != Finding::NoVerdict)
    }

    /// The figures with this finding, the greatest changes first.
    pub(super) fn with(&self, finding: Finding) -> Vec<&Compared> {
        let mut found: Vec<&Compared> = self
            .compared
            .iter()
            .filter(|compared| compared.finding == finding)
            .collect();
        found.sort_by(|a, b| b.worse_by().abs().total_cmp(&a.worse_by().abs()));
        found
    }
}

fn find<'a>(saved: &'a Saved, key: &FigureKey) -> Option<&'a Series> {
    saved.series.iter().find(|series| series.key == *key)
}

impl Compared {
    fn of(base: &Series, new: &Series, rounds: Rounds, at_most: f64) -> Compared {
        let comparison = match rounds {
            Rounds::Apart => compare_sets(&new.values, &base.values),
            Rounds::Paired => {
                let pairs = new.values.iter().copied().zip(base.values.iter().copied());
                compare(&pairs.collect::<Vec<_>>())
            }
        };
        let mut compared = Compared {
            key: base.key.clone(),
            unit: base.unit.clone(),
            better: base.better,
            base: base.values.clone(),
            new: new.values.clone(),
            comparison,
            finding: Finding::NoVerdict,
        };
        compared.finding = compared.judge(at_most);
        compared
    }

    fn judge(&self, at_most: f64) -> Finding {
        let Some(comparison) = &self.comparison else {
            return Finding::NoVerdict;
        };
        match (comparison.difference, self.worse_by()) {
            (Difference::Equal, _) => Finding::Equal,
            (Difference::Undecided, _) => Finding::Undecided,
            _ if self.key.is_control() => Finding::ControlChanged,
            (_, worse) if worse > at_most => Finding::Regression,
            (_, worse) if worse > 0.0 => Finding::SlightlyWorse,
            _ => Finding::Better,
        }
    }

    /// The new figure, divided by the base; that of the medians if there is no verdict.
    pub(super) fn ratio(&self) -> f64 {
        let median = |values: &[f64]| Median::of(values.iter().copied()).map(|m| m.value);
        let of_medians = || Some(median(&self.new)? / median(&self.base)?);
        let ratio = self.comparison.as_ref().map(|comparison| comparison.ratio);
        ratio.or_else(of_medians).unwrap_or(f64::NAN)
    }

    /// The share of the base by which the new figure is worse; negative if it is better.
    pub(super) fn worse_by(&self) -> f64 {
        match self.better {
            Direction::Lower => self.ratio() - 1.0,
            Direction::Higher => 1.0 - self.ratio(),
        }
    }

    /// Whether both are single runs.
    pub(super) fn is_single(&self) -> bool {
        self.base.len() == 1 && self.new.len() == 1
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn another_program_that_has_changed_is_no_regression() {
        let of = |system: &str| {
            let named = |value| {
                let mut saved = saved(&[("cpu", Direction::Lower, value)]);
                saved.series[0].key.system = system.to_owned();
                saved
            };
            Comparison::of(&named(10.0), &named(20.0), Rounds::Apart, 0.05).compared[0].finding
        };
        for control in ["nginx", "nginx-proxy", "limit-epoll", "h2o", "h3 and quinn"] {
            assert_eq!(of(control), Finding::ControlChanged, "{control}");
        }
        for own in ["blitz-uring", "h2", "h2-over-tls", "HTTP/2", "limited"] {
            assert_eq!(of(own), Finding::Regression, "{own}");
        }
    }

    /// A result with one figure for each name: 15 rounds around a value.
    pub(crate) fn saved(figures: &[(&str, Direction, f64)]) -> Saved {
        let series = figures.iter().map(|(measure, better, value)| {
            let round = |round: i32| value * (1.0 + 0.002 * f64::from(round % 5 - 2));
            Series {
                key: FigureKey {
                    section: "load".to_owned(),
                    measure: (*measure).to_owned(),
                    system: "blitz".to_owned(),
                },
                unit: "µs".to_owned(),
                better: *better,
                values: (0..15).map(round).collect(),
            }
        });
        Saved {
            name: "saved".to_owned(),
            series: series.collect(),
            ..Saved::default()
        }
    }

    fn finding(better: Direction, factor: f64, rounds: Rounds) -> Finding {
        let (base, new) = (
            saved(&[("cpu", better, 10.0)]),
            saved(&[("cpu", better, 10.0 * factor)]),
        );
        Comparison::of(&base, &new, rounds, 0.05).compared[0].finding
    }

    #[test]
    fn a_regression_is_significant_and_larger_than_the_threshold() {
        let lower = |factor| finding(Direction::Lower, factor, Rounds::Apart);
        assert_eq!(lower(1.10), Finding::Regression);
        assert_eq!(lower(1.03), Finding::SlightlyWorse);
        assert_eq!(lower(1.0), Finding::Equal);
        assert_eq!(lower(0.5), Finding::Better);
        let higher = |factor| finding(Direction::Higher, factor, Rounds::Paired);
        assert_eq!(higher(0.9), Finding::Regression);
        assert_eq!(higher(1.1), Finding::Better);
    }

    #[test]
    fn figures_are_matched_by_name_and_the_others_are_listed() {
        let lower = Direction::Lower;
        let base = saved(&[("cpu", lower, 1.0), ("gone", lower, 1.0)]);
        let new = saved(&[("added", lower, 1.0), ("cpu", lower, 2.0)]);
        let comparison = Comparison::of(&base, &new, Rounds::Apart, 0.05);
        assert_eq!(comparison.compared.len(), 1);
        assert_eq!(comparison.only_in_base[0].measure, "gone");
        assert_eq!(comparison.only_in_new[0].measure, "added");
        let worst = comparison.with(Finding::Regression)[0];
        assert!(
            (worst.worse_by() - 1.0).abs() < 0.01,
            "{}",
            worst.worse_by()
        );
    }

    #[test]
    fn figures_of_different_loads_are_not_compared() {
        let lower = Direction::Lower;
        let on = |path: &str| Saved {
            load: vec![("path", path.to_owned())],
            ..saved(&[("cpu", lower, 1.0)])
        };
        let compared = |base: &str, new: &str| {
            let comparison = Comparison::of(&on(base), &on(new), Rounds::Apart, 0.05);
            comparison.compared.len()
        };
        assert_eq!((compared("/a", "/a"), compared("/a", "/b")), (1, 0));
        assert_eq!(on("/a").load_differences(&on("/b")), ["path: /a and /b"]);
        assert_eq!(on("/a").load_differences(&on(&"b".repeat(61))), ["path"]);
    }

    #[test]
    fn single_runs_have_a_ratio_and_no_verdict() {
        let single = |value| {
            let mut saved = saved(&[("cpu", Direction::Lower, 1.0)]);
            saved.series[0].values = vec![value];
            saved
        };
        let comparison = Comparison::of(&single(1.0), &single(3.0), Rounds::Apart, 0.05);
        let compared = &comparison.compared[0];
        assert_eq!(compared.finding, Finding::NoVerdict);
        assert!(compared.is_single() && compared.ratio() == 3.0);
    }
}
