//! Figures against a parameter: latency against load, a ratio against loss. All panels have the same axes.

use super::super::axis::Scale;
use super::super::model::{Axis, AxisScale, Curve, CurvePoint, CurveSet, Panel};
use super::super::style::Styles;
use super::super::svg::{Anchor, Point, Svg};
use super::super::wording;
use super::{Area, Line};
use crate::number::significant;

const WIDTH: f64 = 600.0;
const AREA: Area = Area {
    left: 58.0,
    right: 410.0,
    top: 34.0,
    bottom: 284.0,
    width: WIDTH,
};
const HEIGHT: f64 = 330.0;
/// Distance of intervals at the same parameter, so that both are visible.
const OFFSET: f64 = 3.0;

/// The charts of a set, one for each panel with points.
pub(crate) fn draw(set: &CurveSet, styles: &Styles) -> Vec<String> {
    let Some((x, y)) = scales(set) else {
        return Vec::new();
    };
    let panels = set
        .panels
        .iter()
        .filter(|panel| panel.curves.iter().any(has_points));
    panels
        .map(|panel| draw_panel(set, panel, styles, &x, &y))
        .collect()
}

fn draw_panel(set: &CurveSet, panel: &Panel, styles: &Styles, x: &Scale, y: &Scale) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT);
    let name = wording::with_unit(&set.y.label, &set.y.unit);
    let name = match panel.title.as_str() {
        "" => name,
        title => format!("{title}: {name}"),
    };
    AREA.draw_y_axis(&mut svg, y, &y.ticks(5.0), &name);
    let name = wording::with_unit(&set.x.label, &set.x.unit);
    AREA.draw_x_axis(&mut svg, x, &x.ticks(6.0), &name);
    if let Some(reference) = &set.reference {
        let height = y.place(reference.y);
        svg.line("reference", (AREA.left, height), (AREA.right, height));
        let at = (AREA.right - 6.0, height - 6.0);
        svg.text("note", at, Anchor::End, &reference.label);
    }
    let middle = (panel.curves.len() as f64 - 1.0) / 2.0;
    let lines = panel
        .curves
        .iter()
        .zip(0..)
        .map(|(curve, place): (_, u32)| {
            let offset = (f64::from(place) - middle) * OFFSET;
            line(set, curve, styles, (x, y), offset)
        });
    let lines: Vec<Line<'_>> = lines.collect();
    AREA.draw_lines(&mut svg, &lines);
    let descriptions: Vec<&str> = lines.iter().map(|line| line.tooltip.as_str()).collect();
    svg.finish(&format!(
        "{} {}. {}",
        set.title,
        panel.title,
        descriptions.join("; ")
    ))
}

fn line<'a>(
    set: &CurveSet,
    curve: &'a Curve,
    styles: &Styles,
    (x, y): (&Scale, &Scale),
    offset: f64,
) -> Line<'a> {
    let has_intervals = curve.points.iter().any(|point| point.interval.is_some());
    let offset = if has_intervals { offset } else { 0.0 };
    let at = |point: &CurvePoint| -> Option<Point> {
        let value = point.y.filter(|&value| is_shown(value, set.y.scale))?;
        Some((x.place(point.x) + offset, y.place(value)))
    };
    let mut parts = vec![Vec::new()];
    for point in &curve.points {
        match (at(point), parts.last_mut()) {
            (Some(point), Some(part)) => part.push(point),
            _ => parts.push(Vec::new()),
        }
    }
    let intervals = curve.points.iter().filter_map(|point| {
        let (low, high) = point.interval.filter(|_| at(point).is_some())?;
        Some((x.place(point.x) + offset, y.place(low), y.place(high)))
    });
    Line {
        name: &curve.name,
        tooltip: description(set, curve),
        style: styles.style(&curve.name),
        markers: parts.iter().flatten().copied().collect(),
        parts,
        intervals: intervals.collect(),
    }
}

