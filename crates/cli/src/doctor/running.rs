//! Checks of a running process, from two readings of its control interface some seconds apart: so a problem of now is told
//! from one that was.

use std::path::Path;
use std::thread;
use std::time::Duration;

use blitz_host::serving::MORE_OPEN_FILES;

use super::{Check, CheckResult, count, files};
use crate::control_client::{self, Place, ReadError};
use crate::live::{
    Cause, Certificate, Change, Latency, Now, Quantile, RecentFailure, Severity, Source, State,
    Upstream, View,
};
use crate::terminal::number::{self, age, bytes, duration, percent, quantile, rate};

/// A certificate is renewed earlier than so many days before its end.
const DAYS_LOW: i64 = 14;

/// With a greater share of the cores' time in use there is none for a burst.
const BUSY: f64 = 0.9;

/// With less memory a core reads from few sockets at a time.
const MEMORY_LOW_BYTES: f64 = (16 << 20) as f64;

/// With a greater share of failed requests an upstream has a problem.
const FAILING: f64 = 0.01;

/// A 99th percentile above so many seconds, and as many times the median, is worth a look.
const SLOW: f64 = 0.5;
const SLOW_TIMES: f64 = 10.0;
/// A server is slow if its mean is so many times the median of the others, and longer than this.
const SLOWER: f64 = 5.0;
const SLOW_SECONDS: f64 = 0.05;

/// With fewer responses in the window a mean says little.
const RESPONSES_MIN: f64 = 5.0;

/// A change of a name may be the cause of failures that began within this time.
const RENAMED_SECONDS: f64 = 600.0;

/// Failures of the window that get a line each.
const FAILURES_MAX: usize = 5;

/// Earlier causes that are named.
const EARLIER_MAX: usize = 4;

/// The checks of the first of these places where a process listens.
///
/// # Errors
/// There is no process: the problem and the remedy.
pub(super) fn checks(places: Vec<Place>, interval: Duration) -> Result<Vec<Check>, String> {
    let source = Source::new(places.clone());
    let read = || -> Result<View, ReadError> {
        let first = source.read()?;
        thread::sleep(interval);
        Ok(View::new(Some(&first), &source.read()?))
    };
    match read() {
        Ok(view) => Ok(of_view(&view)),
        Err(ReadError::NoProcess(problem)) => Err(problem),
        Err(ReadError::NoAnswer(problem)) => {
            let process = control_client::process_id(&places);
            Ok(without_answer(&problem, process, Path::new("/")))
        }
    }
}

/// The checks of a process that listens and does not answer: what others can see of it.
fn without_answer(problem: &str, process: Option<i32>, root: &Path) -> Vec<Check> {
    let problem = problem.trim_start_matches("blitz: ");
    let (problem, _) = problem.split_once('\n').unwrap_or((problem, ""));
    let id = process.map_or_else(String::new, |process| format!("process {process}: "));
    let mut checks = vec![Check::stop(
        "process",
        format!("{id}{problem}"),
        "its log may have the reason: see whether it has processor time and descriptors; the load balancer should not \
         send it requests",
    )];
    let open_files = process.map(|process| files::descriptors_of(root, process));
    if let Some((Some(open), Some(max))) = open_files {
        let now = Now {
            descriptors: Some(open as f64),
            descriptors_max: Some(max as f64),
            ..Now::default()
        };
        checks.push(descriptors(&now));
    }
    checks
}

/// A sentence about all of them.
pub(super) fn summary(checks: &[Check]) -> String {
    match count(checks, CheckResult::Stop) + count(checks, CheckResult::Slow) {
        0 => "The running Blitz has no problem.".to_owned(),
        1 => "The running Blitz has 1 problem.".to_owned(),
        problems => format!("The running Blitz has {problems} problems."),
    }
}

fn of_view(view: &View) -> Vec<Check> {
    let window = duration(view.window.unwrap_or_default().as_secs_f64());
    let mut checks = vec![
        process(view),
        latency(view),
        cores(view),
        descriptors(&view.now),
        memory(view),
        connections(view),
    ];
    checks.push(configuration(view));
    checks.extend(certificates(&view.certificates));
    checks.extend(upstreams(&view.upstreams, &view.failures));
    let failures = failures(&view.failures, &window);
    let counters = counters(view, &window, !failures.is_empty());
    checks.extend(failures);
    checks.extend(counters);
    checks
}

