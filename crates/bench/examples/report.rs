//! Renders a made-up comparison, so that the forms of reports can be looked at.
//!
//! `cargo run -p blitz-bench --example report -- FOLDER` writes `report.html`, `report.md` and `report.json` there and
//! prints the form for terminals. `--schemas` instead of a folder updates `benchmarks/schema/`.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use blitz_bench::load::Interval;
use blitz_bench::report::{
    Axis, AxisScale, Column, Comparison, Conclusion, ConclusionKind, Configuration, Curve,
    CurvePoint, CurveSet, Direction, Estimate, FactGroup, LatencySet, Mark, Measure, MeasureResult,
    NamedDistribution, Panel, Reference, Report, Section, Step, System, Table, Terminal, Timeline,
    TimelineSet, Verdict, load_result_schema, report_schema,
};
use blitz_bench::{Distribution, Recorder};

/// Rounds of each system.
const ROUNDS: u32 = 15;
/// The systems with figures, each with the factor of its times.
const SYSTEMS: [(&str, f64); 5] = [
    ("blitz", 1.0),
    ("blitz-epoll", 1.04),
    ("nginx", 1.26),
    ("haproxy", 1.31),
    ("caddy", 3.1),
];

fn main() -> io::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("--schemas") => write_schemas(),
        folder => write_report(Path::new(folder.unwrap_or("."))),
    }
}

fn write_schemas() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks/schema");
    fs::write(folder.join("report.json"), report_schema())?;
    fs::write(folder.join("load-result.json"), load_result_schema())
}

fn write_report(folder: &Path) -> io::Result<()> {
    let report = report();
    fs::write(folder.join("report.html"), report.html())?;
    fs::write(folder.join("report.md"), report.markdown())?;
    fs::write(folder.join("report.json"), serde_json::to_string(&report)?)?;
    print!("{}", report.text(&Terminal::of_stdout()));
    Ok(())
}

fn report() -> Report {
    let question =
        "Which gateway takes the least CPU time per request, and what does it cost in latency?";
    let mut report = Report::new(
        "HTTP proxies: five gateways",
        question,
        "blitz bench gateways",
    );
    report.started_at = 1_764_081_780.0;
    report.duration_s = 2_742.0;
    report.conclusions = conclusions();
    report.sections = vec![proxy(), lossy()];
    report.method = vec![
        "Each round runs every system once, in an order that is reversed from round to round (ABBA). All systems \
         have the same core, the same backend and the same certificates."
            .to_owned(),
        "Ratios compare runs of the same round. Intervals hold the median with 95 % confidence (bootstrap). A \
         difference is significant if its interval does not contain 1."
            .to_owned(),
    ];
    report.repeat = vec![
        Step::text("Use a quiet machine with the programs below."),
        Step::command(
            "Run all systems:",
            "blitz bench gateways --rounds 15 --html report.html",
        ),
    ];
    report.environment = environment();
    report
}

fn conclusions() -> Vec<Conclusion> {
    let of = Conclusion::new;
    vec![
        of(
            ConclusionKind::Better,
            "CPU time per request: Blitz takes 21 % less than nginx (19 to 23 %).",
        ),
        of(
            ConclusionKind::Better,
            "Latency at 20,000 requests/s: the p99 of Blitz is 20 % lower than that of nginx (17 to 23 %).",
        ),
        of(
            ConclusionKind::Equal,
            "Throughput: Blitz answers as many requests as nginx (0.8 % less to 2.7 % more).",
        ),
        of(
            ConclusionKind::Worse,
            "Memory: Blitz occupies 23 % more than nginx (21 to 26 %).",
        ),
        of(
            ConclusionKind::NotRun,
            "Envoy was not run: it is not installed.",
        ),
        of(
            ConclusionKind::Void,
            "H2O gave 3 wrong responses. Its figures prove nothing.",
        ),
    ]
}

fn environment() -> Vec<FactGroup> {
    vec![
        FactGroup::new(
            "Machine",
            [
                ("CPU", "AMD EPYC, 2 cores"),
                ("Kernel", "Linux 6.18.44"),
                ("Memory", "7.8 GiB"),
            ],
        ),
        FactGroup::new(
            "Noise",
            [
                ("Other programs", "1.2 % of a core (median of all runs)"),
                ("Steal time", "0.1 %"),
                ("Same work in all rounds", "varies by 2.3 %"),
            ],
        ),
        FactGroup::new(
            "Load generator",
            [("Program", "blitz load 0.1.0"), ("Busiest core", "61 %")],
        ),
    ]
}

/// Small requests through each system.
fn proxy() -> Section {
    Section {
        heading: "HTTP/1.1: proxy to one backend".to_owned(),
        explanation: vec![
            "100 connections request a response of 1 KiB through the gateway, in a closed loop, 15 rounds of 2 s."
                .to_owned(),
        ],
        systems: systems(),
        measures: measures(),
        latencies: vec![LatencySet {
            title: "Latency at 20,000 requests/s".to_owned(),
            explanation: "From the planned start of a request to the last byte of its response.".to_owned(),
            distributions: SYSTEMS
                .iter()
                .map(|&(name, factor)| NamedDistribution {
                    name: name.to_owned(),
                    distribution: latency(factor * 400.0, 60_000, name.len() as u64),
                })
                .collect(),
        }],
        timelines: vec![reload()],
        curves: vec![against_load()],
        tables: vec![ranking()],
        ..Section::default()
    }
}

