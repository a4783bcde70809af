//! `blitz cert`: issues a certificate with a local authority, for development and tests.

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;

use crate::issue::{self, AUTHORITY_FILE, Authority, StoredAuthority};

const EXTENDED: &str = "changed       the authority now permits these names; clients have to trust its \
                        new certificate,\n              and certificates that it has issued stay valid\n";
const REPLACED: &str = "replaced      the authority, which could issue for any name; clients have to \
                        trust the new one,\n              and certificates of the old one are not valid \
                        with it\n";

/// BoringSSL supports no constraints of addresses.
const ADDRESS_NOTE: &str = "\n              gRPC's C core rejects certificates with addresses; \
                            it needs one for names only";

#[derive(Debug, Args)]
pub(crate) struct CertArguments {
    /// The folder for the files. An authority in the folder issues the certificate; otherwise a new one is
    /// made. Authorities are constrained to the names that they issue for
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,

    /// Names and addresses of the certificate; *.example.com covers every name in example.com
    /// [default: localhost and the name of this machine]
    #[arg(value_name = "NAME", value_parser = name)]
    names: Vec<String>,
}

fn name(value: &str) -> Result<String, String> {
    if issue::is_name(value) {
        return Ok(value.to_ascii_lowercase());
    }
    Err("this is not a name or an address\n  \
         write a name such as www.example.com or *.example.com, or an address such as 127.0.0.1"
        .to_owned())
}

/// Makes the files and prints how to use them.
pub(crate) fn run(arguments: &CertArguments) -> ExitCode {
    match make(arguments, SystemTime::now()) {
        Ok(message) => {
            // The files exist, even if standard output is closed.
            let _ = io::stdout().write_all(message.as_bytes());
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
        [] => issue::local_names().0,
        names => names.to_vec(),
    };
    let stem = file_stem(names.first().map_or("", String::as_str));
    let (certificate, key) = (
        folder.join(format!("{stem}.pem")),
        folder.join(format!("{stem}.key")),
    );
    issue::make_folder(folder).map_err(|error| cannot_write(folder, &error))?;
    ensure_absent(&certificate)?;
    ensure_absent(&key)?;
    let (authority, changed) = authority(folder, &names, now)?;
    let pair = authority.issue(&names, now)?;
    issue::write_file(&key, &pair.key, 0o600).map_err(|error| cannot_write(&key, &error))?;
    issue::write_file(&certificate, &pair.certificate, 0o644)
        .map_err(|error| cannot_write(&certificate, &error))?;
    Ok(changed.to_owned() + &advice(folder, &certificate, &key, &names))
}

/// The folder's authority, which can issue for these names, and a message if it has changed.
fn authority(
    folder: &Path,
    names: &[String],
    now: SystemTime,
) -> Result<(Authority, &'static str), String> {
    let (authority, changed) = match Authority::load(folder, now) {
        StoredAuthority::Valid(authority) if authority.permits(names) => {
            return Ok((*authority, ""));
        }
        StoredAuthority::Valid(authority) => (authority.extend(names, now)?, EXTENDED),
        StoredAuthority::Unconstrained => (Authority::new(names, now)?, REPLACED),
        StoredAuthority::Missing => {
            ensure_absent(&folder.join(AUTHORITY_FILE))?;
            (Authority::new(names, now)?, "")
        }
    };
    let saved = authority.save(folder);
    saved.map_err(|error| cannot_write(folder, &error))?;
    Ok((authority, changed))
}

/// Refuses to overwrite a file, which may be in use.
fn ensure_absent(file: &Path) -> Result<(), String> {
    if file.exists() {
        return Err(format!(
            "{} exists\n  remove it if it is not needed, or choose another folder: --out DIR",
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

/// A name, converted to a part of a file name.
fn file_stem(name: &str) -> String {
    let stem = name.replace('*', "wildcard").replace(':', "_");
    // The authority's files have this name.
    if stem == "ca" { "ca_".to_owned() } else { stem }
}

fn advice(folder: &Path, certificate: &Path, key: &Path, names: &[String]) -> String {
    let authority = folder.join(AUTHORITY_FILE);
    let (authority, certificate, key) = (authority.display(), certificate.display(), key.display());
    let host = match names.first().map_or("localhost", String::as_str) {
        name if name.contains(':') => format!("[{name}]"),
        name => name.replace('*', "www"),
    };
    // DNS need not know the name.
    let is_local = host == "localhost" || host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    let connect_to = match is_local {
        true => String::new(),
        false => format!("--connect-to {host}:8443:localhost:8443 "),
    };
    let has_address = names.iter().any(|name| name.parse::<IpAddr>().is_ok());
    let note = if has_address { ADDRESS_NOTE } else { "" };
    format!(
        "certificate   {certificate}\n\
         key           {key}, to be kept secret\n\
         names         {}{note}\n\
         issued by     {authority}, for clients to trust; its key is in the same folder\n\
         serve         blitz run --listen-tls :8443 --cert {certificate} --key {key}\n\
         try           curl --cacert {authority} {connect_to}https://{host}:8443/\n",
        names.join(", ")
    )
}
