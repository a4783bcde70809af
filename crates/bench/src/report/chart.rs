//! Charts: one file per kind, and the frame that they share.

pub(crate) mod bars;
pub(crate) mod curves;
pub(crate) mod percentiles;
pub(crate) mod timelines;

use super::axis::{Scale, Tick};
use super::style::Style;
use super::svg::{Anchor, Point, Svg, cut};

/// Distance of two labels, which is the height of a line of text.
const LABEL_PITCH: f64 = 18.0;
/// Width of a character of a label, with which wide fonts have room.
const CHARACTER_WIDTH: f64 = 7.6;

/// The inner area of a chart.
#[derive(Debug, Clone, Copy)]
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    /// The width of the drawing: labels lie to the right of the area.
    width: f64,
}

/// A line with the name of its system at its end.
struct Line<'a> {
    name: &'a str,
    /// The text of the tooltip.
    tooltip: String,
    style: Style,
    /// Unbroken parts. Parts of one point have only a marker.
    parts: Vec<Vec<Point>>,
    /// Points with a marker.
    markers: Vec<Point>,
    /// Intervals: a position, its low and its high end.
    intervals: Vec<(f64, f64, f64)>,
}

impl Area {
    /// Draws horizontal grid lines and the labels of the vertical axis, and its name above them.
    fn draw_y_axis(self, svg: &mut Svg, scale: &Scale, ticks: &[Tick], name: &str) {
        for Tick { value, label } in ticks {
            let y = scale.place(*value);
            svg.line("grid", (self.left, y), (self.right, y));
            svg.text("tick", (self.left - 8.0, y + 4.0), Anchor::End, label);
        }
        svg.text("axis-name", (0.0, self.top - 14.0), Anchor::Start, name);
    }

    /// Draws vertical grid lines and the labels of the horizontal axis, and its name below them.
    fn draw_x_axis(self, svg: &mut Svg, scale: &Scale, ticks: &[Tick], name: &str) {
        for Tick { value, label } in ticks {
            let x = scale.place(*value);
            svg.line("grid", (x, self.top), (x, self.bottom));
            svg.text("tick", (x, self.bottom + 18.0), Anchor::Middle, label);
        }
        svg.line("axis", (self.left, self.bottom), (self.right, self.bottom));
        let middle = f64::midpoint(self.left, self.right);
        svg.text(
            "axis-name",
            (middle, self.bottom + 38.0),
            Anchor::Middle,
            name,
        );
    }

    /// Draws lines, and to the right of the area their names, each at the height of the line's end.
    fn draw_lines(self, svg: &mut Svg, lines: &[Line<'_>]) {
        let ends: Vec<Option<Point>> = lines.iter().map(Line::end).collect();
        let wanted: Vec<f64> = ends.iter().flatten().map(|end| end.1).collect();
        let mut heights = spread(&wanted, LABEL_PITCH, (self.top, self.bottom)).into_iter();
        for (line, end) in lines.iter().zip(ends) {
            let Some(end) = end else { continue };
            let height = heights.next().unwrap_or(end.1);
            svg.open(&format!("series {}", line.style.classes()), &line.tooltip);
            line.draw(svg);
            self.draw_name(svg, line, end, height);
            svg.close();
        }
    }

    fn draw_name(self, svg: &mut Svg, line: &Line<'_>, end: Point, height: f64) {
        let (from, to) = (self.right + 14.0, self.right + 44.0);
        svg.polyline("leader", &[(end.0 + 3.0, end.1), (from - 2.0, height)]);
        svg.line("line", (from, height), (to, height));
        line.style
            .draw_marker(svg, (f64::midpoint(from, to), height));
        let characters = (self.width - to - 7.0) / CHARACTER_WIDTH;
        let name = cut(line.name, characters as usize);
        svg.text("label", (to + 7.0, height + 4.5), Anchor::Start, &name);
    }
}

impl Line<'_> {
    /// The last point.
    fn end(&self) -> Option<Point> {
        self.parts
            .iter()
            .rev()
            .find_map(|part| part.last().copied())
    }

    fn draw(&self, svg: &mut Svg) {
        for &(x, low, high) in &self.intervals {
            svg.line("interval", (x, low), (x, high));
            for y in [low, high] {
                svg.line("interval", (x - 4.0, y), (x + 4.0, y));
            }
        }
        for part in &self.parts {
            svg.polyline("line", part);
        }
        for &marker in &self.markers {
            self.style.draw_marker(svg, marker);
        }
    }
}

/// Moves labels apart until neighbours have the distance `pitch`, within the limits if there is room.
fn spread(wanted: &[f64], pitch: f64, limits: (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut places = wanted.to_vec();
    let mut least = limits.0;
    for &index in &order {
        places[index] = places[index].max(least);
        least = places[index] + pitch;
    }
    let mut most = limits.1;
    for &index in order.iter().rev() {
        places[index] = places[index].min(most);
        most = places[index] - pitch;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_their_order_and_their_distance() {
        let places = spread(&[50.0, 52.0, 51.0, 99.0], 10.0, (0.0, 100.0));
        assert_eq!(places, [50.0, 70.0, 60.0, 99.0]);
        assert_eq!(spread(&[98.0, 99.0], 10.0, (0.0, 100.0)), [90.0, 100.0]);
        assert_eq!(spread(&[], 10.0, (0.0, 100.0)), [0.0; 0]);
    }
}