fn systems() -> Vec<System> {
    let mut blitz = System::run("blitz", "http/1.1", "blitz 0.1.0 (io_uring)");
    blitz.configuration = vec![Configuration {
        name: "command".to_owned(),
        text: Some("blitz --listen :8080 --to http://127.0.0.1:9000 --cores 1".to_owned()),
        link: None,
    }];
    let mut nginx = System::run("nginx", "http/1.1", "nginx/1.22.1");
    nginx.configuration = vec![Configuration {
        name: "nginx.conf".to_owned(),
        text: Some("worker_processes 1;\nevents { worker_connections 4096; }\n".to_owned()),
        link: Some("https://nginx.org/en/docs/".to_owned()),
    }];
    vec![
        blitz,
        System::run("blitz-epoll", "http/1.1", "blitz 0.1.0 (epoll)"),
        nginx,
        System::run("haproxy", "http/1.1", "HAProxy 2.6.12"),
        System::run("caddy", "http/1.1", "v2.10.2 <script>alert(1)</script>"),
        System::not_run("envoy", "http/1.1", "not installed"),
        System::void("h2o", "http/1.1", "2.2.5", "3 wrong responses"),
    ]
}

fn measures() -> Vec<Measure> {
    let of =
        |name: &str, unit: &str, better, explanation: &str, base: f64, exponent: f64| Measure {
            name: name.to_owned(),
            unit: unit.to_owned(),
            better,
            explanation: explanation.to_owned(),
            results: SYSTEMS
                .iter()
                .map(|&(name, factor)| {
                    result(
                        name,
                        base * factor.powf(exponent),
                        factor.powf(exponent),
                        SYSTEMS[2].1.powf(exponent),
                        better,
                    )
                })
                .collect(),
        };
    vec![
        of(
            "CPU time per request",
            "µs",
            Direction::Lower,
            "User and system time of the gateway, divided by its responses.",
            10.2,
            1.0,
        ),
        of(
            "Throughput",
            "requests/s",
            Direction::Higher,
            "",
            81_000.0,
            -0.03,
        ),
        of(
            "Latency, p99",
            "µs",
            Direction::Lower,
            "Median of the p99 of all rounds.",
            1_570.0,
            0.95,
        ),
        of(
            "Memory",
            "MiB",
            Direction::Lower,
            "Resident memory at the end of a round.",
            14.8,
            -0.9,
        ),
    ]
}

fn result(
    system: &str,
    median: f64,
    factor: f64,
    baseline: f64,
    better: Direction,
) -> MeasureResult {
    let noise = |round: u32| f64::from((round * 7 + system.len() as u32 * 3) % 11) / 11.0 - 0.5;
    let estimate = |median: f64| Estimate {
        median,
        low: median * 0.985,
        high: median * 1.02,
        n: ROUNDS,
    };
    let ratio = estimate(factor / baseline);
    let verdict = match (system, better) {
        ("nginx", _) => None,
        (_, Direction::Lower) if ratio.high < 1.0 => Some(Verdict::Better { ratio }),
        (_, Direction::Higher) if ratio.low > 1.0 => Some(Verdict::Better { ratio }),
        _ if ratio.low < 1.0 && ratio.high > 1.0 => Some(Verdict::Equal { ratio }),
        _ => Some(Verdict::Worse { ratio }),
    };
    let comparisons = verdict.map(|verdict| Comparison {
        baseline: "nginx".to_owned(),
        verdict,
    });
    MeasureResult {
        system: system.to_owned(),
        repetitions: (0..ROUNDS)
            .map(|round| median * (1.0 + noise(round) * 0.12))
            .collect(),
        estimate: Some(estimate(median)),
        comparisons: comparisons.into_iter().collect(),
    }
}

/// Samples around a median in microseconds, with a long tail.
fn latency(median_us: f64, samples: u32, seed: u64) -> Distribution {
    let mut recorder = Recorder::new();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for _ in 0..samples {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let uniform = ((state >> 33) as f64 + 1.0) / 2_147_483_649.0;
        let tail = 0.5 + 0.35 * -uniform.ln() + 0.02 * uniform.ln().powi(2);
        recorder.record(Duration::from_secs_f64(median_us * 1e-6 * tail));
    }
    recorder.distribution()
}

