//! `early_hints`: a list of values of `Link`.

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::super::Reader;
use crate::span::Placed;
use crate::units::ValueError;

const LINK: &str = "\"</style.css>; rel=preload; as=style\"";

/// The most bytes of all lines: browsers read no more than a head has.
const BYTES_MAX: usize = 4096;

impl Reader<'_> {
    pub(super) fn early_hints(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Arc<Placed<Vec<String>>>> {
        let before = self.diagnostics.len();
        let mut links = Vec::new();
        for text in self.texts(value, LINK) {
            links.extend(self.parsed(&text, link));
        }
        let bytes: usize = links.iter().map(String::len).sum();
        if bytes > BYTES_MAX {
            let message = format!("these are {bytes} bytes, and at most {BYTES_MAX} are possible");
            self.error(
                "early-hints",
                value.span(),
                message,
                "name what a page needs first",
            );
        }
        (self.diagnostics.len() == before).then(|| Arc::new(Placed::new(links, value.span())))
    }
}

/// RFC 8288, section 3: a URL in angle brackets, then parameters, of which `rel` is one.
fn link(text: &str) -> Result<String, ValueError> {
    let parameters = text.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    let has_relation = |(url, parameters): (&str, &str)| {
        let mut parameters = parameters.split(';').map(str::trim_start);
        !url.is_empty() && parameters.any(|parameter| parameter.starts_with("rel="))
    };
    let is_printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    match is_printable && parameters.is_some_and(has_relation) {
        true => Ok(text.to_owned()),
        false => Err(ValueError::new(
            "early-hints",
            "this is no value of the field `Link`",
            format!("write for example {LINK}"),
        )),
    }
}
