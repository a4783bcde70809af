//! `compress`: a boolean, `"files"`, or a table.

use std::str::FromStr;
use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::own::Own;
use super::value::StringValue;
use super::{Reader, entries};
use crate::compress::{Compress, Compression};
use crate::keys::Scope;
use crate::span::Placed;
use crate::units::{self, ValueError};

const FORMS: &str = "true, false, \"files\" or a table";

impl Reader<'_> {
    /// `false` is a value: it is not the default.
    pub(super) fn compress(&mut self, value: &Spanned<DeValue<'_>>) -> Own<Arc<Placed<Compress>>> {
        let read = match value.get_ref() {
            DeValue::Table(_) => self.compression(value).map(Arc::new),
            DeValue::Boolean(false) => return placed(Compress::Never, value),
            DeValue::Boolean(true) => Some(Arc::default()),
            DeValue::String(text) => return self.compress_word(text, value),
            other => {
                let label = format!("write {FORMS}");
                self.wrong_type(value.span(), other, FORMS, &label);
                None
            }
        };
        read.map_or(Own::Inherited, |read| {
            placed(Compress::Responses(read), value)
        })
    }

    /// `"files"`, or a variable with one of the values.
    fn compress_word(
        &mut self,
        text: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Own<Arc<Placed<Compress>>> {
        let Some(text) = self.expanded(text, value.span()) else {
            return Own::Inherited;
        };
        let is_variable = !text.literals.is_empty();
        let read = self.parsed(&text, |text| match text {
            "files" => Ok(Compress::Files),
            "true" if is_variable => Ok(Compress::Responses(Arc::default())),
            "false" if is_variable => Ok(Compress::Never),
            _ => Err(ValueError::new(
                "compress",
                "this is not a choice of responses",
                "write true, false or \"files\"",
            )),
        });
        read.map_or(Own::Inherited, |read| placed(read, value))
    }

    fn compression(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Compression> {
        let DeValue::Table(table) = value.get_ref() else {
            return None;
        };
        let before = self.diagnostics.len();
        let mut compression = Compression::default();
        for entry in entries(table) {
            let Some(entry) = self.known(Scope::Compress, &entry) else {
                continue;
            };
            match entry.name {
                "algorithms" => {
                    let values = self.distinct(entry.value, "\"zstd\"");
                    compression.algorithms = Some(values);
                }
                "types" => {
                    let values = self.distinct(entry.value, "\"text/*\"");
                    compression.types = Some(values);
                }
                _ => {
                    let size = self.unit_value(entry.value, "size", "\"1k\"", |text| {
                        match units::parse_size(text)? {
                            0 => Err(ValueError::new(
                                "size",
                                "no content at all is not compressed",
                                "write for example \"1\" for content of any length",
                            )),
                            bytes => Ok(bytes),
                        }
                    });
                    compression.min_size = size;
                }
            }
        }
        (self.diagnostics.len() == before).then_some(compression)
    }

    /// A list with at least one value, and none twice.
    fn distinct<T: FromStr<Err = ValueError> + PartialEq>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        example: &str,
    ) -> Vec<T> {
        let before = self.diagnostics.len();
        let texts = self.texts(value, example);
        let mut values = Vec::new();
        for text in &texts {
            let Some(value) = self.parsed(text, str::parse::<T>) else {
                continue;
            };
            match values.contains(&value) {
                false => values.push(value),
                true => self.listed_already(text),
            }
        }
        if values.is_empty() && self.diagnostics.len() == before {
            let message = "an empty list would compress nothing";
            let label = format!("write for example [{example}], or compress = false");
            self.error("compress", value.span(), message, label);
        }
        values
    }

    fn listed_already(&mut self, text: &StringValue) {
        let message = "this is in the list already";
        self.error("compress", text.span.clone(), message, "leave it out");
    }
}

fn placed(compress: Compress, value: &Spanned<DeValue<'_>>) -> Own<Arc<Placed<Compress>>> {
    Own::Value(Arc::new(Placed::new(compress, value.span())))
}
