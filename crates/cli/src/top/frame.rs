//! A screen: a summary above, and tables that share the rows below.

use super::sections;
use super::table::{NAME_MAX, NAME_MIN, Table};
use crate::live::{Configuration, Latency, Now, Quantile, Routes, View};
use crate::terminal::line::{Line, Tone};
use crate::terminal::number::{age, bytes, count, percent, quantile, rate};

/// The size of a terminal; without rows there is room for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: Option<usize>,
}

/// A state to be shown.
pub(super) struct Frame<'a> {
    /// `None` until the process has answered.
    pub(super) view: Option<&'a View>,
    /// Requests per second between readings.
    pub(super) rates: &'a [f64],
    pub(super) order: Routes,
    /// The reason why the state is an old one.
    pub(super) problem: Option<&'a str>,
    pub(super) size: Size,
}

/// Bars of rising height.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The summary is a table without lines; its labels have this width.
const LABEL: usize = 10;

/// Rows that each table gets before others get more.
const ROWS_FIRST: usize = 2;

/// The columns that names leave to the others at least.
const NUMBERS_MIN: usize = 48;

const KEYS: &str = "q quit   s slowest   b busiest   f failing routes first";

impl Frame<'_> {
    pub(super) fn lines(&self) -> Vec<Line> {
        let mut lines = match self.view {
            Some(view) => self.state(view),
            None => self.problem().into_iter().collect(),
        };
        if let Some(rows) = self.size.rows {
            lines.truncate(rows.saturating_sub(1));
            lines.resize_with(rows.saturating_sub(1), Line::default);
            lines.push(Line::of(Tone::Dim, KEYS));
        }
        lines
    }

    fn state(&self, view: &View) -> Vec<Line> {
        let mut lines = self.summary(view);
        // The line of keys.
        let rows = self.size.rows;
        let rows = rows.map(|rows| rows.saturating_sub(lines.len() + 1));
        let tables = sections::tables(view, self.order);
        let name_width = self.name_width(&tables);
        let shares = shares(&tables, rows);
        let used = shares.iter().filter(|share| **share > 0);
        let used: usize = used.map(|share| share + 2).sum();
        let mut left = rows.map_or(usize::MAX, |rows| rows.saturating_sub(used));
        for (table, rows) in tables.iter().zip(shares) {
            if rows > 0 {
                let columns = self.size.columns;
                let long_names = table.long_names(rows, name_width, columns).min(left);
                left -= long_names;
                lines.push(Line::default());
                lines.extend(table.lines(rows, long_names, name_width, columns));
            }
        }
        lines
    }

    /// The reason why there is no newer state. Readings go on.
    fn problem(&self) -> Option<Line> {
        let problem = self.problem?;
        let state = if self.view.is_some() {
            "new state"
        } else {
            "state"
        };
        Some(Line::of(
            Tone::Bad,
            &format!("no {state} {problem}; still trying"),
        ))
    }

    /// Names begin all tables and have the same width in each.
    fn name_width(&self, tables: &[Table]) -> usize {
        let widest = tables
            .iter()
            .map(Table::widest_name)
            .max()
            .unwrap_or_default();
        let room = self.size.columns.saturating_sub(NUMBERS_MIN);
        widest.min(room).clamp(NAME_MIN, NAME_MAX)
    }

    fn summary(&self, view: &View) -> Vec<Line> {
        let mut lines = vec![title(view), requests(view), latency(view), now(view)];
        lines.extend([process(view), limits(view)].into_iter().flatten());
        if !self.rates.is_empty() {
            lines.push(labelled("rates", vec![(Tone::Dim, self.chart())]));
        }
        if let Some(problem) = self.problem() {
            lines.insert(1, problem);
        }
        lines
    }

    /// The newest rates that fit into a line.
    fn chart(&self) -> String {
        let room = self.size.columns.saturating_sub(LABEL);
        let rates = &self.rates[self.rates.len().saturating_sub(room)..];
        let most = rates.iter().copied().fold(0.0, f64::max);
        let bar = |rate: &f64| match most > 0.0 {
            true => HEIGHTS[(rate / most * (HEIGHTS.len() - 1) as f64).round() as usize],
            false => HEIGHTS[0],
        };
        rates.iter().map(bar).collect()
    }
}

fn connections(now: &Now) -> (Tone, String) {
    let all = format!("{} connections", count(now.connections));
    let tone = match now.has_many_incomplete_heads() {
        true => Tone::Warning,
        false => Tone::Plain,
    };
    match now.reading_head {
        0.0 => (tone, all),
        reading => (tone, format!("{all} ({} within a head)", count(reading))),
    }
}

