//! `blitz fmt`: configuration files in the canonical form.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write, stderr, stdin, stdout};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use blitz_config::Document;
use clap::Args;

use crate::{config, line_diff, output};

const EXAMPLES: &str = "\
Examples:
  blitz fmt                      $BLITZ_CONFIG, ./blitz.toml or /etc/blitz/blitz.toml
  blitz fmt my.toml sites/*.toml  these files
  blitz fmt --check              for CI: changes nothing, and names files that would change
  blitz fmt --fix                also repairs mistakes whose repair is certain
  blitz fmt - <my.toml           standard input to standard output, for editors

The order is listen and other single keys, defaults, server and other settings of the process, presets, sites,
upstreams; sites and their keys keep their order. Comments stay with what they stand above, below or behind.

The exit code is 1 if a file cannot be read or is not TOML, which leaves it as it is, and with --check also if a
file would change.";

/// The name of standard input.
const STDIN: &str = "-";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FmtArguments {
    /// Files, folders with blitz.toml, or - [default: $BLITZ_CONFIG, ./blitz.toml or /etc/blitz/blitz.toml]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Change nothing; name the files that would change, on a terminal with their changes, and exit with 1
    #[arg(long)]
    check: bool,

    /// Repair mistakes first, where it is certain what was meant
    #[arg(long)]
    fix: bool,
}

pub(crate) fn run(arguments: &FmtArguments) -> ExitCode {
    let files = match arguments.files.as_slice() {
        [] => vec![config::chosen(None)],
        files => files.to_vec(),
    };
    let mut code = ExitCode::SUCCESS;
    for file in &files {
        match format(file, arguments) {
            Ok(false) => {}
            Ok(true) => code = ExitCode::FAILURE,
            Err(problem) => {
                eprintln!("{}", problem.trim_end());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Formats a file. True if it would change, and must not.
fn format(file: &Path, arguments: &FmtArguments) -> Result<bool, String> {
    let is_stdin = file == Path::new(STDIN);
    let path = config::file_in(file);
    let document = match is_stdin {
        true => standard_input()?,
        false => config::document(&path).map_err(|problem| format!("blitz: {problem}"))?,
    };
    let environment = config::variables();
    let (repaired, repairs) = match arguments.fix {
        true => blitz_config::repair(&document, &environment),
        false => (document.clone(), Vec::new()),
    };
    let text = blitz_config::format(&repaired, &environment).map_err(|errors| {
        let text = blitz_config::render(&repaired, &errors, stderr().is_terminal());
        format!("{text}blitz: {} stays as it is", document.name)
    })?;
    let is_changed = text != document.text;
    for repair in &repairs {
        eprintln!("repaired  {}:{repair}", document.name);
    }
    if arguments.check {
        if is_changed {
            show(&document, &text);
        }
        return Ok(is_changed);
    }
    if is_stdin {
        output::print(&text);
    } else if is_changed {
        replace(&path, &text).map_err(|error| {
            format!(
                "blitz: {} cannot be written: {error}\n  it stays as it is",
                path.display()
            )
        })?;
        output::print(&format!("formatted  {}\n", document.name));
    }
    Ok(false)
}

fn standard_input() -> Result<Document, String> {
    let mut text = String::new();
    // One byte more tells a larger file, of which a part must not be printed.
    let read = stdin()
        .take(config::FILE_BYTES_MAX + 1)
        .read_to_string(&mut text);
    read.map_err(|error| format!("blitz: standard input cannot be read: {error}"))?;
    if text.len() as u64 > config::FILE_BYTES_MAX {
        let mebibytes = config::FILE_BYTES_MAX >> 20;
        return Err(format!(
            "blitz: standard input has more than {mebibytes} MiB\n  name the file in place of -"
        ));
    }
    Ok(Document::new("<stdin>", text))
}

/// Names a file that would change.
fn show(document: &Document, text: &str) {
    output::print(&format!("{}\n", document.name));
    if stdout().is_terminal() {
        output::print(&line_diff::of(&document.text, text));
    }
}

/// Replaces a file by one with the same mode and owner. Readers see the old content or the new one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    // A link stays, and its target is replaced.
    let path = fs::canonicalize(path)?;
    let metadata = fs::metadata(&path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}", process::id()));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        // Nobody else reads it before it has its mode.
        .mode(0o600)
        .open(&temporary)?;
    let written = fill(&file, &metadata, text).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn fill(mut file: &File, metadata: &fs::Metadata, text: &str) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (metadata.uid(), metadata.gid()) {
        fchown(file, Some(metadata.uid()), Some(metadata.gid()))?;
    }
    file.set_permissions(metadata.permissions())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
