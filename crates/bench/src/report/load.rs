//! The report of one run of the generator.

use std::collections::BTreeMap;
use std::time::Duration;

use super::model::{
    Column, Conclusion, ConclusionKind, FactGroup, LatencySet, NamedDistribution, Report, Section,
    Step, Table, Timeline, TimelineSet,
};
use crate::distribution::Distribution;
use crate::invocation;
use crate::load_result::{Affects, LoadResult, PlanFacts, RequestResult};
use crate::number::{NONE, bytes, count, duration, fixed, percentile, significant};

/// Percentiles of the first conclusion, the highest that the samples carry.
const HEADLINE_PERCENTILES: [f64; 3] = [0.999, 0.99, 0.5];

/// The report.
pub(super) fn report(result: &LoadResult) -> Report {
    let (target, plan) = (&result.target, &result.plan);
    let title = format!("Load on {}", target.url);
    let question = format!(
        "How does the server respond over {} with {} connections ({})?",
        target.protocol,
        count(plan.connections as u64),
        plan.pacing
    );
    let mut report = Report::new(&title, &question, &result.command);
    report.started_at = result.started_at;
    report.duration_s = result.warm_up_s + result.duration_s;
    report.conclusions = conclusions(result);
    report.problems.clone_from(&result.problems);
    report.sections = [requests(result)]
        .into_iter()
        .chain(connections(result))
        .collect();
    report.method = method(result);
    report.repeat = vec![repeat(&result.command)];
    report.environment = vec![
        target_facts(result),
        plan_facts(result),
        generator_facts(result),
    ];
    report
}

fn repeat(command: &str) -> Step {
    match invocation::lacks_secrets(command) {
        true => Step::command(
            "Run, with your secrets in the place of each …: they were left out of this report.",
            command,
        ),
        false => Step::command("Run:", command),
    }
}

fn conclusions(result: &LoadResult) -> Vec<Conclusion> {
    let figure = |text: String| Conclusion::new(ConclusionKind::Figure, text);
    let void = |text: &str| Conclusion::new(ConclusionKind::Void, text);
    let mut conclusions = Vec::new();
    let rate = significant(result.requests_per_second());
    let throughput = bytes(result.bytes_per_second());
    conclusions.push(match result.is_valid_for(Affects::Throughput) {
        true => figure(format!(
            "Throughput: {rate} requests/s and {throughput}/s of content."
        )),
        false => void("Throughput: see the problems above."),
    });
    let latency = &result.times.latency;
    let highest = HEADLINE_PERCENTILES
        .into_iter()
        .find(|&quantile| latency.carries(quantile));
    if !result.is_valid_for(Affects::Times) {
        conclusions.push(void("Latency: see the problems above."));
    } else if let (Some(median), Some(highest)) = (latency.percentile(0.5), highest) {
        let tail = latency.quantile(highest).unwrap_or_default().as_nanos() as f64;
        let (median, tail) = (duration(median.as_nanos() as f64), duration(tail));
        let name = percentile(highest);
        conclusions.push(figure(format!("Latency: median {median}, p{name} {tail}.")));
    }
    conclusions.push(errors(result));
    conclusions
}

fn errors(result: &LoadResult) -> Conclusion {
    let counts = &result.counts;
    let (errors, completed) = (counts.errors(), count(counts.completed));
    match errors {
        0 => {
            let text = format!("Errors: none in {completed} responses.");
            Conclusion::new(ConclusionKind::Figure, text)
        }
        errors => {
            let share = errors as f64 / (errors + counts.completed) as f64 * 100.0;
            let (errors, share) = (count(errors), significant(share));
            let text =
                format!("Errors: {errors} ({share} %) beside {completed} correct responses.");
            Conclusion::new(ConclusionKind::Worse, text)
        }
    }
}

fn requests(result: &LoadResult) -> Section {
    let times = &result.times;
    let latencies = named([
        ("from the planned start", &times.latency),
        ("from sending", &times.service),
        ("first byte, from sending", &times.first_byte),
    ]);
    Section {
        heading: "Requests".to_owned(),
        latencies: vec![LatencySet {
            title: "Time of responses".to_owned(),
            explanation: "The time from the planned start of a request to the end of its response includes the wait \
                          of requests that a slow server kept from being sent. The times from sending omit it."
                .to_owned(),
            distributions: latencies,
        }],
        timelines: vec![TimelineSet {
            title: "Run over time".to_owned(),
            timelines: vec![Timeline::of_intervals(&result.target.protocol, &result.timeline)],
            ..TimelineSet::default()
        }],
        tables: [Some(responses(result)), each_request(result)]
            .into_iter()
            .flatten()
            .collect(),
        ..Section::default()
    }
}

