//! The tables of a report, the same in each of its forms.

use super::model::{
    Column, ColumnKind, ConclusionKind, Curve, CurveSet, LatencySet, Measure, MeasureResult,
    NamedDistribution, Panel, Section, System, Table, Timeline, TimelinePoint, TimelineSet,
};
use super::wording;
use crate::number::{self, NONE, duration, significant};

/// A table whose cells are texts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grid {
    pub(crate) caption: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// A cell. Its column says how it is aligned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Value(String),
    /// How a figure compares.
    Verdict(String, ConclusionKind),
    /// Why the rest of the row has no values.
    Absent(String),
}

/// Percentiles of tables.
const PERCENTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

impl Grid {
    fn new(caption: &str, columns: Vec<Column>) -> Grid {
        Grid {
            caption: caption.to_owned(),
            columns,
            rows: Vec::new(),
        }
    }
}

impl Cell {
    /// The text without its meaning.
    pub(crate) fn text(&self) -> &str {
        match self {
            Cell::Value(text) | Cell::Verdict(text, _) | Cell::Absent(text) => text,
        }
    }

    fn value(text: impl Into<String>) -> Cell {
        Cell::Value(text.into())
    }
}

/// The results of a measure, best first, then the systems without one.
pub(crate) fn measure(section: &Section, measure: &Measure) -> Grid {
    let baselines = measure.baselines();
    let mut columns = vec![
        Column::text("system"),
        Column::number("median"),
        Column::number("95 % interval"),
    ];
    let name = wording::with_unit(&measure.name, &measure.unit);
    let mut caption = format!("{name}: best median first");
    let rounds = common_rounds(section, measure);
    match &rounds {
        Some(rounds) => caption += &format!(", {rounds} rounds"),
        None => columns.push(Column::number("rounds")),
    }
    let against = baselines
        .iter()
        .map(|name| Column::text(&format!("against {name}")));
    columns.extend(against);
    let mut grid = Grid::new(&caption, columns);
    let is_missing = |name: &str| wording::missing_value(section, measure, name);
    for result in section.ranked(measure) {
        grid.rows
            .push(result_row(result, &baselines, rounds.is_none()));
    }
    let listed = section.systems.iter().map(|system| &system.name);
    for name in listed {
        if let Some(reason) = is_missing(name) {
            grid.rows
                .push(vec![Cell::value(name), Cell::Absent(reason)]);
        }
    }
    grid
}

/// The number of rounds, if all results have the same.
fn common_rounds(section: &Section, measure: &Measure) -> Option<String> {
    let mut rounds = section.ranked(measure).into_iter().map(wording::rounds);
    let first = rounds.next()?;
    rounds.all(|other| other == first).then_some(first)
}

fn result_row(result: &MeasureResult, baselines: &[&str], has_rounds: bool) -> Vec<Cell> {
    let median = result.median().map_or_else(|| NONE.to_owned(), significant);
    let mut row = vec![
        Cell::value(&result.system),
        Cell::Value(median),
        Cell::Value(wording::interval(result)),
    ];
    if has_rounds {
        row.push(Cell::Value(wording::rounds(result)));
    }
    let verdicts = baselines
        .iter()
        .map(|baseline| match result.compared_with(baseline) {
            Some(verdict) => {
                Cell::Verdict(wording::verdict(verdict), wording::verdict_kind(verdict))
            }
            None => Cell::value(NONE),
        });
    row.extend(verdicts);
    row
}

/// The percentiles of each distribution, as far as its samples carry them.
pub(crate) fn latencies(set: &LatencySet) -> Grid {
    let percentiles = PERCENTILES.map(|quantile| format!("p{}", number::percentile(quantile)));
    let titles = ["samples", "mean"]
        .into_iter()
        .chain(percentiles.iter().map(String::as_str));
    let titles = titles.chain(["longest"]).map(Column::number);
    let columns = [Column::text("")].into_iter().chain(titles);
    let caption = format!("{}: percentiles", set.title);
    let mut grid = Grid::new(&caption, columns.collect());
    grid.rows = set.distributions.iter().map(distribution_row).collect();
    grid
}

fn distribution_row(named: &NamedDistribution) -> Vec<Cell> {
    let distribution = &named.distribution;
    if distribution.count == 0 {
        let reason = "no samples".to_owned();
        return vec![Cell::value(&named.name), Cell::Absent(reason)];
    }
    let text = |time: Option<std::time::Duration>| {
        let text = |time: std::time::Duration| duration(time.as_nanos() as f64);
        Cell::Value(time.map_or_else(|| NONE.to_owned(), text))
    };
    let mut row = vec![
        Cell::value(&named.name),
        Cell::Value(number::count(distribution.count)),
        text(distribution.mean()),
    ];
    row.extend(PERCENTILES.map(|quantile| text(distribution.percentile(quantile))));
    row.push(text(distribution.quantile(1.0)));
    row
}

