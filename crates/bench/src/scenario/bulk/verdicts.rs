//! Ratios, verdicts, and the reasons that make a set void.

use super::groups::{self, Goal, Quantity, Row};
use super::measure::{Measurement, Run};
use super::size::ContentSize;
use crate::goals::{GoalResult, common_void_reasons, median_verdict, no_verdict, without};
use crate::not_run::NotRun;
use crate::stats::{Median, Quartiles};

/// All goals whose two rows were both measured or not run, for the size that has goals.
pub(crate) fn verdicts(all: &[Measurement], not_run: &[NotRun]) -> Vec<GoalResult> {
    let ours = groups::rows().filter(|row| row.contender.is_blitz);
    ours.flat_map(|row| row.group.goals.iter().map(move |goal| (row, goal)))
        .filter_map(|(row, goal)| verdict_of(all, not_run, row, goal))
        .collect()
}

fn verdict_of(
    all: &[Measurement],
    not_run: &[NotRun],
    row: Row,
    goal: &Goal,
) -> Option<GoalResult> {
    let Goal {
        quantity,
        base,
        at_most,
    } = goal;
    let what = match quantity {
        Quantity::Cpu => format!("CPU per MiB against {base}"),
        Quantity::Memory => format!("peak MiB of memory above {base}"),
        Quantity::SmallLatency => format!("p99 of small requests against {base}"),
    };
    let (group, size) = (row.group.group.name, ContentSize::GOAL);
    let what = format!("{group}, {size}, {what}");
    let measured = |program: &str| {
        let mut rows = all.iter();
        rows.find(|m| m.group == group && m.program == program && m.size == size)
    };
    let system = row.contender.name;
    let values = measured(system).and_then(|ours| values(all, ours, base, *quantity));
    if let Some(median) = values.and_then(Median::of) {
        return Some(median_verdict(system, what, *at_most, median));
    }
    let is_chosen = |program: &str| {
        let name = format!("{group} {program}");
        measured(program).is_some() || not_run.iter().any(|row| row.name == name)
    };
    (is_chosen(system) && is_chosen(base)).then(|| no_verdict(system, what, *at_most))
}

/// Quartiles of the comparison with the base in the same round; `None` for the base itself.
pub(crate) fn compared(
    all: &[Measurement],
    measured: &Measurement,
    base: &str,
    quantity: Quantity,
) -> Option<Quartiles> {
    Quartiles::of(values(all, measured, base, quantity)?)
}

/// The comparison with the base in each round.
fn values(
    all: &[Measurement],
    measured: &Measurement,
    base: &str,
    quantity: Quantity,
) -> Option<Vec<f64>> {
    let base = all.iter().find(|other| {
        other.program == base && other.group == measured.group && other.size == measured.size
    })?;
    if base.program == measured.program {
        return None;
    }
    let values = measured.runs.iter().filter_map(|run| {
        let other = base.runs.iter().find(|other| other.round == run.round)?;
        compare(run, other, quantity)
    });
    Some(values.collect())
}

fn compare(run: &Run, base: &Run, quantity: Quantity) -> Option<f64> {
    Some(match quantity {
        Quantity::Cpu => run.cpu_us_per_mib / base.cpu_us_per_mib,
        Quantity::Memory => run.peak_mib - base.peak_mib,
        Quantity::SmallLatency => run.small?.p99_us as f64 / base.small?.p99_us as f64,
    })
}

