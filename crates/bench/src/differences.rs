//! Whether the systems of a comparison differ from the bases of their groups.

use serde::Serialize;

use crate::group::Group;
use crate::measure::Measurement;
use crate::stats::{Difference, Interval, compare};

/// A system compared with a base of its group, in CPU time per request.
#[derive(Debug, Serialize)]
pub(crate) struct SystemDifference {
    pub(crate) system: &'static str,
    pub(crate) base: &'static str,
    /// `void` in a void set.
    pub(crate) difference: &'static str,
    pub(crate) ratio: f64,
    pub(crate) interval: Interval,
    pub(crate) dominance: f64,
    pub(crate) pairs: usize,
}

/// Every measured system of the groups with each of its measured bases. Empty with too few rounds. A void set has reasons.
pub(crate) fn differences(
    groups: &[&'static Group],
    all: &[Measurement],
    void: &[String],
) -> Vec<SystemDifference> {
    let rows = groups.iter().flat_map(|group| {
        let systems = all
            .iter()
            .filter(|measured| measured.system.group == *group);
        systems.flat_map(|system| group.bases.iter().map(move |base| (system, *base)))
    });
    rows.filter_map(|(system, base)| difference(all, system, base, !void.is_empty()))
        .collect()
}

fn difference(
    all: &[Measurement],
    system: &Measurement,
    base: &'static str,
    is_void: bool,
) -> Option<SystemDifference> {
    let comparison = compare(&system.pairs_with(all, base)?)?;
    let label = match comparison.difference {
        _ if is_void => "void",
        Difference::Smaller => "significantly less",
        Difference::Larger => "significantly more",
        Difference::Equal => "equal",
        Difference::Undecided => "undecided",
    };
    Some(SystemDifference {
        system: system.name,
        base,
        difference: label,
        ratio: comparison.ratio,
        interval: comparison.interval,
        dominance: comparison.dominance,
        pairs: comparison.pairs,
    })
}

/// The title and the rows of a table, with the column titles first.
pub(crate) fn table(differences: &[SystemDifference]) -> (&'static str, Vec<Vec<String>>) {
    let columns = [
        "system",
        "against",
        "CPU",
        "interval",
        "rounds with less",
        "difference",
    ];
    let columns = columns.map(str::to_owned).to_vec();
    let rows = std::iter::once(columns)
        .chain(differences.iter().map(row))
        .collect();
    ("Differences, paired by round", rows)
}

fn row(row: &SystemDifference) -> Vec<String> {
    let &SystemDifference {
        system,
        base,
        difference,
        ratio,
        interval,
        dominance,
        pairs,
    } = row;
    // The share of rounds with less, without ties.
    let less = (1.0 - dominance) / 2.0 * pairs as f64;
    vec![
        system.to_owned(),
        base.to_owned(),
        format!("{ratio:.2}"),
        format!("{:.2} to {:.2}", interval.low, interval.high),
        format!("{less:.0} of {pairs}"),
        difference.to_owned(),
    ]
}
