//! From runs to a report: what each proxy adds to the latency of its backend.

use super::{
    BLOCKING, ConnectionReuse, DIRECT, EVENT_LOOP, NGINX, POOL, POOL_THREADS, REACTORS_EPOLL,
    REACTORS_URING,
};
use crate::number;
use crate::report::{
    Axis, AxisScale, Column, Conclusion, ConclusionKind, Curve, CurvePoint, CurveSet, Panel,
    Report, Section, System, Table,
};
use crate::stats::Median;
use crate::study::{
    Cell, Figure, Measured, P50, P99, REQUESTS_PER_SECOND, SERVER_US, Sentence, Surroundings,
    conclusion, measure_beyond, section,
};

const QUESTION: &str = "What does a proxy add to the latency of its backend, and what does it cost, if it waits in \
                        blocking calls or in an event loop?";

const PROXIES: [&str; 6] = [
    BLOCKING,
    POOL,
    EVENT_LOOP,
    REACTORS_EPOLL,
    REACTORS_URING,
    NGINX,
];

const CELLS: &[Cell] = &[
    Cell::REQUESTS,
    Cell::SERVER_US,
    Cell::RESIDENT,
    Cell::P50,
    Cell::P99,
    Cell::MAX,
    Cell::SUCCESS,
    Cell::ERRORS,
];

/// The percentiles whose increase is reported, each with the name of the increase.
const ADDED: [(&Figure, &str); 2] = [(&P50, "added to p50"), (&P99, "added to p99")];

pub(super) fn report(
    measured: &[(ConnectionReuse, u32, Measured)],
    command: &str,
    surroundings: &Surroundings,
    rounds: u32,
) -> Report {
    let title = "Proxies that wait in different ways";
    let mut report = Report::new(title, QUESTION, command);
    for client in ConnectionReuse::ALL {
        let cases = measured.iter().filter(|(known, ..)| *known == client);
        let cases: Vec<(u32, &Measured)> = cases.map(|(_, count, case)| (*count, case)).collect();
        if !cases.is_empty() {
            report
                .sections
                .push(section_of(client, &cases, surroundings));
        }
    }
    let conclusions = measured.iter().flat_map(|(.., case)| conclusions(case));
    report.conclusions = conclusions.collect();
    report.method = method(rounds);
    surroundings.describe(&mut report);
    report
}

fn section_of(
    client: ConnectionReuse,
    cases: &[(u32, &Measured)],
    surroundings: &Surroundings,
) -> Section {
    let ours = format!("blitz {}", surroundings.facts.revision);
    let versions = &surroundings.facts.versions;
    let nginx = versions.iter().find(|version| version.contains("nginx"));
    let system = |name: &str| {
        let version = match name {
            NGINX => nginx.map_or("", String::as_str),
            _ => &ours,
        };
        System::run(name, "http/1.1", version)
    };
    let mut systems = vec![system(DIRECT)];
    systems.extend(PROXIES.map(system));
    let (heading, explanation) = match client {
        ConnectionReuse::Ab => (
            "A new connection for each request",
            "As ab does it without -k: connecting is part of the latency.",
        ),
        ConnectionReuse::Wrk => (
            "Connections that are kept",
            "As wrk does it. The blocking proxies close each connection after its response; their clients connect again.",
        ),
    };
    let figures = [REQUESTS_PER_SECOND, SERVER_US];
    let measured: Vec<&Measured> = cases.iter().map(|&(_, case)| case).collect();
    let mut section = section(
        heading,
        &[explanation],
        &measured,
        &systems,
        (&figures, CELLS),
    );
    section.tables.insert(0, added_table(&measured));
    section.curves.push(added_curves(cases));
    for case in measured {
        let added = ADDED.map(|(figure, name)| measure_beyond(case, DIRECT, figure, name));
        let added = added
            .into_iter()
            .filter(|measure| !measure.results.is_empty());
        section.measures.extend(added);
    }
    section
}

/// The median of what a proxy adds, in microseconds.
fn added_us(case: &Measured, proxy: &str, figure: &Figure) -> Option<Median> {
    Median::of(case.beyond(proxy, DIRECT, figure)?)
}

