//! `blitz config diff`: the changes that a reload would make in a running process.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::control_client::{self, ANSWER_TIMEOUT, Chosen};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  blitz config diff             the file of the running process, which `blitz reload` reads
  blitz config diff new.toml    another file, before it replaces that one
  blitz config diff --control /run/my/blitz.sock

  + shop.example                a site, route or listener that would come
  ~ www.example                 one that would change, with its routes
      ~ /api
  - listener http://0.0.0.0:81  one that would go

The process compares the file with the text that it uses, with its own variables of the environment. Certificates
and pages whose content has changed are not named.

The exit code is 0 if nothing would change, 1 if something would, and 2 if the file has mistakes or no process
answers, like that of diff.";

/// Exit codes of diff.
const DIFFERENT: u8 = 1;
const TROUBLE: u8 = 2;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffArguments {
    /// The file, or a folder with blitz.toml [default: the file of the process]
    file: Option<PathBuf>,

    /// Socket of the process [default: /run/blitz/control.sock, $XDG_RUNTIME_DIR/blitz/control.sock]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

pub(crate) fn run(arguments: &DiffArguments) -> ExitCode {
    match ask(arguments) {
        Ok(text) if text.is_empty() => ExitCode::SUCCESS,
        Ok(text) => {
            output::print(&text);
            DIFFERENT.into()
        }
        Err(problem) => {
            eprintln!("{}", problem.trim_end());
            TROUBLE.into()
        }
    }
}

fn ask(arguments: &DiffArguments) -> Result<String, String> {
    let file = arguments.file.as_deref().map(|file| {
        // The process may have another folder.
        let absolute = std::path::absolute(file);
        absolute.unwrap_or_else(|_| file.to_owned())
    });
    let file = file.map(|file| ("file", file.display().to_string()));
    let target = control_client::target("/config/diff", file.as_slice());
    get(of_socket(arguments.control.as_deref()), &target)
}

/// The effective configuration of a running process.
///
/// # Errors
/// The problem with its remedy.
pub(crate) fn running(control: Option<&Path>) -> Result<String, String> {
    get(of_socket(control), "/config")
}

fn of_socket(socket: Option<&Path>) -> Chosen<'_> {
    Chosen {
        socket,
        config: None,
    }
}

/// The content of a response with 200.
///
/// # Errors
/// The content of another response, or the problem with its remedy.
pub(crate) fn get(process: Chosen<'_>, target: &str) -> Result<String, String> {
    let answer = control_client::ask(process, "GET", target, ANSWER_TIMEOUT)?;
    match answer.status {
        200 => Ok(answer.content),
        _ => Err(format!("blitz: {}", answer.content)),
    }
}
