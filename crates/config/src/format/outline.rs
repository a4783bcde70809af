//! The tables and statements of a file, with the comments of each one.

use toml_edit::{Document, Item, Key, Table, Value};

use super::comments::CommentLines;
use super::value::{Writer, sorted};

/// A file.
pub(super) struct Outline<'a> {
    pub(super) writer: Writer<'a>,
    /// Comments of the file as a whole, at its beginning.
    pub(super) head: CommentLines<'a>,
    /// The part before all headers, followed by the tables in the canonical order.
    pub(super) sections: Vec<TableSection<'a>>,
    /// Comments at the end.
    pub(super) end: CommentLines<'a>,
}

/// A header and the lines below it, until the next header.
pub(super) struct TableSection<'a> {
    /// The keys of its header; none is the top of the file.
    pub(super) path: Vec<&'a str>,
    /// One of a list: `[[…]]`.
    pub(super) is_item: bool,
    pub(super) before: CommentLines<'a>,
    /// In the line of the header.
    pub(super) comment: Option<&'a str>,
    pub(super) statements: Vec<Statement<'a>>,
    /// Comments below all statements.
    pub(super) footer: CommentLines<'a>,
    /// Where it begins in the file.
    start: usize,
}

/// A key with a value.
pub(super) struct Statement<'a> {
    pub(super) before: CommentLines<'a>,
    pub(super) keys: Vec<&'a str>,
    pub(super) value: &'a Value,
    pub(super) comment: Option<&'a str>,
    /// Comments below it that an empty line parts from the next one.
    pub(super) footer: CommentLines<'a>,
}

impl<'a> Outline<'a> {
    pub(super) fn new(source: &'a str, document: &'a Document<&'a str>) -> Outline<'a> {
        let writer = Writer { source };
        let mut collector = Collector {
            writer,
            sections: Vec::new(),
        };
        collector.top(document.as_table());
        let mut outline = Outline {
            writer,
            head: CommentLines::default(),
            sections: collector.sections,
            end: CommentLines::new(writer.raw(Some(document.trailing()))),
        };
        outline.share_comments();
        outline.sections[0]
            .statements
            .sort_by_key(|statement| rank(statement.keys[0]));
        outline
    }

    /// Comments between two tables belong to the one before, if they touch its last line only.
    fn share_comments(&mut self) {
        let mut in_file: Vec<usize> = (0..self.sections.len()).collect();
        in_file.sort_by_key(|&at| self.sections[at].start);
        let top = &mut self.sections[0];
        let first = match (top.statements.first_mut(), in_file.get(1)) {
            (Some(statement), _) => &mut statement.before,
            (None, Some(&next)) => &mut self.sections[next].before,
            (None, None) => &mut self.end,
        };
        self.head = first.take_head();
        // Nothing stands before the first header, so comments do not belong to it.
        let is_empty = self.sections[0].statements.is_empty();
        let parts = &in_file[usize::from(is_empty)..];
        for (at, &section) in parts.iter().enumerate() {
            self.sections[section].footer = match parts.get(at + 1) {
                Some(&next) => self.sections[next].before.take_footer(false),
                None => self.end.take_footer(true),
            };
        }
    }
}

/// Collects tables in the canonical order.
struct Collector<'a> {
    writer: Writer<'a>,
    sections: Vec<TableSection<'a>>,
}

impl<'a> Collector<'a> {
    fn top(&mut self, table: &'a Table) {
        self.section(table, &[], false);
        let mut children = children(table);
        children.sort_by_key(|(start, name, _)| (rank(name), *start));
        for (_, name, item) in children {
            match item {
                Item::Table(table) => self.named_tables(table, name),
                _ => self.item(item, &[name]),
            }
        }
    }