fn added_text(case: &Measured, proxy: &str, figure: &Figure) -> String {
    let added = added_us(case, proxy, figure);
    added.map_or(number::NONE.to_owned(), |median| {
        number::duration(median.value * 1e3)
    })
}

fn added_table(cases: &[&Measured]) -> Table {
    let mut columns = vec![Column::text("Load"), Column::text("Proxy")];
    columns.extend(ADDED.map(|(_, name)| Column::number(name)));
    let rows = cases.iter().flat_map(|case| {
        let proxies = PROXIES
            .into_iter()
            .filter(|proxy| case.subject(proxy).is_some());
        proxies.map(|proxy| {
            let mut row = vec![case.title.clone(), proxy.to_owned()];
            row.extend(ADDED.map(|(figure, _)| added_text(case, proxy, figure)));
            row
        })
    });
    Table {
        caption: "Latency added by the proxy: that of the requests through it, less that of the same load sent directly \
                  to the backend in the same round; medians of the rounds. It is negative where requests wait longer in a \
                  backend that is asked directly"
            .to_owned(),
        rows: rows.collect(),
        columns,
    }
}

/// The time that each proxy adds, against the number of clients.
fn added_curves(cases: &[(u32, &Measured)]) -> CurveSet {
    let panels = ADDED.map(|(figure, title)| {
        let curves = PROXIES.into_iter().map(|proxy| Curve {
            name: proxy.to_owned(),
            points: cases
                .iter()
                .map(|&(count, case)| point(count, added_us(case, proxy, figure)))
                .collect(),
        });
        let has_points = |curve: &Curve| curve.points.iter().any(|point| point.y.is_some());
        Panel {
            title: title.to_owned(),
            curves: curves.filter(has_points).collect(),
        }
    });
    let axis = |label: &str, unit: &str| Axis {
        label: label.to_owned(),
        unit: unit.to_owned(),
        scale: AxisScale::Logarithmic,
    };
    CurveSet {
        title: "Latency added by the proxy".to_owned(),
        explanation: "Increases that are not positive are left out.".to_owned(),
        x: axis("Clients", ""),
        y: axis("Added latency", "µs"),
        reference: None,
        panels: panels
            .into_iter()
            .filter(|panel| !panel.curves.is_empty())
            .collect(),
    }
}

fn point(clients: u32, added: Option<Median>) -> CurvePoint {
    let interval = added.as_ref().and_then(Median::interval_of_95);
    CurvePoint {
        x: f64::from(clients),
        y: added.map(|median| median.value),
        interval: interval.map(|interval| (interval.low, interval.high)),
    }
}

/// The time that the proxies add, in one sentence, and how the event loops compare with the others.
fn conclusions(case: &Measured) -> Vec<Conclusion> {
    let added = PROXIES.into_iter().filter_map(|proxy| {
        let added = added_us(case, proxy, &P50)?;
        Some(format!("{proxy} {}", number::duration(added.value * 1e3)))
    });
    let added: Vec<String> = added.collect();
    let mut conclusions = Vec::new();
    if !added.is_empty() {
        let added = added.join("; ");
        let text = format!("{}: added to the median latency: {added}.", case.title);
        conclusions.push(Conclusion::new(ConclusionKind::Figure, text));
    }
    let answers = (
        &REQUESTS_PER_SECOND,
        "answers",
        "as many requests as the row",
    );
    let uses = (&SERVER_US, "uses", "the CPU time per request of the row");
    for (subject, base, (figure, verb, object)) in [
        (EVENT_LOOP, BLOCKING, answers),
        (EVENT_LOOP, POOL, uses),
        (REACTORS_URING, REACTORS_EPOLL, uses),
        (EVENT_LOOP, NGINX, uses),
    ] {
        let sentence = Sentence {
            about: &case.title,
            subject,
            base,
            figure,
            verb,
            object,
        };
        conclusions.push(conclusion(case, &sentence));
    }
    conclusions
}

