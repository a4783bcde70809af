//! A report as one HTML file. It loads nothing, which its content security policy enforces, and it can be read without
//! its script, which only offers the raw data as a file.

mod data;
mod section;
mod table;

use std::fmt::Write;

use super::escape::Html;
use super::model::{Conclusion, ConclusionKind, FactGroup, Report, Step};
use super::style::Styles;
use super::wording;
use crate::number;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/script.js");
/// The SHA-256 digest of [`SCRIPT`]. No other script runs, even if an escape is forgotten.
const SCRIPT_DIGEST: &str = "/1XElxqVOe5QPgSPrSe2fc4QMdPwh2n+/uJMHp0fdos=";

/// The page.
pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    write_head(&mut out, report);
    out.push_str("<body>\n");
    write_header(&mut out, report);
    write_answers(&mut out, report);
    write_contents(&mut out, report);
    out.push_str("<main>\n");
    let styles = Styles::of(report);
    for (index, part) in report.sections.iter().enumerate() {
        section::write(&mut out, part, index, &styles);
    }
    write_paragraphs(&mut out, "method", "Method", &report.method);
    write_repeat(&mut out, &report.repeat);
    write_environment(&mut out, &report.environment);
    data::write(&mut out, report);
    out.push_str("</main>\n");
    let _ = write!(
        out,
        "<footer class=\"small\">Version {} of the format. This page loads nothing from the network.</footer>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n",
        report.version
    );
    out
}

fn write_head(out: &mut String, report: &Report) {
    let title = Html(&report.title);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'sha256-{SCRIPT_DIGEST}'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n"
    );
}

fn write_header(out: &mut String, report: &Report) {
    let (title, question) = (Html(&report.title), Html(&report.question));
    let when = wording::when(report);
    let (when, command) = (Html(&when), Html(&report.command));
    let _ = write!(
        out,
        "<header>\n<h1>{title}</h1>\n<p class=\"question\">{question}</p>\n\
         <p class=\"run\">{when} · <code>{command}</code></p>\n</header>\n"
    );
}

/// Problems first: they change how all else is read.
fn write_answers(out: &mut String, report: &Report) {
    if !report.problems.is_empty() {
        out.push_str("<section class=\"problems\">\n<h2>Problems</h2>\n<ul>\n");
        for problem in &report.problems {
            let affected = wording::affected(problem.affects);
            let _ = writeln!(
                out,
                "<li><strong>{affected}:</strong> {}</li>",
                Html(&problem.message)
            );
        }
        out.push_str("</ul>\n</section>\n");
    }
    if !report.conclusions.is_empty() {
        out.push_str("<section class=\"verdict\">\n<h2>Verdict</h2>\n");
        write_conclusions(out, &report.conclusions);
        out.push_str("</section>\n");
    }
}

fn write_contents(out: &mut String, report: &Report) {
    if report.sections.len() < 2 {
        return;
    }
    out.push_str("<nav aria-label=\"Contents\">\n<ul>\n");
    for (index, section) in report.sections.iter().enumerate() {
        let heading = Html(&section.heading);
        let _ = writeln!(out, "<li><a href=\"#section-{index}\">{heading}</a></li>");
    }
    for (id, heading) in [
        ("method", "Method"),
        ("repeat", "How to repeat it"),
        ("environment", "Environment"),
        ("data", "Raw data"),
    ] {
        let _ = writeln!(out, "<li><a href=\"#{id}\">{heading}</a></li>");
    }
    out.push_str("</ul>\n</nav>\n");
}

