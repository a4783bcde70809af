//! The bars that must be met, and what makes a set of runs worth nothing.

use serde::Serialize;

use super::group::Plausible;
use super::machine::FOREIGN_SHARE_MAX;
use super::measure::Measured;
use super::scenario::Scenario;
use super::stats::Quartiles;

/// A bar counts from this many interleaved rounds on.
pub(crate) const ROUNDS_MIN: u32 = 15;

/// CPU per request of `system` is at most so many times that of `base` in the same round.
pub(crate) struct Bar {
    pub(crate) system: &'static str,
    pub(crate) base: &'static str,
    pub(crate) at_most: f64,
}

/// Enters per proxied request, as a multiple of the relay's.
const ENTERS_AT_MOST: f64 = 1.1;
/// Connecting, accepting and warming up cost a few entries beside those of the requests.
const ENTRIES_TOLERANCE: f64 = 0.02;

/// One bar held against what was measured.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) system: &'static str,
    /// What is compared, in words.
    pub(crate) what: String,
    pub(crate) at_most: f64,
    pub(crate) measured: f64,
    pub(crate) met: bool,
}

/// What a measurement says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every bar that it can hold against is met.
    Met,
    /// It counts, and a bar is missed.
    Missed,
    /// It proves nothing, neither good nor bad.
    Void,
}

impl Outcome {
    /// A void set says nothing, whatever its figures look like.
    pub(crate) fn of(void: &[String], verdicts: &[Verdict]) -> Outcome {
        if !void.is_empty() {
            Outcome::Void
        } else if verdicts.iter().all(|verdict| verdict.met) {
            Outcome::Met
        } else {
            Outcome::Missed
        }
    }

    /// Of a table whose rows each meet their bar, miss it, or have none.
    pub(crate) fn of_rows(rows: impl IntoIterator<Item = Option<bool>>) -> Outcome {
        if rows.into_iter().any(|met| met == Some(false)) {
            Outcome::Missed
        } else {
            Outcome::Met
        }
    }
}

/// How tables say it.
pub(crate) fn word(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "",
    }
}

/// Whether a bar cannot be held, or a set not be judged, without this row.
pub(crate) fn is_needed(scenario: &Scenario, name: &str) -> bool {
    let judges = scenario
        .groups
        .iter()
        .filter_map(|group| group.plausible.as_ref());
    let bars = scenario.bars.iter();
    bars.flat_map(|bar| [bar.system, bar.base])
        .chain(judges.flat_map(|plausible| [plausible.row, plausible.base]))
        .any(|needed| needed == name)
}

/// All bars whose two rows were both measured.
pub(crate) fn verdicts(scenario: &Scenario, all: &[Measured]) -> Vec<Verdict> {
    let cpu = scenario.bars.iter().filter_map(|bar| {
        let system = find(all, bar.system)?;
        let ratio = ratio_to(all, system, bar.base)?;
        let what = format!("CPU per request against {}", bar.base);
        Some(verdict(system.name, what, bar.at_most, ratio.median))
    });
    cpu.chain(entry_verdicts(all)).collect()
}

/// The proxy's use of the ring against the relay's: two receives and two sends per request.
fn entry_verdicts(all: &[Measured]) -> Vec<Verdict> {
    let (Some(proxy), Some(relay)) = (find(all, "blitz-proxy-uring"), find(all, "relay")) else {
        return Vec::new();
    };
    let against = |what: &str, at_most: f64, which: fn(&super::measure::Counters) -> u64| {
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

fn verdict(system: &'static str, what: String, at_most: f64, measured: f64) -> Verdict {
    Verdict {
        system,
        what,
        at_most,
        measured,
        met: measured <= at_most,
    }
}

/// Quartiles of the ratio to the base of the same round; nothing for the base itself.
pub(crate) fn ratio_to(all: &[Measured], system: &Measured, base: &str) -> Option<Quartiles> {
    let base = find(all, base).filter(|base| base.name != system.name)?;
    let pairs = system.runs.iter().filter_map(|run| {
        let other = base.runs.iter().find(|other| other.round == run.round)?;
        Some(run.cpu_us_per_request / other.cpu_us_per_request)
    });
    Quartiles::of(pairs)
}

fn find<'a>(all: &'a [Measured], name: &str) -> Option<&'a Measured> {
    all.iter().find(|measured| measured.name == name)
}