fn method(rounds: u32) -> Vec<String> {
    vec![
        format!(
            "All proxies but nginx parse and write heads with the same code. The blocking proxies are the example \
             blocking_proxy with 1 and with {POOL_THREADS} threads: a connection to the client and one to the backend for \
             each request. The event loops are blitz run with --cores 1 and --cores 2; they keep connections on both \
             sides, like nginx with one worker. Each round runs every row once, in balanced orders; there were {rounds} \
             rounds."
        ),
        "The backend is blitz run, on the same core as the generator, blitz load. Proxies with one thread, the thread pool \
         and nginx have the other core. The proxies with a reactor per core have both, of which they share one with \
         backend and generator: compare their CPU time per request, and not their requests per second, with those of the \
         others."
            .to_owned(),
        "Each client sends its next request when it has the response to the last one. Where a proxy is the bottleneck, the \
         latency is the number of clients divided by its throughput: one client shows what a proxy takes for a request, \
         many show for how long they wait."
            .to_owned(),
        "The blocking proxies have the queue for connections of Rust's standard library, 128 places; a client that finds \
         it full tries again a second later. The queues of the others have 4,096."
            .to_owned(),
        "Failed requests are counted and end nothing: that a blocking proxy lets clients wait until they give up is a \
         result. A response with the wrong status or content counts as failed as well. The latency is that of requests \
         with correct responses, and CPU time is divided by their number."
            .to_owned(),
        "The row `direct` has no proxy; its CPU time is that of the backend.".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Recorder;
    use crate::load_result::LoadResult;
    use crate::study::{MeasuredSubject, Run, Watch};

    /// Seven rounds in which each request takes so long.
    fn subject(name: &str, latency_us: u64) -> MeasuredSubject {
        let run = |round: u64| {
            let mut recorder = Recorder::new();
            for _ in 0..2_000 {
                recorder.record(Duration::from_micros(latency_us + round));
            }
            let mut result = LoadResult {
                duration_s: 1.0,
                ..LoadResult::default()
            };
            result.counts.completed = 1_000_000 / latency_us;
            result.times.latency = recorder.distribution();
            Run {
                result,
                server_us: latency_us as f64,
                ..Run::default()
            }
        };
        MeasuredSubject {
            name: name.to_owned(),
            runs: (0..7).map(run).collect(),
            void: None,
        }
    }

    fn case(subjects: Vec<MeasuredSubject>) -> Measured {
        Measured {
            title: "50 clients, keep-alive".to_owned(),
            load: "GET /data.".to_owned(),
            base: Some(BLOCKING.to_owned()),
            subjects,
            not_run: Vec::new(),
        }
    }

    #[test]
    fn a_proxy_adds_what_it_takes_beyond_the_backend_in_the_same_round() {
        let subjects = vec![
            subject(DIRECT, 100),
            subject(BLOCKING, 1_100),
            subject(EVENT_LOOP, 150),
        ];
        let surroundings = Watch::start().finish("test", [], []);
        let measured = [(ConnectionReuse::Wrk, 50, case(subjects))];
        let report = report(&measured, "blitz bench models", &surroundings, 7);
        let added = &report.sections[0].tables[0];
        assert_eq!(added.rows.len(), 2);
        assert!(added.rows[1][2].starts_with("50"), "{:?}", added.rows[1]);
        let text = &report.conclusions[0].text;
        assert!(text.contains("blocking thread 1.00 ms"), "{text}");
        assert_eq!(report.conclusions[1].kind, ConclusionKind::Better);
        let curve = &report.sections[0].curves[0].panels[0].curves[0];
        assert_eq!(curve.points[0].x, 50.0);
    }

    #[test]
    fn a_void_row_adds_nothing() {
        let mut blocking = subject(BLOCKING, 1_000);
        blocking.void = Some("No request was answered.".to_owned());
        let case = case(vec![subject(DIRECT, 100), blocking]);
        assert!(added_us(&case, BLOCKING, &P50).is_none());
        let conclusions = conclusions(&case);
        assert_eq!(conclusions[0].kind, ConclusionKind::Void, "{conclusions:?}");
    }
}
