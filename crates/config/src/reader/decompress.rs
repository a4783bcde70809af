//! `decompress`: a boolean, or a table with a size.

use toml::Spanned;
use toml::de::DeValue;

use super::{Reader, entries};
use crate::keys::Scope;
use crate::span::Placed;
use crate::units::{self, ValueError};

/// The most content after the decompression by default, in bytes.
const MAX_DEFAULT: u64 = 10 << 20;

impl Reader<'_> {
    /// The most content after the decompression. `false` is read before.
    pub(super) fn decompress(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<u64>> {
        let mut max = MAX_DEFAULT;
        match value.get_ref() {
            DeValue::Boolean(_) => {}
            DeValue::Table(table) => {
                let before = self.diagnostics.len();
                for entry in entries(table) {
                    if let Some(entry) = self.known(Scope::Decompress, &entry) {
                        max = self.decompress_max(entry.value).unwrap_or(max);
                    }
                }
                if self.diagnostics.len() > before {
                    return None;
                }
            }
            other => {
                let label = "write true, false, or { max = \"10m\" }";
                self.wrong_type(value.span(), other, "true, false or a table", label);
                return None;
            }
        }
        Some(Placed::new(max, value.span()))
    }

    fn decompress_max(&mut self, value: &Spanned<DeValue<'_>>) -> Option<u64> {
        self.unit_value(value, "size", "\"10m\"", |text| {
            match units::parse_size(text)? {
                0 => Err(ValueError::new(
                    "size",
                    "0 would refuse all content",
                    "write a size above 0, or decompress = false for content as it is",
                )),
                bytes => Ok(bytes),
            }
        })
    }
}
