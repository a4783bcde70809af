//! No circle of files crosses a folder.
//!
//! Files of one folder may use each other in a circle: they are one part of the program. `foo.rs` is a
//! file of its own folder and of `foo/`. A circle of files in several folders joins these into one part,
//! of which nothing can be read, tested or replaced without the rest.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::Finding;
use super::exceptions::Exceptions;
use super::modules::{Modules, Reference};
use super::source::Source;

/// Which files a file uses, and the first line of each use.
type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, usize>>;

/// Finds the circles in each crate of the workspace.
pub(crate) fn check(sources: &[Source], exceptions: &mut Exceptions, findings: &mut Vec<Finding>) {
    let by_path: HashMap<&str, &Source> = sources.iter().map(|s| (s.path.as_str(), s)).collect();
    let roots = sources.iter().filter(|source| {
        source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs")
    });
    for root in roots {
        check_crate(
            &Modules::of_crate(root, &by_path).references(),
            exceptions,
            findings,
        );
    }
}

fn check_crate(
    references: &[Reference<'_>],
    exceptions: &mut Exceptions,
    findings: &mut Vec<Finding>,
) {
    let mut graph = Graph::new();
    for reference in references {
        let uses = graph.entry(reference.from).or_default();
        uses.entry(reference.to).or_insert(reference.line);
    }
    // A listed use counts as needed only while it is part of a circle.
    for files in crossing_components(&graph) {
        for from in &files {
            let uses = graph.get_mut(from).expect("a file of a circle uses others");
            uses.retain(|to, _| !files.contains(to) || !exceptions.allows("circle", from, to));
        }
    }
    for files in crossing_components(&graph) {
        findings.push(report(&graph, &files));
    }
}

/// The sets of files that all reach each other and do not lie in one folder.
fn crossing_components<'a>(graph: &Graph<'a>) -> Vec<BTreeSet<&'a str>> {
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut components = Vec::new();
    for file in graph.keys() {
        if done.contains(file) {
            continue;
        }
        let reached = reached_from(graph, file);
        let component: BTreeSet<&str> = reached
            .into_iter()
            .filter(|other| reached_from(graph, other).contains(file))
            .collect();
        done.extend(&component);
        if !is_in_one_folder(&component) && component.len() > 1 {
            components.push(component);
        }
    }
    components
}

fn reached_from<'a>(graph: &Graph<'a>, file: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut rest = vec![file];
    while let Some(file) = rest.pop() {
        for to in graph.get(file).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(*to) {
                rest.push(to);
            }
        }
    }
    reached
}

fn is_in_one_folder(files: &BTreeSet<&str>) -> bool {
    let Some(first) = files.first() else {
        return true;
    };
    folders_of(first)
        .iter()
        .any(|folder| files.iter().all(|file| folders_of(file).contains(folder)))
}

/// The folder around the file, and the folder beside it that has its name.
fn folders_of(file: &str) -> [&str; 2] {
    let around = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    [around, file.trim_end_matches(".rs")]
}

/// Shows the shortest circle of the component that crosses a folder.
fn report(graph: &Graph<'_>, files: &BTreeSet<&str>) -> Finding {
    let circles = files.iter().flat_map(|from| {
        let uses = graph[from].keys().filter(|to| files.contains(*to));
        uses.filter_map(|to| way(graph, to, from))
    });
    let crossing = circles.filter(|way| !is_in_one_folder(&way.iter().copied().collect()));
    let Some(mut circle) = crossing.min_by_key(Vec::len) else {
        // Several circles, each in one folder, that share a file.
        let list: Vec<&str> = files.iter().copied().collect();
        let message = format!("circles of files join folders: {}", list.join(", "));
        return Finding::new(list[0], 0, message);
    };
    circle.push(circle[0]);
    let first = circle[0];
    let steps: Vec<String> = circle
        .windows(2)
        .map(|pair| {
            format!(
                "{} (line {} of {})",
                pair[1], graph[pair[0]][pair[1]], pair[0]
            )
        })
        .collect();
    let message = format!(
        "a circle of files crosses a folder, one of {} files: {first} uses {}; move an item to the file \
         that it belongs to",
        files.len(),
        steps.join(", uses ")
    );
    Finding::new(first, graph[first][circle[1]], message)
}

