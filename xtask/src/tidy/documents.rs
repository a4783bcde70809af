//! Links in documents have targets, and the functions and files that documents name exist.

use std::path::{Component, Path, PathBuf};

use super::Finding;
use super::document_sizes::is_of_map;
use super::source::Source;
use super::text::TextFile;

/// Checks each Markdown file against the tree and the sources.
pub(crate) fn check(texts: &[TextFile], sources: &[Source], findings: &mut Vec<Finding>) {
    let root = super::repository_root();
    for text in texts.iter().filter(|text| text.path.ends_with(".md")) {
        for (index, line) in text.content.lines().enumerate() {
            for target in link_targets(line) {
                if !target_exists(&root, texts, text, target) {
                    let message = format!("the target of the link '{target}' does not exist");
                    findings.push(Finding::new(&text.path, index + 1, message));
                }
            }
            for (file, function) in named_functions(line) {
                if let Err(message) = find_function(sources, file, function) {
                    findings.push(Finding::new(&text.path, index + 1, message));
                }
            }
            for path in named_paths(line).filter(|_| is_of_map(&text.path)) {
                if !path_exists(&root, texts, path) {
                    let message = format!("there is no '{path}'");
                    findings.push(Finding::new(&text.path, index + 1, message));
                }
            }
        }
    }
}

/// Targets of `[text](target)` that point into the repository.
fn link_targets(line: &str) -> Vec<&str> {
    let after_each_opening = line.split("](").skip(1);
    after_each_opening
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with('<'))
        .collect()
}

/// Whether the file exists and, in a Markdown file, the heading that the fragment names.
fn target_exists(root: &Path, texts: &[TextFile], document: &TextFile, target: &str) -> bool {
    let (file, fragment) = match target.split_once('#') {
        Some((file, fragment)) => (file, Some(fragment)),
        None => (target, None),
    };
    let path = match file {
        "" => PathBuf::from(&document.path),
        file => resolve(&document.path, file),
    };
    let linked = texts.iter().find(|text| Path::new(&text.path) == path);
    match (linked, fragment) {
        (Some(text), Some(fragment)) if text.path.ends_with(".md") => {
            anchors(&text.content).any(|anchor| anchor == fragment)
        }
        (Some(_), _) => true,
        (None, _) => root.join(path).exists(),
    }
}

/// The anchors of a Markdown file's headings, as GitHub forms them.
fn anchors(content: &str) -> impl Iterator<Item = String> {
    let headings = content.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// A link's target, read from the folder of the document that holds it.
fn resolve(document: &str, target: &str) -> PathBuf {
    let folder = Path::new(document).parent().unwrap_or(Path::new(""));
    let mut path = PathBuf::new();
    for component in folder.join(target).components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            other => path.push(other),
        }
    }
    path
}

/// Names in the form `` `file.rs::function` ``: the file's path may be cut at the front.
fn named_functions(line: &str) -> Vec<(&str, &str)> {
    let inside_ticks = line.split('`').skip(1).step_by(2);
    inside_ticks
        .filter_map(|code| code.split_once(".rs::"))
        .map(|(file, function)| (file, function.trim_end_matches("()")))
        .collect()
}

/// Endings of the paths of files that documents name.
const PATH_ENDINGS: [&str; 8] = [".rs", ".md", ".toml", ".txt", ".py", ".sh", ".json", "/"];

/// Parts of paths that stand for any name.
const PLACEHOLDERS: [&str; 2] = ["NAME", "foo"];

/// Names in the form `` `folder/file.rs` `` and `` `folder/` ``. Their front may be cut.
fn named_paths(line: &str) -> impl Iterator<Item = &str> {
    let inside_ticks = line.split('`').skip(1).step_by(2);
    inside_ticks.filter(|code| {
        let is_path = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let is_relative = code.contains('/') && !code.starts_with('/');
        is_relative
            && code.chars().all(is_path)
            && PATH_ENDINGS.iter().any(|ending| code.ends_with(ending))
            && !PLACEHOLDERS.iter().any(|part| code.contains(part))
    })
}

fn path_exists(root: &Path, texts: &[TextFile], path: &str) -> bool {
    let whole = format!("/{path}");
    let names = |text: &TextFile| {
        let of_text = format!("/{}", text.path);
        match path.ends_with('/') {
            true => of_text.contains(&whole),
            false => of_text.ends_with(&whole),
        }
    };
    root.join(path).exists() || texts.iter().any(names)
}

fn find_function(sources: &[Source], file: &str, function: &str) -> Result<(), String> {
    let whole = format!("/{file}.rs");
    let mut named = sources
        .iter()
        .filter(|s| format!("/{}", s.path).ends_with(&whole))
        .peekable();
    if named.peek().is_none() {
        return Err(format!("there is no file '{file}.rs'"));
    }
    // Of `Type::method`, the method is compared.
    let name = function.rsplit("::").next().unwrap_or(function);
    if named.any(|source| source.functions.iter().any(|found| found.name == name)) {
        return Ok(());
    }
    Err(format!("'{file}.rs' has no function '{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(line: &str) -> Vec<String> {
        let of = |path: &str, content: &str| TextFile {
            path: path.into(),
            content: content.into(),
        };
        let code = of(
            "crates/gateway/src/request.rs",
            "impl Gateway { fn handle(&self) {} }\n",
        );
        let sources = [Source::parse(&code).unwrap()];
        let mut findings = Vec::new();
        check(&[of("ARCHITECTURE.md", line)], &sources, &mut findings);
        findings
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn a_named_function_has_to_exist() {
        assert!(messages("see `request.rs::handle`").is_empty());
        assert!(messages("see `gateway/src/request.rs::Gateway::handle()`").is_empty());
        assert_eq!(
            messages("`request.rs::pick`"),
            ["'request.rs' has no function 'pick'"]
        );
        assert_eq!(messages("`est.rs::handle`"), ["there is no file 'est.rs'"]);
    }

    #[test]
    fn a_named_file_has_to_exist() {
        assert!(messages("`xtask/src/tidy.rs`, `xtask/src/` and `xtask/src/NAME.rs`").is_empty());
        assert!(messages("`/etc/blitz.toml`, `a/b`, `h1/*.rs`, `tidy.rs` and src/a.rs").is_empty());
        assert_eq!(messages("`src/absent.rs`"), ["there is no 'src/absent.rs'"]);
        assert_eq!(messages("`src/absent/`"), ["there is no 'src/absent/'"]);
    }

    #[test]
    fn the_target_of_a_link_has_to_exist() {
        assert!(messages("[x](xtask/Cargo.toml) and [y](https://example.com)").is_empty());
        assert!(messages("[x](crates/../xtask/Cargo.toml#section)").is_empty());
        assert_eq!(
            messages("[x](missing.md)"),
            ["the target of the link 'missing.md' does not exist"]
        );
    }

    #[test]
    fn a_fragment_names_a_heading() {
        let document = "## Table 12\n### HTTP/2 and `TLS`\n";
        assert!(messages(&format!("{document}[x](#table-12) [y](#http2-and-tls)")).is_empty());
        let message = "the target of the link 'ARCHITECTURE.md#table-13' does not exist";
        let link = format!("{document}[x](ARCHITECTURE.md#table-13)");
        assert_eq!(messages(&link), [message]);
    }
}
