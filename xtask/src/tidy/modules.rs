//! The modules of a crate, and the file that a path of the crate leads to.

use std::collections::{HashMap, HashSet};

use syn::spanned::Spanned;
use syn::{Item, UseTree, Visibility};

use super::source::{Source, is_for_tests};

/// Most imports that one path is followed through.
const IMPORTS_MAX: usize = 16;

/// The modules of one crate, without its tests.
pub(crate) struct Modules<'a> {
    modules: Vec<Module<'a>>,
}

struct Module<'a> {
    source: &'a Source,
    parent: Option<usize>,
    children: HashMap<String, usize>,
    /// Names of the items that the module declares.
    items: HashSet<String>,
    imports: Vec<Import>,
    /// A module in braces; its file belongs to the module around it.
    is_inline: bool,
}

/// One name that a `use` brings into a module.
struct Import {
    /// `None` for `*`.
    name: Option<String>,
    path: Vec<String>,
    line: usize,
    is_reexport: bool,
}

/// A use of one file in another.
pub(crate) struct Reference<'a> {
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    /// Line in `from`.
    pub(crate) line: usize,
}

#[derive(Clone, Copy)]
enum Found {
    Module(usize),
    /// An item of this module.
    Item(usize),
}

impl<'a> Modules<'a> {
    /// The modules below `root`, which is a `lib.rs` or `main.rs`; `sources` are all files by path.
    pub(crate) fn of_crate(root: &'a Source, sources: &HashMap<&str, &'a Source>) -> Modules<'a> {
        let folder = root.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut modules = Modules {
            modules: Vec::new(),
        };
        modules.add(root, &root.items, None, false);
        modules.read(0, folder, &root.items, sources);
        modules
    }

    fn add(
        &mut self,
        source: &'a Source,
        items: &[Item],
        parent: Option<usize>,
        is_inline: bool,
    ) -> usize {
        let mut module = Module {
            source,
            parent,
            children: HashMap::new(),
            items: HashSet::new(),
            imports: Vec::new(),
            is_inline,
        };
        for item in items {
            if let Item::Use(import) = item {
                let is_reexport = !matches!(import.vis, Visibility::Inherited);
                let line = import.span().start().line;
                let mut path = Vec::new();
                flatten(&import.tree, &mut path, &mut |name, path| {
                    module.imports.push(Import {
                        name,
                        path,
                        line,
                        is_reexport,
                    });
                });
            }
            module.items.extend(name_of(item));
        }
        self.modules.push(module);
        self.modules.len() - 1
    }

    /// Adds the modules that `items` declare; the files of module `at` lie in `folder`.
    fn read(
        &mut self,
        at: usize,
        folder: &str,
        items: &'a [Item],
        sources: &HashMap<&str, &'a Source>,
    ) {
        for item in items {
            let Item::Mod(declared) = item else { continue };
            if is_for_tests(&declared.attrs) {
                continue;
            }
            let name = declared.ident.to_string();
            let inner_folder = format!("{folder}/{name}");
            let (source, inner, is_inline) = match &declared.content {
                Some((_, inner)) => (self.modules[at].source, inner, true),
                None => match sources.get(format!("{inner_folder}.rs").as_str()) {
                    Some(source) => (*source, &source.items, false),
                    None => continue,
                },
            };
            let child = self.add(source, inner, Some(at), is_inline);
            self.modules[at].children.insert(name, child);
            self.read(child, &inner_folder, inner, sources);
        }
    }

    /// Every use of a file in another file. A re-export is no use: its users use the file behind it.
    pub(crate) fn references(&self) -> Vec<Reference<'a>> {
        let mut references = Vec::new();
        for (at, module) in self.modules.iter().enumerate() {
            for import in module.imports.iter().filter(|import| !import.is_reexport) {
                self.refer(at, &import.path, import.line, &mut references);
            }
            if !module.is_inline {
                for (path, line) in paths_of(module.source) {
                    self.refer(at, &path, line, &mut references);
                }
            }
        }
        references
    }

    fn refer(&self, at: usize, path: &[String], line: usize, references: &mut Vec<Reference<'a>>) {
        // An unknown name comes from a macro of the module that the path leads to.
        let is_own = matches!(path[0].as_str(), "crate" | "self" | "super");
        let shortest = if is_own { 1 } else { path.len() };
        let lengths = (shortest..=path.len()).rev();
        let found = lengths.map(|length| self.resolve(at, &path[..length], 0));
        let Some(Found::Module(to) | Found::Item(to)) = found.flatten().next() else {
            return;
        };
        let (from, to) = (&self.modules[at].source.path, &self.modules[to].source.path);
        if from != to {
            references.push(Reference { from, to, line });
        }
    }

    /// Follows a path that stands in module `at`; `None` if it leads to another crate.
    fn resolve(&self, at: usize, path: &[String], imports: usize) -> Option<Found> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.look_up(0, rest, imports),
            "self" => self.look_up(at, rest, imports),
            "super" => self.look_up(self.modules[at].parent?, rest, imports),
            _ => self.look_up(at, path, imports),
        }
    }

    fn look_up(&self, at: usize, path: &[String], imports: usize) -> Option<Found> {
        let module = &self.modules[at];
        let Some((first, rest)) = path.split_first() else {
            return Some(Found::Module(at));
        };
        if first == "super" {
            return self.look_up(module.parent?, rest, imports);
        }
        if let Some(child) = module.children.get(first) {
            return self.look_up(*child, rest, imports);
        }
        if module.items.contains(first) {
            return Some(Found::Item(at));
        }
        if imports == IMPORTS_MAX {
            return None;
        }
        let named = module
            .imports
            .iter()
            .find(|import| import.name.as_ref() == Some(first));
        if let Some(import) = named {
            return match self.resolve(at, &import.path, imports + 1)? {
                Found::Module(inner) => self.look_up(inner, rest, imports + 1),
                item => Some(item),
            };
        }
        let mut globs = module.imports.iter().filter(|import| import.name.is_none());
        globs.find_map(|glob| match self.resolve(at, &glob.path, imports + 1)? {
            Found::Module(inner) => self.look_up(inner, path, imports + 1),
            Found::Item(_) => None,
        })
    }
}