fn process(view: &View) -> Check {
    let up = view
        .uptime
        .map_or_else(String::new, |up| format!(", up {}", age(up)));
    let found = format!(
        "blitz {}{up}, {} requests/s",
        view.version,
        rate(view.total.rate)
    );
    Check::ok("process", found)
}

/// It is no problem by itself: routes differ.
fn latency(view: &View) -> Check {
    let Latency { p50, p99, .. } = view.total.latency;
    let found = format!("p50 {}, p99 {}", quantile(p50), quantile(p99));
    let slowest = p99.map_or(0.0, seconds);
    match slowest > SLOW && slowest > p50.map_or(0.0, seconds) * SLOW_TIMES {
        true => Check::ok(
            "latency",
            format!("{found}: `blitz tail --slower 500ms` shows slow requests"),
        ),
        false => Check::ok("latency", found),
    }
}

/// At least so many seconds.
fn seconds(quantile: Quantile) -> f64 {
    match quantile {
        Quantile::At(seconds) | Quantile::Above(seconds) => seconds,
    }
}

fn cores(view: &View) -> Check {
    const NAME: &str = "cores";
    let used = view.now.processors;
    let found = match used {
        Some(used) => format!("{used:.2} of {} in use", number::count(view.cores)),
        None => number::count(view.cores),
    };
    if view.cores_absent > 0.0 {
        let absent = number::count(view.cores_absent);
        let found = format!("{found}; {absent} did not answer within a second");
        return Check::slow(
            NAME,
            found,
            "see whether the machine is overloaded, or report this with the log",
        );
    }
    match used.is_some_and(|used| used > view.cores * BUSY) {
        true => Check::slow(
            NAME,
            found,
            "requests wait for the cores: allow more --cores, or spread the load",
        ),
        false => Check::ok(NAME, found),
    }
}

fn descriptors(now: &Now) -> Check {
    const NAME: &str = "descriptors";
    let descriptors = now.descriptors.zip(now.descriptors_max);
    let descriptors = descriptors.map_or_else(
        || "unknown".to_owned(),
        |(open, max)| {
            let (open, max) = (number::count(open), number::count(max));
            format!("{open} of {max} of the process")
        },
    );
    let sockets = now.fullest.as_ref().map_or_else(String::new, |fullest| {
        let (open, max) = (
            number::count(fullest.sockets),
            number::count(now.sockets_max),
        );
        format!("; at most {open} of {max} sockets of a core")
    });
    let found = format!("{descriptors}{sockets}");
    match now.lacks_descriptors() || now.lacks_sockets() {
        true => Check::slow(NAME, found, MORE_OPEN_FILES),
        false => Check::ok(NAME, found),
    }
}

fn memory(view: &View) -> Check {
    const NAME: &str = "memory";
    let used = view.now.memory.map_or_else(|| "unknown".to_owned(), bytes);
    match view.now.memory_available {
        Some(left) if left < MEMORY_LOW_BYTES => Check::slow(
            NAME,
            format!(
                "{used}; a core has {} left for what it receives",
                bytes(left)
            ),
            "readers are slow while much is in transit: more --cores have more memory",
        ),
        Some(left) => Check::ok(
            NAME,
            format!("{used}; each core has {} left to receive", bytes(left)),
        ),
        None => Check::ok(NAME, used),
    }
}

fn connections(view: &View) -> Check {
    const NAME: &str = "connections";
    let now = &view.now;
    let found = format!(
        "{}, {} of them within a head; {} requests",
        number::count(now.connections),
        number::count(now.reading_head),
        number::count(now.requests)
    );
    match now.has_many_incomplete_heads() {
        true => Check::slow(
            NAME,
            found,
            "clients send a part of a head and wait: `blitz top` has those with the most connections under CLIENTS, and \
             `blitz tail --status none` has those that leave",
        ),
        false => Check::ok(NAME, found),
    }
}

fn configuration(view: &View) -> Check {
    const NAME: &str = "configuration";
    let configuration = &view.configuration;
    let number = number::count(configuration.generation);
    let ago = configuration.reloaded.map(age).unwrap_or_default();
    match configuration.is_reload_successful {
        Some(false) => Check::slow(
            NAME,
            format!("number {number} stays, because the reload {ago} ago failed"),
            "blitz reload prints the mistakes; blitz check FILE does without using it",
        ),
        Some(true) => Check::ok(NAME, format!("number {number}, read {ago} ago")),
        None => Check::ok(NAME, format!("number {number}, of the start")),
    }
}

