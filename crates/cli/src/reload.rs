//! A reload of the configuration file, which is used as a whole or not at all, and `blitz reload`, which asks for one.

use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use blitz_config::{Host, Process};
use blitz_gateway::{Reloading, SiteChange, TrustedProxy};
use blitz_host::certificates::PreparedCertificates;
use clap::Args;

use crate::announce::shown;
use crate::config::ConfigFile;
use crate::control::{self, Outcome};
use crate::listeners::Listeners;
use crate::timeouts::positive_or_forever;
use crate::tls::{Tls, TlsArguments};
use crate::watch::Watch;
use crate::{output, process};

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

    /// How long to wait for the outcome
    ///
    /// Write 500ms, 30s, 5m or forever. The reload goes on in the process.
    #[arg(long, value_name = "DURATION", value_parser = positive_or_forever, default_value = "30s", allow_hyphen_values = true)]
    timeout: Duration,
}

pub(crate) fn run(arguments: &ReloadArguments) -> ExitCode {
    match ask(arguments.control.as_deref(), arguments.timeout) {
        Ok(changes) => {
            output::print(&changes);
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{}", problem.trim_end());
            ExitCode::FAILURE
        }
    }
}

/// Asks a running process for a reload.
fn ask(chosen: Option<&Path>, timeout: Duration) -> Outcome {
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
    let response = post(&mut stream, timeout).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            "blitz: the process has not answered within --timeout; it may still read the file\n  \
             its log has the outcome; write a longer --timeout for a slow file system"
                .to_owned()
        }
        _ => format!("blitz: {error}"),
    })?;
    let (head, content) = response.split_once("\r\n\r\n").unwrap_or_default();
    match head.starts_with("HTTP/1.1 200 ") {
        true => Ok(content.to_owned()),
        false if head.is_empty() => {
            Err("blitz: the process has ended without an answer; its log has the reason".to_owned())
        }
        false => Err(content.to_owned()),
    }
}

/// The response as it is: the process sends short texts with their length.
fn post(stream: &mut UnixStream, timeout: Duration) -> io::Result<String> {
    stream.set_write_timeout(Some(timeout))?;
    stream.set_read_timeout(Some(timeout))?;
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
    settings: ReloadSettings,
    trusted_proxies: Vec<TrustedProxy>,
    /// Settings of the process as they are in use.
    process: Process,
    watch: Option<Watch>,
}

/// What flags say of the sites and listeners of a file.
pub(crate) struct ReloadSettings {
    pub(crate) request_trailers: bool,
    pub(crate) tls: TlsArguments,
    pub(crate) flags: Process,
}

impl ReloadedFile {
    pub(crate) fn new(
        path: &Path,
        settings: ReloadSettings,
        file: &ConfigFile,
        process: &Process,
    ) -> ReloadedFile {
        ReloadedFile {
            path: path.to_owned(),
            settings,
            process: process.clone(),
            watch: file.watch(process),
            trusted_proxies: file.trusted_proxies.clone(),
        }
    }

