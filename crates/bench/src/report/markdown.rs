//! A report as Markdown: sentences and tables. Charts are in the HTML form only.

use std::fmt::Write;

use super::escape::{markdown as text, markdown_code as code};
use super::grid::{self, Cell, Grid, is_number};
use super::model::{Conclusion, ConclusionKind, FactGroup, Report, Section, Step, TimelineSet};
use super::wording;

/// The document.
pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    let (title, question) = (text(&report.title), text(&report.question));
    let _ = write!(out, "# {title}\n\n{question}\n\n");
    let (when, command) = (text(&wording::when(report)), code(&report.command));
    let _ = write!(out, "{when}: {command}\n\n");
    for problem in &report.problems {
        let affected = wording::affected(problem.affects);
        let _ = write!(out, "> **{affected}:** {}\n\n", text(&problem.message));
    }
    if !report.conclusions.is_empty() {
        out.push_str("## Verdict\n\n");
        write_conclusions(&mut out, &report.conclusions);
    }
    for section in &report.sections {
        write_section(&mut out, section);
    }
    if !report.method.is_empty() {
        out.push_str("## Method\n\n");
        write_paragraphs(&mut out, &report.method);
    }
    write_repeat(&mut out, &report.repeat);
    write_environment(&mut out, &report.environment);
    // One newline ends the document.
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn write_section(out: &mut String, section: &Section) {
    let _ = write!(out, "## {}\n\n", text(&section.heading));
    write_paragraphs(out, &section.explanation);
    write_conclusions(out, &section.conclusions);
    for measure in &section.measures {
        let direction = wording::direction(measure.better);
        write_heading(
            out,
            &format!(
                "{}: {direction}",
                wording::with_unit(&measure.name, &measure.unit)
            ),
            &measure.explanation,
        );
        write_grid(out, &grid::measure(section, measure));
    }
    for set in &section.latencies {
        write_heading(out, &set.title, &set.explanation);
        write_grid(out, &grid::latencies(set));
        if grid::lacks_percentiles(set) {
            let _ = write!(out, "{}\n\n", wording::TOO_FEW_SAMPLES);
        }
    }
    for set in &section.timelines {
        write_timelines(out, set);
    }
    for set in &section.curves {
        write_heading(out, &set.title, &set.explanation);
        for grid in grid::curves(set) {
            let _ = write!(out, "{}\n\n", text(&grid.caption));
            write_grid(out, &grid);
        }
    }
    for table in &section.tables {
        write_heading(out, &table.caption, "");
        write_grid(out, &grid::table(table));
    }
    if !section.systems.is_empty() {
        write_heading(out, "Systems", "");
        write_grid(out, &grid::systems(&section.systems));
    }
}

fn write_timelines(out: &mut String, set: &TimelineSet) {
    write_heading(out, &set.title, &set.explanation);
    write_grid(out, &grid::timelines(set));
    for mark in &set.marks {
        let second = crate::number::significant(mark.at_s);
        let _ = writeln!(out, "- {second} s: {}", text(&mark.label));
    }
    if !set.marks.is_empty() {
        out.push('\n');
    }
}

fn write_heading(out: &mut String, heading: &str, explanation: &str) {
    let _ = write!(out, "### {}\n\n", text(heading));
    if !explanation.is_empty() {
        let _ = write!(out, "{}\n\n", text(explanation));
    }
}

fn write_paragraphs(out: &mut String, paragraphs: &[String]) {
    for paragraph in paragraphs {
        let _ = write!(out, "{}\n\n", text(paragraph));
    }
}

fn write_conclusions(out: &mut String, conclusions: &[Conclusion]) {
    if conclusions.is_empty() {
        return;
    }
    for conclusion in conclusions {
        let words = text(&conclusion.text);
        let _ = match conclusion.kind {
            ConclusionKind::Figure => writeln!(out, "- {words}"),
            kind => writeln!(out, "- **{}**: {words}", wording::badge(kind)),
        };
    }
    out.push('\n');
}

fn write_repeat(out: &mut String, steps: &[Step]) {
    if steps.is_empty() {
        return;
    }
    out.push_str("## How to repeat it\n\n");
    for (step, number) in steps.iter().zip(1..) {
        let words = text(&step.text);
        let _ = match &step.command {
            Some(command) => writeln!(out, "{number}. {words} {}", code(command)),
            None => writeln!(out, "{number}. {words}"),
        };
    }
    out.push('\n');
}

fn write_environment(out: &mut String, groups: &[FactGroup]) {
    if groups.is_empty() {
        return;
    }
    out.push_str("## Environment\n\n");
    for group in groups {
        let _ = write!(out, "### {}\n\n", text(&group.name));
        for fact in &group.facts {
            let _ = writeln!(out, "- {}: {}", text(&fact.name), text(&fact.value));
        }
        out.push('\n');
    }
}

fn write_grid(out: &mut String, grid: &Grid) {
    let titles: Vec<String> = grid
        .columns
        .iter()
        .map(|column| text(&column.title))
        .collect();
    let _ = writeln!(out, "| {} |", titles.join(" | "));
    let rules = grid
        .columns
        .iter()
        .map(|column| if is_number(column) { "---:|" } else { "---|" });
    let _ = writeln!(out, "|{}", rules.collect::<String>());
    for row in &grid.rows {
        let mut cells: Vec<String> = row.iter().map(cell_text).collect();
        cells.resize(grid.columns.len(), String::new());
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
}

fn cell_text(cell: &Cell) -> String {
    match cell {
        Cell::Verdict(words, kind @ (ConclusionKind::Better | ConclusionKind::Worse)) => {
            format!("**{}**: {}", wording::badge(*kind), text(words))
        }
        other => text(other.text()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Column, System, Table};
    use super::*;

    #[test]
    fn tables_have_their_alignment_and_texts_are_escaped() {
        let mut report = Report::new("Title <b>", "Question?", "blitz load `x`");
        report.conclusions = vec![Conclusion::new(ConclusionKind::Undecided, "a | b")];
        report.sections = vec![Section {
            heading: "Load".to_owned(),
            systems: vec![System::not_run("nginx", "h3", "not installed")],
            tables: vec![Table {
                caption: "Counts".to_owned(),
                columns: vec![Column::text("status"), Column::number("responses")],
                rows: vec![vec!["a|b".to_owned(), "1,000".to_owned()]],
            }],
            ..Section::default()
        }];
        report.repeat = vec![Step::command("Run it:", "blitz load")];
        assert_eq!(
            render(&report),
            "# Title &lt;b&gt;\n\nQuestion?\n\n1970-01-01 00:00 UTC, 0 s: ``` blitz load `x` ```\n\n\
             ## Verdict\n\n- **undecided**: a \\| b\n\n## Load\n\n\
             ### Counts\n\n| status | responses |\n|---|---:|\n| a\\|b | 1,000 |\n\n\
             ### Systems\n\n| system | protocol | version | state |\n|---|---|---|---|\n\
             | nginx | h3 | – | not run: not installed |\n\n\
             ## How to repeat it\n\n1. Run it: `blitz load`\n"
                .replace("``` blitz load `x` ```", "`` blitz load `x` ``")
        );
    }
}
