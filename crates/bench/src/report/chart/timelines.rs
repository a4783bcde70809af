//! Figures over the time of a run: requests per second above, the 99th percentile of the latency below.

use super::super::axis::Scale;
use super::super::model::{Timeline, TimelinePoint, TimelineSet};
use super::super::style::Styles;
use super::super::svg::{Anchor, Point, Svg, cut};
use super::{Area, Line};
use crate::number::{self, duration, duration_tick, significant};

const WIDTH: f64 = 880.0;
const RATES: Area = Area {
    left: 70.0,
    right: 640.0,
    top: 50.0,
    bottom: 210.0,
    width: WIDTH,
};
const LATENCIES: Area = Area {
    left: 70.0,
    right: 640.0,
    top: 280.0,
    bottom: 440.0,
    width: WIDTH,
};
const HEIGHT: f64 = 486.0;
/// Below this ratio of the highest to the lowest latency, the axis is linear.
const LINEAR_BELOW: f64 = 5.0;
/// Markers of one line.
const MARKERS: usize = 8;

/// The chart of a set; `None` without points.
pub(crate) fn draw(set: &TimelineSet, styles: &Styles) -> Option<String> {
    let points = || set.timelines.iter().flat_map(|timeline| &timeline.points);
    let end_s = points().map(|point| point.end_s).max_by(f64::total_cmp)?;
    let x = |area: Area| Scale::exact(0.0, end_s, (area.left, area.right));
    let mut svg = Svg::new(WIDTH, HEIGHT);

    let rate_max = points().filter_map(TimelinePoint::requests_per_second);
    let rate_max = rate_max.max_by(f64::total_cmp).unwrap_or(1.0);
    let rates = Scale::linear(rate_max, 4.0, (RATES.bottom, RATES.top));
    let name = "requests/s (higher is better)";
    RATES.draw_y_axis(&mut svg, &rates, &rates.ticks(4.0), name);
    RATES.draw_x_axis(&mut svg, &x(RATES), &x(RATES).ticks(8.0), "");
    let rate = |point: &TimelinePoint| point.requests_per_second();
    draw_panel(&mut svg, RATES, set, styles, (&x(RATES), &rates), rate);
    draw_errors(&mut svg, set, styles, &x(RATES));

    let p99 = |point: &TimelinePoint| point.p99_ns.map(|p99| p99 as f64);
    let low = points().filter_map(p99).min_by(f64::total_cmp);
    let high = points().filter_map(p99).max_by(f64::total_cmp);
    if let (Some(low), Some(high)) = (low, high) {
        let latencies = latency_scale(low, high);
        let mut ticks = latencies.ticks(4.0);
        for tick in &mut ticks {
            tick.label = duration_tick(tick.value);
        }
        let name = "p99 of the latency (lower is better)";
        LATENCIES.draw_y_axis(&mut svg, &latencies, &ticks, name);
        draw_panel(
            &mut svg,
            LATENCIES,
            set,
            styles,
            (&x(LATENCIES), &latencies),
            p99,
        );
    } else {
        let at = (LATENCIES.left, LATENCIES.top);
        let note = "p99 of the latency: fewer than 1,000 samples in each interval";
        svg.text("note", at, Anchor::Start, note);
    }
    let name = "seconds since the start";
    LATENCIES.draw_x_axis(&mut svg, &x(LATENCIES), &x(LATENCIES).ticks(8.0), name);
    draw_marks(&mut svg, set, &x(RATES));
    let descriptions: Vec<String> = set.timelines.iter().map(description).collect();
    Some(svg.finish(&format!("{}. {}", set.title, descriptions.join("; "))))
}

fn draw_panel(
    svg: &mut Svg,
    area: Area,
    set: &TimelineSet,
    styles: &Styles,
    (x, y): (&Scale, &Scale),
    value: impl Fn(&TimelinePoint) -> Option<f64>,
) {
    let lines = set
        .timelines
        .iter()
        .zip(0..)
        .map(|(timeline, place): (_, usize)| {
            let at = |point: &TimelinePoint| -> Option<Point> {
                let middle_s = point.end_s - point.length_s / 2.0;
                Some((x.place(middle_s), y.place(value(point)?)))
            };
            let parts = parts(timeline.points.iter().map(at));
            let points: Vec<Point> = parts.iter().flatten().copied().collect();
            let pitch = points.len().div_ceil(MARKERS).max(1);
            // Markers of different systems stand at different moments.
            let first = (place * 2) % pitch;
            Line {
                name: &timeline.name,
                tooltip: description(timeline),
                style: styles.style(&timeline.name),
                markers: points.iter().skip(first).step_by(pitch).copied().collect(),
                parts,
                intervals: Vec::new(),
            }
        });
    let lines: Vec<Line<'_>> = lines.collect();
    area.draw_lines(svg, &lines);
}

