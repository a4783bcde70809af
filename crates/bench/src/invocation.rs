//! What all benchmarks share: the programs, the folder of the results, and the facts about the call.

use std::path::PathBuf;

use crate::programs::Programs;
use crate::supervised;

/// One call of `blitz bench`.
#[derive(Debug)]
pub(crate) struct Invocation {
    /// The command that repeats the run.
    pub(crate) command: String,
    /// The revision of the measured binary.
    pub(crate) revision: String,
    pub(crate) programs: Programs,
    /// The folder of the results.
    pub(crate) out: PathBuf,
}

/// Flags with a value that say where files are, and nothing about the measurement.
const PLACES: [&str; 3] = ["--programs", "--out", "--revision"];

/// The command without the flags that name places of this machine. The first word is the program.
pub(crate) fn command(words: impl IntoIterator<Item = String>) -> String {
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    let mut command = name.to_owned();
    while let Some(word) = words.next() {
        let flag = word.split('=').next().unwrap_or_default();
        if flag == supervised::FLAG {
            continue;
        }
        if !PLACES.contains(&flag) {
            command = format!("{command} {word}");
        } else if flag == word {
            words.next();
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_this_machine_are_no_part_of_the_command() {
        let of = |text: &str| command(text.split(' ').map(str::to_owned));
        assert_eq!(
            of(
                "target/release/blitz bench --supervised --out /tmp/a h1 --quick --programs=b --only nginx"
            ),
            "blitz bench h1 --quick --only nginx"
        );
        assert_eq!(of("blitz bench --revision"), "blitz bench");
    }
}
