//! Texts with placeholders.

use super::Reader;
use super::value::StringValue;
use crate::path_regex::PathRegex;
use crate::pattern::{PathEnd, PathPattern, Segment};
use crate::span::Span;
use crate::suggestion;
use crate::template::{self, Placeholder, PlainText, Template, TemplatePart};

/// The kind of a text with placeholders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TemplateKind {
    /// A path or URL, to which the query is added.
    Url,
    /// Any other text.
    Other,
}

/// Characters of a token (RFC 9110, section 5.6.2).
pub(super) fn is_token(text: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_tchar)
}

impl Reader<'_> {
    /// The parts of a text. Parameters are those of the pattern, and `{rest}` is what follows it.
    pub(super) fn template(
        &mut self,
        text: &StringValue,
        pattern: &PathPattern,
        kind: TemplateKind,
    ) -> Option<Template> {
        let mut parser = Parser {
            text,
            at: 0,
            plain: String::new(),
            parts: Vec::new(),
        };
        while let Some(found) = parser.next_brace() {
            match found {
                Brace::Open(span) => {
                    let label = "write for example {path}, or {{ for a plain brace";
                    let message = "the placeholder has no end";
                    self.error("placeholder-open", text.part(span), message, label);
                    return None;
                }
                Brace::Name(span) => {
                    let name = &text.value[span.start + 1..span.end - 1];
                    let is_literal =
                        |literal: &Span| literal.start < span.end && span.start < literal.end;
                    if text.literals.iter().any(is_literal) {
                        let message = "the name of a placeholder has a variable";
                        let label = "write the name itself, such as {path}";
                        self.error("unknown-placeholder", text.part(span), message, label);
                        return None;
                    }
                    let placeholder = self.placeholder(name, &text.part(span), pattern, kind)?;
                    parser.push_plain(self)?;
                    parser.parts.push(TemplatePart::Placeholder(placeholder));
                }
            }
        }
        parser.push_plain(self)?;
        let template = Template::new(parser.parts);
        self.foreign_variable(text, &template)?;
        Some(template)
    }

    fn placeholder(
        &mut self,
        name: &str,
        span: &Span,
        pattern: &PathPattern,
        kind: TemplateKind,
    ) -> Option<Placeholder> {
        if let Some(placeholder) = template::plain(name) {
            return Some(placeholder);
        }
        if name == "rest" {
            self.has_path_placeholder = true;
            if pattern.regex().is_some() {
                let message = "nothing follows the path of a regex, which is all of the path";
                let label = "name a group, as in (?<tail>.*), and write {tail}";
                self.error("unknown-placeholder", span.clone(), message, label);
                return None;
            }
            return Some(rest(pattern));
        }
        if let Some(regex) = pattern.regex()
            && regex.names().any(|group| group == name)
        {
            self.has_path_placeholder = true;
            return Some(Placeholder::Group {
                name: name.into(),
                regex: regex.clone(),
            });
        }
        let is_this =
            |segment: &Segment| matches!(segment, Segment::Parameter(other) if **other == *name);
        if let Some(segment) = pattern.segments.iter().position(is_this) {
            self.has_path_placeholder = true;
            let name = name.into();
            return Some(Placeholder::Parameter { name, segment });
        }
        match name.split_once('.') {
            Some(("header", field)) if is_token(field) => {
                return Some(Placeholder::Header(field.to_ascii_lowercase().into()));
            }
            Some(("cookie", cookie)) if is_token(cookie) => {
                return Some(Placeholder::Cookie(cookie.into()));
            }
            // A parameter of the route may have this name, too.
            None if name == "user" => return Some(Placeholder::User),
            Some(("client_cert", "subject")) => return Some(Placeholder::CertificateSubject),
            Some(("client_cert", "fingerprint")) => {
                return Some(Placeholder::CertificateFingerprint);
            }
            Some(("jwt", claim)) if !claim.is_empty() => {
                return Some(Placeholder::Claim(claim.into()));
            }
            _ => {}
        }
        let mut label = placeholder_label(name, pattern);
        if kind == TemplateKind::Url && label == "write {path}" {
            label += "; the query is kept";
        }
        let message = format!("there is no placeholder `{{{name}}}`");
        self.error("unknown-placeholder", span.clone(), message, label);
        None
    }

    /// Variables of other servers, which would be plain text.
    fn foreign_variable(&mut self, text: &StringValue, template: &Template) -> Option<()> {
        for part in template.parts() {
            let TemplatePart::Text(plain) = part else {
                continue;
            };
            let Some((variable, label)) = suggestion::foreign_variable(plain) else {
                continue;
            };
            // The value of a variable of the environment is as it is.
            let Some(at) = text
                .written()
                .find(variable)
                .filter(|_| text.literals.is_empty())
            else {
                continue;
            };
            let span = text.part(at..at + variable.len());
            let message = format!("`{variable}` is a word of nginx");
            self.error("unknown-placeholder", span, message, label);
            return None;
        }
        Some(())
    }
}