fn flatten(
    tree: &UseTree,
    path: &mut Vec<String>,
    add: &mut impl FnMut(Option<String>, Vec<String>),
) {
    match tree {
        UseTree::Path(step) => {
            path.push(step.ident.to_string());
            flatten(&step.tree, path, add);
            path.pop();
        }
        UseTree::Name(name) if name.ident == "self" => add(path.last().cloned(), path.clone()),
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            let path = path.iter().cloned().chain([name.clone()]).collect();
            add(Some(name), path);
        }
        UseTree::Rename(rename) => {
            let name = rename.ident.to_string();
            let path = path.iter().cloned().chain([name]).collect();
            add(Some(rename.rename.to_string()), path);
        }
        UseTree::Glob(_) => add(None, path.clone()),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, path, add);
            }
        }
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// The paths in the code of a file, also inside macros, with their lines; imports and tests excluded.
fn paths_of(source: &Source) -> Vec<(Vec<String>, usize)> {
    let mut skipped: Vec<_> = Vec::new();
    for item in &source.items {
        if matches!(item, Item::Use(_) | Item::Mod(_)) {
            skipped.push(item.span().start().line..=item.span().end().line);
        }
    }
    let is_name = |at: usize| {
        let text = source
            .tokens
            .get(at)
            .map_or("", |token| token.text.as_str());
        text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    };
    let is_separator = |at: usize| {
        let sign = |at: usize| source.tokens.get(at).is_some_and(|token| token.text == ":");
        sign(at) && sign(at + 1)
    };
    let mut paths = Vec::new();
    let mut at = 0;
    while at < source.tokens.len() {
        let (start, line) = (at, source.tokens[at].line);
        at += 1;
        if !is_name(start) {
            continue;
        }
        let mut path = vec![source.tokens[start].text.clone()];
        while is_separator(at) && is_name(at + 2) {
            path.push(source.tokens[at + 2].text.clone());
            at += 3;
        }
        let is_skipped = skipped.iter().any(|lines| lines.contains(&line));
        if path.len() > 1 && !is_skipped && !source.is_test(line) {
            paths.push((path, line));
        }
    }
    paths
}