/// Small differences are not magnified: their axis begins at zero.
fn latency_scale(low: f64, high: f64) -> Scale {
    let places = (LATENCIES.bottom, LATENCIES.top);
    match high / low < LINEAR_BELOW {
        true => Scale::linear(high, 4.0, places),
        false => Scale::logarithmic(low, high, places),
    }
}

/// Splits points where one is missing.
fn parts(points: impl Iterator<Item = Option<Point>>) -> Vec<Vec<Point>> {
    let mut parts = vec![Vec::new()];
    for point in points {
        match (point, parts.last_mut()) {
            (Some(point), Some(part)) => part.push(point),
            (None, Some(part)) if !part.is_empty() => parts.push(Vec::new()),
            _ => {}
        }
    }
    parts
}

/// A cross below the requests for each interval with errors.
fn draw_errors(svg: &mut Svg, set: &TimelineSet, styles: &Styles, x: &Scale) {
    for timeline in &set.timelines {
        let classes = styles.style(&timeline.name).classes();
        for point in timeline.points.iter().filter(|point| point.errors > 0) {
            let at = (x.place(point.end_s - point.length_s / 2.0), RATES.bottom);
            let errors = number::count(point.errors);
            svg.open(
                &format!("error {classes}"),
                &format!("{}: {errors} errors", timeline.name),
            );
            svg.path("cross", at, "M-4,-4l8,8M-4,4l8,-8");
            svg.close();
        }
    }
}

/// A vertical line through both panels for each mark, with its label above.
fn draw_marks(svg: &mut Svg, set: &TimelineSet, x: &Scale) {
    for mark in &set.marks {
        let at = x.place(mark.at_s);
        svg.line("mark", (at, RATES.top - 8.0), (at, RATES.bottom));
        svg.line("mark", (at, LATENCIES.top), (at, LATENCIES.bottom));
        let is_right = at > f64::midpoint(RATES.left, RATES.right);
        let anchor = if is_right { Anchor::End } else { Anchor::Start };
        let label_at = if is_right { at + 4.0 } else { at - 4.0 };
        svg.text(
            "label",
            (label_at, RATES.top - 14.0),
            anchor,
            &cut(&mark.label, 48),
        );
    }
}

fn description(timeline: &Timeline) -> String {
    let points = || timeline.points.iter();
    let rates = points().filter_map(TimelinePoint::requests_per_second);
    let lowest = rates.min_by(f64::total_cmp).unwrap_or(0.0);
    let longest = points().filter_map(|point| point.max_ns).max();
    let errors: u64 = points().map(|point| point.errors).sum();
    let mut text = format!(
        "{}: at least {} requests/s",
        timeline.name,
        significant(lowest)
    );
    if let Some(longest) = longest {
        text += &format!(", longest latency {}", duration(longest as f64));
    }
    text + &format!(", {} errors", number::count(errors))
}

#[cfg(test)]
mod tests {
    use super::super::super::model::{Mark, Report};
    use super::*;

    fn point(end_s: f64, completed: u64, errors: u64, p99_ns: Option<u64>) -> TimelinePoint {
        TimelinePoint {
            end_s,
            length_s: 1.0,
            completed,
            errors,
            p99_ns,
            ..TimelinePoint::default()
        }
    }

    #[test]
    fn a_missing_percentile_breaks_the_line_and_errors_have_crosses() {
        let points = vec![
            point(1.0, 100, 0, Some(1_000)),
            point(2.0, 0, 7, None),
            point(3.0, 90, 0, Some(2_000)),
            point(4.0, 90, 0, Some(2_000)),
        ];
        let timeline = Timeline {
            name: "blitz".to_owned(),
            points,
        };
        let mark = Mark {
            at_s: 1.5,
            label: "<reload>".to_owned(),
        };
        let set = TimelineSet {
            timelines: vec![timeline],
            marks: vec![mark],
            ..TimelineSet::default()
        };
        let drawing = draw(&set, &Styles::of(&Report::new("", "", ""))).unwrap();
        assert!(drawing.contains("blitz: 7 errors") && drawing.contains("&lt;reload&gt;"));
        assert!(drawing.contains("blitz: at least 0 requests/s, 7 errors"));
        let split = parts([Some((0.0, 0.0)), None, None, Some((1.0, 1.0))].into_iter());
        assert_eq!(split, [[(0.0, 0.0)], [(1.0, 1.0)]]);
    }

    #[test]
    fn there_is_no_chart_without_points() {
        let styles = Styles::of(&Report::new("", "", ""));
        assert_eq!(draw(&TimelineSet::default(), &styles), None);
    }
}
