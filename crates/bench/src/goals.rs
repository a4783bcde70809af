//! Goals, verdicts, and the reasons that make a set of runs void.

use blitz_http::Signal;
use serde::Serialize;

use crate::group::PlausibleRatio;
use crate::machine::FOREIGN_SHARE_MAX;
use crate::measure::{Counters, Measurement};
use crate::not_run::NotRun;
use crate::scenario::{MANY_CONNECTIONS, Scenario};
use crate::stats::{Interval, Median, Quartiles};

/// Least interleaved rounds of a valid set.
pub(crate) const ROUNDS_MIN: u32 = 15;

/// Enters per proxied request, as a multiple of the relay's.
const ENTERS_AT_MOST: f64 = 1.1;
/// Connecting, accepting and warming up add a few entries to those of the requests.
const ENTRIES_TOLERANCE: f64 = 0.02;

/// One goal compared with its measurement.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct GoalResult {
    pub(crate) system: &'static str,
    /// The compared quantity, in words.
    pub(crate) what: String,
    pub(crate) at_most: f64,
    /// `None` if one of the two rows was not run.
    pub(crate) measured: Option<f64>,
    /// The confidence interval of a median, 95 %.
    pub(crate) interval: Option<Interval>,
    /// `None` as well if the set is void.
    pub(crate) met: Option<bool>,
}

/// The outcome of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchOutcome {
    /// Every goal with measured rows is met.
    Met,
    /// The set is valid, and a goal is missed.
    Missed,
    /// The set proves nothing.
    Void,
    /// A file or program of the command line cannot be used. The reason is printed.
    Unusable,
    /// A signal has ended the run.
    Interrupted(Signal),
}

impl BenchOutcome {
    /// A void set has no verdict, whatever its figures are.
    pub(crate) fn of(void: &[String], verdicts: &[GoalResult]) -> BenchOutcome {
        if !void.is_empty() {
            BenchOutcome::Void
        } else if verdicts.iter().any(|verdict| verdict.met == Some(false)) {
            BenchOutcome::Missed
        } else {
            BenchOutcome::Met
        }
    }

    /// The outcome of a table whose rows each meet their goal, miss it, or have none.
    pub(crate) fn of_rows(rows: impl IntoIterator<Item = Option<bool>>) -> BenchOutcome {
        if rows.into_iter().any(|met| met == Some(false)) {
            BenchOutcome::Missed
        } else {
            BenchOutcome::Met
        }
    }
}

/// Whether a goal or the check of a set needs this row.
fn is_required(scenario: &Scenario, name: &str) -> bool {
    let plausible = scenario
        .groups
        .iter()
        .filter_map(|group| group.plausible.as_ref());
    let goals = scenario.goals.iter().chain(scenario.goals_of_many);
    goals
        .flat_map(|goal| [goal.system, goal.base])
        .chain(plausible.flat_map(|plausible| [plausible.row, plausible.base]))
        .any(|required| required == name)
}

/// All goals with so many connections whose two rows were both measured or not run.
pub(crate) fn verdicts(
    scenario: &Scenario,
    connections: u32,
    all: &[Measurement],
    not_run: &[NotRun],
) -> Vec<GoalResult> {
    let is_not_run = |name: &str| not_run.iter().any(|row| row.name == name);
    let cpu = scenario.goals(connections).iter().filter_map(|goal| {
        let what = format!("CPU per request against {}", goal.base);
        let system = find(all, goal.system);
        let pairs = system.and_then(|system| system.pairs_with(all, goal.base));
        let ratio = pairs.and_then(Median::of_ratios);
        let chosen = |name: &str| is_not_run(name) || find(all, name).is_some();
        match ratio {
            Some(ratio) => Some(median_verdict(goal.system, what, goal.at_most, ratio)),
            None if chosen(goal.system) && chosen(goal.base) => {
                Some(no_verdict(goal.system, what, goal.at_most))
            }
            None => None,
        }
    });
    // With many connections the proxy starts fewer requests per turn than the relay, on purpose.
    let entries = match connections < MANY_CONNECTIONS {
        true => entry_verdicts(all),
        false => Vec::new(),
    };
    cpu.chain(entries).collect()
}

/// The verdicts of a set as they are published: a void set has none.
pub(crate) fn settled(mut verdicts: Vec<GoalResult>, void: &[String]) -> Vec<GoalResult> {
    if !void.is_empty() {
        for verdict in &mut verdicts {
            verdict.met = None;
        }
    }
    verdicts
}

