//! The report of a comparison.

use super::judge::{Compared, Comparison, Finding, Rounds};
use super::saved::{FigureKey, Saved};
use crate::load_result::{Affects, Problem};
use crate::number;
use crate::report::{
    self, Column, Conclusion, ConclusionKind, Configuration, Estimate, FactGroup, Measure,
    MeasureResult, Report, Section, Step, System, Table, Verdict,
};
use crate::stats::{self, Median};

const QUESTION: &str = "Has anything become worse?";
/// The names of the two results in charts.
const BASE: &str = "base";
const NEW: &str = "new";
/// Most figures or systems that conclusions name.
const NAMED_MAX: usize = 10;

/// Two results and how they compare.
pub(super) struct Findings<'a> {
    pub(super) base: &'a Saved,
    pub(super) new: &'a Saved,
    pub(super) rounds: Rounds,
    /// The share by which a figure may become worse.
    pub(super) at_most: f64,
    pub(super) comparison: Comparison,
}

impl<'a> Findings<'a> {
    pub(super) fn new(
        base: &'a Saved,
        new: &'a Saved,
        rounds: Rounds,
        at_most: f64,
    ) -> Findings<'a> {
        Findings {
            base,
            new,
            rounds,
            at_most,
            comparison: Comparison::of(base, new, rounds, at_most),
        }
    }

    pub(super) fn report(&self, command: &str) -> Report {
        let title = format!("Regression: {} against {}", self.new.name, self.base.name);
        let mut report = Report::new(&title, QUESTION, command);
        report.conclusions = self.conclusions();
        report.problems = self.problems();
        report.sections = self.sections();
        report.method = self.method();
        report.repeat = vec![Step::command("Compare the same results again.", command)];
        report.environment = vec![self.facts(BASE, self.base), self.facts(NEW, self.new)];
        report
    }

    /// Whether a figure is worse than it may be.
    pub(super) fn has_regression(&self) -> bool {
        !self.comparison.with(Finding::Regression).is_empty()
    }

    fn conclusions(&self) -> Vec<Conclusion> {
        let mut conclusions = Vec::new();
        let percent = percent(self.at_most);
        for (finding, kind, text) in [
            (Finding::Regression, ConclusionKind::Worse, "regression"),
            (Finding::Better, ConclusionKind::Better, "better"),
        ] {
            let found = self.comparison.with(finding);
            let named = found.iter().take(NAMED_MAX);
            conclusions.extend(named.map(|compared| {
                let text = format!("{} ({text}).", change_sentence(compared));
                Conclusion::new(kind, text)
            }));
            if let more @ 1.. = found.len().saturating_sub(NAMED_MAX) {
                let text = format!("{more} more figures: {text}.");
                conclusions.push(Conclusion::new(kind, text));
            }
        }
        let count = |finding| self.comparison.with(finding).len();
        for (finding, kind, text) in [
            (
                Finding::Equal,
                ConclusionKind::Equal,
                "different by less than 5 %, if at all".to_owned(),
            ),
            (
                Finding::Undecided,
                ConclusionKind::Undecided,
                "no significant difference, and none of 5 % is excluded".to_owned(),
            ),
            (
                Finding::SlightlyWorse,
                ConclusionKind::Figure,
                format!("significantly worse, by {percent} or less"),
            ),
        ] {
            if let count @ 1.. = count(finding) {
                let text = format!(
                    "{count} of {} figures: {text}.",
                    self.comparison.compared.len()
                );
                conclusions.push(Conclusion::new(kind, text));
            }
        }
        conclusions.extend(self.controls());
        conclusions.extend(self.without_verdict());
        let only = [
            (&self.comparison.only_in_base, self.base),
            (&self.comparison.only_in_new, self.new),
        ];
        conclusions.extend(
            only.into_iter()
                .filter_map(|(keys, saved)| only_in(keys, &saved.name)),
        );
        conclusions
    }

    /// The verdict of other programs about the machine.
    fn controls(&self) -> Option<Conclusion> {
        let found = self.comparison.with(Finding::ControlChanged);
        let most = found.first()?;
        let text = format!(
            "{} figures of other programs have changed significantly, most of all {}. The machine, or their versions, were \
             not the same: part of each change above may be theirs.",
            found.len(),
            change_sentence(most)
        );
        Some(Conclusion::new(ConclusionKind::Figure, text))
    }

    fn without_verdict(&self) -> Option<Conclusion> {
        let found = self.comparison.with(Finding::NoVerdict);
        let text = match found.as_slice() {
            [] => return None,
            all if all.iter().all(|compared| compared.is_single()) => {
                "Single runs show how large a change is, and not whether it is more than chance: there is no verdict. \
                 Save results with several rounds for one."
                    .to_owned()
            }
            all => format!(
                "{} figures have no verdict: it takes four rounds in each result, and positive values.",
                all.len()
            ),
        };
        Some(Conclusion::new(ConclusionKind::Figure, text))
    }

    fn problems(&self) -> Vec<Problem> {
        let mut messages = Vec::new();
        for saved in [self.base, self.new] {
            let invalid = saved.invalid.iter();
            messages.extend(invalid.map(|reason| format!("{}: {reason}", saved.name)));
        }
        if let (Some(base), Some(new)) = (&self.base.processor, &self.new.processor)
            && base != new
        {
            messages.push(format!(
                "The processors differ, {base} and {new}: so may the figures."
            ));
        }
        let differences = self.base.load_differences(self.new);
        if !differences.is_empty() {
            messages.push(format!(
                "The loads differ, and their figures are not compared: {}.",
                differences.join("; ")
            ));
        } else if self.comparison.compared.is_empty() {
            messages.push("The two results have no figure in common.".to_owned());
        }
        let problem = |message| Problem {
            affects: Affects::Everything,
            message,
        };
        messages.into_iter().map(problem).collect()
    }

    /// A section for each of the results, in their order.
    fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = Vec::new();
        let mut compared: Vec<Vec<&Compared>> = Vec::new();
        for one in &self.comparison.compared {
            let heading = &one.key.section;
            let known = sections
                .iter()
                .position(|section| section.heading == *heading);
            let index = known.unwrap_or_else(|| {
                sections.push(Section {
                    heading: heading.clone(),
                    systems: vec![system(BASE, self.base), system(NEW, self.new)],
                    ..Section::default()
                });
                compared.push(Vec::new());
                sections.len() - 1
            });
            sections[index].measures.push(measure(one));
            compared[index].push(one);
        }
        for (section, compared) in sections.iter_mut().zip(&compared) {
            section.tables.push(table(compared));
        }
        sections
    }

    fn method(&self) -> Vec<String> {
        let percent = percent(self.at_most);
        let test = match self.rounds {
            Rounds::Paired => {
                "The two ran interleaved, in balanced orders. Differences are tested with the signed-rank test on the \
                 ratios of the rounds (level 4.5 %)."
            }
            Rounds::Apart => {
                "The results were measured at different times, so that their rounds form no pairs. Differences are tested \
                 with the exact rank-sum test (level 5 %); ratios are shifts of Hodges and Lehmann of the logarithms. \
                 Whatever the machine did at only one of the two times is part of the difference: repeat a regression \
                 with --binaries, which runs both versions interleaved."
            }
        };
        vec![
            format!(
                "A regression is a figure of Blitz that is significantly worse by more than {percent}. Figures are matched \
                 by the names of section, measure and system."
            ),
            test.to_owned(),
            "Rounds of resident memory are those of one process: a verdict about them says that these two processes differ, \
             and not that every two would."
                .to_owned(),
            "Each figure is tested by itself: of 100 figures that are equal, up to 5 differ significantly by chance, few \
             of them by more than the threshold."
                .to_owned(),
        ]
    }

    fn facts(&self, name: &str, saved: &Saved) -> FactGroup {
        let unknown = || "unknown".to_owned();
        FactGroup::new(
            name,
            [
                ("Name", saved.name.clone()),
                ("Revision", saved.revision.clone().unwrap_or_else(unknown)),
                ("Processor", saved.processor.clone().unwrap_or_else(unknown)),
            ],
        )
    }
}

