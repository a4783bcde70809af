//! Runs a server and a client on an emulated link, and reports what the link did:
//!
//! ```text
//! cargo run --package blitz-bench --example link -- --link 4g,loss=1% \
//!     --server 'python3 -m http.server 8000' --client 'curl -so /dev/null http://$SERVER:8000/'
//! ```

use std::error::Error;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use blitz_bench::link::{Link, LinkReport, LinkSpec, enter_user_namespace};
use clap::Parser;

/// The exit code if the emulator was late: EX_TEMPFAIL of sysexits(3).
const VOID: u8 = 75;

#[derive(Debug, Parser)]
#[command(about = "Runs a server and a client on an emulated link", after_help = LinkSpec::help())]
struct Arguments {
    /// The link: a profile, settings, or both
    #[arg(long, value_name = "LINK", default_value = "4g")]
    link: LinkSpec,

    /// The seed of its random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// The command of the server, for sh
    #[arg(long)]
    server: String,

    /// The command of the client, for sh; the address of the server is $SERVER
    #[arg(long)]
    client: String,

    /// How long the server needs to start
    #[arg(long, value_parser = blitz_config::parse_duration_sum, default_value = "500ms")]
    wait: Duration,
}

fn main() -> ExitCode {
    // The permission can only be obtained before the first thread starts.
    let result = enter_user_namespace()
        .map_err(Into::into)
        .and_then(|()| run(&Arguments::parse()));
    match result {
        Ok(report) => {
            eprintln!("{report}");
            match report.invalid() {
                Some(_) => ExitCode::from(VOID),
                None => ExitCode::SUCCESS,
            }
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<LinkReport, Box<dyn Error>> {
    let link = Link::start(&arguments.link, arguments.seed)?;
    let address = link.server_address().to_string();
    let mut server = link.spawn_server(&mut shell(&arguments.server, &address))?;
    thread::sleep(arguments.wait);
    let client = link.spawn_client(&mut shell(&arguments.client, &address));
    let status = client.and_then(|mut client| client.wait());
    server.kill()?;
    server.wait()?;
    let status = status?;
    if !status.success() {
        return Err(format!("the client failed: {status}").into());
    }
    Ok(link.stop())
}

/// `exec` makes the shell and a simple command the same process, which is killed at the end.
fn shell(command: &str, address: &str) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("exec {command}")])
        .env("SERVER", address);
    shell
}
