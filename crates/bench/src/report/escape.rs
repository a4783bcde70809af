//! Text from outside, such as a `Server` field or a URL, in the syntax of each form.

use std::fmt::{self, Display, Formatter, Write};

/// Text in HTML and SVG, in content and in attributes with double quotes.
pub(crate) struct Html<'a>(pub(crate) &'a str);

impl Display for Html<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                '\'' => out.write_str("&#39;")?,
                other if is_control(other) => out.write_char('\u{fffd}')?,
                other => out.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// JSON inside of a `script` element, which neither `</script>` nor `<!--` may end.
pub(crate) fn json_in_script(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
    out
}

/// Text in a paragraph or a cell of Markdown, on one line.
pub(crate) fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => {
                out.push('\\');
                out.push(character);
            }
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\n' | '\r' | '\t' => out.push(' '),
            other if is_control(other) => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

/// Code in a paragraph of Markdown, in more backticks than it has itself.
pub(crate) fn markdown_code(code: &str) -> String {
    let code: String = code
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    match code.starts_with('`') || code.ends_with('`') {
        true => format!("{fence} {code} {fence}"),
        false => format!("{fence}{code}{fence}"),
    }
}

/// Text on a terminal, which escape sequences must not reach.
pub(crate) fn terminal(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\n' | '\r' | '\t' => ' ',
            other if is_control(other) => '\u{fffd}',
            other => other,
        })
        .collect()
}

/// Control characters that HTML does not allow, and those that change the order of the text around them.
fn is_control(character: char) -> bool {
    let is_white_space = matches!(character, '\n' | '\r' | '\t');
    let is_bidirectional = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() && !is_white_space || is_bidirectional
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        let text = Html("<b a='1' c=\"2\">&\u{1b}</b>").to_string();
        assert_eq!(
            text,
            "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;\u{fffd}&lt;/b&gt;"
        );
        assert_eq!(
            markdown("a|b\n<i> `x` [y](z)"),
            "a\\|b &lt;i&gt; \\`x\\` \\[y\\](z)"
        );
        assert_eq!(markdown_code("a `b` ``c``"), "``` a `b` ``c`` ```");
        assert_eq!(
            terminal("\u{1b}[31mred\u{9b}\n"),
            "\u{fffd}[31mred\u{fffd} "
        );
    }

    #[test]
    fn json_in_a_script_keeps_its_meaning() {
        let json = serde_json::to_string("</script><!-- & \u{2028}").unwrap();
        let embedded = json_in_script(&json);
        assert!(
            !embedded.contains(['<', '>', '&', '\u{2028}']),
            "{embedded}"
        );
        let back: String = serde_json::from_str(&embedded).unwrap();
        assert_eq!(back, "</script><!-- & \u{2028}");
    }
}
