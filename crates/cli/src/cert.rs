//! `blitz cert`: a certificate with an authority of one's own, for development and tests.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;

use crate::issue::{self, AUTHORITY_FILE, Authority, Kept};

const EXTENDED: &str = "changed       the authority permits these names as well; clients have to trust \
                        its new certificate,\n              and what it has issued stays valid\n";
const REPLACED: &str = "replaced      the authority, which could issue for any name; clients have to \
                        trust the new one,\n              and what the old one has issued is not \
                        trusted with it\n";

#[derive(Debug, Args)]
pub(crate) struct CertArguments {
    /// The folder for the files; an authority that is there already issues the certificate. Authorities
    /// are constrained to the names that they issue for
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,

    /// Names and addresses that the certificate is for; *.example.com is every name in
    /// example.com [default: localhost, 127.0.0.1, ::1 and the name of this machine]
    #[arg(value_name = "NAME", value_parser = name)]
    names: Vec<String>,
}

fn name(value: &str) -> Result<String, String> {
    if issue::is_name(value) {
        return Ok(value.to_ascii_lowercase());
    }
    Err("a certificate cannot be for this\n  \
         write a name such as www.example.com or *.example.com, or an address such as 127.0.0.1"
        .to_owned())
}

/// Makes the files and says what to do with them.
pub(crate) fn run(arguments: &CertArguments) -> ExitCode {
    match make(arguments, SystemTime::now()) {
        Ok(said) => {
            // The files are there, whether or not somebody reads where.
            let _ = io::stdout().write_all(said.as_bytes());
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("blitz: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn make(arguments: &CertArguments, now: SystemTime) -> Result<String, String> {
    let folder = &arguments.out;
    let names = match arguments.names.as_slice() {
        [] => issue::own_names(),
        names => names.to_vec(),
    };
    let stem = file_stem(names.first().map_or("", String::as_str));
    let (certificate, key) = (
        folder.join(format!("{stem}.pem")),
        folder.join(format!("{stem}.key")),
    );
    issue::make_folder(folder).map_err(|error| cannot_write(folder, &error))?;
    spare(&certificate)?;
    spare(&key)?;
    let (authority, changed) = authority(folder, &names, now)?;
    let pair = authority.issue(&names, now)?;
    issue::write_file(&key, &pair.key, 0o600).map_err(|error| cannot_write(&key, &error))?;
    issue::write_file(&certificate, &pair.certificate, 0o644)
        .map_err(|error| cannot_write(&certificate, &error))?;
    Ok(changed.to_owned() + &advice(folder, &certificate, &key, &names))
}

/// The folder's authority, which can issue for these names, and what has changed about it.
fn authority(
    folder: &Path,
    names: &[String],
    now: SystemTime,
) -> Result<(Authority, &'static str), String> {
    let (authority, changed) = match Authority::load(folder, now) {
        Kept::Good(authority) if authority.permits(names) => return Ok((*authority, "")),
        Kept::Good(authority) => (authority.extend(names, now)?, EXTENDED),
        Kept::Unconstrained => (Authority::new(names, now)?, REPLACED),
        Kept::Nothing => {
            spare(&folder.join(AUTHORITY_FILE))?;
            (Authority::new(names, now)?, "")
        }
    };
    let saved = authority.save(folder);
    saved.map_err(|error| cannot_write(folder, &error))?;
    Ok((authority, changed))
}

/// What is there may be in use.
fn spare(file: &Path) -> Result<(), String> {
    if file.exists() {
        return Err(format!(
            "{} is there already\n  remove it if nobody needs it, or choose another folder: --out DIR",
            file.display()
        ));
    }
    Ok(())
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!(
        "{} cannot be written: {error}\n  choose a folder that you may write to: --out DIR",
        path.display()
    )
}

/// A name as a part of a file's name.
fn file_stem(name: &str) -> String {
    let stem = name.replace('*', "wildcard").replace(':', "_");
    // The authority's own files are called so.
    if stem == "ca" { "ca_".to_owned() } else { stem }
}

fn advice(folder: &Path, certificate: &Path, key: &Path, names: &[String]) -> String {
    let authority = folder.join(AUTHORITY_FILE);
    let (authority, certificate, key) = (authority.display(), certificate.display(), key.display());
    let host = match names.first().map_or("localhost", String::as_str) {
        name if name.contains(':') => format!("[{name}]"),
        name => name.replace('*', "www"),
    };
    format!(
        "certificate   {certificate}\n\
         its key       {key}, which nobody else may see\n\
         is for        {}\n\
         issued by     {authority}, for clients to trust; its key lies beside it\n\
         serve it      blitz run --listen-tls :8443 --cert {certificate} --key {key}\n\
         try           curl --cacert {authority} https://{host}:8443/\n",
        names.join(", ")
    )
}
