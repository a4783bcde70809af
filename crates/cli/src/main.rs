//! The binary `blitz`: one file per subcommand, errors for people.

#![forbid(unsafe_code)]

mod access_log;
mod announce;
mod api_key;
mod authorities;
mod bench;
mod built_in;
mod cert;
mod check;
mod completions;
mod config;
mod config_diff;
mod conflicts;
mod constraints;
mod control;
mod control_client;
mod development;
mod differences;
mod doctor;
mod effective;
mod explain;
mod explanation;
mod file_folders;
mod file_pattern;
mod fmt;
mod followers;
mod heading;
mod health_checks;
mod http3;
mod in_use;
mod includes;
mod issue;
mod key_fetcher;
mod line_diff;
mod listen;
mod listeners;
mod live;
mod load;
mod loaded_file;
mod message_limits;
mod metrics_reader;
mod network_files;
mod otlp;
mod output;
mod process;
mod process_flags;
mod rate_store;
mod records;
mod redaction;
mod reload;
mod run;
mod secrets;
mod servers;
mod show_config;
mod site_certificates;
mod site_listeners;
mod size;
mod state_folder;
mod sticky_secret;
mod tail;
mod terminal;
mod timeouts;
mod timestamp;
mod tips;
mod tls;
mod top;
mod upgrades;
mod upkeep;
mod upstream_tls;
mod version;
mod watch;

use std::env;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  blitz
      the built-in site on http://localhost:8080 and https://localhost:8443
  blitz run --to http://127.0.0.1:3000
      a proxy in front of an application
  blitz run --listen :80 --to /api=http://127.0.0.1:4000 \\
            --to http://127.0.0.1:3000
      two applications; the longest prefix wins
  blitz run --listen-tls :443 --cert site.pem --key site.key \\
            --listen :80 --redirect-https
      HTTPS; clear-text requests are redirected to it
  blitz run --listen unix:/run/blitz.sock --to unix:/run/app.sock
      unix sockets on both sides
  blitz run --to h2c://127.0.0.1:50051
      an HTTP/2 upstream without TLS, for example gRPC
  blitz run --to http://127.0.0.1:3000 \\
            --trusted-proxies 10.0.0.0/8,192.0.2.7
      trust the load balancers in front of Blitz
  blitz run --config blitz.toml
      sites, routes and certificates of a file; `blitz check` finds its
      mistakes, `blitz fmt` tidies it, `blitz config diff` says what
      `blitz reload` would change in the running process
  blitz top
      watch the running process: requests, latencies, upstreams, failures
  blitz tail --status 5xx
      follow the failing requests of the running process
  blitz cert --out certs dev.example
      a certificate for development, with its CA
  blitz doctor
      check this machine, and what slows the running process now
  blitz bench h1 --quick
      compare Blitz with the servers that are installed on this machine

Signals: TERM and QUIT finish running requests, a second one drops them, as INT
does; HUP reads the file and certificates again and resolves names again.

Exit codes: 0 success, 1 environment error or failure, 2 usage error.";

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
    /// Serve and forward requests; the default command
    #[command(after_help = EXAMPLES)]
    Run(Box<run::RunArguments>),
    /// Check a configuration file and the files that it names; nothing is started
    Check(check::CheckArguments),
    /// Write configuration files in the canonical form
    Fmt(fmt::FmtArguments),
    /// Print what a configuration file makes of a request; nothing is sent
    Explain(explain::ExplainArguments),
    /// Print the effective configuration
    Config(effective::ConfigArguments),
    /// Print the JSON Schema of configuration files, for editors
    Schema,
    /// Print completions for a shell: bash, zsh or fish
    Completions(completions::CompletionsArguments),
    /// Ask a running Blitz to read its configuration file again
    Reload(reload::ReloadArguments),
    /// Watch a running Blitz: requests, latencies, upstreams, failures and certificates
    Top(top::TopArguments),
    /// Show the servers of upstreams of a running Blitz, and drain them
    Servers(servers::ServersArguments),
    /// Follow the requests of a running Blitz, as they end
    Tail(tail::TailArguments),
    /// Issue a certificate for development, with a local authority
    Cert(cert::CertArguments),
    /// Make a key for a program, and the line with its hash for the file of `api_keys`
    ApiKey(api_key::ApiKeyArguments),
    /// Send load to a server, and measure the times of its responses
    Load(Box<blitz_bench::load::LoadArguments>),
    /// Print the version, the git revision and the I/O driver that this machine supports
    Version,
    /// Check this machine and the running Blitz, and print the problems with their remedies, and the DNS record for HTTP/3
    #[command(
        after_help = "Lines are ok, slow (Blitz serves less than it could), stop (Blitz cannot serve) or \
                      unknown.\nThe exit code is 1 if a line is stop."
    )]
    Doctor(doctor::DoctorArguments),
    /// Compare Blitz with other servers on this machine
    Bench(blitz_bench::BenchArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|mut error| {
        let arguments = env::args_os().map(|argument| argument.to_string_lossy().into_owned());
        tips::add(&mut error, &arguments.collect::<Vec<_>>());
        // With code 2 for a usage error.
        error.exit()
    });
    match arguments.command {
        None => run::run(&arguments.run),
        Some(Command::Run(run)) => run::run(&run),
        Some(Command::Check(arguments)) => check::run(&arguments),
        Some(Command::Fmt(arguments)) => fmt::run(&arguments),
        Some(Command::Explain(arguments)) => explain::run(&arguments),
        Some(Command::Config(arguments)) => effective::run(&arguments),
        Some(Command::Schema) => {
            output::print(&blitz_config::schema());
            ExitCode::SUCCESS
        }
        Some(Command::Completions(arguments)) => {
            completions::run(&arguments, &mut Arguments::command())
        }
        Some(Command::Reload(arguments)) => reload::run(&arguments),
        Some(Command::Top(arguments)) => top::run(&arguments),
        Some(Command::Servers(arguments)) => servers::run(&arguments),
        Some(Command::Tail(arguments)) => tail::run(&arguments),
        Some(Command::Cert(arguments)) => cert::run(&arguments),
        Some(Command::ApiKey(arguments)) => api_key::run(&arguments),
        Some(Command::Load(arguments)) => load::run(&arguments),
        Some(Command::Version) => version::run(),
        Some(Command::Doctor(arguments)) => doctor::run(&arguments),
        Some(Command::Bench(arguments)) => bench::run(&arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_run_has_a_heading() {
        let arguments = Arguments::command();
        let run = arguments.find_subcommand("run").expect("it exists");
        for flag in run.get_arguments().filter(|flag| flag.get_id() != "help") {
            assert!(flag.get_help_heading().is_some(), "{flag}");
        }
    }

    #[test]
    fn examples_fit_into_80_columns() {
        for line in EXAMPLES.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
