//! Comments, and the empty lines between them.

/// Lines between statements: comments, and empty lines, which are `""`. No two empty lines follow each other.
#[derive(Debug, Default, Clone)]
pub(super) struct CommentLines<'a>(pub(super) Vec<&'a str>);

impl<'a> CommentLines<'a> {
    /// Those of a text that has nothing but white space and comments.
    pub(super) fn new(text: &'a str) -> CommentLines<'a> {
        let mut lines: Vec<&str> = text.split('\n').map(str::trim).collect();
        // Behind the last line break the statement begins, or the file ends.
        if lines.last().is_some_and(|line| line.is_empty()) {
            lines.pop();
        }
        lines.dedup_by(|a, b| a.is_empty() && b.is_empty());
        CommentLines(lines)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|line| line.is_empty())
    }

    /// Takes the comments that belong to what is before: those up to the first empty line, if there is one.
    pub(super) fn take_footer(&mut self, is_last: bool) -> CommentLines<'a> {
        let end = self.0.iter().position(|line| line.is_empty());
        let end = match is_last {
            true => end.unwrap_or(self.0.len()),
            false => end.unwrap_or(0),
        };
        let rest = self.0.split_off(end);
        CommentLines(std::mem::replace(&mut self.0, rest))
    }

    /// Takes the comments that belong to the file: those before the last empty line, and directives for editors.
    pub(super) fn take_head(&mut self) -> CommentLines<'a> {
        let directives = self.0.iter().take_while(|line| line.starts_with("#:"));
        let end = self.0.iter().rposition(|line| line.is_empty());
        let end = end.map_or(0, |end| end + 1).max(directives.count());
        let rest = self.0.split_off(end);
        CommentLines(std::mem::replace(&mut self.0, rest))
    }

    /// Without empty lines at its ends.
    pub(super) fn trimmed(&self) -> &[&'a str] {
        let Some(start) = self.0.iter().position(|line| !line.is_empty()) else {
            return &[];
        };
        let end = self.0.iter().rposition(|line| !line.is_empty());
        &self.0[start..=end.unwrap_or(start)]
    }
}

/// The comments within white space and commas.
pub(super) fn within(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n')
        .filter_map(|line| Some(line[line.find('#')?..].trim_end()))
}

/// All comments of a file. It knows strings, and nothing else of TOML.
pub(super) fn of_text(text: &str) -> Vec<&str> {
    let mut comments = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['#', '"', '\'']) {
        rest = &rest[at..];
        let end = match rest.starts_with('#') {
            true => {
                let end = rest.find('\n').unwrap_or(rest.len());
                comments.push(rest[..end].trim_end());
                end
            }
            false => string_end(rest),
        };
        rest = &rest[end..];
    }
    comments
}

/// Where a string at the beginning of this text ends.
fn string_end(text: &str) -> usize {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let delimiter = match text.starts_with(&triple) {
        true => triple.as_str(),
        false => quote,
    };
    let mut at = delimiter.len();
    while let Some(found) = text[at..].find(['\\', '"', '\'']) {
        at += found;
        match &text[at..] {
            rest if rest.starts_with('\\') && quote == "\"" => {
                at += 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
            }
            rest if rest.starts_with(delimiter) => {
                // Two more quotes may belong to the string.
                let quotes = rest.len() - rest.trim_start_matches(quote).len();
                return at + quotes.min(delimiter.len() + 2).max(delimiter.len());
            }
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_outside_of_strings() {
        let text = "a = \"#\\\"#\" # 1\nb = '#\\' # 2\nc = \"\"\"\n# \"\\\"\"\"\"\"\" # 3\nd = '''#''''' #4\n#";
        assert_eq!(of_text(text), ["# 1", "# 2", "# 3", "#4", "#"]);
        assert_eq!(of_text("a = \"\" # 1\nb = '' # 2"), ["# 1", "# 2"]);
    }

    #[test]
    fn paragraphs_belong_to_what_they_touch() {
        let mut lines = CommentLines::new("# a\n# b\n\n\n# c\n\n# d\n");
        assert_eq!(lines.take_footer(false).0, ["# a", "# b"]);
        assert_eq!(lines.trimmed(), ["# c", "", "# d"]);
        let mut lines = CommentLines::new("# a\n");
        assert!(lines.take_footer(false).is_empty());
        assert_eq!(lines.take_footer(true).0, ["# a"]);
        let mut lines = CommentLines::new("#:schema x\n# a\n\n# b\n");
        assert_eq!(lines.take_head().0, ["#:schema x", "# a", ""]);
        let mut lines = CommentLines::new("#:schema x\n# a\n");
        assert_eq!(lines.take_head().0, ["#:schema x"]);
        assert_eq!(lines.trimmed(), ["# a"]);
    }
}
