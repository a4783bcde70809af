//! Words of a command line in the syntax of a POSIX shell.

/// The word as a shell reads it: in single quotes if it has characters with a meaning for the shell.
pub(crate) fn quote(word: &str) -> String {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "@%+=:,./-_".contains(character);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The words of a line of words from [`quote`]. `None` if a quote is not closed.
pub(crate) fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    // `None` between words.
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '\'' => break,
                        quoted => word.push(quoted),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(characters.next()?),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_with_a_meaning_for_the_shell_are_quoted() {
        for word in ["-c100", "http://a:80/x%20y", "--only", "rtt=50ms,loss=1%"] {
            assert_eq!(quote(word), word);
        }
        assert_eq!(quote(""), "''");
        assert_eq!(quote("/?a=1&b=$(id)"), "'/?a=1&b=$(id)'");
        assert_eq!(quote("it's; `x`"), r"'it'\''s; `x`'");
        for word in ["~", "#a", "{a,b}", "*", "a b", "a\nb", "ü", "!!"] {
            assert!(quote(word).starts_with('\''), "{word}");
        }
    }

    #[test]
    fn a_shell_and_this_module_read_the_same_words() {
        let words = ["a b", "", "it's", "$(id)", "\\", "\"", "'", "\n", "plain"];
        let line = words.map(quote).join(" ");
        assert_eq!(split(&line).unwrap(), words);
        let script = format!(r#"printf '%s\0' {line}"#);
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .output();
        let read = String::from_utf8(output.unwrap().stdout).unwrap();
        assert_eq!(read.split_terminator('\0').collect::<Vec<_>>(), words);
        assert_eq!(split("'open"), None);
    }
}