    /// A table of the top, whose own lines keep their place among its tables: `[site]` among sites.
    fn named_tables(&mut self, table: &'a Table, name: &'a str) {
        let own = start_of(table);
        let (before, behind): (Vec<_>, Vec<_>) = children(table)
            .into_iter()
            .partition(|(start, ..)| own.is_some_and(|own| *start < own));
        let own = own.map(|_| table);
        for (_, child, item) in before {
            self.item(item, &[name, child]);
        }
        if let Some(table) = own {
            self.section(table, &[name], false);
        }
        for (_, child, item) in behind {
            self.item(item, &[name, child]);
        }
    }

    fn item(&mut self, item: &'a Item, path: &[&'a str]) {
        match item {
            Item::Table(table) => self.table(table, path, false),
            Item::ArrayOfTables(tables) => {
                for table in tables {
                    self.table(table, path, true);
                }
            }
            Item::None | Item::Value(_) => {}
        }
    }

    fn table(&mut self, table: &'a Table, path: &[&'a str], is_item: bool) {
        if start_of(table).is_some() {
            self.section(table, path, is_item);
        }
        for (_, name, item) in children(table) {
            self.item(item, &[path, &[name]].concat());
        }
    }

    fn section(&mut self, table: &'a Table, path: &[&'a str], is_item: bool) {
        let mut statements: Vec<Statement<'a>> = Vec::new();
        for (keys, value) in sorted(table.get_values()) {
            let decor = keys.last().map(|key| key.leaf_decor());
            let before = decor.and_then(|decor| decor.prefix());
            let mut before = CommentLines::new(self.writer.raw(before));
            if let Some(last) = statements.last_mut() {
                last.footer = before.take_footer(false);
            }
            statements.push(Statement {
                before,
                keys: keys.into_iter().map(Key::get).collect(),
                value,
                comment: comment(self.writer.suffix(value)),
                footer: CommentLines::default(),
            });
        }
        let decor = table.decor();
        self.sections.push(TableSection {
            path: path.to_vec(),
            is_item,
            before: CommentLines::new(self.writer.raw(decor.prefix())),
            comment: comment(self.writer.raw(decor.suffix())),
            statements,
            footer: CommentLines::default(),
            start: start_of(table).unwrap_or_default(),
        });
    }
}

fn comment(suffix: &str) -> Option<&str> {
    Some(suffix.trim()).filter(|comment| !comment.is_empty())
}

/// The tables within a table that have headers, or tables with headers, by their first header.
fn children(table: &Table) -> Vec<(usize, &str, &Item)> {
    let children = table.iter();
    let mut children: Vec<_> = children
        .filter_map(|(name, item)| Some((first_header(item)?, name, item)))
        .collect();
    children.sort_by_key(|(start, ..)| *start);
    children
}

fn first_header(item: &Item) -> Option<usize> {
    let of_table = |table: &Table| {
        let below = table.iter().filter_map(|(_, item)| first_header(item));
        start_of(table).into_iter().chain(below).min()
    };
    match item {
        Item::Table(table) => of_table(table),
        Item::ArrayOfTables(tables) => tables.iter().filter_map(of_table).min(),
        Item::None | Item::Value(_) => None,
    }
}

/// Where the header of a table begins, if it has one.
fn start_of(table: &Table) -> Option<usize> {
    let has_header = !table.is_implicit() && !table.is_dotted();
    table.span().filter(|_| has_header).map(|span| span.start)
}

/// Names of the top of a file in the canonical order; others stand in the place of `OTHER`.
const ORDER: [&str; 19] = [
    "config_version",
    "include",
    "listen",
    "listen_tls",
    "trusted_proxies",
    "certificates",
    OTHER,
    "defaults",
    "server",
    "log",
    "limits",
    "metrics",
    "control",
    "tracing",
    "redis",
    "acme",
    "preset",
    "site",
    "upstream",
];

const OTHER: &str = "";

fn rank(name: &str) -> Option<usize> {
    let of_name = |name: &str| ORDER.iter().position(|other| *other == name);
    of_name(name).or_else(|| of_name(OTHER))
}