fn percent(share: f64) -> String {
    format!("{} %", number::significant(share * 100.0))
}

/// For example `load, blitz: CPU time is 12 % higher, 9 to 15 %`.
fn change_sentence(compared: &Compared) -> String {
    let FigureKey {
        section,
        measure,
        system,
    } = &compared.key;
    let text = change_text(compared);
    format!("{section}, {system}: {measure} {text}")
}

/// The change in percent, with its interval.
fn change_text(compared: &Compared) -> String {
    let signed = |ratio: f64| {
        let change = (ratio - 1.0) * 100.0;
        let sign = if change < 0.0 { "−" } else { "+" };
        format!("{sign}{}", number::fixed(change.abs(), 1))
    };
    let change = format!("{} %", signed(compared.ratio()));
    match &compared.comparison {
        Some(comparison) => {
            let interval = comparison.interval;
            format!(
                "{change} ({} to {} %)",
                signed(interval.low),
                signed(interval.high)
            )
        }
        None => change,
    }
}

fn only_in(keys: &[FigureKey], name: &str) -> Option<Conclusion> {
    if keys.is_empty() {
        return None;
    }
    let mut names: Vec<String> = Vec::new();
    for key in keys {
        let name = format!("{}, {}", key.section, key.system);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let more = match names.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!("; and {more} more systems"),
    };
    names.truncate(NAMED_MAX);
    let text = format!(
        "Only in {name}, not compared, are {} figures of: {}{more}.",
        keys.len(),
        names.join("; ")
    );
    Some(Conclusion::new(ConclusionKind::NotRun, text))
}

