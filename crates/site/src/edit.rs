//! Changes of fields, made by the rules of a site.

use std::ops::Deref;

use blitz_http::{AsName, Fields, Name, NameSet};

/// A change of a field, with its values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Edit {
    /// The field.
    pub name: EditName,
    /// The change.
    pub change: FieldChange,
}

/// The name of a changed field, in lower case. All that a request would ask of it is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EditName {
    known: Name,
    is_valid: bool,
    /// It has letters, digits and hyphens only, so that no known name is another spelling of it.
    is_plain: bool,
    text: Box<str>,
}

impl From<&str> for EditName {
    fn from(text: &str) -> EditName {
        EditName {
            known: Name::parse(text.as_bytes()),
            is_valid: AsName::is_valid(&text),
            is_plain: text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
            text: text.into(),
        }
    }
}

impl Deref for EditName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl AsName for &EditName {
    fn known(&self) -> Name {
        self.known
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn is_valid(&self) -> bool {
        self.is_valid
    }
}

/// A change of a field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FieldChange {
    /// These lines replace those that there are; none remove it.
    Set(Vec<Vec<u8>>),
    /// This line, if there is none.
    Default(Vec<u8>),
    /// A further line.
    Add(Vec<u8>),
}

/// The changes of a final response: first those of policies, then those of `headers`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResponseEdits<'a> {
    /// Those of policies.
    pub policies: &'a [Edit],
    /// Those of the configuration.
    pub headers: &'a [Edit],
}

impl ResponseEdits<'_> {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty() && self.headers.is_empty()
    }

    /// Makes them.
    #[inline]
    pub(crate) fn apply(&self, fields: &mut Fields) {
        if !self.policies.is_empty() {
            apply(self.policies, fields);
        }
        if !self.headers.is_empty() {
            apply(self.headers, fields);
        }
    }
}

/// Makes the changes in a request. Other spellings of the fields are removed: applications behind CGI and WSGI take
/// `X_User` for `X-User`.
pub fn apply_to_request(edits: &[Edit], fields: &mut Fields) {
    let is_plain = edits.iter().all(|edit| edit.name.is_plain);
    // Most requests have known names only, and those are no other spelling of a plain name.
    if !is_plain || fields.names().any(|name| name == Name::Other) {
        remove_aliases(edits, fields);
    }
    apply(edits, fields);
}

fn remove_aliases(edits: &[Edit], fields: &mut Fields) {
    fields.retain(|name, _| {
        let is_known = name.known() != Name::Other;
        let may_be = |edit: &&Edit| !is_known || !edit.name.is_plain;
        let mut changed = edits.iter().filter(may_be);
        !changed.any(|edit| is_alias(name.as_bytes(), edit.name.as_bytes()))
    });
}

/// Whether a name is another spelling of this one: applications behind CGI and WSGI take both for the same.
pub(crate) fn is_alias(name: &[u8], of: &[u8]) -> bool {
    let spelled = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => byte.to_ascii_lowercase(),
        false => b'-',
    };
    let mut both = name.iter().zip(of);
    name.len() == of.len()
        && !name.eq_ignore_ascii_case(of)
        && both.all(|(a, b)| spelled(*a) == spelled(*b))
}

/// Makes the changes. A value that no field may have, such as a space alone, is left out.
#[inline(never)]
pub fn apply(edits: &[Edit], fields: &mut Fields) {
    // Most changed fields are absent, which costs no pass for each of many.
    let mut present = match edits.len() {
        0..=2 => NameSet::ALL,
        _ => fields.name_set(),
    };
    for Edit { name, change } in edits {
        let is_absent = !present.has(name.known);
        let lines = match change {
            FieldChange::Set(lines) => {
                if !is_absent {
                    fields.remove(name);
                }
                lines.as_slice()
            }
            FieldChange::Default(_) if !is_absent && fields.contains(name) => continue,
            FieldChange::Default(line) | FieldChange::Add(line) => std::slice::from_ref(line),
        };
        for line in lines {
            if fields.try_append(name, line).is_ok() {
                present.insert(name.known);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_spellings_of_changed_fields_are_removed_from_requests() {
        let mut fields = Fields::default();
        for (name, value) in [
            ("X_User", "admin"),
            ("x.user", "admin"),
            ("X-User", "eve"),
            ("X-Users", "kept"),
            ("X_Other", "kept"),
            ("X-Odd", "spoofed"),
        ] {
            fields.append(name, value);
        }
        let edit = |name: &str, change| Edit {
            name: name.into(),
            change,
        };
        let value = |text: &str| text.as_bytes().to_vec();
        apply_to_request(
            &[
                edit("x-user", FieldChange::Set(vec![value("anonymous")])),
                edit("x-users", FieldChange::Default(value("not this"))),
                edit("x_odd", FieldChange::Add(value("odd"))),
            ],
            &mut fields,
        );
        let left: Vec<_> = fields.iter().map(|(_, value)| value.to_vec()).collect();
        let expected = ["kept", "kept", "anonymous", "odd"];
        assert_eq!(left, expected.map(value));
    }
}
