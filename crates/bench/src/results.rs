//! The result as a table for the terminal, as Markdown and as raw data.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::differences::{self, SystemDifference};
use crate::goals::{GoalResult, ratio_to};
use crate::group::{Group, LoadTool, Requests};
use crate::load_tool::handshakes::CLIENTS;
use crate::machine::Facts;
use crate::measure::{Measurement, Run};
use crate::noise::Noise;
use crate::not_run::{self, NotRun};
use crate::output;
use crate::result_file;
use crate::scenario::Scenario;
use crate::stats::{Interval, Percentile, Quartiles};

/// The facts and measurements of a set of runs.
#[derive(Serialize)]
pub(crate) struct Results<'a> {
    pub(crate) command: &'a str,
    #[serde(skip)]
    pub(crate) scenario: &'static Scenario,
    pub(crate) facts: Facts,
    pub(crate) rounds: u32,
    pub(crate) seconds: u64,
    pub(crate) connections: u32,
    pub(crate) streams: u32,
    /// The seed of the order of the systems.
    pub(crate) seed: u64,
    pub(crate) noise: Noise,
    /// Remarks for the reader.
    pub(crate) notes: Vec<String>,
    /// Share of one core that other programs used before the start.
    pub(crate) foreign_before: f64,
    /// The reasons why the set is void; empty for a valid set.
    pub(crate) void: Vec<String>,
    pub(crate) verdicts: Vec<GoalResult>,
    /// The chosen systems that cannot run here.
    pub(crate) not_run: Vec<NotRun>,
    pub(crate) differences: Vec<SystemDifference>,
    pub(crate) measured: Vec<Measurement>,
}

/// The columns before the ratios.
const COLUMNS: [&str; 9] = [
    "system",
    "req/s",
    "CPU µs/req",
    "p50 µs",
    "p99 µs",
    "RSS MiB",
    "enters",
    "SQEs",
    "CQEs",
];

impl Results<'_> {
    /// The tables for the terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (title, rows) in self.tables() {
            let _ = writeln!(text, "\n{title}\n");
            for row in &rows {
                text.push_str(&aligned(row, &rows));
            }
        }
        let _ = write!(text, "\n{}", self.conclusion(""));
        text
    }

    /// The tables for the file beside the raw data.
    pub(crate) fn markdown(&self) -> String {
        let mut text = heading(&self.facts, self.scenario.title, self.command);
        for (title, rows) in self.tables() {
            let _ = writeln!(text, "\n## {title}\n");
            text.push_str(&markdown_table(&rows));
        }
        let _ = write!(text, "\n{}", self.conclusion("- "));
        text
    }

    /// A title and rows for each group that was measured, and for the differences.
    fn tables(&self) -> Vec<(String, Vec<Vec<String>>)> {
        let groups = self.scenario.groups.iter();
        let mut tables: Vec<_> = groups
            .map(|group| (self.title(group), self.rows(group)))
            .collect();
        let (title, rows) = differences::table(&self.differences);
        tables.push((title.to_owned(), rows));
        tables.retain(|(_, rows)| rows.len() > 1);
        tables
    }

    fn conclusion(&self, bullet: &str) -> String {
        conclusion(
            &self.verdicts,
            &self.not_run,
            &self.notes,
            &self.void,
            bullet,
        )
    }

    fn title(&self, group: &Group) -> String {
        let Results {
            connections,
            streams,
            rounds,
            seconds,
            ..
        } = self;
        let clients = match (group.load_tool, streams) {
            (LoadTool::Handshakes | LoadTool::Http3(Requests::Handshakes), _) => {
                format!("{CLIENTS} clients")
            }
            (_, 1) => format!("{connections} connections"),
            _ => format!("{connections} connections with {streams} streams"),
        };
        format!("{}: {clients}, {rounds} rounds of {seconds} s", group.title)
    }

    /// The column titles, then a row per system.
    fn rows(&self, group: &Group) -> Vec<Vec<String>> {
        let heads = COLUMNS.iter().map(|&head| head.to_owned());
        let heads = heads
            .chain(group.bases.iter().map(|base| format!("against {base}")))
            .chain(["other programs".to_owned()])
            .collect();
        let systems = self
            .measured
            .iter()
            .filter(|measured| measured.system.group == group);
        std::iter::once(heads)
            .chain(systems.map(|measured| self.row(measured)))
            .collect()
    }

    fn row(&self, measured: &Measurement) -> Vec<String> {
        let quartiles = |of: fn(&Run) -> f64| Quartiles::of(measured.runs.iter().map(of));
        let median = |of: fn(&Run) -> f64| {
            quartiles(of).map_or_else(|| "–".to_owned(), |q| format!("{:.0}", q.median))
        };
        let latency = |percentile: Percentile, of: fn(&Run) -> Option<u64>| {
            let runs = measured.runs.iter();
            let runs = runs.filter(|run| percentile.is_carried_by(run.load.requests));
            let values = runs.filter_map(of).map(|us| us as f64);
            Quartiles::of(values).map_or_else(|| "–".to_owned(), |q| format!("{:.0}", q.median))
        };
        let per_request = |value: Option<f64>| {
            value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"))
        };
        let percent = |run: &Run| run.foreign_share * 100.0;
        let mut row = vec![
            measured.name.to_owned(),
            median(|run| run.requests_per_second),
            spread(quartiles(|run| run.cpu_us_per_request)),
            latency(Percentile::P50, |run| run.load.p50_us),
            latency(Percentile::P99, |run| run.load.p99_us),
            median(|run| run.resident_bytes as f64 / f64::from(1 << 20)),
            per_request(measured.per_request(|counters| counters.enters)),
            per_request(measured.per_request(|counters| counters.sqes)),
            per_request(measured.per_request(|counters| counters.cqes)),
        ];
        let bases = measured.system.group.bases;
        row.extend(
            bases
                .iter()
                .map(|base| spread(ratio_to(&self.measured, measured, base))),
        );
        row.push(format!("{} %", median(percent)));
        row
    }
}

