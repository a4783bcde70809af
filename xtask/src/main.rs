//! Developer commands of Blitz: `cargo xtask <command>`.

#![forbid(unsafe_code)]

mod bench;
mod dist;
mod elf;
mod simulate;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
Developer commands of Blitz

  cargo xtask tidy       checks style: crate edges, sizes, forbidden calls, imports, documents
  cargo xtask reference  writes docs/keys.md, the page with all keys of the configuration
  cargo xtask dist       builds the release: one statically linked file, run in an empty root
  cargo xtask bench      builds the release and the limit programs, and runs blitz bench
  cargo xtask simulate   runs whole gateways on a simulated machine, from seeds
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    match command.as_str() {
        "dist" => dist::run(&rest),
        "tidy" => tidy::run(),
        "reference" => tidy::reference::run(),
        "bench" => bench::run(&rest),
        "simulate" => simulate::run(&rest),
        "" | "help" | "-h" | "--help" => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        other => {
            eprint!("xtask: there is no command '{other}'\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}
