//! `blitz api-key`: makes a key for a program, and the line with its hash for the file of `api_keys`.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blitz_gateway::{ApiKey, api_keys};
use clap::Args;

use crate::output;

/// The random bytes of a key.
const KEY_BYTES: usize = 32;

/// How a key begins, so that people and scanners of secrets recognize it.
const PREFIX: &str = "blitz_";

const EXAMPLES: &str = "\
Examples:
  blitz api-key billing >> api-keys
      append the line to the file; the key is printed on standard error
  blitz api-key billing --expires 2027-12-31 >> api-keys
      a key that is refused from 2028 on";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ApiKeyArguments {
    /// The name of the key, which upstreams get: letters, digits and - _ . @ +
    #[arg(value_name = "NAME")]
    name: String,

    /// The last day on which the key is accepted, in UTC, such as 2027-12-31, or a time such as 2027-12-31T18:00:00Z
    #[arg(long, value_name = "DAY")]
    expires: Option<String>,
}

pub(crate) fn run(arguments: &ApiKeyArguments) -> ExitCode {
    let mut bytes = [0; KEY_BYTES];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        eprintln!("blitz: the system has no random numbers");
        return ExitCode::FAILURE;
    }
    let key = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    // With a character that no name has, in place of one that divides lines.
    let name = arguments.name.replace([':', '#', ' ', '\n', '\r'], "?");
    let line = line(&name, arguments.expires.as_deref(), &key);
    let made = api_keys(line.as_bytes()).and_then(|keys| not_expired(&keys));
    if let Err((problem, remedy)) = made {
        let problem = problem.replace("line 1", "this key");
        eprintln!("blitz: {problem}\n  {remedy}");
        return ExitCode::from(2);
    }
    // The key is shown once, and where no redirection into the file takes it.
    eprintln!("{key}");
    output::print(&line);
    ExitCode::SUCCESS
}

/// A key that would be refused from the start is a slip, most often of the year.
fn not_expired(keys: &[ApiKey]) -> Result<(), (String, String)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let has_expired = |key: &ApiKey| key.expires.is_some_and(|expires| expires <= now);
    match keys.iter().any(has_expired) {
        true => Err((
            "this key has an expiry that is past".to_owned(),
            "write a day from today on, in UTC, or leave --expires out".to_owned(),
        )),
        false => Ok(()),
    }
}

fn line(name: &str, expires: Option<&str>, key: &str) -> String {
    let hash = digest(&SHA256, key.as_bytes());
    let digits = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
    let hash: String = digits.collect();
    let expiry = expires.map(|day| format!(":{day}")).unwrap_or_default();
    format!("{name}:sha256:{hash}{expiry}\n")
}
