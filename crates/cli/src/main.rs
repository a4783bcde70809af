//! The binary `blitz`: one file per subcommand, errors for people.

#![forbid(unsafe_code)]

mod doctor;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An HTTP gateway and server, one reactor per core.
#[derive(Debug, Parser)]
#[command(name = "blitz", version = version::LONG, subcommand_required = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the version, the git revision and the I/O driver that this machine allows
    Version,
    /// Look at this machine: what is good, what is bad, and what to do about it
    #[command(after_help = "The exit code is 1 when a line is bad.")]
    Doctor,
}

fn main() -> ExitCode {
    // A wrong flag ends here with exit code 2, said by clap.
    match Arguments::parse().command {
        Command::Version => version::run(),
        Command::Doctor => doctor::run(),
    }
}
