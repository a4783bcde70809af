//! One order of modules and imports: `mod`, then `use` in three groups, then `pub use`.
//!
//! The groups are those of rustfmt's `StdExternalCrate`: the standard library, other crates, this
//! crate. One blank line separates two groups. A group has no blank line, so that rustfmt sorts it.

use std::collections::HashSet;

use syn::spanned::Spanned;
use syn::{Item, UseTree, Visibility};

use super::Finding;
use super::exceptions::Exceptions;
use super::source::Source;

/// The group of an item in its module. The order of the variants is the order of the items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ItemGroup {
    Module,
    Std,
    OtherCrate,
    OwnCrate,
    ReExport,
    /// Everything else; only imports must not follow it.
    Rest,
}

impl ItemGroup {
    fn is_import(self) -> bool {
        matches!(
            self,
            ItemGroup::Std | ItemGroup::OtherCrate | ItemGroup::OwnCrate
        )
    }
}

/// Checks the order in the file and in each of its inline modules.
pub(crate) fn check(source: &Source, exceptions: &mut Exceptions, findings: &mut Vec<Finding>) {
    let mut found = Vec::new();
    check_module(source, &source.items, &mut found);
    if !found.is_empty() && !exceptions.allows("imports", &source.path, "all") {
        findings.append(&mut found);
    }
}

fn check_module(source: &Source, items: &[Item], findings: &mut Vec<Finding>) {
    let modules: HashSet<String> = items
        .iter()
        .filter_map(|item| match item {
            Item::Mod(module) => Some(module.ident.to_string()),
            _ => None,
        })
        .collect();
    let mut before: Option<(ItemGroup, usize)> = None;
    for item in items {
        if let Item::Mod(syn::ItemMod {
            content: Some((_, inner)),
            ..
        }) = item
        {
            check_module(source, inner, findings);
        }
        let Some(place) = group_of_item(item, &modules) else {
            continue;
        };
        let (start, end) = (item.span().start().line, item.span().end().line);
        if let Some((last, last_line)) = before
            && let Some(message) = complaint(source, (last, last_line), (place, start))
        {
            findings.push(Finding::new(&source.path, start, message));
        }
        before = Some((before.map_or(place, |(last, _)| last.max(place)), end));
    }
}

