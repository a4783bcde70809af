//! Style checks that a program can make.
//!
//! `cargo xtask tidy` and `cargo test --workspace` report the same findings. Each check is one file here;
//! `xtask/tidy-exceptions.txt` lists the exceptions with their reasons.

mod calls;
mod circles;
mod comments;
mod document_sizes;
mod documents;
mod edges;
mod exceptions;
mod imports;
mod limits;
mod module_layout;
mod modules;
mod mutants;
mod public_items;
pub(crate) mod reference;
mod results;
mod rule_citations;
mod safety;
mod sizes;
mod source;
mod stage_minutes;
mod text;
mod versions;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use exceptions::Exceptions;
use source::Source;

/// One violation: its position and the remedy.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path relative to the root of the repository.
    path: String,
    /// Line, from 1; 0 means the whole file.
    line: usize,
    /// The violation and the remedy.
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Runs `cargo xtask tidy`.
pub(crate) fn run() -> ExitCode {
    match check(&repository_root()) {
        Ok(findings) if findings.is_empty() => {
            println!("tidy: no findings");
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            for finding in &findings {
                println!("{finding}");
            }
            println!("tidy: {} findings", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Every finding in the repository at `root`, sorted by position.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let texts = text::read_all(root)?;
    let sources = texts
        .iter()
        .filter(|text| text.path.ends_with(".rs"))
        .map(Source::parse)
        .collect::<Result<Vec<_>, _>>()?;
    let mut exceptions = Exceptions::read(root)?;

    let mut findings = Vec::new();
    edges::check(root, &mut findings)?;
    results::check(root, &mut findings)?;
    for text in &texts {
        text::check(text, &mut findings);
    }
    for source in &sources {
        sizes::check(source, &mut exceptions, &mut findings);
        calls::check(source, &mut exceptions, &mut findings);
        safety::check(source, &mut findings);
        module_layout::check(source, &mut findings);
        imports::check(source, &mut exceptions, &mut findings);
        comments::check(source, &mut findings);
        versions::check(source, &mut exceptions, &mut findings);
    }
    circles::check(&sources, &mut exceptions, &mut findings);
    public_items::check(&sources, &mut exceptions, &mut findings);
    limits::check(&sources, &mut findings);
    documents::check(&texts, &sources, &mut findings);
    reference::check(&texts, &mut findings);
    document_sizes::check(&texts, &mut findings);
    rule_citations::check(&texts, &mut findings);
    mutants::check(&texts, &mut findings);
    stage_minutes::check(&texts, &mut findings);
    exceptions.report_unused(&mut findings);
    findings.sort();
    Ok(findings)
}

/// The folder that holds the workspace's Cargo.toml.
pub(crate) fn repository_root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let findings = check(&repository_root()).unwrap();
        let list: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(list.is_empty(), "tidy found:\n{}\n", list.join("\n"));
    }
}
