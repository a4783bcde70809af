//! A report for a terminal: bars of block elements, tables as wide as the terminal allows, and colour where it is wanted.

mod draw;

use std::fmt::Write;
use std::io::{self, IsTerminal};

use super::escape::terminal as text;
use super::grid::{self, Cell, Grid, is_number};
use super::model::{
    Conclusion, ConclusionKind, FactGroup, LatencySet, Measure, MeasureResult, Report, Section,
    Step, TimelinePoint, TimelineSet,
};
use super::wording;
use crate::number::significant;

/// The destination that a text is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// Columns of the text.
    pub width: usize,
    /// Whether escape sequences colour it.
    pub color: bool,
}

/// Columns of a text that is not for a terminal.
const WIDTH_DEFAULT: usize = 100;
/// Limits for the columns of a text.
const WIDTHS: (usize, usize) = (40, 160);

const BOLD: &str = "1";
const DIM: &str = "2";
const GOOD: &str = "36";
const BAD: &str = "33";

impl Terminal {
    /// The standard output of this process. There is no colour if it is not a terminal, if `NO_COLOR` is set, or if
    /// `TERM` is `dumb`.
    #[must_use]
    pub fn of_stdout() -> Terminal {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let size = terminal_size::terminal_size();
        Terminal {
            width: size.map_or(WIDTH_DEFAULT, |(width, _)| usize::from(width.0)),
            color: io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb,
        }
    }

    fn columns(self) -> usize {
        self.width.clamp(WIDTHS.0, WIDTHS.1)
    }

