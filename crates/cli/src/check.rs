//! `blitz check`: finds all mistakes of a configuration file, and starts nothing.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::config::{self, ConfigFile};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  blitz check                        $BLITZ_CONFIG, ./blitz.toml or /etc/blitz/blitz.toml
  blitz check /etc/blitz             blitz.toml of another one
  blitz check --format json my.toml  an object a line, for editors and CI

The exit code is 1 if there is an error, or if the file cannot be read.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArguments {
    /// The file, or a folder with blitz.toml [default: $BLITZ_CONFIG, ./blitz.toml or /etc/blitz/blitz.toml]
    file: Option<PathBuf>,

    /// How to print mistakes: text, or json with an object a line
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    format: Format,

    /// Exit with 1 if there are warnings only
    #[arg(long)]
    deny_warnings: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

pub(crate) fn run(arguments: &CheckArguments) -> ExitCode {
    let file = match ConfigFile::load(&config::chosen(arguments.file.as_deref()), false) {
        Ok(file) => file,
        Err(problem) => {
            eprintln!("blitz: {problem}");
            return ExitCode::FAILURE;
        }
    };
    match arguments.format {
        Format::Text => file.report(),
        Format::Json => output::print(&file.report_as_json()),
    }
    let (_, warnings) = file.counts();
    match file.problem() {
        Some(problem) => eprintln!("blitz: {problem}"),
        None if arguments.format == Format::Text => {
            output::print(&format!("ok  {}\n", file.summary()));
        }
        None => {}
    }
    match file.problem().is_some() || (arguments.deny_warnings && warnings > 0) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}
