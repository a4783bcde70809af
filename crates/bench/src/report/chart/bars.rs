//! A bar for each system: the median, its interval, and a dot for each round.

use super::super::axis::{Scale, Tick};
use super::super::model::{Measure, MeasureResult, Section};
use super::super::style::Styles;
use super::super::svg::{Anchor, Point, Svg, cut};
use super::super::wording;
use crate::number::significant;

const WIDTH: f64 = 496.0;
const LEFT: f64 = 126.0;
const RIGHT: f64 = 350.0;
const TOP: f64 = 8.0;
const PITCH: f64 = 42.0;
const BAR_HEIGHT: f64 = 22.0;
/// Below the last bar: ticks and the unit.
const FOOT: f64 = 44.0;

/// The chart of a measure; `None` if no system has a value.
pub(crate) fn draw(section: &Section, measure: &Measure, styles: &Styles) -> Option<String> {
    let names = names(section, measure);
    let bottom = TOP + PITCH * names.len() as f64;
    let scale = Scale::linear(largest(section, measure)?, 4.0, (LEFT, RIGHT));
    let mut svg = Svg::new(WIDTH, bottom + FOOT);
    for Tick { value, label } in scale.ticks(4.0) {
        let x = scale.place(value);
        svg.line("grid", (x, TOP), (x, bottom));
        svg.text("tick", (x, bottom + 18.0), Anchor::Middle, &label);
    }
    let middle = f64::midpoint(LEFT, RIGHT);
    let unit = format!("{} ({})", measure.unit, wording::direction(measure.better));
    svg.text("axis-name", (middle, bottom + 37.0), Anchor::Middle, &unit);
    for (row, name) in names.iter().enumerate() {
        let y = TOP + PITCH * (row as f64 + 0.5);
        let label = cut(name, 18);
        svg.text("label", (0.0, y + 4.5), Anchor::Start, &label);
        let result = measure.result_of(name);
        match (wording::missing_value(section, measure, name), result) {
            (None, Some(result)) => {
                let classes = styles.style(name).classes();
                svg.open(&format!("series {classes}"), &tooltip(measure, result));
                draw_result(&mut svg, &scale, result, y);
                svg.close();
            }
            (reason, _) => {
                let reason = reason.unwrap_or_default();
                svg.open("missing", &reason);
                let text = cut(&reason, 60);
                svg.text("note", (LEFT + 8.0, y + 4.5), Anchor::Start, &text);
                svg.close();
            }
        }
    }
    svg.line("axis", (LEFT, TOP), (LEFT, bottom));
    Some(svg.finish(&description(section, measure)))
}

/// The systems of the section, or of the results if the section lists none.
fn names<'a>(section: &'a Section, measure: &'a Measure) -> Vec<&'a str> {
    let mut names: Vec<&str> = section.systems.iter().map(|s| s.name.as_str()).collect();
    for result in &measure.results {
        if !names.contains(&result.system.as_str()) {
            names.push(&result.system);
        }
    }
    names
}

/// The largest value that is drawn.
fn largest(section: &Section, measure: &Measure) -> Option<f64> {
    let values = section.ranked(measure).into_iter().flat_map(|result| {
        let high = result.estimate.map(|estimate| estimate.high);
        let repetitions = result.repetitions.iter().copied();
        repetitions.chain(result.median()).chain(high)
    });
    values
        .filter(|value| value.is_finite())
        .max_by(f64::total_cmp)
}

fn draw_result(svg: &mut Svg, scale: &Scale, result: &MeasureResult, y: f64) {
    let median = result.median().unwrap_or(0.0);
    let end = scale.place(median);
    let top: Point = (LEFT, y - BAR_HEIGHT / 2.0);
    svg.rect("bar", top, (end - LEFT, BAR_HEIGHT));
    for (round, &value) in result.repetitions.iter().enumerate() {
        // Dots of equal values stay visible beside each other.
        let offset = ((round * 3) % 5) as f64 * 3.2 - 6.4;
        svg.circle("dot", (scale.place(value), y + offset), 2.4);
    }
    svg.line("median", (end, top.1), (end, top.1 + BAR_HEIGHT));
    if let Some(estimate) = &result.estimate {
        let (low, high) = (scale.place(estimate.low), scale.place(estimate.high));
        svg.line("whisker", (low, y), (high, y));
        for x in [low, high] {
            svg.line("whisker", (x, y - 5.0), (x, y + 5.0));
        }
    }
    let x = RIGHT + 20.0;
    match &result.estimate {
        Some(_) => {
            svg.text("value", (x, y - 2.0), Anchor::Start, &significant(median));
            let interval = wording::interval(result);
            svg.text("tick", (x, y + 13.0), Anchor::Start, &interval);
        }
        None => svg.text("value", (x, y + 4.5), Anchor::Start, &significant(median)),
    }
}

fn tooltip(measure: &Measure, result: &MeasureResult) -> String {
    let (system, unit) = (&result.system, &measure.unit);
    let median = significant(result.median().unwrap_or(0.0));
    let (interval, rounds) = (wording::interval(result), wording::rounds(result));
    format!("{system}: {median} {unit}, 95 % interval {interval}, {rounds} rounds")
}

fn description(section: &Section, measure: &Measure) -> String {
    let (name, unit) = (&measure.name, &measure.unit);
    let values = section.ranked(measure).into_iter().map(|result| {
        let median = significant(result.median().unwrap_or(0.0));
        format!("{} {median} {unit}", result.system)
    });
    let values: Vec<String> = values.collect();
    format!("{name}, best first: {}", values.join("; "))
}

#[cfg(test)]
mod tests {
    use super::super::super::model::{Direction, Estimate, Report, System};
    use super::*;

    fn section() -> Section {
        Section {
            systems: vec![
                System::run("blitz", "h2", "1"),
                System::not_run("nginx <1>", "h2", "not installed"),
            ],
            ..Section::default()
        }
    }

    fn measure(results: Vec<MeasureResult>) -> Measure {
        Measure {
            name: "CPU time".to_owned(),
            unit: "µs".to_owned(),
            better: Direction::Lower,
            explanation: String::new(),
            results,
        }
    }

    fn draw_with(results: Vec<MeasureResult>) -> Option<String> {
        let mut report = Report::new("", "", "");
        report.sections.push(section());
        draw(&section(), &measure(results), &Styles::of(&report))
    }

    #[test]
    fn a_bar_has_its_interval_and_its_rounds_and_a_missing_one_its_reason() {
        let estimate = Estimate {
            median: 4.9,
            low: 4.8,
            high: 5.1,
            n: 3,
        };
        let drawing = draw_with(vec![MeasureResult {
            system: "blitz".to_owned(),
            repetitions: vec![4.8, 4.9, 5.1],
            estimate: Some(estimate),
            comparisons: Vec::new(),
        }]);
        let drawing = drawing.unwrap();
        assert_eq!(drawing.matches("class=\"dot\"").count(), 3);
        assert_eq!(drawing.matches("class=\"whisker\"").count(), 3);
        assert!(drawing.contains("4.80 to 5.10") && drawing.contains("µs (lower is better)"));
        assert!(drawing.contains("not run: not installed") && drawing.contains("nginx &lt;1&gt;"));
    }

    #[test]
    fn there_is_no_chart_without_values() {
        assert_eq!(draw_with(Vec::new()), None);
        assert_eq!(draw_with(vec![MeasureResult::default()]), None);
    }
}