fn system(name: &str, saved: &Saved) -> System {
    let version = saved.revision.as_deref().unwrap_or(&saved.name);
    let mut system = System::run(name, "", version);
    system.configuration = vec![Configuration {
        name: "result".to_owned(),
        text: Some(saved.name.clone()),
        link: None,
    }];
    system
}

fn measure(compared: &Compared) -> Measure {
    let result = |name: &str, values: &[f64], comparisons| MeasureResult {
        system: name.to_owned(),
        repetitions: values.to_vec(),
        estimate: estimate(values),
        comparisons,
    };
    let comparison = compared
        .comparison
        .as_ref()
        .map(|comparison| report::Comparison {
            baseline: BASE.to_owned(),
            verdict: verdict(compared, comparison),
        });
    let FigureKey {
        measure, system, ..
    } = &compared.key;
    Measure {
        name: format!("{system}: {measure}"),
        unit: compared.unit.clone(),
        better: compared.better,
        explanation: String::new(),
        results: vec![
            result(BASE, &compared.base, Vec::new()),
            result(NEW, &compared.new, comparison.into_iter().collect()),
        ],
    }
}

fn estimate(values: &[f64]) -> Option<Estimate> {
    let median = Median::of(values.iter().copied())?;
    let interval = median.interval_of_95()?;
    Some(Estimate {
        median: median.value,
        low: interval.low,
        high: interval.high,
        n: median.count as u32,
    })
}

fn verdict(compared: &Compared, comparison: &stats::Comparison) -> Verdict {
    let ratio = Estimate {
        median: comparison.ratio,
        low: comparison.interval.low,
        high: comparison.interval.high,
        n: comparison.pairs as u32,
    };
    match compared.finding {
        Finding::Regression => Verdict::Worse { ratio },
        Finding::Better => Verdict::Better { ratio },
        _ => Verdict::of_ratio(ratio),
    }
}

fn table(compared: &[&Compared]) -> Table {
    let titles = ["Unit", "Base", "New", "Change (95 %)", "Verdict"];
    let mut columns = vec![
        Column::text("System"),
        Column::text("Figure"),
        Column::text(titles[0]),
    ];
    columns.extend(titles[1..4].iter().map(|title| Column::number(title)));
    columns.push(Column::verdict(titles[4]));
    let median = |values: &[f64]| match Median::of(values.iter().copied()) {
        Some(median) => number::significant(median.value),
        None => number::NONE.to_owned(),
    };
    let row = |compared: &&Compared| {
        vec![
            compared.key.system.clone(),
            compared.key.measure.clone(),
            compared.unit.clone(),
            median(&compared.base),
            median(&compared.new),
            change_text(compared),
            words(compared).to_owned(),
        ]
    };
    Table {
        caption: "Medians of the rounds, and the change from base to new".to_owned(),
        columns,
        rows: compared.iter().map(row).collect(),
    }
}