    /// Reads the file again. Its sites, listeners and certificates replace those in use, unless it has mistakes. Both
    /// outcomes are logged.
    pub(crate) fn reload(&mut self, running: &mut Reloading<'_>, tls: &mut Option<Tls>) -> Outcome {
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

    /// Whether the file, or one that it names, has changed and is watched.
    pub(crate) fn has_changed(&mut self) -> bool {
        self.watch.as_mut().is_some_and(Watch::is_due)
    }

    fn replace(&mut self, running: &mut Reloading<'_>, tls: &mut Option<Tls>) -> Outcome {
        let stays = |problem: String| format!("{problem}\nthe configuration in use stays\n");
        let file = ConfigFile::load(&self.path, self.settings.request_trailers).map_err(stays)?;
        // The repair may be in a file that only the new version names.
        self.watch = file.watch(&self.process);
        let diagnostics = file.report_as_text(false);
        if let Some(problem) = file.problem() {
            return Err(stays(format!("{diagnostics}{problem}")));
        }
        let listeners = Listeners::of_file(&file);
        let certificates = NewCertificates::prepare(&self.settings.tls, &file, tls.as_ref());
        let certificates = certificates.map_err(stays)?;
        let process = self.settings.flags.clone();
        let process = process.or(file.configuration.process.clone());
        // With the settings in use: others would replace all listeners for TLS.
        let configs = listeners.configs(&self.process, certificates.tls(tls.as_ref()));
        let problem = |error| {
            listeners
                .problem(&error)
                .unwrap_or_else(|| error.to_string())
        };
        let has_other_proxies = file.trusted_proxies != self.trusted_proxies;
        let summary = file.summary();
        // The text of the file and its model are not needed any more.
        let replacement = running.prepare(file.into_sites(), configs);
        let replacement = replacement.map_err(|error| stays(problem(error)))?;
        let before: Vec<_> = running.listeners().map(shown).collect();
        let changes = running.replace(replacement, || certificates.apply(tls));
        let changes = changes.map_err(|error| stays(problem(error)))?;
        let after: Vec<_> = running.listeners().map(shown).collect();
        let mut text = format!("{diagnostics}{summary}\n{}", lines(&changes));
        text += &listener_changes(&before, &after);
        for key in process::changed(&self.process, &process) {
            let _ = writeln!(text, "  {key} has changed: a restart applies it");
        }
        if has_other_proxies {
            text += "  trusted proxies have changed: a restart applies them\n";
        }
        Ok(text)
    }
}

/// The certificates of a file, which are not in use yet.
enum NewCertificates {
    /// Those in use stay.
    Kept,
    Replaced(PreparedCertificates),
    /// There was no listener for TLS before.
    First(Box<Tls>),
}

impl NewCertificates {
    /// # Errors
    /// The invalid file, the reason, and the remedy.
    fn prepare(
        arguments: &TlsArguments,
        file: &ConfigFile,
        tls: Option<&Tls>,
    ) -> Result<NewCertificates, String> {
        match tls {
            Some(tls) => {
                let prepared = tls.prepare(&file.certificates)?;
                Ok(prepared.map_or(NewCertificates::Kept, NewCertificates::Replaced))
            }
            None if file.tls_listeners.is_empty() => Ok(NewCertificates::Kept),
            None => Tls::load(arguments, &file.certificates)
                .map(|tls| NewCertificates::First(Box::new(tls))),
        }
    }

    /// The TLS of listeners from now on.
    fn tls<'a>(&'a self, in_use: Option<&'a Tls>) -> Option<&'a Tls> {
        match self {
            NewCertificates::First(tls) => Some(tls),
            NewCertificates::Kept | NewCertificates::Replaced(_) => in_use,
        }
    }

    fn apply(self, in_use: &mut Option<Tls>) {
        match self {
            NewCertificates::Kept => {}
            NewCertificates::First(tls) => *in_use = Some(*tls),
            NewCertificates::Replaced(certificates) => {
                if let Some(tls) = in_use {
                    tls.apply(certificates);
                }
            }
        }
    }
}

/// A line for each listener that was opened or closed.
fn listener_changes(before: &[String], after: &[String]) -> String {
    let line = |sign, listener: &String| format!("  {sign} listener {listener}\n");
    let opened = after.iter().filter(|listener| !before.contains(listener));
    let closed = before.iter().filter(|listener| !after.contains(listener));
    let opened: String = opened.map(|listener| line('+', listener)).collect();
    let closed: String = closed.map(|listener| line('-', listener)).collect();
    opened + &closed
}

/// A line for each site that was added, changed or removed.
fn lines(changes: &[(SiteChange, Host)]) -> String {
    let mut text = String::new();
    for (change, host) in changes {
        let sign = match change {
            SiteChange::Added => '+',
            SiteChange::Changed => '~',
            SiteChange::Removed => '-',
        };
        // Writing to a text does not fail.
        let _ = writeln!(text, "  {sign} {host}");
    }
    match text.is_empty() {
        true => "  no site has changed\n".to_owned(),
        false => text,
    }
}
