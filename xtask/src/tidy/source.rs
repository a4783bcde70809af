//! A parsed Rust file.

use std::ops::RangeInclusive;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::text::TextFile;

/// A Rust file: its functions, its tokens, and which of its lines are tests.
pub(crate) struct Source {
    /// Path relative to the root of the repository.
    pub(crate) path: String,
    pub(crate) lines: Vec<String>,
    /// The items of the file.
    pub(crate) items: Vec<syn::Item>,
    pub(crate) functions: Vec<Function>,
    /// Every word and sign outside comments and strings, including those in macros.
    pub(crate) tokens: Vec<Token>,
    test_lines: Vec<RangeInclusive<usize>>,
}

/// A function or method.
pub(crate) struct Function {
    pub(crate) name: String,
    /// From the signature's line to the closing brace's; attributes and docs do not count.
    pub(crate) lines: RangeInclusive<usize>,
}

/// A word or a sign.
pub(crate) struct Token {
    pub(crate) text: String,
    /// Line, from 1.
    pub(crate) line: usize,
}

/// Whether the tokens are these words.
pub(crate) fn spells<W: AsRef<str>>(tokens: &[Token], words: &[W]) -> bool {
    tokens
        .iter()
        .zip(words)
        .all(|(token, word)| token.text == word.as_ref())
}

impl Source {
    pub(crate) fn parse(text: &TextFile) -> Result<Source, String> {
        let place = |error: &dyn std::fmt::Display| format!("{}: {error}", text.path);
        let stream: TokenStream = text.content.parse().map_err(|e| place(&e))?;
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);

        let file = syn::parse_file(&text.content).map_err(|e| place(&e))?;
        let mut collector = Collector::default();
        collector.visit_file(&file);
        Ok(Source {
            path: text.path.clone(),
            lines: text.content.lines().map(str::to_owned).collect(),
            items: file.items,
            functions: collector.functions,
            tokens,
            test_lines: collector.test_lines,
        })
    }

    /// Whether the line (from 1) belongs to a `#[cfg(test)]` item.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.test_lines.iter().any(|range| range.contains(&line))
    }

    /// The folder of the file's crate: `crates/http` for `crates/http/src/pool.rs`.
    pub(crate) fn crate_folder(&self) -> &str {
        let depth = if self.path.starts_with("crates/") {
            2
        } else {
            1
        };
        let end = self
            .path
            .match_indices('/')
            .nth(depth - 1)
            .map(|(at, _)| at);
        &self.path[..end.unwrap_or(0)]
    }

    /// Whether the whole file is a test, a bench, an example or a build script.
    pub(crate) fn is_auxiliary(&self) -> bool {
        let inner = self.path[self.crate_folder().len()..].trim_start_matches('/');
        ["tests/", "benches/", "examples/"]
            .iter()
            .any(|folder| inner.starts_with(folder))
            || inner == "build.rs"
            || self.path.ends_with("/tests.rs")
    }
}

/// Whether `#[cfg(test)]` stands above an item.
pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|word| word == "test")
    })
}

/// Appends every word and sign.
pub(crate) fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    proc_macro2::Delimiter::Parenthesis => ("(", ")"),
                    proc_macro2::Delimiter::Brace => ("{", "}"),
                    proc_macro2::Delimiter::Bracket => ("[", "]"),
                    proc_macro2::Delimiter::None => ("", ""),
                };
                tokens.push(token(open, group.span_open()));
                flatten(group.stream(), tokens);
                tokens.push(token(close, group.span_close()));
            }
            TokenTree::Ident(ident) => tokens.push(token(&ident.to_string(), ident.span())),
            TokenTree::Punct(punct) => tokens.push(token(&punct.to_string(), punct.span())),
            TokenTree::Literal(_) => {}
        }
    }
}

fn token(text: &str, span: Span) -> Token {
    Token {
        text: text.to_owned(),
        line: span.start().line,
    }
}

#[derive(Default)]
struct Collector {
    functions: Vec<Function>,
    test_lines: Vec<RangeInclusive<usize>>,
}

impl Collector {
    fn function(&mut self, signature: &syn::Signature, end: Span) {
        self.functions.push(Function {
            name: signature.ident.to_string(),
            lines: signature.span().start().line..=end.end().line,
        });
    }

    fn note_test(&mut self, attributes: &[syn::Attribute], item: Span) {
        if is_for_tests(attributes) {
            self.test_lines.push(item.start().line..=item.end().line);
        }
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.note_test(&item.attrs, item.span());
        visit::visit_item_mod(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.note_test(&item.attrs, item.span());
        self.function(&item.sig, item.block.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.note_test(&item.attrs, item.span());
        visit::visit_item_impl(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.note_test(&item.attrs, item.span());
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note_test(&item.attrs, item.span());
        self.function(&item.sig, item.block.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        let end = item.default.as_ref().map_or(item.sig.span(), Spanned::span);
        self.function(&item.sig, end);
        visit::visit_trait_item_fn(self, item);
    }
}