fn words(compared: &Compared) -> &'static str {
    match compared.finding {
        Finding::Regression => "REGRESSION",
        Finding::SlightlyWorse => "slightly worse",
        Finding::Better => "better",
        Finding::ControlChanged => "another program",
        Finding::Equal => "equal",
        Finding::Undecided => "undecided",
        Finding::NoVerdict if compared.is_single() => "single runs: no verdict",
        Finding::NoVerdict => "no verdict",
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge::tests::saved;
    use super::*;
    use crate::report::Direction;

    fn findings<'a>(base: &'a Saved, new: &'a Saved) -> Findings<'a> {
        Findings::new(base, new, Rounds::Apart, 0.05)
    }

    #[test]
    fn regressions_are_named_with_their_change_and_interval() {
        let base = saved(&[
            ("cpu", Direction::Lower, 10.0),
            ("rate", Direction::Higher, 5.0),
        ]);
        let new = saved(&[
            ("cpu", Direction::Lower, 12.0),
            ("rate", Direction::Higher, 5.0),
        ]);
        let findings = findings(&base, &new);
        assert!(findings.has_regression());
        let report = findings.report("blitz bench regression a b");
        let worst = &report.conclusions[0];
        assert_eq!(worst.kind, ConclusionKind::Worse);
        assert!(
            worst.text.starts_with("load, blitz: cpu +20.0 % (+"),
            "{}",
            worst.text
        );
        assert!(
            report.conclusions[1]
                .text
                .starts_with("1 of 2 figures: different by")
        );
        assert!(report.problems.is_empty());
        let text = report.markdown();
        assert!(
            text.contains("REGRESSION") && text.contains("rank-sum"),
            "{text}"
        );
        assert!(report.html().contains("REGRESSION"));
    }

    #[test]
    fn what_only_one_result_has_is_listed_by_system() {
        let base = saved(&[
            ("cpu", Direction::Lower, 10.0),
            ("rate", Direction::Higher, 5.0),
        ]);
        let mut new = base.clone();
        for series in &mut new.series {
            series.key.system = "nginx".to_owned();
        }
        let report = findings(&base, &new).report("");
        let text = &report.conclusions[0].text;
        assert!(text.ends_with("are 2 figures of: load, blitz."), "{text}");
        assert!(report.conclusions[1].text.ends_with("load, nginx."));
    }

    #[test]
    fn an_invalid_result_and_another_processor_are_problems() {
        let on = |processor: &str, invalid: &[&str]| Saved {
            processor: Some(processor.to_owned()),
            invalid: invalid.iter().map(|&text| text.to_owned()).collect(),
            ..saved(&[("cpu", Direction::Lower, 10.0)])
        };
        let (base, new) = (on("A", &["steal"]), on("B", &[]));
        let problems = findings(&base, &new).report("").problems;
        assert!(problems[0].message.ends_with(": steal"));
        assert!(problems[1].message.contains("A and B"));
        let none = saved(&[]);
        let problems = findings(&base, &none).report("").problems;
        assert!(problems[1].message.contains("no figure in common"));
        let of_load = |path: &str| Saved {
            load: vec![("path", path.to_owned())],
            ..saved(&[("cpu", Direction::Lower, 10.0)])
        };
        let problems = findings(&of_load("/a"), &of_load("/b")).report("").problems;
        assert!(problems[0].message.ends_with("path: /a and /b."));
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn single_runs_say_that_there_is_no_significance() {
        let single = |value| {
            let mut saved = saved(&[("cpu", Direction::Lower, value)]);
            saved.series[0].values.truncate(1);
            saved
        };
        let (base, new) = (single(10.0), single(20.0));
        let findings = findings(&base, &new);
        assert!(!findings.has_regression());
        let text = findings.report("").markdown();
        assert!(
            text.contains("there is no verdict") && text.contains("+100.0 %"),
            "{text}"
        );
    }
}