/// A line for each that expires soon, or one for all.
fn certificates(all: &[Certificate]) -> Vec<Check> {
    const NAME: &str = "certificates";
    let renew = |one: &Certificate| match &one.file {
        Some(file) => format!(
            "renew it in {file}, then blitz reload; if that was done, the log has the reason"
        ),
        None => "restart the process: it makes a new one for development"
            .to_owned()
            .to_owned(),
    };
    let soon = all.iter().filter(|one| one.days_left < DAYS_LOW);
    let mut checks: Vec<_> = soon
        .map(|one| {
            let names = one.names.join(", ");
            match one.days_left {
                ..0 => Check::stop(NAME, format!("{names}: expired"), renew(one)),
                days => Check::slow(NAME, format!("{names}: expires in {days} days"), renew(one)),
            }
        })
        .collect();
    if checks.is_empty() {
        let first = all.iter().map(|one| one.days_left).min();
        let found = first.map_or_else(
            || "none".to_owned(),
            |days| format!("{}, the first expires in {days} days", all.len()),
        );
        checks.push(Check::ok(NAME, found));
    }
    checks
}

/// A line for each with a problem, or one for all.
fn upstreams(rows: &[Upstream], failures: &[RecentFailure]) -> Vec<Check> {
    const NAME: &str = "upstreams";
    let mut checks = Vec::new();
    let mut rest = rows;
    while let Some((first, behind)) = rest.split_first() {
        let servers = behind.iter().take_while(|row| row.is_server).count();
        let (servers, behind) = behind.split_at(servers);
        checks.extend(upstream(NAME, first, servers, failures));
        checks.extend(slow_servers(NAME, first, servers));
        rest = behind;
    }
    if checks.is_empty() {
        let count = rows.iter().filter(|row| !row.is_server).count();
        let found = match count {
            0 => "none".to_owned(),
            _ => format!("{count}, none with a problem"),
        };
        checks.push(Check::ok(NAME, found));
    }
    checks
}

/// An upstream, with its servers if it has a name.
fn upstream(
    name: &'static str,
    upstream: &Upstream,
    servers: &[Upstream],
    failures: &[RecentFailure],
) -> Option<Check> {
    let members = match servers {
        [] => std::slice::from_ref(upstream),
        _ => servers,
    };
    let states: Vec<_> = members
        .iter()
        .filter_map(|member| Some((member, member.state.as_ref()?)))
        .collect();
    let bad: Vec<_> = states
        .iter()
        .filter_map(|(member, state)| {
            let problem = problem(state)?;
            Some(match servers.is_empty() {
                true => problem,
                false => format!("{} {problem}", member.name),
            })
        })
        .collect();
    let fails_at_tls =
        |(_, state): &(_, &State)| matches!(state, State::Unreachable { at_tls: true, .. });
    let renamed = members.iter().find_map(|member| new_name(member, failures));
    let change = renamed.map_or_else(String::new, |change| format!("; {}", change.text));
    let advice = match renamed {
        Some(_) => {
            "the name changed shortly before the failures: see whether the new address is right"
        }
        None if states.iter().any(fails_at_tls) => {
            "the log has the reason; see which certificate it sends, and whether it expects TLS there"
        }
        None => {
            "see whether it runs and listens there; `blitz explain` names the routes that need it"
        }
    };
    if !bad.is_empty() {
        let found = format!("{}: {}{change}", upstream.name, bad.join("; "));
        let is_down = states.iter().all(|(_, state)| state.is_down());
        return Some(match is_down {
            true => Check::stop(name, found, advice),
            false => Check::slow(name, found, advice),
        });
    }
    let requests = upstream
        .requests
        .filter(|requests| requests.failed > FAILING)?;
    let found = format!(
        "{}: {} of {} requests/s fail{change}",
        upstream.name,
        percent(requests.failed),
        rate(requests.rate)
    );
    let advice = match renamed {
        Some(_) => advice,
        None => "look at its log; the failures below have the causes that Blitz sees",
    };
    Some(Check::slow(name, found, advice))
}

