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
pub(super) fn checks(places: &[Place], interval: Duration) -> Result<Vec<Check>, String> {
    let source = Source::new(places.to_vec());
    let read = || -> Result<View, ReadError> {
        let first = source.read()?;
        thread::sleep(interval);
        Ok(View::new(Some(&first), &source.read()?))
    };
    match read() {
        Ok(view) => Ok(of_view(&view)),
        Err(ReadError::NoProcess(problem)) => Err(problem),
        Err(ReadError::NoAnswer(problem)) => {
            let process = control_client::process_id(places);
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
mod tests;
