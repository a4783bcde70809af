//! `buffer_request`: a size in memory, or a table with a size in memory and one with a file.

use toml::Spanned;
use toml::de::DeValue;

use super::{Reader, entries};
use crate::keys::{BUFFER_FILE_MAX, BUFFER_MAX, Scope};
use crate::settings::RequestBuffer;
use crate::span::Placed;
use crate::units::{self, ValueError};

impl Reader<'_> {
    pub(super) fn buffer_request(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Placed<RequestBuffer>> {
        let DeValue::Table(table) = value.get_ref() else {
            let memory = self.buffered(value, BUFFER_MAX, IN_MEMORY)?;
            let buffer = RequestBuffer { memory, file: None };
            return Some(Placed::new(buffer, value.span()));
        };
        let before = self.diagnostics.len();
        let (mut memory, mut file) = (None, None);
        for entry in entries(table) {
            let Some(entry) = self.known(Scope::Buffer, &entry) else {
                continue;
            };
            match entry.name {
                "memory" => memory = self.buffered(entry.value, BUFFER_MAX, IN_MEMORY),
                _ => {
                    let bytes = self.buffered(entry.value, BUFFER_FILE_MAX, IN_FILES);
                    file = bytes.map(|bytes| Placed::new(bytes, entry.value.span()));
                }
            }
        }
        if self.diagnostics.len() > before {
            return None;
        }
        let Some(memory) = memory else {
            let label = "write for example { memory = \"1m\", file = \"1g\" }";
            self.error("buffer-sizes", value.span(), "`memory` is missing", label);
            return None;
        };
        if let Some(file) = file.as_ref().filter(|file| file.value <= memory) {
            let label = "write a larger size, or leave it out";
            let message = "`file` is the most content altogether, and not more than `memory`";
            self.error("buffer-sizes", file.span.clone(), message, label);
            return None;
        }
        let file = file.map(|file| file.value);
        Some(Placed::new(RequestBuffer { memory, file }, value.span()))
    }

    /// A size of content, and the error if it is more than a core holds.
    fn buffered(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        bytes_max: u64,
        (problem, remedy): (&str, &str),
    ) -> Option<u64> {
        self.unit_value(value, "size", "\"1m\"", |text| {
            match units::parse_size(text)? {
                0 => Err(ValueError::new(
                    "size",
                    "0 would refuse all content",
                    "write false, so that content flows, or a size above 0",
                )),
                bytes if bytes > bytes_max => Err(ValueError::new("size", problem, remedy)),
                bytes => Ok(bytes),
            }
        })
    }
}

const IN_MEMORY: (&str, &str) = (
    "a core holds at most 64 MiB of content in memory for all requests",
    "write \"64m\" or less, or { memory = \"1m\", file = \"1g\" }; without `buffer_request`, content of any size flows",
);

const IN_FILES: (&str, &str) = (
    "a core holds at most 16 GiB of content in files for all requests",
    "write \"16g\" or less; without `buffer_request`, content of any size flows",
);
