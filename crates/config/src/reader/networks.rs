//! `allow` and `deny`: a list of networks, or a table with files of them.

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::{Entry, Reader, entries};
use crate::diagnostic::Edit;
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
                let networks = self.placed_networks(value);
                if networks.is_none() {
                    self.repair_file_names(value, before);
                }
                let networks = networks?.into_iter();
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

    /// Names of files in place of networks: offers the table that reads files, in the diagnostics from this one on.
    fn repair_file_names(&mut self, value: &Spanned<DeValue<'_>>, first: usize) {
        let is_only = matches!(value.get_ref(), DeValue::String(_));
        for diagnostic in &mut self.diagnostics[first..] {
            let written = self.document.slice(&diagnostic.span);
            let name = written.trim_matches(['"', '\'']);
            if is_only && is_name(name) {
                let table = format!("{{ file = {written} }}");
                diagnostic.label = format!(
                    "write {table} for a file of networks, or networks such as [\"10.0.0.0/8\"]"
                );
                diagnostic.edits.clear();
                if is_file_name(name) {
                    diagnostic.edits.push(Edit {
                        span: diagnostic.span.clone(),
                        text: table,
                    });
                }
            } else if diagnostic.code == "network" && is_file_name(name) {
                diagnostic.label =
                    format!("for a file of networks write {{ file = {written}, networks = […] }}");
            }
        }
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

/// How the names of files with networks end.
const ENDINGS: [&str; 8] = [
    "cidr", "conf", "csv", "ipset", "list", "lst", "netset", "txt",
];

/// Whether a text without variables has letters that no network has.
fn is_name(text: &str) -> bool {
    let has_letters = text.chars().any(|c| matches!(c, 'g'..='z' | 'G'..='Z'));
    has_letters && text != "unix" && !text.contains("${")
}

/// Whether it is the name of a file rather than that of a host.
fn is_file_name(text: &str) -> bool {
    let ending = text.rsplit_once('.').map_or("", |(_, ending)| ending);
    let is_path = ["/", "./", "../"]
        .iter()
        .any(|start| text.starts_with(start));
    is_name(text) && (is_path || ENDINGS.contains(&ending))
}
