//! Whether the systems of a comparison differ from the bases of their groups.

use serde::Serialize;

use crate::group::Group;
use crate::measure::Measurement;
use crate::stats::{Comparison, Difference, compare};

/// A system compared with a base of its group, in CPU time per request.
#[derive(Debug, Serialize)]
pub(crate) struct SystemDifference {
    pub(crate) system: &'static str,
    pub(crate) base: &'static str,
    #[serde(flatten)]
    pub(crate) comparison: Comparison,
}

/// Every measured system of the groups with each of its measured bases. Empty with too few rounds.
pub(crate) fn differences(groups: &[&'static Group], all: &[Measurement]) -> Vec<SystemDifference> {
    let rows = groups.iter().flat_map(|group| {
        let systems = all
            .iter()
            .filter(|measured| measured.system.group == *group);
        systems.flat_map(|system| group.bases.iter().map(move |base| (system, *base)))
    });
    rows.filter_map(|(system, base)| difference(all, system, base))
        .collect()
}

fn difference(
    all: &[Measurement],
    system: &Measurement,
    base: &'static str,
) -> Option<SystemDifference> {
    let pairs = system.pairs_with(all, base)?;
    Some(SystemDifference {
        system: system.name,
        base,
        comparison: compare(&pairs)?,
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

fn row(difference: &SystemDifference) -> Vec<String> {
    let Comparison {
        ratio,
        interval,
        dominance,
        pairs,
        ..
    } = difference.comparison;
    // The share of rounds with less, without ties.
    let less = (1.0 - dominance) / 2.0 * pairs as f64;
    vec![
        difference.system.to_owned(),
        difference.base.to_owned(),
        format!("{ratio:.2}"),
        format!("{:.2} to {:.2}", interval.low, interval.high),
        format!("{less:.0} of {pairs}"),
        match difference.comparison.difference {
            Difference::Smaller => "significantly less",
            Difference::Larger => "significantly more",
            Difference::NotSignificant => "not significant",
        }
        .to_owned(),
    ]
}
