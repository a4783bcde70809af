//! Every public item of a library is used by another crate.
//!
//! Used means that its name occurs in another crate, or in this one's tests, examples or benches. A type
//! may instead occur in a public signature. The framework, and the types that it re-exports, are for
//! programs outside of this repository. Items for macros are `#[doc(hidden)]`.

use std::collections::{HashMap, HashSet};

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{Fields, ImplItem, Item, TraitItem, UseTree, Visibility};

use super::Finding;
use super::exceptions::Exceptions;
use super::source::{Source, flatten, is_for_tests};

/// The crate of the framework.
const FRAMEWORK: &str = "crates/server";

/// Finds public items that no other crate names.
pub(crate) fn check(sources: &[Source], exceptions: &mut Exceptions, findings: &mut Vec<Finding>) {
    let mut libraries: HashMap<&str, Vec<&Source>> = HashMap::new();
    for root in sources.iter().filter(|s| s.path.ends_with("/src/lib.rs")) {
        libraries.insert(root.crate_folder(), Vec::new());
    }
    for source in sources {
        if let Some(files) = libraries.get_mut(source.crate_folder())
            && is_library(source)
        {
            files.push(source);
        }
    }
    let framework = libraries.get(FRAMEWORK).into_iter().flatten();
    let exported: HashSet<String> = framework
        .flat_map(|file| reexports_of(&file.items))
        .collect();
    for (folder, files) in libraries.iter().filter(|(folder, _)| **folder != FRAMEWORK) {
        let others = sources
            .iter()
            .filter(|s| s.crate_folder() != *folder || !is_library(s));
        let used: HashSet<&str> = others
            .flat_map(|source| &source.tokens)
            .map(|token| token.text.as_str())
            .collect();
        check_crate(files, &used, &exported, exceptions, findings);
    }
}

/// Whether the file belongs to the library of its crate.
fn is_library(source: &Source) -> bool {
    let inner = &source.path[source.crate_folder().len()..];
    inner.starts_with("/src/") && inner != "/src/main.rs"
}

fn check_crate(
    files: &[&Source],
    used: &HashSet<&str>,
    exported: &HashSet<String>,
    exceptions: &mut Exceptions,
    findings: &mut Vec<Finding>,
) {
    let mut surfaces = Vec::new();
    for source in files.iter().filter(|source| !source.is_auxiliary()) {
        let mut surface = Surface::default();
        surface.exported.clone_from(exported);
        surface.add_items(&source.items, source.path.ends_with("/src/lib.rs"));
        surfaces.push((*source, surface));
    }
    let in_signatures: HashSet<String> = surfaces
        .iter_mut()
        .flat_map(|(_, surface)| std::mem::take(&mut surface.signatures))
        .collect();
    for (source, surface) in &surfaces {
        for item in &surface.items {
            let is_used = used.contains(item.name.as_str())
                || (item.is_type && in_signatures.contains(&item.name));
            if is_used || exceptions.allows("public", &source.path, &item.name) {
                continue;
            }
            let message = format!(
                "no other crate uses the public `{}`: make it `pub(crate)` or delete it",
                item.name
            );
            findings.push(Finding::new(&source.path, item.line, message));
        }
    }
}

/// The public items of a file, and the words of their signatures.
#[derive(Default)]
struct Surface {
    /// The types that the framework re-exports.
    exported: HashSet<String>,
    items: Vec<PublicItem>,
    signatures: HashSet<String>,
}

struct PublicItem {
    name: String,
    line: usize,
    is_type: bool,
}

impl Surface {
    fn add_items(&mut self, items: &[Item], is_root: bool) {
        for item in items {
            self.add_item(item, is_root);
        }
    }

    fn add_item(&mut self, item: &Item, is_root: bool) {
        match item {
            Item::Const(item) => {
                self.add(&item.vis, &item.attrs, &item.ident, false);
                self.sign(&item.vis, &item.ty);
            }
            Item::Static(item) => {
                self.add(&item.vis, &item.attrs, &item.ident, false);
                self.sign(&item.vis, &item.ty);
            }
            Item::Fn(item) => self.add_function(&item.vis, &item.attrs, &item.sig),
            Item::Type(item) => {
                self.add(&item.vis, &item.attrs, &item.ident, true);
                self.sign(&item.vis, &item.ty);
            }
            Item::Struct(item) => {
                self.add(&item.vis, &item.attrs, &item.ident, true);
                self.add_fields(&item.fields);
                self.sign(&item.vis, &item.generics);
            }
            Item::Enum(item) => {
                self.add(&item.vis, &item.attrs, &item.ident, true);
                self.sign(&item.vis, &item.variants);
            }
            Item::Trait(item) => {
                self.add(&item.vis, &item.attrs, &item.ident, true);
                for part in &item.items {
                    if let TraitItem::Fn(method) = part {
                        self.sign(&item.vis, &method.sig);
                    }
                }
            }
            Item::Mod(module) if !is_for_tests(&module.attrs) => {
                let inner = module.content.iter().flat_map(|(_, items)| items);
                inner.for_each(|item| self.add_item(item, is_root));
            }
            // Users of the trait see its associated types.
            Item::Impl(item) if item.trait_.is_some() => {
                for part in &item.items {
                    if let ImplItem::Type(part) = part {
                        self.sign_words(part);
                    }
                }
            }
            Item::Impl(item) if !self.is_exported(&item.self_ty) => {
                for part in &item.items {
                    if let ImplItem::Fn(method) = part {
                        self.add_function(&method.vis, &method.attrs, &method.sig);
                    }
                }
            }
            Item::Use(_) if is_root => {
                let names = reexports_of(std::slice::from_ref(item));
                let line = item.span().start().line;
                let is_type = true;
                self.items.extend(names.into_iter().map(|name| PublicItem {
                    name,
                    line,
                    is_type,
                }));
            }
            _ => {}
        }
    }