fn title(view: &View) -> Line {
    let View {
        version,
        uptime,
        cores,
        cores_absent,
        is_draining,
        configuration,
        ..
    } = view;
    let mut line = Line::of(Tone::Strong, &format!("blitz {version}"));
    if let Some(uptime) = uptime {
        line.add(Tone::Plain, &format!(" · up {}", age(*uptime)));
    }
    let plural = if *cores == 1.0 { "core" } else { "cores" };
    line.add(Tone::Plain, &format!(" · {} {plural}", count(*cores)));
    if *is_draining {
        line.add(Tone::Warning, " · draining");
    } else if *cores_absent > 0.0 {
        line.add(
            Tone::Bad,
            &format!(", {} without answer", count(*cores_absent)),
        );
    }
    let Configuration {
        generation,
        is_reload_successful,
        reloaded,
    } = configuration;
    let reloaded = reloaded.map(age).zip(*is_reload_successful);
    if let Some((reloaded, false)) = &reloaded {
        line.add(Tone::Bad, &format!(" · a reload failed {reloaded} ago"));
    }
    let generation = format!(" · configuration {}", count(*generation));
    line.add(Tone::Plain, &generation);
    if let Some((reloaded, true)) = &reloaded {
        line.add(Tone::Plain, &format!(", read {reloaded} ago"));
    }
    line
}

fn requests(view: &View) -> Line {
    let total = &view.total;
    let Some(window) = view.window else {
        return labelled("requests", vec![(Tone::Dim, "being counted".to_owned())]);
    };
    let mut parts = vec![(Tone::Strong, format!("{}/s", rate(total.rate)))];
    for (class, share) in sections::CLASSES.iter().zip(total.classes) {
        let tone = match *class {
            _ if share == 0.0 => Tone::Dim,
            "5xx" | "none" => Tone::Bad,
            _ => Tone::Plain,
        };
        parts.push((tone, format!("{class} {}", percent(share))));
    }
    let window = format!("over {}", age(window.as_secs_f64().round()));
    parts.push((Tone::Dim, window));
    labelled("requests", parts)
}

fn latency(view: &View) -> Line {
    let Latency { p50, p90, p99 } = view.total.latency;
    let part =
        |name: &str, value: Option<Quantile>| (Tone::Plain, format!("{name} {}", quantile(value)));
    labelled(
        "latency",
        vec![part("p50", p50), part("p90", p90), part("p99", p99)],
    )
}

fn now(view: &View) -> Line {
    let View {
        now,
        received,
        sent,
        ..
    } = view;
    let part = |text: String| (Tone::Plain, text);
    labelled(
        "now",
        vec![
            connections(now),
            part(format!("{} requests", count(now.requests))),
            part(format!("content in {}/s", bytes(*received))),
            part(format!("out {}/s", bytes(*sent))),
        ],
    )
}

/// Figures that the process cannot tell are left out.
fn process(view: &View) -> Option<Line> {
    let now = &view.now;
    let processors = now.processors.map(|used| format!("{used:.2} processors"));
    let memory = now.memory.map(|memory| format!("memory {}", bytes(memory)));
    let parts = processors.into_iter().chain(memory);
    let parts: Vec<_> = parts.map(|part| (Tone::Plain, part)).collect();
    (!parts.is_empty()).then(|| labelled("process", parts))
}

fn limits(view: &View) -> Option<Line> {
    let now = &view.now;
    let tone = |is_near| match is_near {
        true => Tone::Warning,
        false => Tone::Plain,
    };
    let descriptors = now.descriptors.zip(now.descriptors_max).map(|(open, max)| {
        let text = format!("descriptors {} of {}", count(open), count(max));
        (tone(now.lacks_descriptors()), text)
    });
    let sockets = now.fullest.as_ref().map(|fullest| {
        let (open, max) = (count(fullest.sockets), count(now.sockets_max));
        let text = format!("sockets {open} of {max} on core {}", fullest.core);
        (tone(now.lacks_sockets()), text)
    });
    let parts: Vec<_> = descriptors.into_iter().chain(sockets).collect();
    (!parts.is_empty()).then(|| labelled("limits", parts))
}

fn labelled(label: &str, parts: Vec<(Tone, String)>) -> Line {
    let mut line = Line::of(Tone::Dim, label);
    line.pad_to(LABEL);
    for (at, (tone, text)) in parts.into_iter().enumerate() {
        if at > 0 {
            line.add(Tone::Plain, "  ");
        }
        line.add(tone, &text);
    }
    line
}

/// How many rows each table gets: a few first, and then one after another until nothing is left or wanted. A table
/// needs two lines more, for its title and before it; one without room for a row gets none. Optional tables get the
/// rest.
fn shares(tables: &[Table], lines: Option<usize>) -> Vec<usize> {
    // An empty table has a line that says so.
    let wanted: Vec<_> = tables.iter().map(|table| table.rows.len().max(1)).collect();
    let Some(mut left) = lines else {
        return wanted;
    };
    // Rather one row of each than two of some.
    let needed = tables.iter().filter(|table| !table.is_optional).count();
    let rows_first = match needed * (ROWS_FIRST + 2) <= left {
        true => ROWS_FIRST,
        false => 1,
    };
    let mut shares = vec![0; tables.len()];
    for is_optional in [false, true] {
        for (at, table) in tables.iter().enumerate() {
            if table.is_optional == is_optional {
                let first = rows_first.min(wanted[at]).min(left.saturating_sub(2));
                shares[at] = first;
                left -= if first > 0 { first + 2 } else { 0 };
            }
        }
        let can_grow = |at: &usize, shares: &[usize]| (1..wanted[*at]).contains(&shares[*at]);
        while left > 0 && (0..tables.len()).any(|at| can_grow(&at, &shares)) {
            for at in 0..tables.len() {
                if left > 0 && can_grow(&at, &shares) {
                    shares[at] += 1;
                    left -= 1;
                }
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests;
