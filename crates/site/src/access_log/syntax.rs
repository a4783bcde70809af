//! The forms of lines.

use super::{LogField, LogFormat};

/// How fields and values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    Json,
    Logfmt,
    Combined,
}

impl Syntax {
    pub(super) fn of(format: LogFormat) -> Syntax {
        match format {
            LogFormat::Json => Syntax::Json,
            LogFormat::Logfmt => Syntax::Logfmt,
            LogFormat::Combined => Syntax::Combined,
        }
    }

    /// The text before the value of a field. The first byte separates it from the field before.
    pub(super) fn key(self, field: &LogField) -> String {
        match self {
            Syntax::Json => format!(",\"{}\":", field.name()),
            Syntax::Logfmt => format!(" {}=", field.name()),
            Syntax::Combined => String::new(),
        }
    }
}
