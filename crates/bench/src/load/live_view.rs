//! The view on a terminal while a run goes on.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use terminal_size::{Width, terminal_size_of};

use super::control::RunControl;
use super::live_latency::Steps;
use crate::number;

/// How often the view changes.
const EVERY: Duration = Duration::from_millis(200);

/// Latencies and throughput are those of so many changes.
const LOOKS: usize = 5;

/// Blocks of the bar.
const BAR: usize = 32;

/// Bars of rising height.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Bars of a chart.
const BARS: usize = 32;

/// Some lines on the terminal that follow the run.
pub(super) struct LiveView {
    is_shown: bool,
    /// The last looks at the counts, the oldest one first.
    looks: VecDeque<Look>,
    rates: VecDeque<f64>,
    /// Lines that are on the terminal.
    lines: usize,
}

/// The counts of a moment.
struct Look {
    at: Instant,
    completed: u64,
    bytes: u64,
    latency: Steps,
}

impl LiveView {
    /// Whether there is a terminal to show it on.
    pub(super) fn is_possible(is_quiet: bool) -> bool {
        !is_quiet && stderr().is_terminal()
    }

    pub(super) fn new(is_shown: bool) -> LiveView {
        LiveView {
            is_shown,
            looks: VecDeque::new(),
            rates: VecDeque::new(),
            lines: 0,
        }
    }

    /// Shows the state, if enough time has passed. `done` is the share of the phase that is over, if it is known.
    pub(super) fn show(&mut self, control: &RunControl, phase: &str, done: Option<f64>) {
        let is_due = self
            .looks
            .back()
            .is_none_or(|look| look.at.elapsed() >= EVERY);
        if !self.is_shown || !is_due {
            return;
        }
        let look = Look::now(control);
        if let Some(last) = self.looks.back() {
            if self.rates.len() == BARS {
                self.rates.pop_front();
            }
            let passed = look.at.saturating_duration_since(last.at).as_secs_f64();
            self.rates
                .push_back((look.completed - last.completed) as f64 / passed);
        }
        if self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back(look);
        let lines = self.draw(control, phase, done);
        let columns = terminal_size_of(stderr()).map_or(80, |(Width(columns), _)| columns);
        self.replace(&lines, columns.into());
    }

    /// Removes the view.
    pub(super) fn clear(&mut self) {
        self.replace(&[], 0);
    }

    /// Replaces the lines on the terminal. One that is too long for it is cut: it would take two lines.
    fn replace(&mut self, lines: &[String], columns: usize) {
        let mut text = String::new();
        if self.lines > 0 {
            text.push_str(&format!("\x1b[{}A\r\x1b[J", self.lines));
        }
        for line in lines {
            text.extend(line.chars().take(columns));
            text.push('\n');
        }
        self.lines = lines.len();
        // The terminal may be gone; the run is not.
        let _ = stderr()
            .write_all(text.as_bytes())
            .and_then(|()| stderr().flush());
    }

    fn draw(&self, control: &RunControl, phase: &str, done: Option<f64>) -> Vec<String> {
        let (Some(oldest), Some(last)) = (self.looks.front(), self.looks.back()) else {
            return Vec::new();
        };
        let mut lines = vec![first_line(phase, done)];
        let passed = last.at.saturating_duration_since(oldest.at).as_secs_f64();
        if passed > 0.0 {
            let per_second = |count: u64| count as f64 / passed;
            let rate = number::significant(per_second(last.completed - oldest.completed));
            let chart = bars(&self.rates.iter().copied().collect::<Vec<_>>());
            lines.push(format!("requests/s  {rate:>9}  {chart}"));
            lines.extend(latency_lines(&last.latency.since(&oldest.latency)));
            let received = number::bytes(per_second(last.bytes - oldest.bytes));
            let connections = number::count(control.total(|core| &core.connections));
            let errors = number::count(control.total(|core| &core.errors));
            lines.push(format!(
                "content     {received}/s   {connections} connections   {errors} errors"
            ));
        }
        lines
    }
}

impl Look {
    fn now(control: &RunControl) -> Look {
        Look {
            at: Instant::now(),
            completed: control.total(|core| &core.completed),
            bytes: control.total(|core| &core.bytes),
            latency: Steps::of(control.latencies()),
        }
    }
}

fn first_line(phase: &str, done: Option<f64>) -> String {
    let Some(done) = done else {
        return phase.to_owned();
    };
    let done = done.clamp(0.0, 1.0);
    let full = (done * BAR as f64) as usize;
    let percent = (done * 100.0) as u32;
    format!(
        "{phase:<21}  {}{} {percent:>3} %",
        "█".repeat(full),
        "░".repeat(BAR - full)
    )
}

/// Percentiles, and the shape of the distribution.
fn latency_lines(latency: &Steps) -> Vec<String> {
    let about = |quantile| latency.quantile(quantile).map(number::duration);
    let (Some(p50), Some(p99)) = (about(0.5), about(0.99)) else {
        return vec!["latency     –".to_owned()];
    };
    let Some((low, high, counts)) = latency.shape(BARS) else {
        return Vec::new();
    };
    let (low, high) = (number::duration(low), number::duration(high));
    vec![
        format!("latency     p50 {p50}   p99 {p99}   max {high}"),
        format!("            {low:>9}  {} {high}", bars(&counts)),
    ]
}

/// A chart of one line.
fn bars(values: &[f64]) -> String {
    let max = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let height = |value: f64| ((value / max * 7.0).round() as usize).min(7);
    values.iter().map(|&value| HEIGHTS[height(value)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_the_heights_of_their_values() {
        assert_eq!(bars(&[0.0, 7.0, 3.5]), "▁█▅");
        assert_eq!(bars(&[0.0]), "▁");
    }

    #[test]
    fn the_bar_is_as_full_as_the_share_that_is_done() {
        assert_eq!(first_line("finish", None), "finish");
        assert!(first_line("measure", Some(0.5)).ends_with(" 50 %"));
        let line = first_line("measure", Some(2.0));
        assert!(line.ends_with("█ 100 %") && !line.contains('░'), "{line}");
    }

    #[test]
    fn the_view_shows_rate_latency_content_and_errors() {
        let control = RunControl::new(1, Instant::now(), true);
        let mut view = LiveView::new(true);
        view.looks.push_back(Look {
            at: Instant::now() - Duration::from_secs(1),
            ..Look::now(&control)
        });
        let core = control.progress_of(0);
        super::super::control::Progress::add(&core.completed, 1_000);
        (0..1_000).for_each(|_| core.latency.record(1_000_000));
        view.looks.push_back(Look::now(&control));
        view.rates.push_back(1_000.0);
        let lines = view.draw(&control, "measure", Some(0.25));
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(
            lines[1].contains("requests/s") && lines[1].ends_with('█'),
            "{lines:?}"
        );
        assert!(
            lines[2].contains("p50 1.0") && lines[2].contains(" ms"),
            "{lines:?}"
        );
        assert!(lines[4].contains("0 connections   0 errors"), "{lines:?}");
    }
}
