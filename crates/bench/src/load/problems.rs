//! Problems that make the figures of a run unreliable.

use std::time::Duration;

use blitz_http::ClientError;

use super::plan::Least;
use crate::load_result::{Affects, Counts, LoadResult, Problem};
use crate::number;

/// The share of the time from which a core counts as busy: what it measures is then itself.
const BUSY: f64 = 0.95;

/// The share of the time in which a core may wait for a processor that another program has.
const WAITED_MAX: f64 = 0.05;

/// How late the 99th percentile of requests may be noticed.
const LAG_MAX: Duration = Duration::from_millis(1);

/// The share of planned requests that may be left without a response.
const UNFINISHED_MAX: f64 = 0.01;

/// How a run went, beside its result.
pub(super) struct Course {
    pub(super) is_closed_loop: bool,
    pub(super) is_interrupted: bool,
    /// Requests of an open loop that had their responses after the measured time.
    pub(super) late: u64,
    /// The minimum that the run was to have.
    pub(super) least: Option<Least>,
}

/// The problems of a run, the worst first.
pub(super) fn of(result: &LoadResult, course: &Course) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut add = |affects, message: String| problems.push(Problem { affects, message });
    let (counts, generator) = (&result.counts, &result.generator);
    if counts.completed == 0 && result.answered.is_none() {
        add(Affects::Everything, "No request was answered.".to_owned());
    }
    if let Some(Least { responses, .. }) = course.least
        && counts.completed < responses
        && !course.is_interrupted
    {
        add(
            Affects::Everything,
            format!(
                "Only {} of {} responses came within {}.",
                number::count(counts.completed),
                number::count(responses),
                number::long_time(result.duration_s)
            ),
        );
    }
    if counts.errors() > 0 {
        add(Affects::Everything, of_errors(counts));
    }
    if course.is_interrupted {
        let message = "The run was interrupted before its end.".to_owned();
        add(Affects::Throughput, message);
    }
    if generator.busiest_core > BUSY {
        let share = number::fixed(generator.busiest_core * 100.0, 0);
        let message = format!(
            "The generator was the bottleneck: its busiest core ran {share} % of the time. Use more cores (--cores), \
             another machine, or a --rate below its limit."
        );
        add(Affects::Times, message);
    }
    if generator.busiest_core_waited > WAITED_MAX {
        let share = number::fixed(generator.busiest_core_waited * 100.0, 0);
        let message = format!(
            "The generator waited {share} % of the time for a processor: other programs, or the server, use the same \
             ones. Give the server and the generator fewer cores (--cores), so that together they have no more than this \
             machine, or use another machine."
        );
        add(Affects::Times, message);
    }
    if let Some(lag) = generator.lag.quantile(0.99)
        && lag > LAG_MAX
    {
        let message = format!(
            "The generator was late: it noticed 1 % of the requests more than {} after their planned time. Stop other \
             programs, give the server fewer cores, or use another machine.",
            number::duration(lag.as_nanos() as f64)
        );
        add(Affects::Times, message);
    }
    if let Some(message) = without_response(result, course) {
        let affects = match course.is_closed_loop {
            true => Affects::Times,
            // The responses of the server in its overload are its throughput.
            false => Affects::Latency,
        };
        add(affects, message);
    }
    problems.sort_by_key(|problem| problem.affects);
    problems
}

fn of_errors(counts: &Counts) -> String {
    let errors = number::count(counts.errors());
    let mut message = format!("{errors} requests failed or had wrong responses.");
    if counts
        .failed
        .contains_key(&ClientError::Unprocessed.to_string())
    {
        message.push_str(
            " The server refused some of them each time that they were sent: it ended the connection (GOAWAY), or had no \
             stream for them (REFUSED_STREAM). Raise its limit of requests in a connection, which is 1,000 in nginx \
             (keepalive_requests), or use fewer streams (-m).",
        );
    }
    message
}

/// The problem of requests that had no response, or had it after the end.
fn without_response(result: &LoadResult, course: &Course) -> Option<String> {
    let counts = &result.counts;
    let (completed, errors, unfinished) = (counts.completed, counts.errors(), counts.unfinished);
    if course.is_closed_loop {
        return (unfinished > 0).then(|| {
            format!(
                "{} requests had no response at the end, and had waited for it much longer than others: connections hang, \
                 and fewer requests were in flight than planned. Look at the server's limits of connections and streams; a \
                 shorter --timeout counts such requests as failed.",
                number::count(unfinished)
            )
        });
    }
    let planned = completed + errors + unfinished;
    if unfinished as f64 > UNFINISHED_MAX * planned as f64 {
        return Some(format!(
            "The server did not keep up with the rate: {} of {} planned requests had no response. They count with the time \
             until the end, which their latency exceeds; it would rise with the length of the run. Use a lower --rate, or more connections.",
            number::count(unfinished),
            number::count(planned)
        ));
    }
    // As many are always in flight at the end, by Little's law.
    let service = result.times.service.quantile(0.5).unwrap_or_default();
    let rate = planned as f64 / result.duration_s;
    let in_flight = rate * service.as_secs_f64();
    let is_behind = course.late as f64 > UNFINISHED_MAX * planned as f64 + 2.0 * in_flight;
    is_behind.then(|| {
        format!(
            "The server did not keep up with the rate: {} of {} planned requests had their responses after the end. Their \
             latency would rise with the length of the run. Use a lower --rate, or more connections.",
            number::count(course.late),
            number::count(planned)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_requests_are_explained() {
        let mut counts = Counts::default();
        counts.failed.insert("timed out".to_owned(), 2);
        assert_eq!(
            of_errors(&counts),
            "2 requests failed or had wrong responses."
        );
        let refused = ClientError::Unprocessed.to_string();
        counts.failed.insert(refused, 1_000);
        let message = of_errors(&counts);
        assert!(message.starts_with("1,002 requests failed"), "{message}");
        assert!(message.contains("keepalive_requests"), "{message}");
    }
}