/// The reasons why the set is void; empty for a valid set.
pub(crate) fn void_reasons(
    all: &[Measurement],
    not_run: &[NotRun],
    rounds: u32,
    foreign_before: f64,
) -> Vec<String> {
    let runs = all.iter().flat_map(|measured| &measured.runs);
    let shares = runs.map(|run| run.foreign_share);
    let mut reasons = common_void_reasons(rounds, foreign_before, shares);
    let needed = groups::rows().filter(|row| {
        let goals = row.group.goals;
        let is_base = goals.iter().any(|goal| goal.base == row.contender.name);
        is_base || (row.contender.is_blitz && !goals.is_empty())
    });
    let missing = needed.map(|row| row.name());
    let missing = missing.filter(|name| not_run.iter().any(|row| row.name == *name));
    reasons.extend(missing.map(|name| without(&name)));
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Switches;
    use crate::scenario::bulk::groups::chosen;
    use crate::scenario::bulk::paced::SmallLatency;

    /// A run with this many µs per MiB, MiB of memory and µs of latency.
    fn measured(group: &str, program: &str, size: &str, values: &[f64]) -> Measurement {
        let row = chosen(&[group.to_owned(), program.to_owned()]).unwrap()[0];
        let runs = values.iter().zip(1..).map(|(&value, round)| Run {
            round,
            cpu_us_per_mib: value,
            mib_per_second: 1.0,
            peak_mib: value,
            foreign_share: 0.0,
            switches: Switches::default(),
            requests: 1,
            content_bytes: 1,
            small: Some(SmallLatency {
                requests: 1,
                p50_us: 1,
                p99_us: value as u64,
                max_us: value as u64,
            }),
        });
        Measurement {
            group: row.group.group.name,
            program: row.contender.name,
            row,
            size: size.parse().unwrap(),
            connections: 1,
            seconds: 1,
            runs: runs.collect(),
            operations: None,
            content_bytes: 1,
        }
    }

    #[test]
    fn both_peers_and_memory_have_a_verdict_in_the_same_round() {
        let all = [
            measured("h1-down", "blitz-uring", "1m", &[100.0, 10.0]),
            measured("h1-down", "nginx", "1m", &[200.0, 20.0]),
            measured("h1-down", "haproxy", "1m", &[100.0, 10.0]),
            measured("h1-up", "nginx", "1m", &[1.0, 1.0]),
        ];
        let verdicts = verdicts(&all, &[]);
        let measured: Vec<_> = verdicts.iter().map(|v| (v.measured, v.met)).collect();
        let expected = [(0.5, true), (1.0, false), (-55.0, true)];
        assert_eq!(
            measured,
            expected.map(|(value, met)| (Some(value), Some(met)))
        );
    }

    #[test]
    fn other_sizes_have_ratios_but_no_goals() {
        let all = [
            measured("h1-down", "blitz-uring", "10k", &[100.0]),
            measured("h1-down", "nginx", "10k", &[50.0]),
        ];
        assert!(verdicts(&all, &[]).is_empty());
        let ratio = compared(&all, &all[0], "nginx", Quantity::Cpu).unwrap();
        assert_eq!(ratio.median, 2.0);
        assert!(compared(&all, &all[1], "nginx", Quantity::Cpu).is_none());
    }

    #[test]
    fn small_requests_have_a_goal_of_their_own() {
        let all = [
            measured("beside", "blitz-uring", "1m", &[300.0]),
            measured("beside", "nginx", "1m", &[100.0]),
        ];
        let verdicts = verdicts(&all, &[]);
        assert_eq!(verdicts.len(), 1);
        assert_eq!(
            (verdicts[0].measured, verdicts[0].met),
            (Some(3.0), Some(false))
        );
    }

    #[test]
    fn a_peer_that_was_not_run_leaves_its_goals_without_a_verdict() {
        let all = [measured("h1-down", "blitz-uring", "1m", &[100.0])];
        let not_run = [NotRun {
            name: "h1-down nginx".to_owned(),
            reason: "nginx is not installed".to_owned(),
        }];
        let verdicts = verdicts(&all, &not_run);
        assert_eq!(verdicts.len(), 2, "CPU and memory; HAProxy was not chosen");
        assert!(verdicts.iter().all(|verdict| verdict.met.is_none()));
        let void = void_reasons(&all, &not_run, 15, 0.0);
        assert_eq!(void, ["h1-down nginx was not run, and a goal needs it"]);
    }
}