/// The axes of all panels; `None` without points.
fn scales(set: &CurveSet) -> Option<(Scale, Scale)> {
    let curves = || set.panels.iter().flat_map(|panel| &panel.curves);
    let points = || {
        curves()
            .flat_map(|curve| &curve.points)
            .filter(|point| point.y.is_some())
    };
    let xs = points().map(|point| point.x);
    let ys = points().flat_map(|point| {
        let interval = point
            .interval
            .into_iter()
            .flat_map(|(low, high)| [low, high]);
        interval.chain(point.y)
    });
    let references = set.reference.iter().map(|reference| reference.y);
    let x = scale(&set.x, xs.collect(), (AREA.left + 12.0, AREA.right - 12.0))?;
    let y = scale(
        &set.y,
        ys.chain(references).collect(),
        (AREA.bottom, AREA.top),
    )?;
    Some((x, y))
}

fn scale(axis: &Axis, mut values: Vec<f64>, places: (f64, f64)) -> Option<Scale> {
    values.retain(|&value| is_shown(value, axis.scale));
    let min = values.iter().copied().min_by(f64::total_cmp)?;
    let max = values.iter().copied().max_by(f64::total_cmp)?;
    Some(match axis.scale {
        AxisScale::Linear => Scale::linear(max, 5.0, places),
        AxisScale::Logarithmic => Scale::logarithmic(min, max, places),
    })
}

fn has_points(curve: &Curve) -> bool {
    curve.points.iter().any(|point| point.y.is_some())
}

fn is_shown(value: f64, scale: AxisScale) -> bool {
    value.is_finite() && (scale == AxisScale::Linear || value > 0.0)
}

fn description(set: &CurveSet, curve: &Curve) -> String {
    let (x_unit, y_unit) = (&set.x.unit, &set.y.unit);
    let points = curve.points.iter().filter_map(|point| {
        let (x, y) = (significant(point.x), significant(point.y?));
        Some(format!("{y} {y_unit} at {x} {x_unit}"))
    });
    let points: Vec<String> = points.collect();
    format!("{}: {}", curve.name, points.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::super::model::{Reference, Report};
    use super::*;

    fn set(points: &[(f64, Option<f64>)]) -> CurveSet {
        let axis = |label: &str, unit: &str, scale| Axis {
            label: label.to_owned(),
            unit: unit.to_owned(),
            scale,
        };
        let points = points.iter().map(|&(x, y)| CurvePoint {
            x,
            y,
            interval: y.map(|y| (y * 0.9, y * 1.1)),
        });
        let curve = Curve {
            name: "h3".to_owned(),
            points: points.collect(),
        };
        CurveSet {
            title: "Loss".to_owned(),
            explanation: String::new(),
            x: axis("loss", "%", AxisScale::Linear),
            y: axis("ratio", "", AxisScale::Logarithmic),
            reference: Some(Reference {
                y: 1.0,
                label: "equal".to_owned(),
            }),
            panels: vec![Panel {
                title: String::new(),
                curves: vec![curve],
            }],
        }
    }

    #[test]
    fn a_point_without_a_value_breaks_the_curve() {
        let styles = Styles::of(&Report::new("", "", ""));
        let set = set(&[
            (0.0, Some(1.1)),
            (1.0, Some(0.9)),
            (2.0, None),
            (3.0, Some(0.5)),
        ]);
        let drawing = draw(&set, &styles).concat();
        assert_eq!(drawing.matches("class=\"line\" points").count(), 1);
        assert_eq!(drawing.matches("class=\"interval\"").count(), 9);
        assert!(drawing.contains("class=\"reference\"") && drawing.contains(">equal<"));
    }

    #[test]
    fn there_is_no_chart_without_values() {
        let styles = Styles::of(&Report::new("", "", ""));
        assert!(draw(&set(&[(0.0, None)]), &styles).is_empty());
        assert!(draw(&set(&[]), &styles).is_empty());
    }
}
