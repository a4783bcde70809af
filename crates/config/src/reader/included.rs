//! Tables of included files: their places are moved behind those of the files before them.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::Reader;
use super::{Entry, entries};

/// Keys that an included file may have: those of a team. Listeners, defaults and the log have one owner.
const KEYS: [&str; 4] = ["certificates", "preset", "site", "upstream"];

impl Reader<'_> {
    /// Whether the key may stand at the top of its file.
    pub(super) fn is_of_file(&mut self, entry: &Entry<'_, '_>) -> bool {
        if !self.document.is_included(entry.key_start) || KEYS.contains(&entry.name) {
            return true;
        }
        let message = format!("`{}` belongs to the main file", entry.name);
        let label = format!("an included file may have `{}`", KEYS.join("`, `"));
        self.error("not-in-include", entry.key(), message, label);
        false
    }

    /// A name that a table of another file has too.
    pub(super) fn defined_twice(&mut self, what: &str, entry: &Entry<'_, '_>, first: usize) {
        let first = self.document.place(first);
        self.error(
            "defined-twice",
            entry.key(),
            format!("the {what} `{}` is defined twice", entry.name),
            format!("second definition; the first is at {first}"),
        );
    }
}

/// The entries of the tables of all files, in the order of the files.
pub(super) fn all_entries<'a, 'i>(tables: &'a [DeTable<'i>]) -> Vec<Entry<'a, 'i>> {
    tables.iter().flat_map(entries).collect()
}

/// The table with its places moved.
pub(super) fn moved(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    if by == 0 {
        return table;
    }
    let entries = table.into_iter();
    entries
        .map(|(key, value)| {
            let span = key.span();
            let key = Spanned::new(span.start + by..span.end + by, key.into_inner());
            (key, moved_value(value, by))
        })
        .collect()
}

fn moved_value(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let span = value.span();
    let value = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(moved(table, by)),
        DeValue::Array(items) => {
            let mut all = DeArray::new();
            for item in items {
                all.push(moved_value(item, by));
            }
            DeValue::Array(all)
        }
        other => other,
    };
    Spanned::new(span.start + by..span.end + by, value)
}
