//! `allow` and `deny`: a list of networks, or a table with files of them.

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::{Entry, Reader, entries};
use crate::keys::Scope;
use crate::network_list::NetworkList;
use crate::span::Placed;

/// The most files of a list: each is looked into for a client.
const FILES_MAX: usize = 16;

const FILE: &str = "\"networks.txt\"";

impl Reader<'_> {
    pub(super) fn networks(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Arc<Placed<NetworkList>>> {
        let before = self.diagnostics.len();
        let mut list = NetworkList::default();
        match value.get_ref() {
            DeValue::Table(table) => {
                for entry in entries(table) {
                    let Some(entry) = self.known(Scope::Networks, &entry) else {
                        continue;
                    };
                    match entry.name {
                        "file" => list.files = self.network_files(&entry),
                        _ => {
                            let networks = self.placed_networks(entry.value).into_iter().flatten();
                            list.networks = networks.map(|network| network.value).collect();
                        }
                    }
                }
            }
            _ => {
                let networks = self.placed_networks(value)?.into_iter();
                list.networks = networks.map(|network| network.value).collect();
            }
        }
        if matches!(value.get_ref(), DeValue::Table(_))
            && list == NetworkList::default()
            && self.diagnostics.len() == before
        {
            let label = format!("write for example {{ file = {FILE} }}");
            self.error("networks", value.span(), "the table is empty", label);
        }
        (self.diagnostics.len() == before).then(|| Arc::new(Placed::new(list, value.span())))
    }

    /// A file, or a list of files.
    fn network_files(&mut self, entry: &Entry<'_, '_>) -> Vec<Placed<String>> {
        let value = entry.value;
        let files: Vec<_> = match value.get_ref() {
            DeValue::Array(items) => items
                .iter()
                .filter_map(|item| self.file(item, FILE))
                .collect(),
            _ => self.file(value, FILE).into_iter().collect(),
        };
        if files.len() > FILES_MAX {
            let message = format!("a list has at most {FILES_MAX} files");
            let label = "join some of them to one file";
            self.error("too-many", value.span(), message, label);
        }
        files
    }
}
