//! `blitz bench report`: a saved report for people.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::goals::BenchOutcome;
use crate::load_result::LoadResult;
use crate::output;
use crate::report::{Report, Terminal};
use crate::result_file::{self, UNKNOWN};

const EXAMPLES: &str = "\
Examples:
  blitz bench report results/2026-11-26-compare.json.gz
      the report as text
  blitz bench report --html report.html results/2026-11-26-compare.json.gz
      one HTML file with charts, which needs no network
  blitz bench report --markdown - run.json
      a run that blitz load --json has saved, as Markdown";

/// Flags of `blitz bench report`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArguments {
    /// A saved report, or a run of blitz load: .json or .json.gz
    file: PathBuf,
    /// Write it as one HTML file; - is the standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write it as Markdown; - is the standard output
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Reads the report and writes its forms; without one, prints it.
pub(crate) fn run(arguments: &ReportArguments) -> Result<BenchOutcome, String> {
    let report = match read(&arguments.file) {
        Ok(report) => report,
        Err(error) => {
            let file = arguments.file.display();
            output::message(&format!("blitz bench: {file}: {error}"));
            return Ok(BenchOutcome::Unusable);
        }
    };
    type Form = fn(&Report) -> String;
    let forms: [(_, Form); 2] = [
        (&arguments.html, Report::html),
        (&arguments.markdown, Report::markdown),
    ];
    let mut is_written = false;
    for (file, form) in forms {
        if let Some(file) = file {
            write(file, &form(&report))?;
            is_written = true;
        }
    }
    if !is_written {
        output::print(&report.text(&Terminal::of_stdout()))?;
    }
    Ok(BenchOutcome::Met)
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    match file == Path::new("-") {
        true => output::print(text),
        false => fs::write(file, text).map_err(|error| format!("{}: {error}", file.display())),
    }
}

fn read(file: &Path) -> Result<Report, String> {
    let json = result_file::parse(&result_file::read_text(file)?)?;
    let wrong = |error: serde_json::Error| format!("{UNKNOWN}: {error}");
    let has = |field| json.get(field).is_some();
    if has("sections") {
        let report: Report = serde_json::from_value(json).map_err(wrong)?;
        return Ok(report.settled());
    }
    if has("counts") {
        let result: LoadResult = serde_json::from_value(json).map_err(wrong)?;
        result.check()?;
        return Ok(Report::of_load(&result));
    }
    match has("measured") || has("rows") {
        true => Err("raw data, and no report: the file .md beside it has the tables".to_owned()),
        false => Err(UNKNOWN.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Conclusion, ConclusionKind};
    use crate::run_folder::TestFolder;

    fn results() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks/results")
    }

    #[test]
    fn a_saved_report_becomes_html_and_markdown_with_and_without_compression() {
        let folder = TestFolder::create();
        let mut report = Report::new("Title", "Question?", "blitz bench local");
        report.conclusions = vec![Conclusion::new(ConclusionKind::Equal, "They are.")];
        let plain = serde_json::to_string(&report).unwrap();
        let forms = [
            ("a.json", plain.into_bytes()),
            ("a.json.gz", result_file::compressed(&report).unwrap()),
        ];
        for (name, content) in forms {
            let file = folder.path().join(name);
            fs::write(&file, content).unwrap();
            let [html, markdown] = ["a.html", "a.md"].map(|name| folder.path().join(name));
            let arguments = ReportArguments {
                file,
                html: Some(html.clone()),
                markdown: Some(markdown.clone()),
            };
            assert_eq!(run(&arguments), Ok(BenchOutcome::Met));
            let text = |file: &Path| fs::read_to_string(file).unwrap();
            assert_eq!(text(&html), report.html());
            assert_eq!(text(&markdown), report.markdown());
            fs::remove_file(html).unwrap();
        }
    }

    #[test]
    fn every_committed_result_is_a_report_or_has_its_tables_beside_it() {
        let mut reports = 0;
        for entry in fs::read_dir(results()).unwrap() {
            let file = entry.unwrap().path();
            let name = result_file::name_of(&file);
            if !file.to_string_lossy().ends_with(result_file::ENDING) {
                continue;
            }
            match read(&file) {
                Ok(report) => {
                    assert!(report.html().contains("</html>"), "{name}");
                    reports += 1;
                }
                Err(error) => assert!(error.contains("raw data"), "{name}: {error}"),
            }
            assert!(results().join(format!("{name}.md")).exists(), "{name}");
        }
        assert!(reports >= 5, "{reports}");
    }

    #[test]
    fn other_files_are_unusable() {
        for file in ["/nowhere.json", "/etc/hostname", "/"] {
            let arguments = ReportArguments {
                file: file.into(),
                html: None,
                markdown: None,
            };
            assert_eq!(run(&arguments), Ok(BenchOutcome::Unusable), "{file}");
        }
    }
}