/// The first lines of a file: date, command, revision and machine.
pub(crate) fn heading(facts: &Facts, title: &str, command: &str) -> String {
    let Facts {
        date,
        revision,
        kernel,
        cpu,
        cores,
        versions,
    } = facts;
    let versions = versions.join("; ");
    format!(
        "# {date}: {title}\n\n`{command}`\n\n- revision {revision}\n\
         - {cpu}, {cores} cores, Linux {kernel}\n- {versions}\n"
    )
}

/// A table whose first row has the titles.
pub(crate) fn markdown_table(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
        }
    }
    text
}

/// The verdicts, the systems that were not run, notes, and whether the set is valid.
///
/// A void set has no other verdict.
pub(crate) fn conclusion(
    verdicts: &[GoalResult],
    not_run: &[NotRun],
    notes: &[String],
    void: &[String],
    bullet: &str,
) -> String {
    let mut text = String::new();
    for verdict in verdicts {
        let GoalResult {
            system,
            what,
            at_most,
            measured,
            interval,
            met,
        } = verdict;
        let word = match void {
            [] => verdict_text(*met),
            [..] => "void",
        };
        let interval = interval.map_or(String::new(), |Interval { low, high }| {
            format!(", 95 % from {low:.2} to {high:.2}")
        });
        let measured = measured.map_or(String::new(), |measured| {
            format!(": {measured:.2}{interval}")
        });
        let _ = writeln!(
            text,
            "{bullet}{word}: {system}, {what}{measured} (at most {at_most:.2})"
        );
    }
    text.push_str(&not_run::lines(not_run, bullet));
    for note in notes {
        let _ = writeln!(text, "{bullet}note: {note}");
    }
    for reason in void {
        let _ = writeln!(text, "{bullet}VOID: {reason}; repeat the set");
    }
    if void.is_empty() {
        let _ = writeln!(
            text,
            "{bullet}The set is valid: every response was correct."
        );
    }
    text
}

/// The verdict of a goal as tables print it.
pub(crate) fn verdict_text(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "not run",
    }
}

/// Median and, in brackets, the quartiles.
pub(crate) fn spread(quartiles: Option<Quartiles>) -> String {
    quartiles.map_or_else(
        || "–".to_owned(),
        |q| format!("{:.2} [{:.2} {:.2}]", q.median, q.lower, q.upper),
    )
}

/// A row of a table whose columns are as wide as their widest cell.
pub(crate) fn aligned(row: &[String], rows: &[Vec<String>]) -> String {
    let mut line = String::new();
    for (column, cell) in row.iter().enumerate() {
        let width = rows
            .iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0);
        if column == 0 {
            let _ = write!(line, "{cell:<width$}");
        } else {
            let _ = write!(line, "  {cell:>width$}");
        }
    }
    line.push('\n');
    line
}

/// Writes raw data and table to the folder, beside earlier ones of the same day.
pub(crate) fn save(
    folder: &Path,
    date: &str,
    scenario: &str,
    raw: &impl Serialize,
    markdown: &str,
) -> Result<(), String> {
    let shown = folder.display();
    fs::create_dir_all(folder).map_err(|e| format!("{shown}: {e}"))?;
    let name = free_name(folder, date, scenario)?;
    let json = result_file::compressed(raw)?;
    for (extension, content) in [
        (result_file::ENDING, json.as_slice()),
        ("md", markdown.as_bytes()),
    ] {
        let file = folder.join(format!("{name}.{extension}"));
        fs::write(&file, content).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let ending = result_file::ENDING;
    output::print(&format!("saved as {shown}/{name}.md and .{ending}\n"))
}

/// The first name of results of this day that the folder does not have.
pub(crate) fn free_name(folder: &Path, date: &str, scenario: &str) -> Result<String, String> {
    let name = |number: u32| match number {
        1 => format!("{date}-{scenario}"),
        _ => format!("{date}-{scenario}-{number}"),
    };
    let mut names = (1..).map(name);
    let endings = ["json", result_file::ENDING, "md"];
    let is_free = |name: &String| {
        let mut files = endings.iter().map(|ending| format!("{name}.{ending}"));
        files.all(|file| !folder.join(file).exists())
    };
    let free = names.find(is_free);
    free.ok_or_else(|| format!("{} is full", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let cells = |words: &[&str]| {
            words
                .iter()
                .map(|&word| word.to_owned())
                .collect::<Vec<_>>()
        };
        let rows = [cells(&["a", "µs"]), cells(&["long", "1"])];
        assert_eq!(aligned(&rows[0], &rows), "a     µs\n");
        assert_eq!(aligned(&rows[1], &rows), "long   1\n");
    }

    #[test]
    fn every_goal_of_a_void_set_is_void() {
        let of = |measured, met| GoalResult {
            system: "blitz",
            what: "CPU".to_owned(),
            at_most: 1.0,
            measured,
            interval: None,
            met,
        };
        let all = [
            of(Some(0.9), Some(true)),
            of(Some(1.1), Some(false)),
            of(None, None),
        ];
        let labels = |void: &[String]| {
            let text = conclusion(&all, &[], &[], void, "");
            let labels = text.lines().filter_map(|line| line.split_once(": blitz, "));
            labels
                .map(|(label, _)| label.to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(labels(&[]), ["met", "MISSED", "not run"]);
        assert_eq!(labels(&["too few rounds".to_owned()]), ["void"; 3]);
    }
}
