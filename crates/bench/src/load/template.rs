//! Text with placeholders, which differ in each request.

/// Text with placeholders: `{{n}}`, `{{random}}` and `{{uuid}}`.
#[derive(Debug, Clone)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    /// The number of the request.
    Number,
    /// 16 hexadecimal digits.
    Random,
    /// A UUID of version 4 (RFC 9562, section 5.4).
    Uuid,
}

/// The values of the placeholders of one request.
pub(super) struct Values {
    /// Counts the first requests, and then those of all cores: no two of a run have the same.
    pub(super) number: u64,
    pub(super) random: u64,
}

impl Values {
    /// The least and the greatest values, to check a template with: a port, for example, may hold the one and not the
    /// other.
    pub(super) fn examples() -> [Values; 2] {
        [0, u64::MAX].map(|value| Values {
            number: value,
            random: value,
        })
    }
}

impl Template {
    /// Text whose braces have no meaning.
    pub(super) fn literal(text: &str) -> Template {
        Template(vec![Piece::Text(text.to_owned())])
    }

    /// # Errors
    /// The placeholder that does not exist, and those that do.
    pub(super) fn parse(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let Some((name, following)) = after.split_once("}}") else {
                break;
            };
            let piece = match name.trim() {
                "n" => Piece::Number,
                "random" => Piece::Random,
                "uuid" => Piece::Uuid,
                _ => {
                    return Err(format!(
                        "there is no placeholder {{{{{name}}}}}; known: {{{{n}}}}, {{{{random}}}}, {{{{uuid}}}}"
                    ));
                }
            };
            pieces.extend([Piece::Text(before.to_owned()), piece]);
            rest = following;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Template(pieces))
    }

    /// Whether there are no placeholders.
    pub(super) fn is_constant(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// Appends the text with these values.
    pub(super) fn fill(&self, values: &Values, out: &mut String) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Number => out.push_str(&values.number.to_string()),
                Piece::Random => out.push_str(&format!("{:016x}", values.random)),
                Piece::Uuid => out.push_str(&uuid(values)),
            }
        }
    }
}

fn uuid(values: &Values) -> String {
    let high = values.random;
    // Unique in the run, because the number is.
    let low = (values.random.rotate_left(32) ^ values.number) & 0x3FFF_FFFF_FFFF_FFFF | 1 << 63;
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xFFFF,
        high & 0xFFF,
        low >> 48,
        low & 0xFFFF_FFFF_FFFF
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> String {
        let mut out = String::new();
        let values = Values {
            number: 7,
            random: 0x0123_4567_89AB_CDEF,
        };
        Template::parse(text).unwrap().fill(&values, &mut out);
        out
    }

    #[test]
    fn placeholders_are_replaced_and_other_braces_stay() {
        assert_eq!(filled("/a/{{n}}/{{ random }}"), "/a/7/0123456789abcdef");
        assert_eq!(filled("{\"a\":{\"b\":1}}"), "{\"a\":{\"b\":1}}");
        assert_eq!(filled("{{n"), "{{n");
        let uuid = filled("{{uuid}}");
        let parts: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert!(
            uuid.as_bytes()[14] == b'4' && b"89ab".contains(&uuid.as_bytes()[19]),
            "{uuid}"
        );
    }

    #[test]
    fn an_unknown_placeholder_lists_the_known_ones() {
        let error = Template::parse("/{{N}}").unwrap_err();
        assert!(
            error.contains("{{N}}") && error.contains("{{uuid}}"),
            "{error}"
        );
    }
}
