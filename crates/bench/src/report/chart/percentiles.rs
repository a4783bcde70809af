//! Latency against percentile, as HDR histograms are drawn: each nine has the same width. A line ends where fewer
//! than ten samples remain.

use super::super::axis::{Scale, Tick};
use super::super::model::{LatencySet, NamedDistribution};
use super::super::style::Styles;
use super::super::svg::{Point, Svg};
use super::{Area, Line};
use crate::distribution::Distribution;
use crate::number::{self, duration, duration_tick};

const WIDTH: f64 = 880.0;
const AREA: Area = Area {
    left: 70.0,
    right: 640.0,
    top: 34.0,
    bottom: 350.0,
    width: WIDTH,
};
const HEIGHT: f64 = 396.0;
/// Points of a line: one for each third unit of the drawing.
const POINTS: usize = 200;
/// Percentiles with a tick. Those of them that samples carry have a marker.
const TICKS: [f64; 8] = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999];

/// The scale of the latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LatencyScale {
    Linear,
    Logarithmic,
}

/// The chart of a set; `None` if no distribution carries a median.
pub(crate) fn draw(set: &LatencySet, styles: &Styles, scale: LatencyScale) -> Option<String> {
    let carried = set
        .distributions
        .iter()
        .filter(|named| named.distribution.carries(0.5));
    let carried: Vec<&NamedDistribution> = carried.collect();
    let nines_max = carried
        .iter()
        .map(|named| nines_carried(&named.distribution));
    let nines_max = nines_max.max_by(f64::total_cmp)?;
    let x = Scale::exact(0.0, nines_max, (AREA.left, AREA.right));
    let y = latency_scale(&carried, scale)?;

    let mut svg = Svg::new(WIDTH, HEIGHT);
    let mut y_ticks = y.ticks(5.0);
    for tick in &mut y_ticks {
        tick.label = duration_tick(tick.value);
    }
    AREA.draw_y_axis(&mut svg, &y, &y_ticks, "latency (lower is better)");
    let x_ticks = TICKS
        .iter()
        .filter(|&&quantile| nines(quantile) <= nines_max + 1e-9);
    let x_ticks: Vec<Tick> = x_ticks
        .map(|&quantile| Tick {
            value: nines(quantile),
            label: number::percentile(quantile),
        })
        .collect();
    AREA.draw_x_axis(&mut svg, &x, &x_ticks, "percentile");
    let lines: Vec<Line<'_>> = carried
        .iter()
        .map(|named| line(named, styles, &x, &y))
        .collect();
    AREA.draw_lines(&mut svg, &lines);
    let descriptions: Vec<&str> = lines.iter().map(|line| line.tooltip.as_str()).collect();
    Some(svg.finish(&format!("{}. {}", set.title, descriptions.join("; "))))
}

fn line<'a>(named: &'a NamedDistribution, styles: &Styles, x: &Scale, y: &Scale) -> Line<'a> {
    let distribution = &named.distribution;
    let last = nines_carried(distribution);
    let at = |nines: f64| -> Option<Point> {
        let latency = distribution.quantile(1.0 - 10f64.powf(-nines))?;
        Some((x.place(nines), y.place(latency.as_nanos() as f64)))
    };
    let places = (0..=POINTS).map(|index| last * index as f64 / POINTS as f64);
    let marked = TICKS
        .iter()
        .skip(1)
        .filter(|&&quantile| distribution.carries(quantile));
    Line {
        name: &named.name,
        tooltip: description(named),
        style: styles.style(&named.name),
        parts: vec![places.filter_map(at).collect()],
        markers: marked.filter_map(|&quantile| at(nines(quantile))).collect(),
        intervals: Vec::new(),
    }
}

/// The latencies of a distribution at round percentiles.
fn description(named: &NamedDistribution) -> String {
    let percentiles = TICKS.iter().skip(1).filter_map(|&quantile| {
        let latency = named.distribution.percentile(quantile)?.as_nanos() as f64;
        Some(format!(
            "p{} {}",
            number::percentile(quantile),
            duration(latency)
        ))
    });
    let percentiles: Vec<String> = percentiles.collect();
    format!("{}: {}", named.name, percentiles.join(", "))
}

fn latency_scale(carried: &[&NamedDistribution], scale: LatencyScale) -> Option<Scale> {
    let places = (AREA.bottom, AREA.top);
    let distributions = || carried.iter().map(|named| &named.distribution);
    let shortest = distributions()
        .map(|distribution| distribution.min_ns)
        .min()?;
    let longest = distributions().filter_map(|distribution| {
        let quantile = 1.0 - 10f64.powf(-nines_carried(distribution));
        distribution.quantile(quantile)
    });
    let longest = longest.max()?.as_nanos() as f64;
    Some(match scale {
        LatencyScale::Linear => Scale::linear(longest, 5.0, places),
        LatencyScale::Logarithmic => Scale::logarithmic(shortest.max(1) as f64, longest, places),
    })
}

/// The position of a percentile: 1 for 0.9, 2 for 0.99.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

/// The position of the last percentile that the samples carry: ten of them lie beyond it.
fn nines_carried(distribution: &Distribution) -> f64 {
    (distribution.count as f64 / 10.0).max(1.0).log10()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::model::Report;
    use super::*;
    use crate::Recorder;

    fn set(samples: u32) -> LatencySet {
        let mut recorder = Recorder::new();
        for step in 1..=samples {
            recorder.record(Duration::from_micros(1) * step);
        }
        let named = NamedDistribution {
            name: "blitz".to_owned(),
            distribution: recorder.distribution(),
        };
        LatencySet {
            title: "Latency".to_owned(),
            distributions: vec![named],
            ..LatencySet::default()
        }
    }

    fn drawing(samples: u32) -> Option<String> {
        let styles = Styles::of(&Report::new("", "", ""));
        draw(&set(samples), &styles, LatencyScale::Logarithmic)
    }

    #[test]
    fn the_axis_reaches_as_far_as_samples_carry() {
        let few = drawing(1_000).unwrap();
        assert!(few.contains(">99<") && !few.contains(">99.9<"));
        let many = drawing(10_000).unwrap();
        assert!(many.contains(">99.9<") && !many.contains(">99.99<"));
        assert!(many.contains("blitz: p50 5.00 ms, p90 9.00 ms, p99 9.90 ms, p99.9 9.99 ms"));
        assert_eq!(drawing(19), None);
    }
}