/// Responses and errors, by their kind.
fn responses(result: &LoadResult) -> Table {
    let counts = &result.counts;
    let row = |kind: String, number: u64| vec![kind, count(number)];
    let by_name = |prefix: &'static str, errors: &BTreeMap<String, u64>| -> Vec<_> {
        let rows = errors
            .iter()
            .map(|(error, &number)| row(format!("{prefix}: {error}"), number));
        rows.collect()
    };
    let mut rows = vec![row("correct".to_owned(), counts.completed)];
    rows.extend(by_name("wrong", &counts.wrong));
    rows.extend(by_name("failed", &counts.failed));
    rows.push(row("unfinished at the end".to_owned(), counts.unfinished));
    if counts.repeated > 0 {
        rows.push(row(
            "sent again after a refusal".to_owned(),
            counts.repeated,
        ));
    }
    if counts.queued > 0 {
        rows.push(row(
            "waited for the server's limit of streams".to_owned(),
            counts.queued,
        ));
    }
    let statuses = counts
        .statuses
        .iter()
        .map(|(status, &number)| row(format!("status {status}"), number));
    rows.extend(statuses);
    Table {
        caption: "Requests by outcome".to_owned(),
        columns: vec![Column::text("outcome"), Column::number("requests")],
        rows,
    }
}

/// The latency of each request of a mix; `None` if there is only one.
fn each_request(result: &LoadResult) -> Option<Table> {
    let time = |time: Option<Duration>| match time {
        Some(time) => duration(time.as_nanos() as f64),
        None => NONE.to_owned(),
    };
    let row = |request: &RequestResult| {
        let latency = &request.latency;
        let longest = (latency.count > 0).then(|| Duration::from_nanos(latency.max_ns));
        let mut row = vec![
            request.name.clone(),
            count(latency.count),
            count(request.errors),
            time(latency.mean()),
        ];
        row.extend([0.5, 0.9, 0.99].map(|quantile| time(latency.percentile(quantile))));
        row.push(time(longest));
        row
    };
    (!result.requests.is_empty()).then(|| Table {
        caption: "Latency of each request".to_owned(),
        columns: [Column::text("request")]
            .into_iter()
            .chain(
                ["requests", "errors", "mean", "p50", "p90", "p99", "longest"].map(Column::number),
            )
            .collect(),
        rows: result.requests.iter().map(row).collect(),
    })
}

/// The section of new connections; `None` if there were none.
fn connections(result: &LoadResult) -> Option<Section> {
    let connects = &result.connects;
    if connects.count == 0 {
        return None;
    }
    let times = named([
        ("TCP connect", &connects.tcp),
        ("TLS handshake", &connects.tls),
        ("TLS handshake, resumed", &connects.tls_resumed),
        ("QUIC handshake", &connects.quic),
        ("QUIC handshake, resumed", &connects.quic_resumed),
    ]);
    let (all, resumed) = (count(connects.count), count(connects.resumed));
    Some(Section {
        heading: "New connections".to_owned(),
        explanation: vec![format!(
            "{all} connections were opened; {resumed} resumed a TLS session."
        )],
        latencies: vec![LatencySet {
            title: "Time of connecting".to_owned(),
            explanation:
                "Each time begins with its own step: TLS handshakes do not include the TCP connect."
                    .to_owned(),
            distributions: times,
        }],
        ..Section::default()
    })
}

/// The distributions with samples.
fn named<const N: usize>(distributions: [(&str, &Distribution); N]) -> Vec<NamedDistribution> {
    let with_samples = distributions
        .into_iter()
        .filter(|(_, distribution)| distribution.count > 0);
    let named = with_samples.map(|(name, distribution)| NamedDistribution {
        name: name.to_owned(),
        distribution: distribution.clone(),
    });
    named.collect()
}

fn method(result: &LoadResult) -> Vec<String> {
    vec![
        format!(
            "The generator warmed up for {} s and measured for {} s. Checked in each response: {}.",
            significant(result.warm_up_s),
            significant(result.duration_s),
            result.target.checks
        ),
        "Times are recorded in histograms with a relative error of 0.1 %. Percentiles are those of all samples."
            .to_owned(),
    ]
}

fn target_facts(result: &LoadResult) -> FactGroup {
    let target = &result.target;
    FactGroup::new(
        "Target",
        [
            ("URL", target.url.clone()),
            ("Address", target.address.clone()),
            ("Protocol", target.protocol.clone()),
            (
                "TLS",
                target.tls.clone().unwrap_or_else(|| "none".to_owned()),
            ),
            ("Different requests", count(target.requests as u64)),
        ],
    )
}

fn plan_facts(result: &LoadResult) -> FactGroup {
    let plan = &result.plan;
    let yes_or_no = |yes| if yes { "yes" } else { "no" }.to_owned();
    FactGroup::new(
        "Plan",
        [
            ("Pacing", plan.pacing.clone()),
            ("Connections", count(plan.connections as u64)),
            (
                "Requests in flight per connection",
                count(plan.streams as u64),
            ),
            ("Generating cores", count(plan.cores as u64)),
            (
                "A connection for each request",
                yes_or_no(plan.new_connections),
            ),
            ("Resumed TLS sessions", yes_or_no(plan.resume)),
            ("Windows of the client", windows(plan)),
            ("Seed", plan.seed.to_string()),
        ],
    )
}