/// Whether a percentile of the set is missing because of too few samples.
pub(crate) fn lacks_percentiles(set: &LatencySet) -> bool {
    let counted = set
        .distributions
        .iter()
        .filter(|named| named.distribution.count > 0);
    let is_missing = |named: &NamedDistribution| {
        PERCENTILES
            .iter()
            .any(|&quantile| !named.distribution.carries(quantile))
    };
    counted.into_iter().any(is_missing)
}

/// The extremes of each timeline.
pub(crate) fn timelines(set: &TimelineSet) -> Grid {
    let columns = vec![
        Column::text(""),
        Column::number("intervals"),
        Column::number("lowest requests/s"),
        Column::number("highest requests/s"),
        Column::number("highest p99"),
        Column::number("longest"),
        Column::number("errors"),
    ];
    let caption = format!("{}: extremes of the intervals", set.title);
    let mut grid = Grid::new(&caption, columns);
    grid.rows = set.timelines.iter().map(timeline_row).collect();
    grid
}

fn timeline_row(timeline: &Timeline) -> Vec<Cell> {
    let points = || timeline.points.iter();
    let rates = || points().filter_map(TimelinePoint::requests_per_second);
    let rate = |rate: Option<f64>| Cell::Value(rate.map_or_else(|| NONE.to_owned(), significant));
    let time = |time: Option<u64>| {
        Cell::Value(time.map_or_else(|| NONE.to_owned(), |time| duration(time as f64)))
    };
    vec![
        Cell::value(&timeline.name),
        Cell::Value(number::count(timeline.points.len() as u64)),
        rate(rates().min_by(f64::total_cmp)),
        rate(rates().max_by(f64::total_cmp)),
        time(points().filter_map(|point| point.p99_ns).max()),
        time(points().filter_map(|point| point.max_ns).max()),
        Cell::Value(number::count(points().map(|point| point.errors).sum())),
    ]
}

/// The points of each panel: a row for each value of the parameter, a column for each curve.
pub(crate) fn curves(set: &CurveSet) -> Vec<Grid> {
    set.panels
        .iter()
        .map(|panel| panel_grid(set, panel))
        .collect()
}

fn panel_grid(set: &CurveSet, panel: &Panel) -> Grid {
    let y = wording::with_unit(&set.y.label, &set.y.unit);
    let caption = match panel.title.as_str() {
        "" => format!("{}: {y}", set.title),
        title => format!("{}, {title}: {y}", set.title),
    };
    let x = Column::number(&wording::with_unit(&set.x.label, &set.x.unit));
    let names = panel.curves.iter().map(|curve| Column::number(&curve.name));
    let mut grid = Grid::new(&caption, [x].into_iter().chain(names).collect());
    let points = panel.curves.iter().flat_map(|curve| &curve.points);
    let mut parameters: Vec<f64> = points.map(|point| point.x).collect();
    parameters.sort_by(f64::total_cmp);
    parameters.dedup();
    for x in parameters {
        let values = panel.curves.iter().map(|curve| point_cell(curve, x));
        let first = Cell::Value(plain(x));
        grid.rows.push([first].into_iter().chain(values).collect());
    }
    grid
}

fn point_cell(curve: &Curve, x: f64) -> Cell {
    let point = curve.points.iter().find(|point| point.x == x);
    let Some((y, interval)) = point.and_then(|point| Some((point.y?, point.interval))) else {
        return Cell::value(NONE);
    };
    let median = significant(y);
    Cell::Value(match interval {
        Some((low, high)) => format!("{median} ({})", wording::range(low, high)),
        None => median,
    })
}

/// A parameter as it was chosen: without rounding, without superfluous zeros.
fn plain(value: f64) -> String {
    match value.fract() == 0.0 {
        true => number::fixed(value, 0),
        false => value.to_string(),
    }
}

/// The compared systems.
pub(crate) fn systems(systems: &[System]) -> Grid {
    let columns = ["system", "protocol", "version", "state"].map(Column::text);
    let mut grid = Grid::new("Systems", columns.to_vec());
    grid.rows = systems
        .iter()
        .map(|system| {
            let texts = [&system.name, &system.protocol, &system.version];
            let texts = texts.map(|text| Cell::value(if text.is_empty() { NONE } else { text }));
            let state = Cell::Value(wording::state(&system.state));
            texts.into_iter().chain([state]).collect()
        })
        .collect();
    grid
}

/// A table of the report. Rows may be longer or shorter than the titles.
pub(crate) fn table(table: &Table) -> Grid {
    let mut grid = Grid::new(&table.caption, table.columns.clone());
    let widest = table.rows.iter().map(Vec::len).max().unwrap_or(0);
    while grid.columns.len() < widest {
        grid.columns.push(Column::text(""));
    }
    let width = grid.columns.len();
    grid.rows = table
        .rows
        .iter()
        .map(|row| {
            let cells = row.iter().map(Cell::value);
            let missing = std::iter::repeat_with(|| Cell::value(NONE));
            cells.chain(missing).take(width).collect()
        })
        .collect();
    grid
}