/// Why the set proves nothing; empty if it does.
pub(crate) fn void_reasons(
    scenario: &Scenario,
    all: &[Measured],
    rounds: u32,
    foreign_before: f64,
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
    let foreign = Quartiles::of(
        all.iter()
            .flat_map(|m| &m.runs)
            .map(|run| run.foreign_share),
    );
    if let Some(foreign) = foreign.filter(|foreign| foreign.median > FOREIGN_SHARE_MAX) {
        let percent = foreign.median * 100.0;
        reasons.push(format!(
            "other programs used {percent:.0} % of a core during the runs"
        ));
    }
    for plausible in scenario
        .groups
        .iter()
        .filter_map(|group| group.plausible.as_ref())
    {
        let Plausible { row, base, range } = plausible;
        let ratio = find(all, row).and_then(|row| ratio_to(all, row, base));
        if let Some(ratio) = ratio.filter(|ratio| !range.contains(&ratio.median)) {
            let (low, high, got) = (range.start(), range.end(), ratio.median);
            reasons.push(format!(
                "{row}/{base} is {got:.2}, outside {low:.2} to {high:.2}"
            ));
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::super::load::Summary;
    use super::super::measure::{Counters, Run};
    use super::super::scenario::{self, H1};
    use super::*;

    fn measured(name: &str, cpu: &[f64], enters: u64) -> Measured {
        let system = scenario::find(name).unwrap();
        let load = Summary {
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
            load,
        });
        Measured {
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
    fn ratios_are_of_the_same_round() {
        let all = [
            measured("limit", &[1.0, 10.0], 1),
            measured("nginx", &[2.0, 20.0], 1),
        ];
        assert_eq!(ratio_to(&all, &all[0], "nginx").unwrap().median, 0.5);
        assert_eq!(ratio_to(&all, &all[1], "limit").unwrap().upper, 2.0);
        assert!(ratio_to(&all, &all[0], "limit").is_none());
    }

    #[test]
    fn a_bar_is_met_at_it_and_missed_above() {
        let all = |cpu: f64| {
            [
                measured("limit", &[1.0], 1),
                measured("blitz-uring", &[cpu], 1),
            ]
        };
        assert!(verdicts(&H1, &all(1.15))[0].met);
        assert!(!verdicts(&H1, &all(1.16))[0].met);
    }

    #[test]
    fn the_proxy_may_enter_a_tenth_more_often_than_the_relay() {
        let all = |enters| {
            [
                measured("relay", &[1.0], 100),
                measured("blitz-proxy-uring", &[1.0], enters),
            ]
        };
        assert!(verdicts(&H1, &all(110)).iter().all(|verdict| verdict.met));
        assert!(verdicts(&H1, &all(112)).iter().any(|verdict| !verdict.met));
    }

    #[test]
    fn an_implausible_machine_or_too_few_rounds_void_the_set() {
        let limit = |cpu: f64| {
            [
                measured("limit", &[cpu; 15], 1),
                measured("nginx", &[1.0; 15], 1),
            ]
        };
        assert!(void_reasons(&H1, &limit(0.72), 15, 0.0).is_empty());
        assert_eq!(void_reasons(&H1, &limit(0.90), 15, 0.0).len(), 1);
        assert_eq!(void_reasons(&H1, &limit(0.72), 14, 0.0).len(), 1);
        assert_eq!(void_reasons(&H1, &limit(0.72), 15, 0.5).len(), 1);
    }

    #[test]
    fn a_void_set_is_neither_good_nor_bad() {
        let bar = |met| {
            verdict(
                "blitz-uring",
                String::new(),
                1.0,
                if met { 1.0 } else { 2.0 },
            )
        };
        let void = [String::from("14 rounds are fewer than 15")];
        assert_eq!(Outcome::of(&[], &[bar(true), bar(true)]), Outcome::Met);
        assert_eq!(Outcome::of(&[], &[bar(true), bar(false)]), Outcome::Missed);
        assert_eq!(Outcome::of(&void, &[bar(true)]), Outcome::Void);
        assert_eq!(Outcome::of(&void, &[bar(false)]), Outcome::Void);
        assert_eq!(Outcome::of_rows([Some(true), None]), Outcome::Met);
        assert_eq!(
            Outcome::of_rows([Some(true), Some(false), None]),
            Outcome::Missed
        );
    }

    #[test]
    fn bars_need_the_limit_and_nginx_but_not_haproxy() {
        assert!(
            ["limit", "relay", "nginx", "nginx-proxy", "blitz-epoll"]
                .map(|name| is_needed(&H1, name))
                == [true; 5]
        );
        assert!(!is_needed(&H1, "haproxy") && !is_needed(&H1, "haproxy-proxy"));
    }
}