/// The files of a shortest way, both ends included.
fn way<'a>(graph: &Graph<'a>, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut rest = VecDeque::from([from]);
    while let Some(file) = rest.pop_front() {
        if file == to {
            let mut way = vec![file];
            while *way.last()? != from {
                way.push(before[way.last()?]);
            }
            way.reverse();
            return Some(way);
        }
        for next in graph.get(file).into_iter().flat_map(BTreeMap::keys) {
            if *next != from && !before.contains_key(next) {
                before.insert(next, file);
                rest.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::text::TextFile;

    const ROOT: (&str, &str) = (
        "lib.rs",
        "mod inner;\nmod outer;\npub use inner::part::Part;\n",
    );

    /// The findings for the files of one crate, each with its path below `src/`.
    fn findings(files: &[(&str, &str)], exceptions: &str) -> Vec<String> {
        let parse = |(path, content): &(&str, &str)| {
            let (path, content) = (format!("crates/x/src/{path}"), (*content).to_owned());
            Source::parse(&TextFile { path, content }).unwrap()
        };
        let sources: Vec<Source> = files.iter().map(parse).collect();
        let mut exceptions = Exceptions::parse(exceptions).unwrap();
        let mut findings = Vec::new();
        check(&sources, &mut exceptions, &mut findings);
        exceptions.report_unused(&mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_circle_of_files_in_two_folders_is_found() {
        let outer = ("outer.rs", "use crate::inner::part::Part;\n");
        let part = ("inner/part.rs", "use crate::outer::f;\npub struct Part;\n");
        let found = findings(&[ROOT, ("inner.rs", "pub mod part;\n"), outer, part], "");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("crates/x/src/outer.rs:1: "),
            "{found:?}"
        );
        assert!(found[0].contains("one of 2 files"), "{found:?}");

        let calm = ("inner/part.rs", "pub struct Part;\n");
        assert!(findings(&[ROOT, ("inner.rs", "pub mod part;\n"), outer, calm], "").is_empty());
    }

    #[test]
    fn paths_in_code_and_in_macros_count_and_tests_do_not() {
        let outer = (
            "outer.rs",
            "fn f() { assert!(super::inner::part::is()); }\n",
        );
        let inner = ("inner.rs", "pub mod part;\n");
        let part = ("inner/part.rs", "pub fn is() { crate::outer::f() }\n");
        assert_eq!(findings(&[ROOT, inner, outer, part], "").len(), 1);
        let part = (
            "inner/part.rs",
            "pub fn is() {}\n#[cfg(test)]\nmod tests {\n    use crate::outer::f;\n}\n",
        );
        assert!(findings(&[ROOT, inner, outer, part], "").is_empty());
    }

    #[test]
    fn a_reexported_item_belongs_to_the_file_that_declares_it() {
        let outer = ("outer.rs", "use crate::Part;\n");
        let inner = (
            "inner.rs",
            "pub mod part;\nuse crate::outer::f;\npub use crate::outer::*;\n",
        );
        let part = ("inner/part.rs", "pub struct Part;\n");
        assert!(findings(&[ROOT, inner, outer, part], "").is_empty());
        let part = ("inner/part.rs", "use super::f;\npub struct Part;\n");
        let outer = ("outer.rs", "use crate::Part;\npub fn f() {}\n");
        assert_eq!(findings(&[ROOT, inner, outer, part], "").len(), 1);
    }

    #[test]
    fn a_circle_within_a_folder_is_allowed() {
        let outer = ("outer.rs", "use crate::inner::g;\n");
        let inner = ("inner.rs", "mod part;\nuse crate::outer::f;\n");
        assert!(findings(&[ROOT, inner, outer], "").is_empty());
        let inner = ("inner.rs", "mod part;\nuse part::Part;\n");
        let part = ("inner/part.rs", "use super::g;\npub struct Part;\n");
        assert!(findings(&[ROOT, ("outer.rs", ""), inner, part], "").is_empty());
    }

    #[test]
    fn an_exception_names_one_use_and_is_reported_when_the_circle_is_gone() {
        let exception = "circle crates/x/src/inner/part.rs crates/x/src/outer.rs a reason";
        let inner = ("inner.rs", "pub mod part;\n");
        let outer = ("outer.rs", "use crate::inner::part::Part;\n");
        let part = ("inner/part.rs", "use crate::outer::f;\npub struct Part;\n");
        assert!(findings(&[ROOT, inner, outer, part], exception).is_empty());
        let found = findings(&[ROOT, inner, ("outer.rs", ""), part], exception);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("is not needed"), "{found:?}");
    }
}
