//! Colour, dash and marker of each system, the same in all charts of a report. No colour is the only difference: lines
//! differ in their dashes and markers, too, and have their names at their ends.

use super::model::Report;
use super::svg::{Point, Svg};

/// Colours of the style sheet, named `s0` to `s7`; as many dashes, `d0` to `d7`.
const STYLES: usize = 8;

/// Shapes of markers, each 9 units wide: circle, square, triangle, diamond, triangle on its head, plus, cross, bar.
const MARKERS: [&str; STYLES] = [
    "M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0z",
    "M-4,-4h8v8h-8z",
    "M0,-5l5,9h-10z",
    "M0,-5.5l5.5,5.5l-5.5,5.5l-5.5,-5.5z",
    "M0,5l5,-9h-10z",
    "M-1.5,-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
    "M-4.5,-2.5l2,-2l2.5,2.5l2.5,-2.5l2,2l-2.5,2.5l2.5,2.5l-2,2l-2.5,-2.5l-2.5,2.5l-2,-2l2.5,-2.5z",
    "M-2,-5h4v10h-4z",
];

/// The styles of a report.
pub(crate) struct Styles(Vec<String>);

/// The style of one system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    color: usize,
    dash: usize,
    marker: usize,
}

impl Styles {
    /// Gives each name of the report a style, in the order of appearance.
    pub(crate) fn of(report: &Report) -> Styles {
        let mut styles = Styles(Vec::new());
        for section in &report.sections {
            styles.add(section.systems.iter().map(|system| &system.name));
        }
        for section in &report.sections {
            let distributions = section.latencies.iter().flat_map(|set| &set.distributions);
            styles.add(distributions.map(|named| &named.name));
            let timelines = section.timelines.iter().flat_map(|set| &set.timelines);
            styles.add(timelines.map(|timeline| &timeline.name));
            let panels = section.curves.iter().flat_map(|set| &set.panels);
            styles.add(
                panels
                    .flat_map(|panel| &panel.curves)
                    .map(|curve| &curve.name),
            );
        }
        styles
    }

    fn add<'a>(&mut self, names: impl Iterator<Item = &'a String>) {
        for name in names {
            if !self.0.contains(name) {
                self.0.push(name.clone());
            }
        }
    }

    /// The style of a name. Unknown names have the last one.
    pub(crate) fn style(&self, name: &str) -> Style {
        let found = self.0.iter().position(|other| other == name);
        let index = found.unwrap_or(STYLES - 1);
        // After each turn through the colours, dashes and markers move on, so that no pair comes again.
        let turn = index / STYLES;
        Style {
            color: index % STYLES,
            dash: (index + turn) % STYLES,
            marker: (index + turn * 3) % STYLES,
        }
    }
}

impl Style {
    /// Classes of the style sheet.
    pub(crate) fn classes(self) -> String {
        format!("s{} d{}", self.color, self.dash)
    }

    /// Draws the marker.
    pub(crate) fn draw_marker(self, svg: &mut Svg, at: Point) {
        svg.path("marker", at, MARKERS[self.marker]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::model::{Section, System};
    use super::*;

    #[test]
    fn names_keep_their_style_and_two_names_never_share_all_of_it() {
        let names: Vec<String> = (0..40).map(|index| format!("system {index}")).collect();
        let section = |names: &[String]| Section {
            systems: names
                .iter()
                .map(|name| System::run(name, "h2", "1"))
                .collect(),
            ..Section::default()
        };
        let mut report = Report::new("", "", "");
        report.sections = vec![section(&names[..2]), section(&names)];
        let styles = Styles::of(&report);
        let all: HashSet<String> = names
            .iter()
            .map(|name| format!("{:?}", styles.style(name)))
            .collect();
        assert_eq!(all.len(), names.len());
        assert_eq!(styles.style("system 1").classes(), "s1 d1");
    }
}
