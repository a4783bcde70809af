//! What is shown while a run goes on.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use super::control::Control;
use crate::number;

/// How often the line on a terminal changes.
const EVERY: Duration = Duration::from_millis(200);

/// Blocks of the bar.
const BAR: usize = 24;

/// Bars of rising height.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Rates in the small chart.
const RATES: usize = 20;

/// A line on the terminal that follows the run.
pub(super) struct ProgressLine {
    is_shown: bool,
    last: Option<(Instant, u64)>,
    rates: Vec<f64>,
}

impl ProgressLine {
    pub(super) fn new(is_quiet: bool) -> ProgressLine {
        ProgressLine {
            is_shown: !is_quiet && stderr().is_terminal(),
            last: None,
            rates: Vec::new(),
        }
    }

    /// Shows the state, if enough time has passed. `done` is the share of the run that is over, if it is known.
    pub(super) fn show(&mut self, control: &Control, phase: &str, done: Option<f64>) {
        if !self.is_shown {
            return;
        }
        let now = Instant::now();
        let completed = control.total(|core| &core.completed);
        let Some((then, before)) = self.last else {
            self.last = Some((now, completed));
            return;
        };
        let passed = now.saturating_duration_since(then);
        if passed < EVERY {
            return;
        }
        self.last = Some((now, completed));
        let rate = (completed - before) as f64 / passed.as_secs_f64();
        if self.rates.len() == RATES {
            self.rates.remove(0);
        }
        self.rates.push(rate);
        let text = self.line(control, phase, done, rate);
        // The terminal may be gone; the run is not.
        let _ = write!(stderr(), "\r\x1b[2K{text}").and_then(|()| stderr().flush());
    }

    fn line(&self, control: &Control, phase: &str, done: Option<f64>, rate: f64) -> String {
        let bar = done.map(|done| {
            let full = ((done.clamp(0.0, 1.0) * BAR as f64) as usize).min(BAR);
            format!("{}{} ", "█".repeat(full), "░".repeat(BAR - full))
        });
        let errors = control.total(|core| &core.errors);
        let errors = match errors {
            0 => String::new(),
            errors => format!("   {} errors", number::count(errors)),
        };
        format!(
            "{phase:<8} {}{:>10} requests/s {}   {} connections{errors}",
            bar.unwrap_or_default(),
            number::significant(rate),
            sparkline(&self.rates),
            number::count(control.total(|core| &core.connections)),
        )
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        if self.is_shown && self.last.is_some() {
            let _ = write!(stderr(), "\r\x1b[2K").and_then(|()| stderr().flush());
        }
    }
}

/// A chart of one line.
fn sparkline(values: &[f64]) -> String {
    let max = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let height = |value: f64| ((value / max * 7.0).round() as usize).min(7);
    values.iter().map(|&value| HEIGHTS[height(value)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_has_the_heights_of_its_values() {
        assert_eq!(sparkline(&[0.0, 7.0, 3.5]), "▁█▅");
        assert_eq!(sparkline(&[0.0]), "▁");
    }
}