    fn add_function(&mut self, vis: &Visibility, attrs: &[syn::Attribute], sig: &syn::Signature) {
        self.add(vis, attrs, &sig.ident, false);
        self.sign(vis, sig);
    }

    fn add_fields(&mut self, fields: &Fields) {
        for field in fields {
            self.sign(&field.vis, &field.ty);
        }
    }

    fn is_exported(&self, ty: &syn::Type) -> bool {
        let syn::Type::Path(path) = ty else {
            return false;
        };
        let name = path.path.segments.last();
        name.is_some_and(|name| self.exported.contains(&name.ident.to_string()))
    }

    fn add(
        &mut self,
        vis: &Visibility,
        attrs: &[syn::Attribute],
        name: &syn::Ident,
        is_type: bool,
    ) {
        if matches!(vis, Visibility::Public(_)) && !is_hidden(attrs) {
            self.items.push(PublicItem {
                name: name.to_string(),
                line: name.span().start().line,
                is_type,
            });
        }
    }

    fn sign(&mut self, vis: &Visibility, signature: &impl ToTokens) {
        if matches!(vis, Visibility::Public(_)) {
            self.sign_words(signature);
        }
    }

    fn sign_words(&mut self, signature: &impl ToTokens) {
        let mut tokens = Vec::new();
        flatten(signature.to_token_stream(), &mut tokens);
        self.signatures
            .extend(tokens.into_iter().map(|token| token.text));
    }
}

/// The names that `items` re-export from other modules or crates.
fn reexports_of(items: &[Item]) -> Vec<String> {
    let mut names = Vec::new();
    for item in items {
        if let Item::Use(item) = item
            && matches!(item.vis, Visibility::Public(_))
        {
            add_reexports(&item.tree, &mut names);
        }
    }
    names
}

fn add_reexports(tree: &UseTree, names: &mut Vec<String>) {
    match tree {
        UseTree::Path(path) => add_reexports(&path.tree, names),
        UseTree::Group(group) => group
            .items
            .iter()
            .for_each(|tree| add_reexports(tree, names)),
        UseTree::Name(name) => names.push(name.ident.to_string()),
        UseTree::Rename(rename) => names.push(rename.rename.to_string()),
        UseTree::Glob(_) => {}
    }
}

/// Whether the item is `#[doc(hidden)]`, or for tests.
fn is_hidden(attrs: &[syn::Attribute]) -> bool {
    is_for_tests(attrs)
        || attrs.iter().any(|attribute| {
            attribute.path().is_ident("doc")
                && attribute
                    .parse_args::<syn::Ident>()
                    .is_ok_and(|word| word == "hidden")
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::text::TextFile;

    /// The findings for a library `crates/x` with this file, and another crate.
    fn findings(content: &str, other: &str, exceptions: &str) -> Vec<String> {
        let files = [
            ("crates/x/src/lib.rs", "mod a;\npub use a::Name;\n"),
            ("crates/x/src/a.rs", content),
            ("crates/y/src/main.rs", other),
            (
                "crates/server/src/lib.rs",
                "pub use x::Framework;\npub fn unused() {}\n",
            ),
        ];
        let parse = |(path, content): (&str, &str)| {
            let (path, content) = (path.to_owned(), content.to_owned());
            Source::parse(&TextFile { path, content }).unwrap()
        };
        let sources = files.map(parse);
        let mut exceptions = Exceptions::parse(exceptions).unwrap();
        let mut findings = Vec::new();
        check(&sources, &mut exceptions, &mut findings);
        findings.sort();
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn an_item_that_no_other_crate_names_is_found() {
        let content = "pub struct Name;\nimpl Name {\n    pub fn call(&self) {}\n}\n";
        let found = findings(content, "fn main() { Name.call() }", "");
        assert!(found.is_empty(), "{found:?}");
        let found = findings(content, "fn main() { Name; }", "");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/x/src/a.rs:3: "), "{found:?}");
        let exception = "public crates/x/src/a.rs call a reason";
        assert!(findings(content, "fn main() { Name; }", exception).is_empty());
        // The type and its re-export.
        assert_eq!(findings("pub struct Name;\n", "fn main() {}", "").len(), 2);
        assert!(findings("pub(crate) fn f() {}\n", "fn main() { Name; }", "").is_empty());
    }

    #[test]
    fn a_type_may_occur_in_a_public_signature_instead() {
        let content = "pub struct Name;\npub struct Hidden;\npub fn call(_: Hidden) {}\n";
        assert!(findings(content, "fn main() { Name; call }", "").is_empty());
        let content = "pub struct Name;\npub struct Hidden;\nfn call(_: Hidden) {}\n";
        assert_eq!(findings(content, "fn main() { Name; call }", "").len(), 1);
    }

    #[test]
    fn types_of_the_framework_may_have_unused_methods() {
        let content = "pub struct Framework;\nimpl Framework {\n    pub fn call(&self) {}\n}\n";
        assert!(findings(content, "fn main() { Name; }", "").is_empty());
    }
}