/// Three gateways reload their configuration under load.
fn reload() -> TimelineSet {
    let timeline = |name: &str, gap: usize, factor: f64| {
        let intervals: Vec<Interval> = (0..40_usize)
            .map(|index| {
                let is_gap = (20..20 + gap).contains(&index);
                let wave = (index as f64 * 1.3 + factor * 9.0).sin() * 150.0;
                let completed = if is_gap {
                    1_200
                } else {
                    (9_800.0 / factor.sqrt() + wave) as u64
                };
                let slow = if is_gap { 6.0 } else { 1.0 };
                Interval {
                    end_s: (index as f64 + 1.0) / 2.0,
                    length_s: 0.5,
                    completed,
                    errors: if is_gap && name == "caddy" { 12 } else { 0 },
                    content_bytes_received: completed * 1_024,
                    latency: latency(400.0 * factor * slow, 1_500, index as u64 + 3),
                }
            })
            .collect();
        Timeline::of_intervals(name, &intervals)
    };
    TimelineSet {
        title: "Reload under load".to_owned(),
        explanation:
            "The gateway reloads its configuration after 10 s while 100 connections send requests."
                .to_owned(),
        timelines: vec![
            timeline("blitz", 0, 1.0),
            timeline("nginx", 1, 1.26),
            timeline("caddy", 3, 2.4),
        ],
        marks: vec![Mark {
            at_s: 10.0,
            label: "reload".to_owned(),
        }],
    }
}

/// Latency against load, one panel for each percentile.
fn against_load() -> CurveSet {
    let curve = |name: &str, factor: f64, percentile: f64| {
        let capacity = 92_000.0 / factor;
        let points = [10, 20, 30, 40, 50, 60, 70, 80].map(|thousands| {
            let load = f64::from(thousands) * 1_000.0;
            let y = (load < capacity * 0.9)
                .then(|| 0.12 * factor * percentile / (1.0 - load / capacity));
            CurvePoint {
                x: load,
                y,
                interval: None,
            }
        });
        Curve {
            name: name.to_owned(),
            points: points.to_vec(),
        }
    };
    let panel = |title: &str, percentile: f64| Panel {
        title: title.to_owned(),
        curves: SYSTEMS
            .iter()
            .map(|&(name, factor)| curve(name, factor, percentile))
            .collect(),
    };
    let axis = |label: &str, unit: &str, scale| Axis {
        label: label.to_owned(),
        unit: unit.to_owned(),
        scale,
    };
    CurveSet {
        title: "Latency against load".to_owned(),
        explanation:
            "Open loop with Poisson arrivals. A curve ends where the gateway no longer keeps up."
                .to_owned(),
        x: axis("offered load", "requests/s", AxisScale::Linear),
        y: axis("latency", "ms", AxisScale::Logarithmic),
        reference: None,
        panels: vec![panel("p50", 1.0), panel("p99", 3.2), panel("p99.9", 5.5)],
    }
}

fn ranking() -> Table {
    let rows = [
        ("1", "blitz", "3"),
        ("2", "blitz-epoll", "2"),
        ("3", "nginx", "1"),
        ("4", "haproxy", "0"),
    ];
    Table {
        caption: "Ranking by the measures that each gateway wins".to_owned(),
        columns: vec![
            Column::number("rank"),
            Column::text("system"),
            Column::number("measures won"),
        ],
        rows: rows
            .map(|(rank, name, won)| [rank, name, won].map(str::to_owned).to_vec())
            .to_vec(),
    }
}

/// HTTP/2 and HTTP/3 on a network that loses packets.
fn lossy() -> Section {
    let curve = |name: &str, factor: f64| {
        let points = [0.0, 0.5, 1.0, 2.0, 5.0].map(|loss: f64| {
            let y = 1.12 / (1.0 + factor * loss / 5.0);
            let spread = 0.03 + loss * 0.008;
            let interval = Some((y * (1.0 - spread), y * (1.0 + spread)));
            CurvePoint {
                x: loss,
                y: Some(y),
                interval,
            }
        });
        Curve {
            name: name.to_owned(),
            points: points.to_vec(),
        }
    };
    Section {
        heading: "HTTP/3 against HTTP/2 with packet loss".to_owned(),
        explanation: vec![
            "A page of 40 objects over a link of 20 Mbit/s with a round trip of 40 ms.".to_owned(),
        ],
        systems: vec![
            System::run("blitz", "h2, h3", "blitz 0.1.0"),
            System::run("caddy", "h2, h3", "v2.10.2"),
            System::not_run("nginx", "h2, h3", "built without HTTP/3"),
        ],
        curves: vec![CurveSet {
            title: "Page load over HTTP/3 as a share of that over HTTP/2".to_owned(),
            explanation: "Values below 1 mean that HTTP/3 is faster.".to_owned(),
            x: Axis {
                label: "packet loss".to_owned(),
                unit: "%".to_owned(),
                scale: AxisScale::Linear,
            },
            y: Axis {
                label: "time over HTTP/3 / time over HTTP/2".to_owned(),
                unit: String::new(),
                scale: AxisScale::Logarithmic,
            },
            reference: Some(Reference {
                y: 1.0,
                label: "equal".to_owned(),
            }),
            panels: vec![Panel {
                title: String::new(),
                curves: vec![curve("blitz", 1.1), curve("caddy", 0.7)],
            }],
        }],
        ..Section::default()
    }
}