fn windows(plan: &PlanFacts) -> String {
    match plan.windows {
        Some(windows) => windows.to_string(),
        None => "those of the kernel, or not stated".to_owned(),
    }
}

fn generator_facts(result: &LoadResult) -> FactGroup {
    let generator = &result.generator;
    let (voluntary, forced) = generator.context_switches;
    let percent = |share: f64| format!("{} %", fixed(share * 100.0, 0));
    let mut facts = vec![
        ("Program", generator.program.clone()),
        ("I/O driver", generator.io.clone()),
        ("CPU time", format!("{} s", significant(generator.cpu_s))),
        (
            "CPU time per request",
            format!("{} µs", significant(generator.cpu_us_per_request)),
        ),
        ("Busiest core: running", percent(generator.busiest_core)),
        (
            "Busiest core: waiting for a processor",
            percent(generator.busiest_core_waited),
        ),
        (
            "Context switches",
            format!("{} voluntary, {} forced", count(voluntary), count(forced)),
        ),
    ];
    if let Some(lag) = generator.lag.percentile(0.99) {
        facts.push(("Lag behind the plan, p99", duration(lag.as_nanos() as f64)));
    }
    FactGroup::new("Generator", facts)
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Recorder;
    use crate::load_result::{
        Connects, Counts, GeneratorFacts, Interval, PlanFacts, Problem, RESULT_VERSION,
        TargetFacts, Times,
    };

    /// A run of 10,000 requests with latencies of 1 µs to 10 ms, and 3 errors.
    pub(in super::super) fn result() -> LoadResult {
        let mut recorder = Recorder::new();
        for step in 1..=10_000_u32 {
            recorder.record(Duration::from_micros(1) * step);
        }
        let mut latency = recorder.distribution();
        latency.max_ns = 10_000_000;
        let interval = |end_s, completed, errors, latency| Interval {
            end_s,
            length_s: 1.0,
            completed,
            errors,
            content_bytes_received: completed * 10,
            latency,
        };
        LoadResult {
            version: RESULT_VERSION,
            command: "blitz load http://localhost/".to_owned(),
            target: TargetFacts {
                url: "http://localhost/<script>".to_owned(),
                address: "127.0.0.1:80".to_owned(),
                protocol: "http/1.1".to_owned(),
                tls: None,
                requests: 1,
                checks: "status 200 and length".to_owned(),
            },
            plan: PlanFacts {
                connections: 10,
                streams: 1,
                cores: 1,
                pacing: "closed loop".to_owned(),
                rate: None,
                new_connections: false,
                resume: false,
                windows: None,
                seed: 7,
            },
            requests: vec![
                RequestResult::default(),
                RequestResult {
                    name: "GET http://localhost/b".to_owned(),
                    errors: 3,
                    latency: latency.clone(),
                },
            ],
            started_at: 0.0,
            duration_s: 2.0,
            warm_up_s: 1.0,
            answered: None,
            counts: Counts {
                completed: 10_000,
                wrong: BTreeMap::from([("status 500".to_owned(), 3)]),
                content_bytes_received: 100_000,
                ..Counts::default()
            },
            times: Times {
                latency: latency.clone(),
                ..Times::default()
            },
            connects: Connects::default(),
            timeline: vec![
                interval(1.0, 10_000, 0, latency),
                interval(2.0, 0, 3, Distribution::default()),
            ],
            generator: GeneratorFacts::default(),
            problems: Vec::new(),
        }
    }

    #[test]
    fn the_answers_are_throughput_latency_and_errors() {
        let report = Report::of_load(&result());
        let texts: Vec<&str> = report.conclusions.iter().map(|c| c.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "Throughput: 5,000 requests/s and 50.0 kB/s of content.",
                "Latency: median 5.00 ms, p99.9 9.99 ms.",
                "Errors: 3 (0.0300 %) beside 10,000 correct responses.",
            ]
        );
        assert_eq!(
            report.sections.len(),
            1,
            "no section without new connections"
        );
        let each = &report.sections[0].tables[1];
        assert_eq!(each.rows[1][..3], ["GET http://localhost/b", "10,000", "3"]);
    }

    #[test]
    fn a_command_without_its_secrets_says_so() {
        let text = |command: &str| {
            let report = report(&LoadResult {
                command: command.to_owned(),
                ..result()
            });
            report.repeat[0].text.clone()
        };
        assert_eq!(text("blitz load http://a/"), "Run:");
        assert!(text("blitz load -H 'Cookie: …' http://a/").contains("were left out"));
    }

    #[test]
    fn figures_with_problems_have_no_answer() {
        let mut result = result();
        result.problems.push(Problem {
            affects: Affects::Times,
            message: "The generator was the bottleneck.".to_owned(),
        });
        let report = Report::of_load(&result);
        let kinds: Vec<ConclusionKind> = report.conclusions.iter().map(|c| c.kind).collect();
        assert_eq!(
            kinds,
            [
                ConclusionKind::Void,
                ConclusionKind::Void,
                ConclusionKind::Worse
            ]
        );
    }
}