/// `None` for items that may stand anywhere: macros, which modules below them need, and tests.
fn group_of_item(item: &Item, modules: &HashSet<String>) -> Option<ItemGroup> {
    match item {
        Item::Macro(_) | Item::ExternCrate(_) => None,
        Item::Mod(module) if module.content.is_some() || is_test(&module.attrs) => None,
        Item::Mod(_) => Some(ItemGroup::Module),
        Item::Use(import) if !matches!(import.vis, Visibility::Inherited) => {
            Some(ItemGroup::ReExport)
        }
        Item::Use(import) if import.leading_colon.is_some() => Some(ItemGroup::OtherCrate),
        Item::Use(import) => Some(group_of(&import.tree, modules)),
        _ => Some(ItemGroup::Rest),
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes
        .iter()
        .any(|attribute| attribute.path().is_ident("cfg"))
}

fn group_of(tree: &UseTree, modules: &HashSet<String>) -> ItemGroup {
    let first = match tree {
        UseTree::Path(path) => &path.ident,
        UseTree::Name(name) => &name.ident,
        UseTree::Rename(rename) => &rename.ident,
        UseTree::Glob(_) | UseTree::Group(_) => return ItemGroup::OwnCrate,
    };
    let first = first.to_string();
    match first.as_str() {
        "std" | "core" | "alloc" => ItemGroup::Std,
        "crate" | "self" | "super" => ItemGroup::OwnCrate,
        name if modules.contains(name) => ItemGroup::OwnCrate,
        // A type of this module, for its variants.
        name if name.starts_with(|c: char| c.is_ascii_uppercase()) => ItemGroup::OwnCrate,
        _ => ItemGroup::OtherCrate,
    }
}

/// The message if an item is misplaced after the one that ends at `last_line`.
fn complaint(
    source: &Source,
    last: (ItemGroup, usize),
    next: (ItemGroup, usize),
) -> Option<String> {
    let ((last, last_line), (place, line)) = (last, next);
    if place < last && (place.is_import() || last.is_import()) {
        let message = "the order is `mod`, `use` of std, of other crates, of this crate, `pub use`";
        return Some(message.into());
    }
    if !place.is_import() || !last.is_import() {
        return None;
    }
    let between = source.lines[last_line..line - 1].iter();
    let blank = between.filter(|line| line.trim().is_empty()).count();
    match (place == last, blank) {
        (true, 0) | (false, 1) => None,
        (true, _) => Some("remove the blank line inside a group of imports".into()),
        (false, _) => Some("separate two groups of imports by one blank line".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::text::TextFile;

    const PATH: &str = "crates/x/src/a.rs";

    fn findings(content: &str, exceptions: &str) -> Vec<(usize, String)> {
        let text = TextFile {
            path: PATH.into(),
            content: content.into(),
        };
        let mut findings = Vec::new();
        let mut exceptions = Exceptions::parse(exceptions).unwrap();
        let source = Source::parse(&text).unwrap();
        check(&source, &mut exceptions, &mut findings);
        findings
            .into_iter()
            .map(|finding| (finding.line, finding.message))
            .collect()
    }

    fn lines(content: &str) -> Vec<usize> {
        let found = findings(content, "");
        found.into_iter().map(|(line, _)| line).collect()
    }

    const TIDY: &str = "mod inner;\n\nuse std::fmt;\nuse std::io;\n\nuse blitz_http::Name;\n\
                        use serde::Serialize;\n\nuse self::inner::A;\nuse super::B;\n\n\
                        pub use inner::C;\n\nfn f() {}\n";

    #[test]
    fn the_three_groups_stand_in_order() {
        assert!(lines(TIDY).is_empty());
        assert_eq!(lines("use crate::A;\n\nuse std::fmt;\n"), [3]);
        assert_eq!(lines("use serde::A;\n\nuse std::fmt;\n"), [3]);
        assert_eq!(lines("use std::fmt;\n\nmod inner;\n"), [3]);
        assert_eq!(lines("pub use crate::A;\nuse crate::B;\n"), [2]);
        assert_eq!(lines("fn f() {}\nuse std::fmt;\n"), [2]);
    }

    #[test]
    fn one_blank_line_separates_groups() {
        assert_eq!(lines("use std::fmt;\nuse serde::A;\n"), [2]);
        assert_eq!(lines("use std::fmt;\n\n\nuse serde::A;\n"), [4]);
        assert_eq!(lines("use std::fmt;\n\nuse std::io;\n"), [3]);
    }

    #[test]
    fn modules_of_the_file_belong_to_this_crate() {
        assert!(lines("mod inner;\n\nuse std::fmt;\n\nuse inner::A;\n").is_empty());
        assert_eq!(lines("mod inner;\n\nuse serde::B;\nuse inner::A;\n"), [4]);
    }

    #[test]
    fn inline_modules_have_the_same_order() {
        let tests =
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    use super::*;\n    use std::fmt;\n}\n";
        assert_eq!(lines(tests), [5]);
    }

    #[test]
    fn macros_and_test_modules_may_stand_anywhere() {
        assert!(lines("macro_rules! m { () => {} }\n\nmod a;\n\nuse std::fmt;\n").is_empty());
        assert!(lines("use std::fmt;\n\nfn f() {}\n\n#[cfg(test)]\nmod tests;\n").is_empty());
    }

    #[test]
    fn a_folder_can_be_excepted() {
        let exception = "imports crates/x/ all converted later";
        assert!(findings("fn f() {}\nuse std::fmt;\n", exception).is_empty());
        let other = "imports crates/y/ all converted later";
        assert_eq!(findings("fn f() {}\nuse std::fmt;\n", other).len(), 1);
    }
}
