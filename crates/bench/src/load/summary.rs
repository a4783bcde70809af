//! The result of a run for a terminal.

use std::time::Duration;

use crate::distribution::Distribution;
use crate::load_result::{Affects, LoadResult};
use crate::number;
use crate::report::terminal_text;

const PERCENTILES: [f64; 6] = [0.5, 0.9, 0.95, 0.99, 0.999, 0.9999];

/// The result as text, without colour.
pub(super) fn summary(result: &LoadResult) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        // URLs and names of errors are text from outside.
        out.push_str(&terminal_text(&text));
        out.push('\n');
    };
    heading(result, &mut line);
    counts(result, &mut line);
    times(result, &mut line);
    requests(result, &mut line);
    generator(result, &mut line);
    for problem in &result.problems {
        let affects = match problem.affects {
            Affects::Everything => "INVALID",
            Affects::Times => "INVALID for times and throughput",
            Affects::Throughput => "INVALID for throughput",
            Affects::Latency => "INVALID for latency",
        };
        line(String::new());
        line(format!("{affects}: {}", problem.message));
    }
    out
}

fn heading(result: &LoadResult, line: &mut impl FnMut(String)) {
    let (target, plan) = (&result.target, &result.plan);
    let address = match target.url.contains(&target.address) {
        true => String::new(),
        false => format!(" at {}", target.address),
    };
    line(format!("{}  {}{address}", target.protocol, target.url));
    if let Some(tls) = &target.tls {
        line(format!("  {tls}"));
    }
    let streams = match plan.streams {
        1 => String::new(),
        streams => format!(" with {streams} streams each"),
    };
    let lifetime = if plan.new_connections {
        ", a new one for each request"
    } else {
        ""
    };
    line(format!(
        "  {} connections{streams}{lifetime}, {}, {} core{}",
        number::count(plan.connections as u64),
        plan.pacing,
        plan.cores,
        if plan.cores == 1 { "" } else { "s" }
    ));
    if let Some(windows) = plan.windows {
        line(format!("  windows of {windows}"));
    }
    line(format!(
        "  {} after a warm-up of {}; checked: {}",
        number::long_time(result.duration_s),
        number::long_time(result.warm_up_s),
        target.checks
    ));
    line(String::new());
}

fn counts(result: &LoadResult, line: &mut impl FnMut(String)) {
    let counts = &result.counts;
    let completed = number::count(counts.completed);
    let (rate, throughput) = (result.requests_per_second(), result.bytes_per_second());
    line(match rate.is_finite() {
        true => format!(
            "Requests    {completed}   {} requests/s   {}/s{}",
            number::significant(rate),
            number::bytes(throughput),
            of_other_time(result)
        ),
        false => format!("Requests    {completed}   the run has ended before its measured time"),
    });
    let wrong = counts.wrong.iter();
    for (what, count) in wrong.map(|(what, count)| (format!("wrong {what}"), count)) {
        line(format!("  {:>12}  {what}", number::count(*count)));
    }
    for (error, count) in &counts.failed {
        line(format!("  {:>12}  {error}", number::count(*count)));
    }
    if counts.unfinished > 0 {
        line(format!(
            "  {:>12}  without a response at the end",
            number::count(counts.unfinished)
        ));
    }
    if counts.repeated > 0 {
        line(format!(
            "  {:>12}  sent again: the server had refused them (GOAWAY, REFUSED_STREAM)",
            number::count(counts.repeated)
        ));
    }
    if counts.queued > 0 {
        line(format!(
            "  {:>12}  waited here: the server allows fewer streams on a connection than -m has",
            number::count(counts.queued)
        ));
    }
    if counts.statuses.len() > 1 {
        for (status, count) in &counts.statuses {
            line(format!("  {:>12}  status {status}", number::count(*count)));
        }
    }
    let redirects = counts
        .statuses
        .iter()
        .filter(|(status, _)| REDIRECTS.contains(status));
    let redirects: u64 = redirects.map(|(_, count)| count).sum();
    if redirects > 0 {
        line(format!(
            "  {:>12}  redirects, which are not followed: is it the URL that you mean to measure?",
            number::count(redirects)
        ));
    }
    line(String::new());
}

/// The responses that the rates count instead of the requests beside them.
fn of_other_time(result: &LoadResult) -> String {
    match &result.answered {
        Some(answered) if answered.completed != result.counts.completed => format!(
            "   ({} answered in the measured time)",
            number::count(answered.completed)
        ),
        _ => String::new(),
    }
}

/// Statuses that send a client to another URL (RFC 9110, section 15.4).
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

