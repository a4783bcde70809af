//! The verdicts of a report as they are published: a void set has no other one than void.

use super::model::{
    ColumnKind, ConclusionKind, Estimate, REPORT_VERSION, Report, Section, Table, Verdict,
};
use crate::stats::{self, is_equal};

impl Report {
    /// The report as it is published: one with problems proves nothing, and each of its verdicts is void.
    #[must_use]
    pub fn settled(mut self) -> Report {
        self.version = REPORT_VERSION;
        let Some(problem) = self.problems.first() else {
            return self;
        };
        let reason = problem.message.clone();
        let sections = self.sections.iter_mut();
        let of_sections = sections.flat_map(|section| {
            section.void_verdicts(&reason);
            &mut section.conclusions
        });
        for conclusion in self.conclusions.iter_mut().chain(of_sections) {
            if conclusion.kind != ConclusionKind::Figure {
                conclusion.kind = ConclusionKind::Void;
            }
        }
        self
    }
}

impl Verdict {
    /// That of a difference which is not significant: equality, or an open question.
    pub(crate) fn of_ratio(ratio: Estimate) -> Verdict {
        let Estimate { low, high, .. } = ratio;
        match is_equal(stats::Interval { low, high }) {
            true => Verdict::Equal { ratio },
            false => Verdict::Undecided { ratio },
        }
    }
}

impl Section {
    /// Makes each verdict of measures and tables void.
    fn void_verdicts(&mut self, reason: &str) {
        let measures = self.measures.iter_mut();
        let results = measures.flat_map(|measure| &mut measure.results);
        for comparison in results.flat_map(|result| &mut result.comparisons) {
            comparison.verdict = Verdict::Void {
                reason: reason.to_owned(),
            };
        }
        for Table { columns, rows, .. } in &mut self.tables {
            let cells = rows.iter_mut().flat_map(|row| columns.iter().zip(row));
            for (column, cell) in cells {
                if column.kind == ColumnKind::Verdict {
                    "void".clone_into(cell);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Column, Comparison, Conclusion, Direction, Measure, MeasureResult};
    use super::*;
    use crate::load_result::Problem;

    fn measure() -> Measure {
        Measure {
            name: "Throughput".to_owned(),
            unit: "requests/s".to_owned(),
            better: Direction::Lower,
            explanation: String::new(),
            results: vec![MeasureResult {
                system: "a".to_owned(),
                repetitions: vec![1.0],
                ..MeasureResult::default()
            }],
        }
    }

    #[test]
    fn a_report_with_problems_has_no_verdict_but_void() {
        let ratio = Estimate {
            median: 0.5,
            low: 0.4,
            high: 0.6,
            n: 7,
        };
        let reason = String::new();
        let verdicts = [
            Verdict::Better { ratio },
            Verdict::Worse { ratio },
            Verdict::Equal { ratio },
            Verdict::Undecided { ratio },
            Verdict::NotRun { reason },
        ];
        let comparisons = verdicts.map(|verdict| Comparison {
            baseline: "nginx".to_owned(),
            verdict,
        });
        let mut measure = measure();
        measure.results[0].comparisons = comparisons.to_vec();
        let kinds = [
            ConclusionKind::Better,
            ConclusionKind::Worse,
            ConclusionKind::Equal,
            ConclusionKind::Undecided,
            ConclusionKind::NotRun,
            ConclusionKind::Void,
        ];
        let conclusions = kinds.map(|kind| Conclusion::new(kind, "It is."));
        let mut report = Report::new("Title", "Question?", "blitz bench");
        report.conclusions = conclusions.to_vec();
        report.sections = vec![Section {
            conclusions: conclusions.to_vec(),
            measures: vec![measure],
            tables: vec![Table {
                columns: vec![Column::text("System"), Column::verdict("Verdict")],
                rows: vec![vec!["blitz".to_owned(), "equal".to_owned()]],
                ..Table::default()
            }],
            ..Section::default()
        }];
        assert_eq!(report.clone().settled(), report, "it has no problem");
        report.problems = vec![Problem {
            affects: crate::load_result::Affects::Times,
            message: "It was late.".to_owned(),
        }];
        let void = report.settled();
        let section = &void.sections[0];
        let all = void.conclusions.iter().chain(&section.conclusions);
        assert!(all.into_iter().all(|it| it.kind == ConclusionKind::Void));
        let reason = "It was late.".to_owned();
        let comparisons = &section.measures[0].results[0].comparisons;
        assert_eq!(comparisons.len(), 5);
        for comparison in comparisons {
            assert_eq!(
                comparison.verdict,
                Verdict::Void {
                    reason: reason.clone()
                }
            );
        }
        assert_eq!(section.tables[0].rows, [["blitz", "void"]]);
        let labels = ["better", "worse", "equal", "undecided"].map(|label| format!("**{label}**"));
        let text = void.markdown();
        assert!(labels.iter().all(|label| !text.contains(label)), "{text}");
    }

    #[test]
    fn a_report_of_version_1_leaves_open_what_it_did_not_decide() {
        let conclusion = r#"{"kind":"no-difference","text":"It is."}"#;
        let conclusion: Conclusion = serde_json::from_str(conclusion).unwrap();
        assert_eq!(conclusion.kind, ConclusionKind::Undecided);
        let verdict = r#"{"kind":"no-significant-difference","ratio":{"median":1.0,"low":0.9,"high":1.1,"n":6}}"#;
        let verdict: Verdict = serde_json::from_str(verdict).unwrap();
        assert!(matches!(verdict, Verdict::Undecided { .. }));
    }
}
