//! The binary `blitz`: one file per subcommand, errors for people.

#![forbid(unsafe_code)]

mod announce;
mod cert;
mod constraints;
mod development;
mod doctor;
mod issue;
mod listen;
mod run;
mod tls;
mod upstream_tls;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  blitz                                        the built-in site on http://localhost:8080 and
                                               https://localhost:8443
  blitz run --to http://127.0.0.1:3000         a proxy in front of an application
  blitz run --listen :80 --to /api=http://127.0.0.1:4000 --to http://127.0.0.1:3000
                                               two applications; the longest prefix wins
  blitz run --listen-tls :443 --cert site.pem --key site.key --listen :80 --redirect-https
                                               HTTPS, and everybody else is sent there
  blitz run --listen unix:/run/blitz.sock      listen on a unix socket
  blitz run --to http://127.0.0.1:3000 --trusted-proxies 10.0.0.0/8,192.0.2.7
                                               believe the load balancers in front
  blitz cert --out certs dev.example           a certificate for development, with its CA
  blitz doctor                                 what this machine offers, and what to do

Exit codes: 0 good, 1 it cannot start or failed, 2 wrong usage.";

/// An HTTP gateway and server, one reactor per core.
#[derive(Debug, Parser)]
#[command(name = "blitz", version = version::LONG, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    run: run::RunArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve and forward requests; what blitz does when no command is given
    #[command(after_help = EXAMPLES)]
    Run(Box<run::RunArguments>),
    /// Make a certificate for development, and the authority that issues it
    Cert(cert::CertArguments),
    /// Print the version, the git revision and the I/O driver that this machine allows
    Version,
    /// Look at this machine: what is good, what is bad, and what to do about it
    #[command(after_help = "The exit code is 1 when a line is bad.")]
    Doctor,
}

fn main() -> ExitCode {
    // A wrong flag ends here with exit code 2, said by clap.
    let arguments = Arguments::parse();
    match arguments.command {
        None => run::run(&arguments.run),
        Some(Command::Run(run)) => run::run(&run),
        Some(Command::Cert(arguments)) => cert::run(&arguments),
        Some(Command::Version) => version::run(),
        Some(Command::Doctor) => doctor::run(),
    }
}