/// The placeholder for the rest of the path after the path of a route.
fn rest(pattern: &PathPattern) -> Placeholder {
    let bytes = match &pattern.end {
        PathEnd::Prefix(text) => 1 + text.len(),
        PathEnd::Exact | PathEnd::Below | PathEnd::Subtree | PathEnd::Regex { .. } => 0,
    };
    Placeholder::Rest {
        segments: pattern.segments.len(),
        bytes,
    }
}

fn placeholder_label(name: &str, pattern: &PathPattern) -> String {
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && pattern.regex().is_some() {
        return "name the group, as in (?<id>…), and write {id}".to_owned();
    }
    if let Some(label) = suggestion::foreign_placeholder(name) {
        return format!("write {label}");
    }
    let parameters = pattern.segments.iter().filter_map(|segment| match segment {
        Segment::Parameter(name) => Some(&**name),
        Segment::Text(_) => None,
    });
    let groups = pattern.regex().into_iter().flat_map(PathRegex::names);
    let of_values = template::NAMES_OF_VALUES.into_iter();
    let of_certificates = of_values.filter(|name| name.starts_with("client_cert."));
    let names = template::NAMES.into_iter().chain(parameters);
    let names = names.chain(groups).chain(of_certificates);
    match suggestion::nearest(name, names) {
        Some(other) => format!("write {{{other}}}"),
        None => format!(
            "write {{{{ for a plain brace, or one of {{{}}}, {{{}}}",
            template::NAMES.join("}, {"),
            template::NAMES_OF_VALUES.join("}, {")
        ),
    }
}

/// A brace that is not plain: its place, and that of its end.
enum Brace {
    Open(Span),
    Name(Span),
}

struct Parser<'a> {
    text: &'a StringValue,
    at: usize,
    plain: String,
    parts: Vec<TemplatePart>,
}

impl Parser<'_> {
    /// The next placeholder. The text before it is added to the plain text.
    fn next_brace(&mut self) -> Option<Brace> {
        let value = &self.text.value;
        let is_literal = |at: usize| self.text.literals.iter().any(|part| part.contains(&at));
        loop {
            let found = value[self.at..].find('{');
            let start = found.map_or(value.len(), |found| self.at + found);
            self.plain.push_str(&value[self.at..start]);
            self.at = start;
            found?;
            let is_doubled = value[start + 1..].starts_with('{') && !is_literal(start + 1);
            if is_literal(start) || is_doubled {
                self.plain.push('{');
                self.at += if is_literal(start) { 1 } else { 2 };
                continue;
            }
            let Some(length) = value[start..].find('}') else {
                return Some(Brace::Open(start..value.len()));
            };
            self.at = start + length + 1;
            return Some(Brace::Name(start..self.at));
        }
    }

    /// Ends a part of plain text.
    fn push_plain(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        if self.plain.is_empty() {
            return Some(());
        }
        let plain = std::mem::take(&mut self.plain);
        let Some(plain) = PlainText::new(&plain) else {
            let message = "the text has a line break or NUL";
            let label = "write it in one line; a longer text may be a file";
            reader.error("control", self.text.span.clone(), message, label);
            return None;
        };
        self.parts.push(TemplatePart::Text(plain));
        Some(())
    }
}
