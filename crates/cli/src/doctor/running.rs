//! Checks of a running process, from two readings of its control interface some seconds apart: so a problem of now is told
//! from one that was.

use std::path::Path;
use std::time::Duration;

use blitz_host::serving::MORE_OPEN_FILES;

use super::{Check, CheckResult, count, files};
use crate::control_client::{self, Place, ReadError};
use crate::live::{
    CLASSES, Cause, Certificate, Change, Client, Latency, Now, OTHERS, Quantile, RecentFailure,
    Severity, Source, State, Upstream, View,
};
use crate::terminal::number::{self, age, bytes, duration, percent, quantile, rate};

/// A certificate is renewed earlier than so many days before its end.
const DAYS_LOW: i64 = 14;

/// With a greater share of the cores' time in use there is none for a burst.
const BUSY: f64 = 0.9;

/// With less memory a core reads from few sockets at a time.
const MEMORY_LOW_BYTES: f64 = (16 << 20) as f64;

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

/// Counters of connections that were closed in favour of new ones.
const EVICTIONS: [&str; 2] = ["connections evicted", "quic evicted"];

/// A client with fewer connections is no cause of a lack of them.
const CONNECTIONS_SOME: u64 = 10;

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
        Ok(View::new(Some(&first), &source.watch(interval)?))
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
        checks.push(descriptors(&now, 0.0, &[]));
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
        descriptors(&view.now, evicted(&view.causes), &view.clients),
        memory(view),
        connections(view),
    ];
    checks.push(configuration(view));
    checks.extend(certificates(&view.certificates));
    checks.extend(upstreams(&view.upstreams, &view.failures));
    let failures = failures(&view.failures, &window);
    let counters = counters(view, &window, failures.len());
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
    match view.is_draining {
        true => Check::ok(
            "process",
            format!("{found}; it drains, and ends after its last request"),
        ),
        false => Check::ok("process", found),
    }
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
    // While it drains, cores end one after another.
    if view.cores_absent > 0.0 && !view.is_draining {
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

/// Connections that were closed in favour of new ones in the window.
fn evicted(causes: &[Cause]) -> f64 {
    let evictions = causes.iter().filter(|cause| is_eviction(cause));
    evictions.map(|cause| cause.recent).sum()
}

fn is_eviction(cause: &Cause) -> bool {
    EVICTIONS.contains(&&*cause.text)
}

/// The client that has more than half of the connections, if they are some.
fn greatest(clients: &[Client]) -> Option<String> {
    let all: u64 = clients.iter().map(|client| client.open).sum();
    let named = clients.iter().filter(|client| client.name != OTHERS);
    let client = named.max_by_key(|client| client.open)?;
    (client.open >= CONNECTIONS_SOME && client.open * 2 > all).then(|| {
        let (open, all) = (number::count(client.open as f64), number::count(all as f64));
        format!(
            "{} has {open} of {all} connections: see why; otherwise ",
            client.name
        )
    })
}

/// `evicted` connections were closed in favour of new ones: this begins before all sockets are in use.
fn descriptors(now: &Now, evicted: f64, clients: &[Client]) -> Check {
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
    let evicts = evicted > 0.0;
    let evicted = match evicts {
        true => format!("; {} were closed for new ones", number::count(evicted)),
        false => String::new(),
    };
    let found = format!("{descriptors}{sockets}{evicted}");
    match evicts || now.lacks_descriptors() || now.lacks_sockets() {
        true => {
            let client = greatest(clients).unwrap_or_default();
            Check::slow(NAME, found, format!("{client}{MORE_OPEN_FILES}"))
        }
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
                ..0 => Check::stop(NAME, format!("{names}: {}", one.expiry()), renew(one)),
                _ => Check::slow(NAME, format!("{names}: {}", one.expiry()), renew(one)),
            }
        })
        .collect();
    if checks.is_empty() {
        let first = all.iter().min_by_key(|one| one.days_left);
        let found = first.map_or_else(
            || "none".to_owned(),
            |first| format!("{}, the first {}", all.len(), first.expiry()),
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
    let renamed = members.iter().find_map(|member| new_name(member, failures));
    let change = renamed.map_or_else(String::new, |change| format!("; {}", change.text));
    let states = || states.iter().map(|(_, state)| *state);
    let requests = upstream.requests.filter(|_| upstream.is_failing());
    let failing = requests.map(|requests| {
        let (failed, all) = (percent(requests.failed), rate(requests.rate));
        format!("{failed} of {all} requests/s fail")
    });
    if !bad.is_empty() {
        let problems: Vec<_> = bad.into_iter().chain(failing).collect();
        let found = format!("{}: {}{change}", upstream.name, problems.join("; "));
        let advice = match renamed {
            Some(_) => RENAMED,
            None => advice(states()),
        };
        return Some(match states().all(State::is_down) {
            true => Check::stop(name, found, advice),
            false => Check::slow(name, found, advice),
        });
    }
    let found = format!("{}: {}{change}", upstream.name, failing?);
    let is_named = |one: &RecentFailure| {
        let of_member = |member: &Upstream| {
            let mut addresses = member.addresses.iter();
            member.name == one.upstream || addresses.any(|known| known.address == one.upstream)
        };
        one.recent > 0 && (one.upstream == upstream.name || members.iter().any(of_member))
    };
    let advice = match renamed {
        Some(_) => RENAMED,
        None if failures.iter().any(is_named) => {
            "look at its log; the failures below have the causes that Blitz sees"
        }
        None => "its own responses are 5xx: look at its log; `blitz tail --status 5xx` shows them",
    };
    Some(Check::slow(name, found, advice))
}

const RENAMED: &str =
    "the name changed shortly before the failures: see whether the new address is right";

/// The remedy for servers of which some cannot be used, by the most exact of their states.
fn advice<'a>(states: impl Iterator<Item = &'a State>) -> &'static str {
    const AT_TLS: &str =
        "the log has the reason; see which certificate it sends, and whether it expects TLS there";
    const UNREACHABLE: &str =
        "see whether it runs and listens there; `blitz explain` names the routes that need it";
    const UNRESOLVED: &str =
        "see whether the name is right, and whether the DNS server has it: `getent hosts NAME`";
    const SILENT: &str = "see whether it hangs or is overloaded; `timeout.response` ends requests without a response";
    const UNHEALTHY: &str = "see why its check fails, and whether the `health` of the upstream demands the right response";
    let advice = states.filter_map(|state| match state {
        State::Unreachable { at_tls: true, .. } => Some((0, AT_TLS)),
        State::Unreachable { .. } => Some((1, UNREACHABLE)),
        State::Unresolved(_) => Some((2, UNRESOLVED)),
        State::Silent { .. } => Some((3, SILENT)),
        State::Unhealthy(_) => Some((4, UNHEALTHY)),
        State::Ok | State::Unused | State::Drained | State::Servers { .. } => None,
    });
    advice.min().map_or(UNREACHABLE, |(_, advice)| advice)
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

