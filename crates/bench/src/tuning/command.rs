//! The hidden command `blitz bench tuning`: the advice, the guardian, and changed settings until the input ends.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;

use super::{Tuning, guardian};
use crate::output;

/// Flags of `blitz bench tuning`.
#[derive(Debug, Args)]
pub(crate) struct TuningArguments {
    /// Be the process that restores the settings at the end of its input
    #[arg(long, conflicts_with_all = ["root", "tune"])]
    guard: bool,
    /// Change the settings until the end of the input
    #[arg(long)]
    tune: bool,
    /// The folder with proc and sys
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// Prints the settings and the advice, or does what its flags say.
pub(crate) fn run(arguments: &TuningArguments, blitz: &Path) -> Result<(), String> {
    if arguments.guard {
        return match guardian::guard() {
            Ok(true) => Ok(()),
            Ok(false) => Err("not all values were restored".to_owned()),
            Err(error) => Err(error.to_string()),
        };
    }
    let tuning = Tuning::read(&arguments.root);
    if !arguments.tune {
        let facts = tuning.facts().into_iter();
        let mut text: String = facts
            .map(|(name, value)| format!("{name}: {value}\n"))
            .collect();
        text.extend(
            tuning
                .advice()
                .iter()
                .map(|advice| format!("-> {advice}\n")),
        );
        return output::print(&text);
    }
    let tuned = tuning.apply(blitz)?;
    let changes = tuned.changes.iter().map(|change| change.text() + "\n");
    let text = changes.collect::<String>() + "until the end of the input\n";
    output::print(&text)?;
    // An error ends the input as well.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    match tuned.restore() {
        problems if problems.is_empty() => Ok(()),
        problems => Err(format!("not restored: {}", problems.join("; "))),
    }
}