fn times(result: &LoadResult, line: &mut impl FnMut(String)) {
    let times = &result.times;
    let mut header = format!("{:<22}{:>10}", "", "min");
    for quantile in PERCENTILES {
        header.push_str(&format!("{:>10}", number::percentile(quantile)));
    }
    line(format!("{header}{:>10}", "max"));
    row("Latency", &times.latency, line);
    if result.plan.rate.is_some() || times.service != times.latency {
        row("  since it was sent", &times.service, line);
    }
    row("  to the first byte", &times.first_byte, line);
    let connects = &result.connects;
    for (name, distribution) in [
        ("TCP connect", &connects.tcp),
        ("TLS handshake", &connects.tls),
        ("  resumed", &connects.tls_resumed),
        ("QUIC handshake", &connects.quic),
        ("  resumed", &connects.quic_resumed),
    ] {
        if distribution.count > 0 {
            row(name, distribution, line);
        }
    }
    line(String::new());
}

/// Requests of a mix that are shown.
const REQUESTS_MAX: usize = 20;

/// The times of each request of a mix.
fn requests(result: &LoadResult, line: &mut impl FnMut(String)) {
    if result.requests.is_empty() {
        return;
    }
    line(format!(
        "{:>12}{:>10}{:>10}{:>10}{:>10}  Latency of each request",
        "requests", "errors", "50", "99", "max"
    ));
    for request in result.requests.iter().take(REQUESTS_MAX) {
        let latency = &request.latency;
        let longest = (latency.count > 0).then(|| Duration::from_nanos(latency.max_ns));
        let times = [latency.percentile(0.5), latency.percentile(0.99), longest];
        let [half, tail, longest] = times.map(shown);
        line(format!(
            "{:>12}{:>10}{half:>10}{tail:>10}{longest:>10}  {}",
            number::count(latency.count),
            number::count(request.errors),
            request.name
        ));
    }
    let more = result.requests.len().saturating_sub(REQUESTS_MAX);
    if more > 0 {
        line(format!("  and {more} more, which --json and --html have"));
    }
    line(String::new());
}

/// Percentiles as far as the samples carry them.
fn row(name: &str, distribution: &Distribution, line: &mut impl FnMut(String)) {
    let ends = |nanoseconds| (distribution.count > 0).then(|| Duration::from_nanos(nanoseconds));
    let mut text = format!("{name:<22}{:>10}", shown(ends(distribution.min_ns)));
    for quantile in PERCENTILES {
        text.push_str(&format!("{:>10}", shown(distribution.percentile(quantile))));
    }
    line(format!("{text}{:>10}", shown(ends(distribution.max_ns))));
}

fn shown(time: Option<Duration>) -> String {
    match time {
        Some(time) => number::duration(time.as_nanos() as f64),
        None => number::NONE.to_owned(),
    }
}

fn generator(result: &LoadResult, line: &mut impl FnMut(String)) {
    let generator = &result.generator;
    line(format!(
        "Generator   {} CPU per request on {}; its busiest core ran {} % of the time",
        number::duration(generator.cpu_us_per_request * 1e3),
        generator.io,
        number::fixed(generator.busiest_core * 100.0, 0)
    ));
    if let Some(lag) = generator.lag.quantile(0.99) {
        line(format!(
            "            99 % of the requests were noticed within {} of their planned time",
            number::duration(lag.as_nanos() as f64)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_result::RequestResult;

    #[test]
    fn a_run_that_ends_in_its_warm_up_has_no_rates() {
        let text = summary(&LoadResult::default());
        assert!(text.contains("ended before its measured time"), "{text}");
        assert!(!text.contains("/s"), "{text}");
    }

    #[test]
    fn redirects_are_named() {
        let mut result = LoadResult::default();
        result.counts.statuses = [(200, 5), (302, 1_000)].into();
        let text = summary(&result);
        assert!(text.contains("1,000  redirects"), "{text}");
        result.counts.statuses = [(304, 5)].into();
        assert!(!summary(&result).contains("redirects"));
    }

    #[test]
    fn each_of_several_requests_has_its_line() {
        let mut recorder = crate::distribution::Recorder::new();
        (1..=100).for_each(|ms| recorder.record(Duration::from_millis(ms)));
        let one = |index: u32| RequestResult {
            name: format!("GET /{index}"),
            errors: 7,
            latency: recorder.distribution(),
        };
        let result = LoadResult {
            requests: (0..25).map(one).collect(),
            ..LoadResult::default()
        };
        let text = summary(&result);
        let line = text.lines().find(|line| line.ends_with("  GET /3"));
        let words: Vec<&str> = line.unwrap().split_whitespace().take(3).collect();
        assert_eq!(words, ["100", "7", "50.0"], "{text}");
        assert!(text.contains("and 5 more"), "{text}");
        assert!(!text.contains("GET /20"), "{text}");
    }

    #[test]
    fn text_from_outside_has_no_control_characters() {
        let mut result = LoadResult::default();
        result.target.url = "http://a/\u{9b}31m\u{202e}b\x1b]0;c\x07".to_owned();
        result.counts.failed.insert("\x1b[31m".to_owned(), 1);
        let text = summary(&result);
        let is_harmless = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
        assert!(text.chars().all(is_harmless), "{text:?}");
        assert!(text.contains("http://a/\u{fffd}31m"), "{text:?}");
    }
}
