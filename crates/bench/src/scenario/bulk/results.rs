//! The result as tables for the terminal, as Markdown and as raw data.

use std::fmt::Write;

use serde::Serialize;

use super::groups::{BulkGroup, GROUPS, Quantity};
use super::measure::{Measurement, Run};
use super::paced;
use super::size::ContentSize;
use super::verdicts::compared;
use crate::goals::GoalResult;
use crate::group::LoadTool;
use crate::machine::Facts;
use crate::noise::Noise;
use crate::not_run::NotRun;
use crate::results::{aligned, conclusion, heading, markdown_table, spread};
use crate::stats::Quartiles;

/// The facts and measurements of a set of runs.
#[derive(Serialize)]
pub(crate) struct Results<'a> {
    pub(crate) command: &'a str,
    pub(crate) facts: Facts,
    pub(crate) rounds: u32,
    /// Requests in flight on each connection of HTTP/2.
    pub(crate) streams: u32,
    /// The seed of the order of the rows.
    pub(crate) seed: u64,
    pub(crate) noise: Noise,
    /// Share of one core that other programs used before the start.
    pub(crate) foreign_before: f64,
    /// The reasons why the set is void; empty for a valid set.
    pub(crate) void: Vec<String>,
    pub(crate) verdicts: Vec<GoalResult>,
    /// The chosen rows that cannot run here.
    pub(crate) not_run: Vec<NotRun>,
    pub(crate) measured: Vec<Measurement>,
}

/// The columns before those of small requests and the ratios.
const COLUMNS: [&str; 6] = [
    "program",
    "MiB/s",
    "CPU µs/MiB",
    "receives/MiB",
    "sends/MiB",
    "peak MiB",
];
const SMALL_COLUMNS: [&str; 2] = ["small p50 µs", "small p99 µs"];

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
        let mut text = heading(&self.facts, "large bodies", self.command);
        for (title, rows) in self.tables() {
            let _ = writeln!(text, "\n## {title}\n\n{}", markdown_table(&rows).trim_end());
        }
        let _ = write!(text, "\n{}", self.conclusion("- "));
        text
    }

    fn conclusion(&self, bullet: &str) -> String {
        let notes = self.noise.notes();
        conclusion(&self.verdicts, &self.not_run, &notes, &self.void, bullet)
    }

    /// A title and rows for every size and group that was measured.
    fn tables(&self) -> Vec<(String, Vec<Vec<String>>)> {
        let mut sizes: Vec<ContentSize> = self.measured.iter().map(|m| m.size).collect();
        sizes.dedup();
        let mut tables = Vec::new();
        for (size, group) in sizes
            .iter()
            .flat_map(|&size| GROUPS.iter().map(move |group| (size, group)))
        {
            let of_table = |m: &&Measurement| m.size == size && m.group == group.group.name;
            let measured: Vec<_> = self.measured.iter().filter(of_table).collect();
            if let Some(first) = measured.first() {
                let rows = measured.iter().map(|measured| self.row(group, measured));
                let rows = std::iter::once(columns(group)).chain(rows).collect();
                tables.push((self.title(group, first), rows));
            }
        }
        tables
    }

    fn title(&self, group: &BulkGroup, measured: &Measurement) -> String {
        let streams = match (group.group.load_tool, self.streams) {
            (LoadTool::H2load { .. }, 2..) => format!(" with {} streams", self.streams),
            _ => String::new(),
        };
        let small = match group.small_requests {
            true => format!(
                ", {} small requests per second over {} connections",
                paced::RATE,
                paced::CONNECTIONS
            ),
            false => String::new(),
        };
        format!(
            "{}, {}: {} connections{streams}{small}, {} rounds of {} s",
            group.group.title, measured.size, measured.connections, self.rounds, measured.seconds
        )
    }

    fn row(&self, group: &BulkGroup, measured: &Measurement) -> Vec<String> {
        let of_runs =
            |of: fn(&Run) -> Option<f64>| Quartiles::of(measured.runs.iter().filter_map(of));
        let median = |of: fn(&Run) -> Option<f64>| number(of_runs(of).map(|q| q.median), 0);
        let mut row = vec![
            measured.program.to_owned(),
            median(|run| Some(run.mib_per_second)),
            of_runs(|run| Some(run.cpu_us_per_mib)).map_or_else(
                || number(None, 0),
                |q| format!("{:.0} [{:.0} {:.0}]", q.median, q.lower, q.upper),
            ),
            number(measured.per_mib(|operations| operations.receives), 1),
            number(measured.per_mib(|operations| operations.sends), 1),
            number(of_runs(|run| Some(run.peak_mib)).map(|q| q.median), 1),
        ];
        if group.small_requests {
            row.push(median(|run| Some(run.small?.p50_us as f64)));
            row.push(median(|run| Some(run.small?.p99_us as f64)));
        }
        let against = |base, quantity| spread(compared(&self.measured, measured, base, quantity));
        for base in group.group.bases {
            row.push(against(base, Quantity::Cpu));
        }
        if group.small_requests {
            row.push(against("nginx", Quantity::SmallLatency));
        }
        row.push(format!(
            "{} %",
            median(|run| Some(run.foreign_share * 100.0))
        ));
        row
    }
}

fn columns(group: &BulkGroup) -> Vec<String> {
    let mut columns: Vec<String> = COLUMNS.map(str::to_owned).to_vec();
    let bases = group.group.bases.iter();
    if group.small_requests {
        columns.extend(SMALL_COLUMNS.map(str::to_owned));
        columns.extend(bases.map(|base| format!("CPU against {base}")));
        columns.push("p99 against nginx".to_owned());
    } else {
        columns.extend(bases.map(|base| format!("against {base}")));
    }
    columns.push("other programs".to_owned());
    columns
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}
