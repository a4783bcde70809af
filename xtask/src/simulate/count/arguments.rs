//! The arguments of `cargo xtask simulate --count`.

pub(super) const HELP: &str = "\
Instructions, allocations, receives, sends and datagrams of whole requests, counted on a simulated machine with callgrind

  cargo xtask simulate --count                    compares with crates/simulate/counts.txt
  cargo xtask simulate --count h3-hello h2-hello  counts only these kinds
  cargo xtask simulate --count --against main     compares with another revision, built and counted on this machine
  cargo xtask simulate --count --parts h3-hello   where the instructions are
  cargo xtask simulate --count --write            writes the file
";

pub(super) struct Arguments {
    pub(super) mode: Mode,
    /// Kinds to count; none are all.
    pub(super) kinds: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Compare,
    Against(String),
    Parts,
    Write,
}

impl Arguments {
    /// `None` if they are wrong.
    pub(super) fn parse(args: &[String]) -> Option<Arguments> {
        let mut args = args.iter();
        let (mut modes, mut kinds) = (Vec::new(), Vec::new());
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--write" => modes.push(Mode::Write),
                "--parts" => modes.push(Mode::Parts),
                "--against" => modes.push(Mode::Against(args.next()?.clone())),
                flag if flag.starts_with('-') => return None,
                _ => kinds.push(arg.clone()),
            }
        }
        let mode = modes.pop().unwrap_or(Mode::Compare);
        // The file always has all kinds.
        let is_wrong = !modes.is_empty() || (mode == Mode::Write && !kinds.is_empty());
        (!is_wrong).then_some(Arguments { mode, kinds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Option<(Mode, Vec<String>)> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        Arguments::parse(&words).map(|arguments| (arguments.mode, arguments.kinds))
    }

    #[test]
    fn one_mode_and_kinds() {
        let kinds = vec!["h1".to_owned(), "h2".to_owned()];
        assert_eq!(parse(""), Some((Mode::Compare, vec![])));
        assert_eq!(parse("h1 h2"), Some((Mode::Compare, kinds.clone())));
        assert_eq!(
            parse("h1 --against main h2"),
            Some((Mode::Against("main".to_owned()), kinds))
        );
        for wrong in [
            "--against",
            "--write h1",
            "--write --parts",
            "--help",
            "--wrong",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