fn write_repeat(out: &mut String, steps: &[Step]) {
    out.push_str("<section>\n<h2 id=\"repeat\">How to repeat it</h2>\n<ol class=\"steps\">\n");
    for step in steps {
        let _ = write!(out, "<li>{}", Html(&step.text));
        if let Some(command) = &step.command {
            let _ = write!(out, "<pre><code>{}</code></pre>", Html(command));
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ol>\n</section>\n");
}

fn write_environment(out: &mut String, groups: &[FactGroup]) {
    out.push_str("<section>\n<h2 id=\"environment\">Environment</h2>\n");
    for group in groups {
        let _ = write!(out, "<h3>{}</h3>\n<dl>\n", Html(&group.name));
        for fact in &group.facts {
            let (name, value) = (Html(&fact.name), Html(&fact.value));
            let _ = writeln!(out, "<dt>{name}</dt><dd>{value}</dd>");
        }
        out.push_str("</dl>\n");
    }
    out.push_str("</section>\n");
}

/// A section of text.
fn write_paragraphs(out: &mut String, id: &str, heading: &str, paragraphs: &[String]) {
    let _ = write!(out, "<section>\n<h2 id=\"{id}\">{heading}</h2>\n");
    for paragraph in paragraphs {
        let _ = writeln!(out, "<p>{}</p>", Html(paragraph));
    }
    out.push_str("</section>\n");
}

fn write_conclusions(out: &mut String, conclusions: &[Conclusion]) {
    if conclusions.is_empty() {
        return;
    }
    out.push_str("<ul class=\"conclusions\">\n");
    for Conclusion { kind, text } in conclusions {
        let (badge, text) = (badge(*kind), Html(text));
        let _ = writeln!(out, "<li>{badge}<span>{text}</span></li>");
    }
    out.push_str("</ul>\n");
}

/// A word with a colour and a border of its own.
fn badge(kind: ConclusionKind) -> String {
    let class = match kind {
        ConclusionKind::Better => "better",
        ConclusionKind::Worse => "worse",
        ConclusionKind::Equal => "equal",
        ConclusionKind::Undecided => "undecided",
        ConclusionKind::NotRun => "not-run",
        ConclusionKind::Void => "void",
        ConclusionKind::Figure => return "<span></span>".to_owned(),
    };
    let word = wording::badge(kind);
    format!("<span class=\"badge {class}\">{word}</span>")
}

/// The name of the file with the raw data.
fn file_name(report: &Report) -> String {
    let day = number::moment(report.started_at);
    format!("report-{}.json", &day[..10])
}

#[cfg(test)]
mod tests {
    use base64::Engine;

    use super::super::model::{
        Configuration, LatencySet, NamedDistribution, Section, System, Table,
    };
    use super::*;
    use crate::load_result::{Affects, Problem};

    const MARKUP: &str = "</script><script>alert(\"1\")</script><img src='x' onerror=alert(1)>";

    /// A report whose texts are all markup.
    fn hostile() -> Report {
        let mut report = Report::new(MARKUP, MARKUP, MARKUP);
        report.conclusions = vec![Conclusion::new(ConclusionKind::Worse, MARKUP)];
        report.problems = vec![Problem {
            affects: Affects::Everything,
            message: MARKUP.to_owned(),
        }];
        report.method = vec![MARKUP.to_owned()];
        report.repeat = vec![Step::command(MARKUP, MARKUP)];
        report.environment = vec![FactGroup::new(MARKUP, [(MARKUP, MARKUP)])];
        let mut system = System::void(MARKUP, MARKUP, MARKUP, MARKUP);
        system.configuration = vec![Configuration {
            name: MARKUP.to_owned(),
            text: Some(MARKUP.to_owned()),
            link: Some("javascript:alert(1)".to_owned()),
        }];
        let mut recorder = crate::Recorder::new();
        (0..100).for_each(|_| recorder.record(std::time::Duration::from_millis(1)));
        report.sections = vec![Section {
            heading: MARKUP.to_owned(),
            explanation: vec![MARKUP.to_owned()],
            systems: vec![system],
            latencies: vec![LatencySet {
                title: MARKUP.to_owned(),
                explanation: MARKUP.to_owned(),
                distributions: vec![NamedDistribution {
                    name: MARKUP.to_owned(),
                    distribution: recorder.distribution(),
                }],
            }],
            tables: vec![Table {
                caption: MARKUP.to_owned(),
                columns: Vec::new(),
                rows: vec![vec![MARKUP.to_owned()]],
            }],
            ..Section::default()
        }];
        report
    }

    #[test]
    fn text_from_outside_is_never_markup() {
        let page = render(&hostile());
        assert_eq!(
            page.matches("<script").count(),
            2,
            "the data and the script"
        );
        assert!(!page.contains("<img") && !page.contains("href=\"javascript:"));
        assert!(page.contains("&lt;/script&gt;&lt;script&gt;alert(&quot;1&quot;)"));
    }

    #[test]
    fn the_page_loads_nothing() {
        let page = render(&hostile());
        for reference in ["http://", "https://", "src=\"", "url(", "@import", "<link"] {
            assert!(!page.contains(reference), "{reference}");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn the_policy_allows_the_script_and_no_other() {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, SCRIPT.as_bytes());
        let digest = base64::prelude::BASE64_STANDARD.encode(digest);
        assert_eq!(
            SCRIPT_DIGEST, digest,
            "SCRIPT_DIGEST belongs to another script"
        );
    }
}