/// The change of a name, if failures at its new addresses began soon after it.
fn new_name<'a>(member: &'a Upstream, failures: &[RecentFailure]) -> Option<&'a Change> {
    let change = member.change.as_ref()?;
    let is_of_member = |one: &&RecentFailure| {
        one.upstream == member.name || change.addresses.contains(&one.upstream)
    };
    let mut ages = failures.iter().filter(is_of_member).map(|one| one.since);
    // A core knows the new address a moment before the change is noted.
    let begins_after = |age: f64| age < change.age + 1.0 && age > change.age - RENAMED_SECONDS;
    ages.any(begins_after).then_some(change)
}

/// A line for each address that answers much slower than the others of its upstream.
fn slow_servers(name: &'static str, upstream: &Upstream, servers: &[Upstream]) -> Vec<Check> {
    let members = std::iter::once(upstream).chain(servers);
    let addresses = members.flat_map(|member| &member.addresses);
    let enough = addresses.filter(|one| one.responses >= RESPONSES_MIN);
    let means: Vec<_> = enough.filter_map(|one| Some((one, one.mean()?))).collect();
    let slow = means.iter().enumerate().filter_map(|(at, (one, mean))| {
        let others = means.iter().enumerate().filter(|(other, _)| *other != at);
        let median = median(others.map(|(_, (_, mean))| *mean).collect())?;
        let is_slow = *mean > median * SLOWER && *mean > SLOW_SECONDS;
        is_slow.then(|| {
            let found = format!(
                "{}: {} answers {} times slower than its siblings: {} on average, {} there",
                upstream.name,
                one.address,
                number::count(mean / median.max(1e-6)),
                duration(*mean),
                duration(median)
            );
            let advice = "see what that server lacks; a smaller `weight` sends it fewer requests";
            Check::slow(name, found, advice)
        })
    });
    slow.collect()
}

/// `None` of nothing.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

fn problem(state: &State) -> Option<String> {
    match state {
        State::Ok | State::Unused => None,
        State::Unresolved(reason) => Some(format!("has no address: {reason}")),
        State::Unreachable {
            failed,
            addresses,
            at_tls,
        } => {
            let text = if *at_tls {
                "fails at TLS"
            } else {
                "cannot be reached"
            };
            Some(match failed < addresses {
                true => format!("{text} at {failed} of {addresses} addresses"),
                false => text.to_owned(),
            })
        }
    }
}

/// The most frequent failures of the window.
fn failures(all: &[RecentFailure], window: &str) -> Vec<Check> {
    let mut recent: Vec<_> = all.iter().filter(|one| one.recent > 0).collect();
    recent.sort_by_key(|one| std::cmp::Reverse(one.recent));
    let lines = recent.iter().take(FAILURES_MAX).map(|one| {
        let upstream = match one.upstream.as_str() {
            "" => String::new(),
            upstream => format!(", upstream {upstream}"),
        };
        let certificate = match one.certificate.as_str() {
            "" => String::new(),
            certificate => format!(", its certificate: {certificate}"),
        };
        let found = format!(
            "{}: {} in {window}, {} since {} ago, on {}{upstream}{certificate}",
            one.cause,
            one.recent,
            one.count,
            age(one.since),
            one.route
        );
        Check::slow(
            "failures",
            found,
            "GET /failures has the id of a request, with which the log has more",
        )
    });
    lines.collect()
}

/// Counters of upstreams for the same failures, the most exact one first: a failed handshake over TLS also fails to
/// connect, and has a request fail.
const SAME_FAILURES: [&str; 3] = [
    "upstream failures",
    "upstream tls failures",
    "upstream connect failures",
];

/// The causes without counters that others explain.
fn incidents(all: &[Cause]) -> Vec<&Cause> {
    let counts = |counter: &str| {
        let causes = all.iter().filter(|cause| cause.text.starts_with(counter));
        causes.fold((0.0, 0.0), |(recent, total), cause| {
            (recent + cause.recent, total + cause.total)
        })
    };
    let is_explained = |cause: &Cause| {
        let counter = SAME_FAILURES
            .iter()
            .position(|counter| cause.text.starts_with(counter));
        SAME_FAILURES[..counter.unwrap_or(0)].iter().any(|exact| {
            let (recent, total) = counts(exact);
            recent >= cause.recent && total >= cause.total
        })
    };
    all.iter().filter(|cause| !is_explained(cause)).collect()
}

