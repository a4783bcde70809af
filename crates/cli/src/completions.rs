//! `blitz completions`: scripts with which shells complete commands and flags.

use std::process::ExitCode;

use clap::{Args, Command, ValueEnum};
use clap_complete::generate;

use crate::output;

const EXAMPLES: &str = "\
Examples:
  blitz completions bash >/usr/share/bash-completion/completions/blitz
  blitz completions zsh >/usr/local/share/zsh/site-functions/_blitz
  blitz completions fish >/etc/fish/completions/blitz.fish
  source <(blitz completions bash)    for this shell only";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(arguments: &CompletionsArguments, command: &mut Command) -> ExitCode {
    let shell = match arguments.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, command, "blitz", &mut script);
    output::print(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}