/// Compares the proxy's use of the ring with the relay's: two receives and two sends per request.
fn entry_verdicts(all: &[Measurement]) -> Vec<GoalResult> {
    let (Some(proxy), Some(relay)) = (find(all, "blitz-proxy-uring"), find(all, "relay")) else {
        return Vec::new();
    };
    let against = |what: &str, at_most: f64, which: fn(&Counters) -> u64| {
        let ratio = proxy.per_request(which)? / relay.per_request(which)?;
        Some(verdict(
            proxy.name,
            format!("{what} per request against relay"),
            at_most,
            ratio,
        ))
    };
    let entries = 1.0 + ENTRIES_TOLERANCE;
    let found = [
        against("SQEs", entries, |counters| counters.sqes),
        against("CQEs", entries, |counters| counters.cqes),
        against("enters", ENTERS_AT_MOST, |counters| counters.enters),
    ];
    found.into_iter().flatten().collect()
}

/// Compares a measured value with its goal.
fn verdict(system: &'static str, what: String, at_most: f64, measured: f64) -> GoalResult {
    GoalResult {
        system,
        what,
        at_most,
        measured: Some(measured),
        interval: None,
        met: Some(measured <= at_most),
    }
}

/// Compares a median with its goal.
pub(crate) fn median_verdict(
    system: &'static str,
    what: String,
    at_most: f64,
    median: Median,
) -> GoalResult {
    GoalResult {
        interval: median.interval_of_95(),
        ..verdict(system, what, at_most, median.value)
    }
}

/// A goal whose rows were not both run.
pub(crate) fn no_verdict(system: &'static str, what: String, at_most: f64) -> GoalResult {
    GoalResult {
        system,
        what,
        at_most,
        measured: None,
        interval: None,
        met: None,
    }
}

/// Quartiles of the ratio to the base of the same round; `None` for the base itself.
pub(crate) fn ratio_to(all: &[Measurement], system: &Measurement, base: &str) -> Option<Quartiles> {
    let pairs = system.pairs_with(all, base)?;
    Quartiles::of(pairs.iter().map(|(value, base)| value / base))
}

fn find<'a>(all: &'a [Measurement], name: &str) -> Option<&'a Measurement> {
    all.iter().find(|measured| measured.name == name)
}

/// The reasons why the set is void; empty for a valid set.
pub(crate) fn void_reasons(
    scenario: &Scenario,
    all: &[Measurement],
    not_run: &[NotRun],
    rounds: u32,
    foreign_before: f64,
) -> Vec<String> {
    let runs = all.iter().flat_map(|m| &m.runs);
    let foreign_shares = runs.map(|run| run.foreign_share);
    let mut reasons = common_void_reasons(rounds, foreign_before, foreign_shares);
    for plausible in scenario
        .groups
        .iter()
        .filter_map(|group| group.plausible.as_ref())
    {
        let PlausibleRatio { row, base, range } = plausible;
        let ratio = find(all, row).and_then(|row| ratio_to(all, row, base));
        if let Some(ratio) = ratio.filter(|ratio| !range.contains(&ratio.median)) {
            let (low, high, got) = (range.start(), range.end(), ratio.median);
            reasons.push(format!(
                "{row}/{base} is {got:.2}, outside {low:.2} to {high:.2}"
            ));
        }
    }
    let needed = not_run
        .iter()
        .filter(|row| is_required(scenario, &row.name));
    reasons.extend(needed.map(|row| without(&row.name)));
    reasons
}

/// The reason of a set without a row that a goal needs.
pub(crate) fn without(name: &str) -> String {
    format!("{name} was not run, and a goal needs it")
}