/// Counters of failures and limits that have grown, and in one line those of earlier. Those of upstreams are left out if
/// the failures have lines.
fn counters(view: &View, window: &str, has_failures: bool) -> Vec<Check> {
    let is_told = |cause: &Cause| has_failures && cause.text.starts_with(SAME_FAILURES[0]);
    let causes = incidents(&view.causes).into_iter();
    let causes = causes.filter(|cause| !is_told(cause));
    let with_remedy = causes.filter(|cause| !cause.remedy.is_empty());
    let (recent, earlier): (Vec<_>, Vec<_>) = with_remedy.partition(|cause| cause.recent > 0.0);
    let mut checks: Vec<_> = recent
        .into_iter()
        .map(|cause| {
            let name = match cause.severity {
                Severity::Failure => "failures",
                Severity::Limit => "limits",
            };
            let (recent, total) = (number::count(cause.recent), number::count(cause.total));
            let found = format!(
                "{}: {recent} in {window}, {total} since the start",
                cause.text
            );
            Check::slow(name, found, cause.remedy)
        })
        .collect();
    if checks.is_empty() {
        checks.push(Check::ok(
            "limits",
            format!("none was reached in {window}, and nothing failed"),
        ));
    }
    if !earlier.is_empty() {
        let named = earlier.iter().take(EARLIER_MAX);
        let named: Vec<_> = named
            .map(|cause| format!("{} {}", cause.text, number::count(cause.total)))
            .collect();
        let others = match earlier.len().saturating_sub(EARLIER_MAX) {
            0 => String::new(),
            others => format!(", and {others} others"),
        };
        checks.push(Check::ok(
            "earlier",
            format!("{}{others}; not in {window}", named.join(", ")),
        ));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{Answers, Reading};

    const FIRST: &str = "process_start_time_seconds 1000\nprocess_cpu_seconds_total 10\nblitz_cores 2\n\
        blitz_retries_total 900\nblitz_connections_evicted_total 5\nblitz_head_timeouts_total 1\n# EOF\n";

    /// Checks of a process whose second reading has these answers.
    fn checks(answers: Answers<'_>) -> Vec<Check> {
        let first = Reading::new(Duration::ZERO, 4000.0, Answers::of_metrics(FIRST)).unwrap();
        let second = Reading::new(Duration::from_secs(2), 4002.0, answers).unwrap();
        of_view(&View::new(Some(&first), &second))
    }

    /// The lines that are not ok.
    fn problems(checks: &[Check]) -> Vec<(CheckResult, &str)> {
        let problems = checks
            .iter()
            .filter(|check| check.verdict != CheckResult::Ok);
        assert!(problems.clone().all(|check| !check.advice.is_empty()));
        problems
            .map(|check| (check.verdict, &*check.found))
            .collect()
    }

    #[test]
    fn a_process_without_problems_has_none() {
        let checks = checks(Answers::of_metrics(FIRST));
        assert_eq!(problems(&checks), []);
        assert_eq!(summary(&checks), "The running Blitz has no problem.");
        let earlier = checks.last().unwrap();
        assert_eq!(
            (&*earlier.name, &*earlier.found),
            (
                "earlier",
                "retries 900, connections evicted 5; not in 2.0 s"
            )
        );
    }

    #[test]
    fn each_problem_has_its_evidence() {
        let metrics = "process_start_time_seconds 1000\nprocess_cpu_seconds_total 13.9\nblitz_cores 2\n\
            process_open_fds 1000\nprocess_max_fds 1024\nblitz_sockets_open{core=\"0\"} 3\nblitz_sockets_max 400\n\
            blitz_connections 401\nblitz_connections_reading_head 400\nblitz_requests_in_flight 1\n\
            blitz_memory_available_bytes{core=\"0\"} 67108864\nblitz_memory_available_bytes{core=\"1\"} 1048576\n\
            blitz_configuration_generation 3\nblitz_configuration_last_reload_successful 0\n\
            blitz_configuration_last_reload_timestamp_seconds 3990\n\
            blitz_retries_total 907\nblitz_connections_evicted_total 5\nblitz_head_timeouts_total 9\n# EOF\n";
        let answers = Answers {
            metrics,
            upstreams: r#"{"upstreams":[
                {"url":"http://a:1","names":["app"],"failure":"no such name","addresses":[]},
                {"url":"http://b:1","names":["app"],"addresses":[]},
                {"url":"http://c:1","names":[],"addresses":[{"cores":[{"cooling_down_until":"2026-11-29T18:55:00Z"}]}]}]}"#,
            certificates: r#"{"certificates":[{"names":["a.example"],"days_left":-1,"file":"/a.pem"},
                {"names":["b.example"],"days_left":13,"file":null},{"names":["c.example"],"days_left":14,"file":null}]}"#,
            failures: r#"{"failures":[{"cause":"refused","site":"a.example","route":"/b","address":"10.0.0.1:1",
                "status":502,"count":12,"seconds_since_first":300,"seconds_since_last":1}]}"#,
            clients: "{}",
        };
        let checks = checks(answers);
        use CheckResult::{Slow, Stop};
        assert_eq!(
            problems(&checks),
            [
                (Slow, "1.95 of 2 in use"),
                (
                    Slow,
                    "1,000 of 1,024 of the process; at most 3 of 400 sockets of a core"
                ),
                (
                    Slow,
                    "unknown; a core has 1.0 MiB left for what it receives"
                ),
                (Slow, "401, 400 of them within a head; 1 requests"),
                (Slow, "number 3 stays, because the reload 12 s ago failed"),
                (Stop, "a.example: expired"),
                (Slow, "b.example: expires in 13 days"),
                (Slow, "app: http://a:1 has no address: no such name"),
                (Stop, "http://c:1: cannot be reached"),
                (
                    Slow,
                    "refused: 12 in 2.0 s, 12 since 5 min ago, on a.example/b, upstream 10.0.0.1:1"
                ),
                (Slow, "retries: 7 in 2.0 s, 907 since the start"),
            ]
        );
        assert_eq!(summary(&checks), "The running Blitz has 11 problems.");
    }

    #[test]
    fn slow_requests_are_told() {
        let found = |slow: u64| {
            let name = "http_server_request_duration_seconds_bucket";
            let metrics = format!(
                "process_start_time_seconds 1000\nprocess_cpu_seconds_total 10\nblitz_cores 2\n\
                 {name}{{le=\"0.01\"}} 90\n{name}{{le=\"1\"}} {}\n{name}{{le=\"+Inf\"}} 100\n# EOF\n",
                100 - slow
            );
            let checks = checks(Answers::of_metrics(&metrics));
            checks[1].found.clone()
        };
        assert!(found(9).ends_with(": `blitz tail --slower 500ms` shows slow requests"));
        let all = found(0);
        assert!(all.starts_with("p50 5.6 ms, p99 "), "{all}");
        let metrics = Answers::of_metrics(FIRST);
        assert_eq!(checks(metrics)[1].found, "p50 -, p99 -");
    }

    /// The problems of upstreams after a second reading, from both answers of `/upstreams`.
    fn of_upstreams(first: &str, second: &str, failures: &str) -> Vec<(String, String)> {
        let reading = |at, upstreams: &str| {
            let answers = Answers {
                upstreams,
                failures,
                ..Answers::of_metrics(FIRST)
            };
            Reading::new(Duration::from_secs(at), 4000.0 + at as f64, answers).unwrap()
        };
        let view = View::new(Some(&reading(0, first)), &reading(3, second));
        let checks = of_view(&view).into_iter();
        let problems = checks.filter(|check| check.verdict != CheckResult::Ok);
        problems.map(|check| (check.found, check.advice)).collect()
    }

    #[test]
    fn a_server_that_is_slower_than_its_siblings_has_a_problem() {
        let servers = |counts: [(u64, f64); 3]| {
            let servers = counts.iter().enumerate().map(|(at, (responses, seconds))| {
                format!(
                    r#"{{"url":"http://10.0.0.{at}:1","names":["app"],"addresses":[{{"address":"10.0.0.{at}:1","cores":[],
                    "requests":{responses},"failures":0,"responses":{responses},"response_seconds":{seconds}}}]}}"#
                )
            });
            format!(
                r#"{{"upstreams":[{}]}}"#,
                servers.collect::<Vec<_>>().join(",")
            )
        };
        let first = servers([(10, 0.1); 3]);
        let found = |counts| {
            let problems = of_upstreams(&first, &servers(counts), "{}").into_iter();
            problems.map(|(found, _)| found).collect::<Vec<_>>()
        };
        assert_eq!(
            found([(20, 0.2), (20, 6.1), (20, 0.4)]),
            [
                "app: 10.0.0.1:1 answers 30 times slower than its siblings: 600 ms on average, 20 ms there"
            ]
        );
        assert!(
            found([(20, 0.2), (14, 6.1), (20, 0.2)]).is_empty(),
            "too few"
        );
        assert!(
            found([(20, 0.11), (20, 0.5), (20, 0.11)]).is_empty(),
            "it is fast"
        );
    }

    #[test]
    fn a_name_that_changed_before_the_failures_is_their_cause() {
        let upstreams = r#"{"upstreams":[{"url":"http://app.test:80","names":[],"addresses":[{"address":"127.0.0.9:80",
            "cores":[{"cooling_down_until":"2026-11-29T22:25:00Z","last_failure_type":"tls_protocol_error"}]}],
            "addresses_before":["127.0.0.1:80"],"changed":"2026-11-29T22:22:26Z","seconds_since_change":100}]}"#;
        let problems = |first_age| {
            let failures = format!(
                r#"{{"failures":[{{"cause":"refused","site":"a","route":"/","address":"127.0.0.9:80","count":1,
                "seconds_since_first":{first_age},"seconds_since_last":1}}]}}"#
            );
            of_upstreams(upstreams, upstreams, &failures).remove(0)
        };
        let (found, advice) = problems(95);
        let change = "127.0.0.9, was 127.0.0.1 until 22:22:26 UTC";
        assert_eq!(found, format!("http://app.test:80: fails at TLS; {change}"));
        assert!(advice.starts_with("the name changed shortly before the failures"));
        let (found, advice) = problems(5000);
        assert_eq!(found, "http://app.test:80: fails at TLS");
        assert!(advice.contains("which certificate"), "{advice}");
    }

    #[test]
    fn an_upstream_that_answers_with_errors_has_a_problem() {
        let metrics = "process_start_time_seconds 1000\nprocess_cpu_seconds_total 10\nblitz_cores 2\n\
            http_client_request_duration_seconds_count{upstream=\"http://b:1\",status=\"5xx\"} 1\n\
            http_client_request_duration_seconds_count{upstream=\"http://b:1\",status=\"2xx\"} 3\n# EOF\n";
        let answers = Answers {
            upstreams: r#"{"upstreams":[{"url":"http://b:1","names":[],"addresses":[]}]}"#,
            ..Answers::of_metrics(metrics)
        };
        let checks = checks(answers);
        assert_eq!(
            problems(&checks),
            [(CheckResult::Slow, "http://b:1: 25% of 2.0 requests/s fail")]
        );
    }

    #[test]
    fn failures_that_several_counters_have_are_one_problem() {
        let counters = |failures: u32, tls: u32, connect: u32| {
            format!(
                "blitz_upstream_failures_total{{cause=\"certificate\"}} {failures}\n\
                 blitz_upstream_tls_failures_total {tls}\nblitz_upstream_connect_failures_total {connect}\n# EOF\n"
            )
        };
        for (text, expected) in [
            (
                counters(3, 3, 3),
                &["upstream failures: certificate: 3 in 2.0 s, 3 since the start"][..],
            ),
            (
                counters(0, 3, 3),
                &["upstream tls failures: 3 in 2.0 s, 3 since the start"],
            ),
            (
                counters(0, 3, 5),
                &[
                    "upstream connect failures: 5 in 2.0 s, 5 since the start",
                    "upstream tls failures: 3 in 2.0 s, 3 since the start",
                ],
            ),
        ] {
            let checks = checks(Answers::of_metrics(&text));
            let found: Vec<_> = problems(&checks)
                .into_iter()
                .map(|(_, found)| found)
                .collect();
            assert_eq!(found, expected);
            let has_firewall = checks.iter().any(|check| check.advice.contains("firewall"));
            assert_eq!(has_firewall, expected.len() == 2);
        }
    }

    #[test]
    fn a_process_that_does_not_answer_is_a_problem() {
        let late = "blitz: the process has not answered in time";
        let folder = std::env::temp_dir().join(format!("blitz-doctor-{}", std::process::id()));
        let process = folder.join("proc/7");
        std::fs::create_dir_all(process.join("fd")).unwrap();
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files  2  2  files\n";
        std::fs::write(process.join("limits"), limits).unwrap();
        for name in ["0", "1"] {
            std::fs::write(process.join("fd").join(name), "").unwrap();
        }
        let checks = without_answer(late, Some(7), &folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            problems(&checks),
            [
                (
                    CheckResult::Stop,
                    "process 7: the process has not answered in time"
                ),
                (CheckResult::Slow, "2 of 2 of the process"),
            ]
        );
        let checks = without_answer(late, None, &folder);
        assert_eq!(
            problems(&checks),
            [(CheckResult::Stop, "the process has not answered in time")]
        );
    }
}