    /// The text in a style, which is a parameter of the escape sequence.
    fn style(self, style: &str, text: &str) -> String {
        match self.color {
            true => format!("\u{1b}[{style}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        }
    }
}

/// The text.
pub(super) fn render(report: &Report, terminal: &Terminal) -> String {
    let terminal = *terminal;
    let mut out = String::new();
    let _ = writeln!(out, "{}", terminal.style(BOLD, &text(&report.title)));
    write_wrapped(&mut out, terminal, &text(&report.question), 0);
    let when = format!("{}: {}", wording::when(report), report.command);
    write_wrapped(&mut out, terminal, &text(&when), 0);
    if !report.problems.is_empty() {
        write_heading(&mut out, terminal, "Problems");
        for problem in &report.problems {
            let affected = wording::affected(problem.affects);
            write_wrapped(
                &mut out,
                terminal,
                &text(&format!("{affected}: {}", problem.message)),
                2,
            );
        }
    }
    if !report.conclusions.is_empty() {
        write_heading(&mut out, terminal, "Verdict");
        write_conclusions(&mut out, terminal, &report.conclusions);
    }
    for section in &report.sections {
        write_section(&mut out, terminal, section);
    }
    if !report.method.is_empty() {
        write_heading(&mut out, terminal, "Method");
        for paragraph in &report.method {
            write_wrapped(&mut out, terminal, &text(paragraph), 2);
        }
    }
    write_repeat(&mut out, terminal, &report.repeat);
    write_environment(&mut out, terminal, &report.environment);
    out
}

fn write_section(out: &mut String, terminal: Terminal, section: &Section) {
    write_heading(out, terminal, &section.heading);
    for paragraph in &section.explanation {
        write_wrapped(out, terminal, &text(paragraph), 2);
    }
    write_conclusions(out, terminal, &section.conclusions);
    for measure in &section.measures {
        write_measure(out, terminal, section, measure);
    }
    for set in &section.latencies {
        write_latencies(out, terminal, set);
    }
    for set in &section.timelines {
        write_timelines(out, terminal, set);
    }
    for grid in section.curves.iter().flat_map(grid::curves) {
        write_grid(out, terminal, &grid);
    }
    for table in &section.tables {
        write_grid(out, terminal, &grid::table(table));
    }
}

/// Bars in the order of the ranking, then the comparisons in words.
fn write_measure(out: &mut String, terminal: Terminal, section: &Section, measure: &Measure) {
    let direction = wording::direction(measure.better);
    let title = wording::with_unit(&measure.name, &measure.unit);
    write_title(
        out,
        terminal,
        &format!("{title} ({direction}; median and 95 % interval)"),
    );
    let grid = grid::measure(section, measure);
    let medians: Vec<f64> = section
        .ranked(measure)
        .iter()
        .filter_map(|result| result.median())
        .collect();
    let largest = medians.into_iter().max_by(f64::total_cmp).unwrap_or(1.0);
    let name_width = widest(grid.rows.iter().map(|row| row[0].text()));
    let value_width = widest(
        grid.rows
            .iter()
            .filter(|row| row.len() > 2)
            .map(|row| row[1].text()),
    );
    let interval_width = widest(
        grid.rows
            .iter()
            .filter(|row| row.len() > 2)
            .map(|row| row[2].text()),
    );
    let used = 2 + name_width + 2 + 2 + value_width + 2 + interval_width;
    let bar_width = terminal.columns().saturating_sub(used).clamp(6, 40);
    for row in &grid.rows {
        let name = pad(row[0].text(), name_width, false);
        let [_, median, interval, ..] = row.as_slice() else {
            let reason = row.last().map_or("", Cell::text);
            let _ = writeln!(out, "  {name}  {}", terminal.style(DIM, &text(reason)));
            continue;
        };
        let result = measure
            .result_of(row[0].text())
            .and_then(MeasureResult::median);
        let bar = draw::bar(result.unwrap_or(0.0) / largest, bar_width);
        let median = pad(median.text(), value_width, true);
        let interval = pad(interval.text(), interval_width, false);
        let line = format!(
            "  {name}  {bar}  {median}  {}",
            terminal.style(DIM, &interval)
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
    write_comparisons(out, terminal, section, measure);
}

fn write_comparisons(out: &mut String, terminal: Terminal, section: &Section, measure: &Measure) {
    for result in section.ranked(measure) {
        for comparison in &result.comparisons {
            let (system, baseline) = (&result.system, &comparison.baseline);
            let words = wording::verdict(&comparison.verdict);
            let line = text(&format!("{system} against {baseline}: {words}"));
            write_judged(
                out,
                terminal,
                wording::verdict_kind(&comparison.verdict),
                &line,
            );
        }
    }
}

fn write_latencies(out: &mut String, terminal: Terminal, set: &LatencySet) {
    write_grid(out, terminal, &grid::latencies(set));
    if grid::lacks_percentiles(set) {
        write_wrapped(out, terminal, wording::TOO_FEW_SAMPLES, 2);
    }
}

fn write_timelines(out: &mut String, terminal: Terminal, set: &TimelineSet) {
    write_grid(out, terminal, &grid::timelines(set));
    let points = || set.timelines.iter().flat_map(|timeline| &timeline.points);
    let rates = points().filter_map(TimelinePoint::requests_per_second);
    let Some(largest) = rates.max_by(f64::total_cmp) else {
        return;
    };
    let title = format!(
        "requests/s over time, full height is {}",
        significant(largest)
    );
    let _ = writeln!(out, "\n  {}", terminal.style(DIM, &title));
    let name_width = widest(set.timelines.iter().map(|timeline| timeline.name.as_str()));
    let width = terminal.columns().saturating_sub(name_width + 4).max(8);
    for timeline in &set.timelines {
        let rates = timeline
            .points
            .iter()
            .map(TimelinePoint::requests_per_second);
        let rates: Vec<f64> = rates.map(|rate| rate.unwrap_or(0.0)).collect();
        let name = pad(&timeline.name, name_width, false);
        let _ = writeln!(out, "  {name}  {}", draw::sparkline(&rates, largest, width));
    }
    for mark in &set.marks {
        let _ = writeln!(out, "  {} s: {}", significant(mark.at_s), text(&mark.label));
    }
}

fn write_conclusions(out: &mut String, terminal: Terminal, conclusions: &[Conclusion]) {
    for conclusion in conclusions {
        write_judged(out, terminal, conclusion.kind, &text(&conclusion.text));
    }
}

/// A line that begins with its badge. All badges have the same width.
fn write_judged(out: &mut String, terminal: Terminal, kind: ConclusionKind, line: &str) {
    const BADGE_WIDTH: usize = 13;
    let style = match kind {
        ConclusionKind::Better => GOOD,
        ConclusionKind::Worse | ConclusionKind::Void => BAD,
        _ => DIM,
    };
    let badge = terminal.style(style, &pad(wording::badge(kind), BADGE_WIDTH, false));
    let indent = 2 + BADGE_WIDTH + 2;
    let lines = draw::wrap(line, terminal.columns().saturating_sub(indent).max(20));
    for (index, line) in lines.iter().enumerate() {
        let _ = match index {
            0 => writeln!(out, "  {badge}  {line}"),
            _ => writeln!(out, "{:indent$}{line}", ""),
        };
    }
}

fn write_repeat(out: &mut String, terminal: Terminal, steps: &[Step]) {
    if steps.is_empty() {
        return;
    }
    write_heading(out, terminal, "How to repeat it");
    for step in steps {
        write_wrapped(out, terminal, &text(&step.text), 2);
        // Commands stay on one line, so that they can be copied.
        if let Some(command) = &step.command {
            let _ = writeln!(out, "    {}", text(command));
        }
    }
}

fn write_environment(out: &mut String, terminal: Terminal, groups: &[FactGroup]) {
    if groups.is_empty() {
        return;
    }
    write_heading(out, terminal, "Environment");
    for group in groups {
        let facts = group.facts.iter();
        let facts: Vec<String> = facts
            .map(|fact| format!("{}: {}", fact.name, fact.value))
            .collect();
        let line = format!("{}. {}", group.name, facts.join("; "));
        write_wrapped(out, terminal, &text(&line), 2);
    }
}

fn write_heading(out: &mut String, terminal: Terminal, heading: &str) {
    let _ = writeln!(out, "\n{}", terminal.style(BOLD, &text(heading)));
}

fn write_title(out: &mut String, terminal: Terminal, title: &str) {
    out.push('\n');
    for line in draw::wrap(&text(title), terminal.columns() - 2) {
        let _ = writeln!(out, "  {}", terminal.style(BOLD, &line));
    }
}

fn write_wrapped(out: &mut String, terminal: Terminal, text: &str, indent: usize) {
    for line in draw::wrap(text, terminal.columns() - indent) {
        let _ = writeln!(out, "{:indent$}{line}", "");
    }
}

/// A table. Where it is wider than the terminal, each row is a list.
fn write_grid(out: &mut String, terminal: Terminal, grid: &Grid) {
    write_title(out, terminal, &grid.caption);
    let widths: Vec<usize> = (0..grid.columns.len())
        .map(|index| {
            let title = std::iter::once(grid.columns[index].title.as_str());
            let cells = grid.rows.iter().filter_map(|row| match row.get(index) {
                Some(Cell::Absent(_)) | None => None,
                Some(cell) => Some(cell.text()),
            });
            widest(title.chain(cells))
        })
        .collect();
    let total = 2 + widths.iter().map(|width| width + 2).sum::<usize>() - 2;
    if total > terminal.columns() {
        write_lists(out, terminal, grid);
        return;
    }
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().zip(0..).map(|(cell, index): (_, usize)| {
            let is_number = grid.columns.get(index).is_some_and(is_number);
            pad(cell, widths.get(index).copied().unwrap_or(0), is_number)
        });
        let cells: Vec<String> = cells.collect();
        format!("  {}", cells.join("  ")).trim_end().to_owned()
    };
    let titles = grid
        .columns
        .iter()
        .map(|column| column.title.as_str())
        .collect();
    let _ = writeln!(out, "{}", terminal.style(DIM, &line(titles)));
    for row in &grid.rows {
        let _ = match row.as_slice() {
            [name, Cell::Absent(reason)] => {
                let name = pad(name.text(), widths[0], false);
                writeln!(out, "  {name}  {}", terminal.style(DIM, &text(reason)))
            }
            cells => writeln!(out, "{}", line(cells.iter().map(Cell::text).collect())),
        };
    }
}

/// Each row as its first cell, and below it the others with their titles.
fn write_lists(out: &mut String, terminal: Terminal, grid: &Grid) {
    let title_width = widest(
        grid.columns
            .iter()
            .skip(1)
            .map(|column| column.title.as_str()),
    );
    for row in &grid.rows {
        let name = row.first().map_or("", Cell::text);
        let _ = writeln!(out, "  {}", text(name));
        for (column, cell) in grid.columns.iter().zip(row).skip(1) {
            let value = text(cell.text());
            let _ = match cell {
                Cell::Absent(_) => writeln!(out, "    {}", terminal.style(DIM, &value)),
                _ => writeln!(
                    out,
                    "    {}  {value}",
                    pad(&column.title, title_width, false)
                ),
            };
        }
    }
}

fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

/// The text with spaces up to the width: before it for numbers.
fn pad(content: &str, width: usize, is_number: bool) -> String {
    let content = text(content);
    match is_number {
        true => format!("{content:>width$}"),
        false => format!("{content:<width$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Column, Direction, Estimate, System, Table};
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("Title", "Which one?", "blitz bench");
        report.conclusions = vec![Conclusion::new(ConclusionKind::Better, "\u{1b}[2JIt is.")];
        let result = |system: &str, median: f64| MeasureResult {
            system: system.to_owned(),
            estimate: Some(Estimate {
                median,
                low: median * 0.9,
                high: median * 1.1,
                n: 9,
            }),
            ..MeasureResult::default()
        };
        report.sections = vec![Section {
            heading: "Load".to_owned(),
            systems: vec![
                System::run("blitz", "h2", "1"),
                System::run("nginx", "h2", "1"),
                System::not_run("envoy", "h2", "not installed"),
            ],
            measures: vec![Measure {
                name: "CPU time".to_owned(),
                unit: "µs".to_owned(),
                better: Direction::Lower,
                explanation: String::new(),
                results: vec![result("blitz", 5.0), result("nginx", 10.0)],
            }],
            tables: vec![Table {
                caption: "Counts".to_owned(),
                columns: vec![
                    Column::text("status"),
                    Column::number("responses of all servers"),
                ],
                rows: vec![vec!["200".to_owned(), "1,000".to_owned()]],
            }],
            ..Section::default()
        }];
        report
    }

    #[test]
    fn bars_have_the_width_that_is_left_and_no_colour_without_a_terminal() {
        let terminal = Terminal {
            width: 50,
            color: false,
        };
        let text = report().text(&terminal);
        let expected = "
  CPU time, µs (lower is better; median and 95 %
  interval)
  blitz  ██████████▌            5.00  4.50 to 5.50
  nginx  █████████████████████  10.0  9.0 to 11.0
  envoy  not run: not installed

  Counts
  status  responses of all servers
  200                        1,000
";
        assert!(text.ends_with(expected), "{text}");
        assert!(!text.contains('\u{1b}'));
        assert!(text.lines().all(|line| line.chars().count() <= 50));
    }

    #[test]
    fn colour_is_ours_only() {
        let terminal = Terminal {
            width: 80,
            color: true,
        };
        let text = report().text(&terminal);
        assert!(text.contains("\u{1b}[36mbetter") && text.contains("\u{fffd}[2JIt is."));
    }

    #[test]
    fn a_table_that_does_not_fit_becomes_lists() {
        let mut report = report();
        let table = &mut report.sections[0].tables[0];
        table.rows[0][0] = "a name of more than twenty letters".to_owned();
        let text = report.text(&Terminal {
            width: 10,
            color: false,
        });
        let list = "  a name of more than twenty letters\n    responses of all servers  1,000\n";
        assert!(text.contains(list), "{text}");
    }
}