/// The reasons that do not depend on what is measured: too few rounds, and other programs.
pub(crate) fn common_void_reasons(
    rounds: u32,
    foreign_before: f64,
    foreign_shares: impl Iterator<Item = f64>,
) -> Vec<String> {
    let mut reasons = Vec::new();
    if rounds < ROUNDS_MIN {
        reasons.push(format!("{rounds} rounds are fewer than {ROUNDS_MIN}"));
    }
    if foreign_before > FOREIGN_SHARE_MAX {
        let percent = foreign_before * 100.0;
        reasons.push(format!(
            "other programs used {percent:.0} % of a core before the start"
        ));
    }
    let foreign = Quartiles::of(foreign_shares);
    if let Some(foreign) = foreign.filter(|foreign| foreign.median > FOREIGN_SHARE_MAX) {
        let percent = foreign.median * 100.0;
        reasons.push(format!(
            "other programs used {percent:.0} % of a core during the runs"
        ));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_tool::LoadSummary;
    use crate::measure::Run;
    use crate::process::Switches;
    use crate::scenario::{self, H1};

    fn measured(name: &str, cpu: &[f64], enters: u64) -> Measurement {
        let system = scenario::find(name).unwrap();
        let load = LoadSummary {
            requests: 1000,
            bytes: 1,
            duration_us: 1,
            p50_us: None,
            p99_us: None,
            max_us: None,
            errors: 0,
        };
        let runs = cpu.iter().zip(1..).map(|(&cpu, round)| Run {
            round,
            cpu_us_per_request: cpu,
            requests_per_second: 1.0,
            resident_bytes: 1,
            foreign_share: 0.0,
            switches: Switches::default(),
            load,
        });
        Measurement {
            name: system.name,
            system,
            runs: runs.collect(),
            counters: Some(Counters {
                enters,
                sqes: 2000,
                cqes: 4000,
            }),
            requests: 1000,
        }
    }

    #[test]
    fn ratios_use_the_same_round() {
        let all = [
            measured("limit", &[1.0, 10.0], 1),
            measured("nginx", &[2.0, 20.0], 1),
        ];
        assert_eq!(ratio_to(&all, &all[0], "nginx").unwrap().median, 0.5);
        assert_eq!(ratio_to(&all, &all[1], "limit").unwrap().upper, 2.0);
        assert!(ratio_to(&all, &all[0], "limit").is_none());
    }

    #[test]
    fn a_goal_is_met_at_its_value_and_missed_above() {
        let all = |cpu: f64| {
            [
                measured("limit", &[1.0], 1),
                measured("blitz-uring", &[cpu], 1),
            ]
        };
        assert!(verdicts(&H1, 100, &all(1.08), &[])[0].met == Some(true));
        assert!(verdicts(&H1, 100, &all(1.09), &[])[0].met == Some(false));
    }

    #[test]
    fn other_goals_apply_with_many_connections() {
        let all = [
            measured("relay", &[1.0], 100),
            measured("blitz-proxy-uring", &[1.29], 100),
        ];
        assert_eq!(verdicts(&H1, 100, &all, &[])[0].met, Some(false));
        let of_many = verdicts(&H1, 1_000, &all, &[]);
        assert!(of_many.len() == 1 && of_many[0].met == Some(true));
    }

    #[test]
    fn the_proxy_may_need_a_tenth_more_enters_than_the_relay() {
        let all = |enters| {
            [
                measured("relay", &[1.0], 100),
                measured("blitz-proxy-uring", &[1.0], enters),
            ]
        };
        assert!(
            verdicts(&H1, 100, &all(110), &[])
                .iter()
                .all(|verdict| verdict.met == Some(true))
        );
        assert!(
            verdicts(&H1, 100, &all(112), &[])
                .iter()
                .any(|verdict| verdict.met == Some(false))
        );
    }

    #[test]
    fn an_implausible_machine_or_too_few_rounds_void_the_set() {
        let limit = |cpu: f64| {
            [
                measured("limit", &[cpu; 15], 1),
                measured("nginx", &[1.0; 15], 1),
            ]
        };
        assert!(void_reasons(&H1, &limit(0.72), &[], 15, 0.0).is_empty());
        assert_eq!(void_reasons(&H1, &limit(0.90), &[], 15, 0.0).len(), 1);
        assert_eq!(void_reasons(&H1, &limit(0.72), &[], 14, 0.0).len(), 1);
        assert_eq!(void_reasons(&H1, &limit(0.72), &[], 15, 0.5).len(), 1);
    }

    #[test]
    fn a_void_set_has_no_verdict() {
        let goal = |met| {
            verdict(
                "blitz-uring",
                String::new(),
                1.0,
                if met { 1.0 } else { 2.0 },
            )
        };
        let void = [String::from("14 rounds are fewer than 15")];
        assert_eq!(
            BenchOutcome::of(&[], &[goal(true), goal(true)]),
            BenchOutcome::Met
        );
        assert_eq!(
            BenchOutcome::of(&[], &[goal(true), goal(false)]),
            BenchOutcome::Missed
        );
        assert_eq!(BenchOutcome::of(&void, &[goal(true)]), BenchOutcome::Void);
        assert_eq!(BenchOutcome::of(&void, &[goal(false)]), BenchOutcome::Void);
        assert_eq!(BenchOutcome::of_rows([Some(true), None]), BenchOutcome::Met);
        assert_eq!(
            BenchOutcome::of_rows([Some(true), Some(false), None]),
            BenchOutcome::Missed
        );
    }

    #[test]
    fn goals_need_the_limit_and_nginx_but_not_haproxy() {
        assert!(
            ["limit", "relay", "nginx", "nginx-proxy", "blitz-epoll"]
                .map(|name| is_required(&H1, name))
                == [true; 5]
        );
        assert!(!is_required(&H1, "haproxy") && !is_required(&H1, "haproxy-proxy"));
    }

    #[test]
    fn a_goal_without_its_base_has_no_verdict_and_voids_the_set() {
        let all = [measured("blitz-uring", &[1.0; 15], 1)];
        let not_run = [NotRun {
            name: "nginx".to_owned(),
            reason: "nginx is not installed".to_owned(),
        }];
        let verdicts = verdicts(&H1, 100, &all, &not_run);
        assert_eq!(verdicts.len(), 1, "the limit was not chosen");
        assert_eq!((verdicts[0].measured, verdicts[0].met), (None, None));
        let void = void_reasons(&H1, &all, &not_run, 15, 0.0);
        assert_eq!(void, ["nginx was not run, and a goal needs it"]);
        assert_eq!(BenchOutcome::of(&void, &verdicts), BenchOutcome::Void);
    }
}
