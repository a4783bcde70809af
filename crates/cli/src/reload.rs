//! A reload of the configuration file, which is used as a whole or not at all, and `blitz reload`, which asks for one.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use blitz_gateway::{Reloading, Site};
use clap::Args;

use crate::config::ConfigFile;
use crate::control::{self, Outcome};
use crate::tls::Tls;

const EXAMPLES: &str = "\
Examples:
  blitz reload                               the process with the usual socket
  blitz reload --control /run/my/blitz.sock  another one

It prints what has changed. The exit code is 1 if the file has mistakes, which are printed; then the
configuration in use stays.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReloadArguments {
    /// Socket of the process [default: /run/blitz/control.sock, $XDG_RUNTIME_DIR/blitz/control.sock]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ReloadArguments) -> ExitCode {
    match ask(arguments.control.as_deref()) {
        Ok(changes) => {
            print!("{changes}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{}", problem.trim_end());
            ExitCode::FAILURE
        }
    }
}

/// Asks a running process for a reload.
fn ask(chosen: Option<&Path>) -> Outcome {
    let paths = chosen.map_or_else(control::usual_paths, |path| vec![path.to_owned()]);
    let Some(mut stream) = paths.iter().find_map(|path| UnixStream::connect(path).ok()) else {
        let paths: Vec<_> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return Err(format!(
            "blitz: no process listens at {}, or not for this user\n  \
             start one with `blitz run --config FILE`, or name its socket with --control PATH",
            paths.join(" or ")
        ));
    };
    let response = post(&mut stream).map_err(|error| format!("blitz: {error}"))?;
    let (head, content) = response.split_once("\r\n\r\n").unwrap_or_default();
    match head.starts_with("HTTP/1.1 200 ") {
        true => Ok(content.to_owned()),
        false => Err(content.to_owned()),
    }
}

/// The response as it is: the process sends short texts with their length.
fn post(stream: &mut UnixStream) -> io::Result<String> {
    stream.write_all(
        b"POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    )?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

/// The file in use.
pub(crate) struct ReloadedFile {
    path: PathBuf,
    request_trailers: bool,
    sites: Vec<Site>,
    /// What only a restart changes, as text.
    fixed: String,
}

impl ReloadedFile {
    pub(crate) fn new(path: &Path, request_trailers: bool, file: &ConfigFile) -> ReloadedFile {
        ReloadedFile {
            path: path.to_owned(),
            request_trailers,
            sites: file.sites.clone(),
            fixed: fixed(file),
        }
    }

    /// Reads the file again. Its sites and certificates replace those in use, unless it has mistakes. Both outcomes are
    /// logged.
    pub(crate) fn reload(&mut self, running: &mut Reloading<'_>, tls: Option<&mut Tls>) -> Outcome {
        let outcome = self.replace(running, tls);
        match &outcome {
            Ok(changes) => {
                let changes = changes.trim_end().replace('\n', ";");
                tracing::info!("the configuration was read again: {changes}");
            }
            Err(problem) => tracing::error!("{}", problem.trim_end()),
        }
        outcome
    }

    fn replace(&mut self, running: &mut Reloading<'_>, tls: Option<&mut Tls>) -> Outcome {
        let stays = |problem: String| format!("{problem}\nthe configuration in use stays\n");
        let file = ConfigFile::load(&self.path, self.request_trailers).map_err(stays)?;
        let diagnostics = file.report_as_text(false);
        if let Some(problem) = file.problem() {
            return Err(stays(format!("{diagnostics}{problem}")));
        }
        if tls.is_none() && !file.tls_listeners.is_empty() {
            let problem = "the file has listeners for HTTPS, which only a restart opens";
            return Err(stays(problem.to_owned()));
        }
        let certificates = match &tls {
            Some(tls) => tls.prepare(&file.certificates).map_err(stays)?,
            None => None,
        };
        let replaced = running.replace_sites(file.sites.clone());
        replaced.map_err(|error| stays(error.to_string()))?;
        if let (Some(tls), Some(certificates)) = (tls, certificates) {
            tls.apply(certificates);
        }
        let mut text = format!("{diagnostics}{}\n", file.summary());
        text += &changes(&self.sites, &file.sites);
        if fixed(&file) != self.fixed {
            text += "  listeners and trusted proxies have changed: a restart applies them\n";
        }
        self.sites = file.sites;
        Ok(text)
    }
}

/// A line for each site that has come, changed, or gone.
fn changes(before: &[Site], after: &[Site]) -> String {
    let by_host = |sites| -> HashMap<_, _> {
        Iterator::map(sites, |site: &Site| (site.hosts.first(), site)).collect()
    };
    let (old, new) = (by_host(before.iter()), by_host(after.iter()));
    let come_or_changed = after
        .iter()
        .filter_map(|site| match old.get(&site.hosts.first()) {
            None => Some(('+', site)),
            Some(other) => (*other != site).then_some(('~', site)),
        });
    let gone = before
        .iter()
        .filter(|site| !new.contains_key(&site.hosts.first()));
    let mut text = String::new();
    for (sign, site) in come_or_changed.chain(gone.map(|site| ('-', site))) {
        if let Some(host) = site.hosts.first() {
            // Writing to a text does not fail.
            let _ = writeln!(text, "  {sign} {host}");
        }
    }
    match text.is_empty() {
        true => "  no site has changed\n".to_owned(),
        false => text,
    }
}

fn fixed(file: &ConfigFile) -> String {
    let ConfigFile {
        listeners,
        tls_listeners,
        trusted_proxies,
        ..
    } = file;
    format!("{listeners:?} {tls_listeners:?} {trusted_proxies:?}")
}
