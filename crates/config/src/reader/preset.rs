//! Presets: keys of routes with a name, for `use`.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::own::{LevelNumber, OwnSettings, PRESETS};
use super::target::Upstreams;
use super::{Entry, Reader, entries};
use crate::keys::Scope;
use crate::pattern::PathPattern;
use crate::route_key::RouteKey;
use crate::span::{Placed, Span};
use crate::suggestion;

/// The presets of a file.
#[derive(Default)]
pub(super) struct Presets<'a> {
    by_name: BTreeMap<String, Preset<'a>>,
    /// How many have been read, to number them.
    read: usize,
}

struct Preset<'a> {
    name: Span,
    table: Rc<DeTable<'a>>,
    is_used: bool,
    /// The settings for each path of a route that uses the preset, because `{rest}` depends on that path. Without this
    /// placeholder there is one entry, for all paths.
    by_path: HashMap<Option<PathPattern>, (LevelNumber, Rc<OwnSettings>)>,
}

impl<'a> Reader<'a> {
    /// Notes the presets, which are read where they are used.
    pub(super) fn presets(&mut self, all: &[Entry<'_, 'a>]) {
        for entry in all {
            let DeValue::Table(table) = entry.value.get_ref() else {
                let label = "write [preset.NAME], and below it keys of routes";
                self.wrong_type(entry.value.span(), entry.value.get_ref(), "a table", label);
                continue;
            };
            self.add_presets(&entries(table));
        }
    }

    fn add_presets(&mut self, entries: &[Entry<'_, 'a>]) {
        for entry in entries {
            if let Some(first) = self.presets.by_name.get(entry.name) {
                let first = first.name.start;
                self.defined_twice("preset", entry, first);
                continue;
            }
            let DeValue::Table(table) = entry.value.get_ref() else {
                let label = "write { headers.X-Frame-Options = \"DENY\" }, for example";
                self.wrong_type(entry.value.span(), entry.value.get_ref(), "a table", label);
                continue;
            };
            let preset = Preset {
                name: entry.key(),
                table: Rc::new(table.clone()),
                is_used: false,
                by_path: HashMap::new(),
            };
            self.presets.by_name.insert(entry.name.to_owned(), preset);
        }
    }
}

impl Reader<'_> {
    /// `use`: the name of a preset, or a list of names.
    pub(super) fn uses(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        own: &mut OwnSettings,
        upstreams: &mut Upstreams,
    ) {
        let texts = match value.get_ref() {
            DeValue::String(_) => self.text(value, "[\"NAME\"]").into_iter().collect(),
            _ => self.texts(value, "\"NAME\""),
        };
        for text in texts {
            let Some(preset) = self.presets.by_name.get_mut(&text.value) else {
                let span = text.span.clone();
                self.unknown_preset(text.written(), span);
                continue;
            };
            preset.is_used = true;
            let path = Some(own.key.value.path.clone());
            let known = preset
                .by_path
                .get(&None)
                .or_else(|| preset.by_path.get(&path));
            if let Some((number, preset)) = known {
                own.presets.push((*number, Rc::clone(preset)));
                continue;
            }
            let table = Rc::clone(&preset.table);
            let number = PRESETS + self.presets.read;
            self.presets.read += 1;
            let place = std::mem::replace(&mut self.place, format!("preset {}", text.value));
            let block = std::mem::take(&mut self.block_place);
            let (read, is_of_path) = self.preset(&table, own.key.value.path.clone(), upstreams);
            (self.place, self.block_place) = (place, block);
            let read = (number, Rc::new(read));
            own.presets.push((number, Rc::clone(&read.1)));
            if let Some(preset) = self.presets.by_name.get_mut(&text.value) {
                preset.by_path.insert(path.filter(|_| is_of_path), read);
            }
        }
    }

    /// The settings of a preset for routes with this path, and whether they depend on the path.
    fn preset(
        &mut self,
        table: &DeTable<'_>,
        path: PathPattern,
        upstreams: &mut Upstreams,
    ) -> (OwnSettings, bool) {
        let key = RouteKey {
            methods: None,
            path,
        };
        let mut own = OwnSettings::new(Placed::new(key, 0..0));
        let before = std::mem::replace(&mut self.has_path_placeholder, false);
        for entry in entries(table) {
            if let Some(entry) = self.known(Scope::Preset, &entry) {
                self.setting(&entry, &mut own, upstreams);
            }
        }
        self.join_access(&mut own, false);
        let is_of_path = std::mem::replace(&mut self.has_path_placeholder, before);
        (own, is_of_path)
    }

    fn unknown_preset(&mut self, name: &str, span: Span) {
        let names = self.presets.by_name.keys().map(String::as_str);
        let label = match suggestion::nearest(name, names) {
            Some(other) => {
                let place = self.document.place(self.presets.by_name[other].name.start);
                format!("did you mean `{other}` ({place})?")
            }
            None => format!("add [preset.{name}]"),
        };
        self.error(
            "unknown-preset",
            span,
            format!("no preset is named `{name}`"),
            label,
        );
    }

    /// Presets that no route uses have not been read, so mistakes in them would stay unknown.
    pub(super) fn unused_presets(&mut self, upstreams: &mut Upstreams) {
        let unused = self
            .presets
            .by_name
            .iter()
            .filter(|(_, preset)| !preset.is_used);
        let unused: Vec<_> = unused
            .map(|(name, preset)| (name.clone(), preset.name.clone(), Rc::clone(&preset.table)))
            .collect();
        for (name, span, table) in unused {
            let before = self.diagnostics.len();
            self.preset(&table, PathPattern::everything(), upstreams);
            // An unknown placeholder may be a parameter of a route that is still missing.
            let mut at = 0;
            self.diagnostics.retain(|diagnostic| {
                at += 1;
                at <= before || diagnostic.code != "unknown-placeholder"
            });
            self.warning(
                "unused",
                span,
                format!("the preset `{name}` is used by no route"),
                "remove it, or name it in a `use`",
            );
        }
    }
}