/// Whether the column is aligned to the right.
pub(crate) fn is_number(column: &Column) -> bool {
    column.kind == ColumnKind::Number
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::model::{
        Axis, AxisScale, Comparison, CurvePoint, Direction, Estimate, Verdict,
    };
    use super::*;
    use crate::Recorder;

    fn texts(row: &[Cell]) -> Vec<&str> {
        row.iter().map(Cell::text).collect()
    }

    #[test]
    fn results_are_ranked_and_missing_ones_say_why() {
        let estimate = |median: f64| Estimate {
            median,
            low: median * 0.9,
            high: median * 1.1,
            n: 9,
        };
        let result = |system: &str, median: f64| MeasureResult {
            system: system.to_owned(),
            repetitions: vec![median; 9],
            estimate: Some(estimate(median)),
            comparisons: vec![Comparison {
                baseline: "nginx".to_owned(),
                verdict: Verdict::Better {
                    ratio: estimate(0.5),
                },
            }],
        };
        let mut nginx = result("nginx", 8.0);
        nginx.comparisons.clear();
        let cpu = Measure {
            name: "CPU time per request".to_owned(),
            unit: "µs".to_owned(),
            better: Direction::Lower,
            explanation: String::new(),
            results: vec![nginx, result("blitz", 4.0), result("envoy", 1.0)],
        };
        let section = Section {
            systems: vec![
                System::run("nginx", "h2", "1"),
                System::void("envoy", "h2", "1", "3 wrong responses"),
                System::run("caddy", "h2", "2"),
            ],
            ..Section::default()
        };
        let grid = measure(&section, &cpu);
        let rows: Vec<Vec<&str>> = grid.rows.iter().map(|row| texts(row)).collect();
        assert_eq!(
            rows,
            [
                vec!["blitz", "4.00", "3.60 to 4.40", "50 % less (45 to 55 %)"],
                vec!["nginx", "8.00", "7.20 to 8.80", "–"],
                vec!["envoy", "void: 3 wrong responses"],
                vec!["caddy", "not measured"],
            ]
        );
        assert_eq!(grid.columns.last().unwrap().title, "against nginx");
        assert_eq!(
            grid.caption,
            "CPU time per request, µs: best median first, 9 rounds"
        );
    }

    #[test]
    fn percentiles_without_samples_are_absent() {
        let mut recorder = Recorder::new();
        (0..100).for_each(|_| recorder.record(Duration::from_millis(2)));
        let named = |name: &str, distribution| NamedDistribution {
            name: name.to_owned(),
            distribution,
        };
        let set = LatencySet {
            distributions: vec![
                named("blitz", recorder.distribution()),
                named("idle", crate::Distribution::default()),
            ],
            ..LatencySet::default()
        };
        let grid = latencies(&set);
        assert_eq!(
            texts(&grid.rows[0]),
            [
                "blitz", "100", "2.00 ms", "2.00 ms", "2.00 ms", "–", "–", "–", "2.00 ms"
            ]
        );
        assert_eq!(texts(&grid.rows[1]), ["idle", "no samples"]);
        assert!(lacks_percentiles(&set));
    }

    #[test]
    fn curves_share_the_rows_of_their_parameters() {
        let axis = |label: &str, unit: &str| Axis {
            label: label.to_owned(),
            unit: unit.to_owned(),
            scale: AxisScale::Linear,
        };
        let point = |x, y, interval| CurvePoint { x, y, interval };
        let curve = |name: &str, points| Curve {
            name: name.to_owned(),
            points,
        };
        let set = CurveSet {
            title: "Loss".to_owned(),
            explanation: String::new(),
            x: axis("loss", "%"),
            y: axis("ratio", ""),
            reference: None,
            panels: vec![Panel {
                title: String::new(),
                curves: vec![
                    curve(
                        "h2",
                        vec![point(0.5, Some(1.0), None), point(2.0, None, None)],
                    ),
                    curve("h3", vec![point(2.0, Some(0.5), Some((0.4, 0.6)))]),
                ],
            }],
        };
        let grid = &curves(&set)[0];
        assert_eq!(grid.caption, "Loss: ratio");
        assert_eq!(texts(&grid.rows[0]), ["0.5", "1.00", "–"]);
        assert_eq!(texts(&grid.rows[1]), ["2", "–", "0.500 (0.400 to 0.600)"]);
    }

    #[test]
    fn rows_of_any_length_fit_their_table() {
        let ragged = Table {
            caption: "Ragged".to_owned(),
            columns: vec![Column::text("a")],
            rows: vec![vec!["1".to_owned(), "2".to_owned()], Vec::new()],
        };
        let grid = table(&ragged);
        assert_eq!(grid.columns.len(), 2);
        assert_eq!(texts(&grid.rows[1]), ["–", "–"]);
    }
}
