//! A section of a page: its conclusions, its charts, the tables behind them, and the systems.

use std::fmt::Write;

use super::super::chart::percentiles::LatencyScale;
use super::super::chart::{bars, curves, percentiles, timelines};
use super::super::escape::Html;
use super::super::grid;
use super::super::model::{
    Configuration, CurveSet, LatencySet, Measure, Section, System, TimelineSet,
};
use super::super::style::Styles;
use super::super::wording;
use super::table;

/// Links that a page may have. Others are shown as text.
const LINK_SCHEMES: [&str; 2] = ["https://", "http://"];

pub(super) fn write(out: &mut String, section: &Section, index: usize, styles: &Styles) {
    let heading = Html(&section.heading);
    let _ = write!(
        out,
        "<section>\n<h2 id=\"section-{index}\">{heading}</h2>\n"
    );
    for paragraph in &section.explanation {
        let _ = writeln!(out, "<p>{}</p>", Html(paragraph));
    }
    super::write_conclusions(out, &section.conclusions);
    for (place, measure) in section.measures.iter().enumerate() {
        write_measure(out, section, measure, styles, place == 0);
    }
    for (place, set) in section.latencies.iter().enumerate() {
        write_latencies(out, set, &format!("{index}-{place}"), styles);
    }
    for set in &section.timelines {
        write_timelines(out, set, styles);
    }
    for set in &section.curves {
        write_curves(out, set, styles);
    }
    for table in &section.tables {
        table::write(out, &grid::table(table));
    }
    write_systems(out, &section.systems);
    out.push_str("</section>\n");
}

/// The first measure of a section explains the parts of its chart.
fn write_measure(
    out: &mut String,
    section: &Section,
    measure: &Measure,
    styles: &Styles,
    is_first: bool,
) {
    out.push_str("<div class=\"measure\">\n<div class=\"head\">\n");
    write_heading(out, &measure.name, &measure.explanation);
    out.push_str("</div>\n");
    if let Some(chart) = bars::draw(section, measure, styles) {
        let caption = match is_first {
            true => "Bar: median. Line with ends: its 95 % interval. Dots: single rounds.",
            false => "",
        };
        write_figure(out, &[chart], caption);
    }
    table::write(out, &grid::measure(section, measure));
    out.push_str("</div>\n");
}

fn write_latencies(out: &mut String, set: &LatencySet, id: &str, styles: &Styles) {
    write_heading(out, &set.title, &set.explanation);
    let draw = |scale| percentiles::draw(set, styles, scale);
    let logarithmic = draw(LatencyScale::Logarithmic);
    if let (Some(logarithmic), Some(linear)) = (logarithmic, draw(LatencyScale::Linear)) {
        // Radio buttons switch without a script; print shows the checked one.
        let _ = write!(
            out,
            "<div class=\"scales\">\n\
             <input type=\"radio\" class=\"logarithmic\" name=\"scale-{id}\" id=\"log-{id}\" checked>\
             <label for=\"log-{id}\">logarithmic scale</label>\n\
             <input type=\"radio\" name=\"scale-{id}\" id=\"linear-{id}\">\
             <label for=\"linear-{id}\">linear scale</label>\n"
        );
        let caption = "A line ends where fewer than 10 samples remain beyond it.";
        out.push_str("<div class=\"logarithmic-chart\">\n");
        write_figure(out, &[logarithmic], caption);
        out.push_str("</div>\n<div class=\"linear-chart\">\n");
        write_figure(out, &[linear], caption);
        out.push_str("</div>\n</div>\n");
    }
    table::write(out, &grid::latencies(set));
    if grid::lacks_percentiles(set) {
        let _ = writeln!(out, "<p class=\"small\">{}</p>", wording::TOO_FEW_SAMPLES);
    }
}

fn write_timelines(out: &mut String, set: &TimelineSet, styles: &Styles) {
    write_heading(out, &set.title, &set.explanation);
    if let Some(chart) = timelines::draw(set, styles) {
        let caption = "A cross on the axis of the requests marks an interval with errors. A line has a gap where the \
                       samples of an interval do not carry its percentile.";
        write_figure(out, &[chart], caption);
    }
    table::write(out, &grid::timelines(set));
}

fn write_curves(out: &mut String, set: &CurveSet, styles: &Styles) {
    write_heading(out, &set.title, &set.explanation);
    let has_intervals = set.panels.iter().flat_map(|panel| &panel.curves);
    let mut points = has_intervals.flat_map(|curve| &curve.points);
    let caption = match points.any(|point| point.interval.is_some()) {
        true => "Vertical lines: 95 % intervals.",
        false => "",
    };
    write_figure(out, &curves::draw(set, styles), caption);
    out.push_str("<details>\n<summary>Values</summary>\n");
    for grid in grid::curves(set) {
        table::write(out, &grid);
    }
    out.push_str("</details>\n");
}

fn write_heading(out: &mut String, heading: &str, explanation: &str) {
    let _ = writeln!(out, "<h3>{}</h3>", Html(heading));
    if !explanation.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", Html(explanation));
    }
}

fn write_figure(out: &mut String, charts: &[String], caption: &str) {
    if charts.is_empty() {
        return;
    }
    out.push_str("<figure>\n");
    let class = if charts.len() > 1 { "panels" } else { "panel" };
    let _ = writeln!(out, "<div class=\"{class}\">");
    for chart in charts {
        let _ = writeln!(out, "<div class=\"scroll\" tabindex=\"0\">{chart}</div>");
    }
    out.push_str("</div>\n");
    if !caption.is_empty() {
        let _ = writeln!(out, "<figcaption>{caption}</figcaption>");
    }
    out.push_str("</figure>\n");
}

fn write_systems(out: &mut String, systems: &[System]) {
    if systems.is_empty() {
        return;
    }
    table::write(out, &grid::systems(systems));
    let configured: Vec<&System> = systems
        .iter()
        .filter(|system| !system.configuration.is_empty())
        .collect();
    if configured.is_empty() {
        return;
    }
    out.push_str("<details>\n<summary>Configuration of the systems</summary>\n");
    for system in configured {
        for configuration in &system.configuration {
            write_configuration(out, &system.name, configuration);
        }
    }
    out.push_str("</details>\n");
}

fn write_configuration(out: &mut String, system: &str, configuration: &Configuration) {
    let (system, name) = (Html(system), Html(&configuration.name));
    let _ = write!(out, "<p><strong>{system}: {name}</strong>");
    if let Some(link) = &configuration.link {
        let text = Html(link);
        let _ = match LINK_SCHEMES.iter().any(|scheme| link.starts_with(scheme)) {
            true => write!(out, " <a href=\"{text}\">{text}</a>"),
            false => write!(out, " <code>{text}</code>"),
        };
    }
    out.push_str("</p>\n");
    if let Some(text) = &configuration.text {
        let _ = writeln!(out, "<pre><code>{}</code></pre>", Html(text));
    }
}
