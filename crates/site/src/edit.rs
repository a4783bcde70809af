//! Changes of fields, made by the rules of a site.

use blitz_http::Fields;

/// A change of a field, with its values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Edit {
    /// In lower case.
    pub name: Box<str>,
    /// What becomes of it.
    pub change: FieldChange,
}

/// What becomes of a field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FieldChange {
    /// These lines replace those that there are; none remove it.
    Set(Vec<Vec<u8>>),
    /// This line, if there is none.
    Default(Vec<u8>),
    /// A further line.
    Add(Vec<u8>),
}

/// Makes the changes. A value that no field may have, such as a space alone, is left out.
#[inline(never)]
pub fn apply(edits: &[Edit], fields: &mut Fields) {
    for Edit { name, change } in edits {
        let name = &**name;
        let lines = match change {
            FieldChange::Set(lines) => {
                fields.remove(name);
                lines.as_slice()
            }
            FieldChange::Default(_) if fields.contains(name) => continue,
            FieldChange::Default(line) | FieldChange::Add(line) => std::slice::from_ref(line),
        };
        for line in lines {
            let _ = fields.try_append(name, line);
        }
    }
}
