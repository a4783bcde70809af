//! `blitz top`: a running process on the terminal.

mod frame;
mod screen;
mod sections;
mod table;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use blitz_http::Signals;
use clap::{Args, ValueEnum};
use unicode_width::UnicodeWidthStr;

use self::frame::{Frame, Size};
use self::screen::Screen;
use crate::control_client::{self, Place, ReadError};
use crate::live::{History, Reading, Routes, Source, View, interval};
use crate::output;
use crate::terminal::{has_colour, number};

const EXAMPLES: &str = "\
Examples:
  blitz top                                the process with the usual socket or address
  blitz top --control /run/my/blitz.sock   another one
  blitz top --control 127.0.0.1:9181       over its control address
  blitz top --once --interval 10s          ten seconds as text, also for pipes and files

Keys: s, b and f put the slowest, the busiest or the failing routes first; q ends it.

Rates, percentiles and shares are those of the last 10 seconds, or of the interval with
--once. The exit code is 1 if no process answers.";

/// Without a terminal.
const COLUMNS_OF_TEXT: usize = 100;

/// How long a key waits at most for its effect, and how often the size of the terminal is looked at.
const TICK: Duration = Duration::from_millis(100);

/// Control-C, which is a key on this screen.
const INTERRUPT: u8 = 3;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArguments {
    /// Socket of the process, or its control address [default: /run/blitz/control.sock,
    /// $XDG_RUNTIME_DIR/blitz/control.sock, 127.0.0.1:9180]
    #[arg(long, value_name = "PATH|ADDR")]
    control: Option<Place>,

    /// How often the process is read, at least 100ms
    #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "1s", allow_hyphen_values = true)]
    interval: Duration,

    /// Print the state over one interval as text, and end; without a terminal it always does
    #[arg(long)]
    once: bool,

    /// The routes that come first
    #[arg(long, value_enum, default_value_t = Sort::Slowest)]
    sort: Sort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// By the 99th percentile
    Slowest,
    /// By requests per second
    Busiest,
    /// By the share of requests with a 5xx, or without a response
    Failing,
}

impl Sort {
    fn routes(self) -> Routes {
        match self {
            Sort::Slowest => Routes::Slowest,
            Sort::Busiest => Routes::Busiest,
            Sort::Failing => Routes::Failing,
        }
    }
}

pub(crate) fn run(arguments: &TopArguments) -> ExitCode {
    let places = arguments.control.clone();
    let places = places.map_or_else(control_client::usual_places, |place| vec![place]);
    let source = Source::new(places);
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let ended = match arguments.once || !is_terminal {
        true => once(&source, arguments),
        false => follow(source, arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the state over one interval.
fn once(source: &Source, arguments: &TopArguments) -> Result<(), String> {
    let first = source.read().map_err(ReadError::into_text)?;
    let second = source.watch(arguments.interval);
    let view = View::new(Some(&first), &second.map_err(ReadError::into_text)?);
    let columns = match io::stdout().is_terminal() {
        true => Screen::size().columns,
        false => COLUMNS_OF_TEXT,
    };
    let frame = Frame {
        view: Some(&view),
        rates: &[],
        order: arguments.sort.routes(),
        problem: None,
        size: Size {
            columns,
            rows: None,
        },
    };
    let mut text = String::new();
    for line in frame.lines() {
        text += &line.text(columns, has_colour());
        text.push('\n');
    }
    output::print(&text);
    Ok(())
}

/// Shows the state until a key or a signal ends it. A process that does not answer may do so later.
fn follow(source: Source, arguments: &TopArguments) -> Result<(), String> {
    // Before the screen changes: most errors are here.
    let first = match source.read() {
        Ok(reading) => Ok(reading),
        Err(ReadError::NoAnswer(problem)) => Err(problem),
        Err(ReadError::NoProcess(problem)) => return Err(problem),
    };
    let failed = |error: io::Error| format!("blitz: the terminal cannot be used: {error}");
    let signals = Signals::install().map_err(failed)?;
    let mut screen = Screen::open().map_err(failed)?;
    let mut shown = Shown::new(first, source.follow(arguments.interval), arguments.sort);
    loop {
        shown.take_readings();
        let size = Screen::size();
        screen.show(size, &shown.lines(size)).map_err(failed)?;
        for key in screen.keys(TICK).map_err(failed)? {
            match key {
                b'q' | b'Q' | INTERRUPT => return Ok(()),
                b's' => shown.sort = Sort::Slowest,
                b'b' => shown.sort = Sort::Busiest,
                b'f' => shown.sort = Sort::Failing,
                _ => {}
            }
        }
        if signals
            .wait(Some(Duration::ZERO))
            .map_err(failed)?
            .is_some()
        {
            return Ok(());
        }
    }
}

/// The state that the screen shows.
struct Shown {
    history: History,
    /// `None` until the process has answered.
    view: Option<View>,
    readings: Receiver<Result<Reading, String>>,
    /// The reason why there is no newer reading, and since when.
    problem: Option<(String, Instant)>,
    sort: Sort,
}

impl Shown {
    fn new(
        first: Result<Reading, String>,
        readings: Receiver<Result<Reading, String>>,
        sort: Sort,
    ) -> Shown {
        let mut shown = Shown {
            view: None,
            history: History::default(),
            readings,
            problem: None,
            sort,
        };
        shown.take(first);
        shown
    }

    fn take(&mut self, reading: Result<Reading, String>) {
        match reading {
            Ok(reading) => {
                self.problem = None;
                self.history.add(reading);
                self.view = self.history.view();
            }
            Err(problem) => {
                let since = self.problem.take().map(|(_, since)| since);
                self.problem = Some((problem, since.unwrap_or_else(Instant::now)));
            }
        }
    }

    fn take_readings(&mut self) {
        loop {
            match self.readings.try_recv() {
                Ok(reading) => self.take(reading),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    fn lines(&self, size: Size) -> Vec<String> {
        let rates: Vec<_> = self.history.rates().collect();
        let problem = self.problem.as_ref().map(|(problem, since)| {
            let first = problem.lines().next().unwrap_or_default();
            let first = first.strip_prefix("blitz: ").unwrap_or(first);
            format!(
                "for {}: {first}",
                number::age(since.elapsed().as_secs_f64())
            )
        });
        let frame = Frame {
            view: self.view.as_ref(),
            rates: &rates,
            order: self.sort.routes(),
            problem: problem.as_deref(),
            size,
        };
        let colour = has_colour();
        let lines = frame.lines().into_iter();
        let lines = lines.map(|line| {
            // Without the spaces at its end, which are not written.
            let is_full = line.text(size.columns, false).width() >= size.columns;
            line.text(size.columns, colour) + screen::line_end(is_full)
        });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_fit_into_a_terminal() {
        assert!(EXAMPLES.lines().all(|line| line.len() <= 90));
    }
}
