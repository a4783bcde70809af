//! Asks the cores for their counts. A core only copies: it does so in parts, each of which takes it little time.

use std::sync::mpsc;
use std::time::Duration;

use blitz_http::CoresHandle;
use blitz_site::Counters;
use blitz_site::metrics::{Series, SeriesKey, series};

use crate::snapshot::{shed_states, upstream_states};
use crate::upstream::{ShedState, UpstreamState};

/// How long to wait for the next answer of a core. One that is busy for longer is left out.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Series that a core copies in a turn: 600 KiB.
const SERIES_PER_TURN: usize = 256;

/// Upstreams that a core copies; more of them have no series.
const UPSTREAMS_MAX: usize = 1_000;

/// The counts of a core.
pub(super) struct CoreSample {
    pub(super) site: Counters,
    pub(super) http: blitz_http::Counters,
    pub(super) sockets: usize,
    pub(super) memory_available: usize,
    pub(super) upstreams: Vec<UpstreamState>,
    pub(super) sheds: Vec<ShedState>,
    pub(super) series: Vec<(SeriesKey, Series)>,
}

/// The last counts of each core.
#[derive(Default)]
pub(super) struct Samples {
    pub(super) cores: Vec<Option<CoreSample>>,
    /// Cores that did not answer the last time. Their earlier counts stay, since sums must not fall.
    pub(super) absent: usize,
}

impl Samples {
    /// Replaces the counts of all cores that answer.
    pub(super) fn update(&mut self, cores: &CoresHandle) {
        let mut answers = ask(cores, |_| first_part());
        let wanted = answers.iter().flatten().map(|(_, total)| *total).max();
        let mut first = SERIES_PER_TURN;
        while first < wanted.unwrap_or_default() {
            let parts = ask(cores, move |_| series(first, SERIES_PER_TURN).series);
            for (answer, part) in answers.iter_mut().zip(parts) {
                add_part(answer, part, first);
            }
            first += SERIES_PER_TURN;
        }
        self.cores.resize_with(cores.count(), || None);
        self.absent = answers.iter().filter(|answer| answer.is_none()).count();
        for (known, answer) in self.cores.iter_mut().zip(answers) {
            if let Some((sample, _)) = answer {
                *known = Some(sample);
            }
        }
    }
}

/// The counts of the calling core with its first series, and how many there are.
fn first_part() -> (CoreSample, usize) {
    let part = series(0, SERIES_PER_TURN);
    let sample = CoreSample {
        site: blitz_site::counters(),
        http: blitz_http::counters(),
        sockets: blitz_http::reactor::sockets_open(),
        memory_available: blitz_http::reactor::memory_available(),
        upstreams: upstream_states(UPSTREAMS_MAX),
        sheds: shed_states(),
        series: part.series,
    };
    (sample, part.total)
}

/// Adds further series. A core that has some and did not answer is left out.
fn add_part(
    answer: &mut Option<(CoreSample, usize)>,
    part: Option<Vec<(SeriesKey, Series)>>,
    first: usize,
) {
    let Some((sample, total)) = answer else {
        return;
    };
    match part {
        Some(part) if *total > first => sample.series.extend(part),
        None if *total > first => *answer = None,
        _ => {}
    }
}

/// The answers of the cores, by their index.
fn ask<T: Send + 'static>(
    cores: &CoresHandle,
    job: impl Fn(usize) -> T + Send + Sync + 'static,
) -> Vec<Option<T>> {
    let (sender, receiver) = mpsc::channel();
    cores.post_all(move |index| {
        // Fails if the core is too late.
        let _ = sender.send((index, job(index)));
    });
    let mut answers: Vec<Option<T>> = (0..cores.count()).map(|_| None).collect();
    for _ in 0..cores.count() {
        let Ok((index, answer)) = receiver.recv_timeout(ANSWER_TIMEOUT) else {
            break;
        };
        answers[index] = Some(answer);
    }
    answers
}