/// A line for each address that answers much slower than the others of its upstream. Shared servers are left out: their
/// times are those of other requests as well.
fn slow_servers(name: &'static str, upstream: &Upstream, servers: &[Upstream]) -> Vec<Check> {
    let members = std::iter::once(upstream).chain(servers);
    let members = members.filter(|member| !member.is_shared);
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
        State::Ok | State::Unused | State::Drained | State::Servers { .. } => None,
        State::Unhealthy(reason) => Some(format!("is down by its checks: {reason}")),
        State::Silent {
            address,
            active,
            seconds,
        } => Some(format!(
            "{address} does not respond: {active} in use, no response for {}",
            age(*seconds as f64)
        )),
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
            Some(match failed.len() < *addresses {
                true => format!(
                    "{text} at {} of {addresses} addresses: {}",
                    failed.len(),
                    failed.join(", ")
                ),
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
/// the failures have lines, and evictions, about which the line of descriptors is.
fn counters(view: &View, window: &str, failures: usize) -> Vec<Check> {
    let is_told = |cause: &Cause| {
        (failures > 0 && cause.text.starts_with(SAME_FAILURES[0]))
            || (cause.recent > 0.0 && is_eviction(cause))
    };
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
    if checks.is_empty() && evicted(&view.causes) == 0.0 {
        let server_errors = CLASSES.iter().zip(view.total.classes);
        let has_errors = server_errors
            .into_iter()
            .any(|(class, share)| *class == "5xx" && share > 0.0);
        let mut upstreams = view.upstreams.iter();
        let nothing = match failures > 0 || has_errors || upstreams.any(Upstream::is_failing) {
            true => "",
            false => ", and nothing failed",
        };
        checks.push(Check::ok(
            "limits",
            format!("none was reached in {window}{nothing}"),
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
