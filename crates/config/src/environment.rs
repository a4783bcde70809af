//! Variables in values: `${NAME}` and `${NAME:default}`; `$${` is a plain `${`.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::suggestion;

/// The variables that values may name.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

/// A value whose variables are replaced.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expanded {
    pub(crate) text: String,
    /// Its parts that mean nothing but themselves: values of variables, and a plain `${`.
    pub(crate) literals: Vec<Range<usize>>,
}

/// Why a value with variables is invalid, and which part of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VariableError {
    pub(crate) code: &'static str,
    pub(crate) part: Range<usize>,
    pub(crate) message: String,
    pub(crate) label: String,
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Environment {
        Environment {
            variables: variables.into_iter().collect(),
        }
    }
}

impl Environment {
    /// Replaces the variables of a value. `None` if it has none.
    ///
    /// # Errors
    /// A variable that is unset and has no default, or that is not closed.
    pub(crate) fn expand(&self, text: &str) -> Result<Option<Expanded>, VariableError> {
        if !text.contains("${") {
            return Ok(None);
        }
        let mut out = String::new();
        let mut literals = Vec::new();
        let mut at = 0;
        while let Some(found) = text[at..].find("${") {
            let start = at + found;
            if text[..start].ends_with('$') {
                out.push_str(&text[at..start - 1]);
                literals.push(out.len()..out.len() + 2);
                out.push_str("${");
                at = start + 2;
                continue;
            }
            out.push_str(&text[at..start]);
            let name_start = start + 2;
            let Some(length) = text[name_start..].find('}') else {
                return Err(VariableError {
                    code: "variable-open",
                    part: start..text.len(),
                    message: "the variable has no end".to_owned(),
                    label: "write ${NAME}, or $${ for a plain ${".to_owned(),
                });
            };
            let inner = &text[name_start..name_start + length];
            let value = self.value(inner, name_start)?;
            literals.push(out.len()..out.len() + value.len());
            out.push_str(&value);
            at = name_start + length + 1;
        }
        out.push_str(&text[at..]);
        Ok(Some(Expanded {
            text: out,
            literals,
        }))
    }

    fn value(&self, inner: &str, start: usize) -> Result<String, VariableError> {
        let (name, default) = match inner.split_once(':') {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let part = start..start + name.len();
        let Some(value) = self.variables.get(name).map(String::as_str).or(default) else {
            let label = match suggestion::nearest(name, self.variables.keys().map(String::as_str)) {
                Some(other) => format!("did you mean {other}? A default is ${{NAME:x}}"),
                None => "set it, or write a default: ${NAME:x}".to_owned(),
            };
            return Err(VariableError {
                code: "env-missing",
                part,
                message: format!("the environment has no variable `{name}`"),
                label,
            });
        };
        if value.chars().any(char::is_control) {
            return Err(VariableError {
                code: "env-control",
                part,
                message: format!("the variable `{name}` has a control character"),
                label: "no value may have one".to_owned(),
            });
        }
        Ok(value.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        let variables = [("HOST", "a.example"), ("PORT", "80"), ("BAD", "a\nb")];
        variables
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into_iter()
            .collect()
    }

    #[test]
    fn variables_are_replaced() {
        for (text, expected) in [
            ("http://${HOST}:${PORT}", Some("http://a.example:80")),
            ("${NONE:x}${PORT:1}", Some("x80")),
            ("${NONE:}", Some("")),
            ("$${HOST}", Some("${HOST}")),
            ("$HOST {path}", None),
        ] {
            let expanded = environment().expand(text).expect(text);
            let expanded = expanded.map(|expanded| expanded.text);
            assert_eq!(expanded.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_variables_have_a_place() {
        for (text, code, part) in [
            ("http://${HOSTS}/", "env-missing", 9..14),
            ("a${HOST", "variable-open", 1..7),
            ("${BAD}", "env-control", 2..5),
        ] {
            let error = environment().expand(text).expect_err(text);
            assert_eq!((error.code, error.part), (code, part), "{text}");
        }
        let error = environment().expand("${HOSTS}").expect_err("it is not set");
        assert!(error.label.contains("did you mean HOST?"));
    }
}
