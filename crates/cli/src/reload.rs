//! A reload of the configuration file, which is used as a whole or not at all, and `blitz reload`, which asks for one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blitz_config::Process;
use blitz_gateway::Reloading;
use clap::Args;

use crate::access_log::OpenAccessLog;
use crate::announce::shown;
use crate::config::ConfigFile;
use crate::control::Outcome;
use crate::control_client::Chosen;
use crate::in_use::InUse;
use crate::listeners::ListenAddresses;
use crate::otlp::OpenExport;
use crate::rate_store::OpenRateStore;
use crate::timeouts::positive_or_forever;
use crate::tls::{PreparedTls, Tls, TlsArguments};
use crate::watch::Watch;
use crate::{control_client, differences, output};

const EXAMPLES: &str = "\
Examples:
  blitz reload                               the process with the usual socket
  blitz reload --config /srv/blitz.toml      the one whose socket this file names
  blitz reload --control /run/my/blitz.sock  another one

It prints what has changed. The exit code is 1 if the file has mistakes, which are printed; then the
configuration in use stays.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReloadArguments {
    /// Socket of the process [default: that of the file, /run/blitz/control.sock, $XDG_RUNTIME_DIR/blitz/control.sock]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// The file that names the socket, or a folder with blitz.toml [default: $BLITZ_CONFIG, ./blitz.toml or
    /// /etc/blitz/blitz.toml]
    ///
    /// The process reads the file that it was started with.
    #[arg(long, value_name = "FILE", conflicts_with = "control")]
    config: Option<PathBuf>,

    /// How long to wait for the outcome
    ///
    /// Write 500ms, 30s, 5m or forever. The reload goes on in the process.
    #[arg(long, value_name = "DURATION", value_parser = positive_or_forever, default_value = "30s", allow_hyphen_values = true)]
    timeout: Duration,
}

pub(crate) fn run(arguments: &ReloadArguments) -> ExitCode {
    let process = Chosen {
        socket: arguments.control.as_deref(),
        config: arguments.config.as_deref(),
    };
    match ask(process, arguments.timeout) {
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
fn ask(process: Chosen<'_>, timeout: Duration) -> Outcome {
    let answer = control_client::ask(process, "POST", "/reload", timeout)?;
    match answer.status {
        200 => Ok(answer.content),
        _ => Err(answer.content),
    }
}

/// The file in use.
pub(crate) struct ReloadedFile {
    path: PathBuf,
    settings: ReloadSettings,
    /// The configuration in use, which the control socket shows.
    in_use: Arc<InUse>,
    watch: Option<Watch>,
}

/// The flags that apply to the sites and listeners of a file.
pub(crate) struct ReloadSettings {
    pub(crate) request_trailers: bool,
    pub(crate) tls: TlsArguments,
    pub(crate) flags: Process,
    /// The store of limits, which a reload may replace.
    pub(crate) rate_store: OpenRateStore,
}

impl ReloadedFile {
    pub(crate) fn new(
        path: &Path,
        settings: ReloadSettings,
        file: &ConfigFile,
        process: &Process,
    ) -> ReloadedFile {
        let in_use = InUse::new(
            path,
            settings.request_trailers,
            &settings.flags,
            process,
            file,
        );
        let in_use = Arc::new(in_use);
        ReloadedFile {
            path: path.to_owned(),
            settings,
            in_use,
            watch: file.watch(process),
        }
    }

    /// The configuration in use, which follows reloads.
    pub(crate) fn in_use(&self) -> Arc<InUse> {
        Arc::clone(&self.in_use)
    }

    /// Reads the file again. Its sites, listeners and certificates replace those in use, unless it has mistakes. Both
    /// outcomes are logged.
    pub(crate) fn reload(
        &mut self,
        running: &mut Reloading<'_>,
        tls: &mut Option<Tls>,
        observers: (&mut OpenAccessLog, &mut OpenExport),
    ) -> Outcome {
        let outcome = self.replace(running, tls, observers);
        let status = running.status();
        status.note_reload(outcome.is_ok(), SystemTime::now());
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

    fn replace(
        &mut self,
        running: &mut Reloading<'_>,
        tls: &mut Option<Tls>,
        (access_log, export): (&mut OpenAccessLog, &mut OpenExport),
    ) -> Outcome {
        let stays = |problem: String| format!("{problem}\nthe configuration in use stays\n");
        let networks = self.in_use.networks();
        let file = ConfigFile::load_after(&self.path, self.settings.request_trailers, &networks);
        let file = file.map_err(stays)?;
        // The repair may be in a file that only the new version names.
        let applied = self.in_use.applied();
        self.watch = file.watch(&applied.process);
        let diagnostics = file.report_as_text(false);
        if let Some(problem) = file.problem() {
            return Err(stays(format!("{diagnostics}{problem}")));
        }
        let listeners = ListenAddresses::of_file(&file);
        let certificates = NewCertificates::prepare(&self.settings.tls, &file, tls.as_ref());
        let certificates = certificates.map_err(stays)?;
        // With the settings in use: others would replace all listeners for TLS.
        let configs = listeners.configs(&applied.process, certificates.tls(tls.as_ref()));
        let problem = |error| {
            listeners
                .problem(&error)
                .unwrap_or_else(|| error.to_string())
        };
        let restart = differences::restart(&file, applied, &self.settings.flags);
        let wanted = &file.configuration.process;
        let wanted = self.settings.flags.clone().or(wanted.clone());
        let new_log = access_log.prepare(&wanted).map_err(stays)?;
        let new_export = export.prepare(&wanted).map_err(stays)?;
        let log_lines = networks.changes(&file.networks)
            + &format!("{}{}", new_log.change(), new_export.change());
        let networks = file.networks.clone();
        let (summary, document) = (file.summary(), file.document().clone());
        // The text of the file and its model are not needed any more.
        let replacement = running.prepare(file.into_sites(), configs);
        let replacement = replacement.map_err(|error| stays(problem(error)))?;
        let replacement = replacement
            .with_access_log(new_log.log())
            .with_tracing(new_export.settings());
        let before: Vec<_> = running.listeners().map(shown).collect();
        let changes = running.replace(replacement, || certificates.apply(tls));
        let changes = changes.map_err(|error| stays(problem(error)))?;
        let after: Vec<_> = running.listeners().map(shown).collect();
        access_log.replace(new_log);
        export.replace(new_export);
        let store_line = self.settings.rate_store.replace(&wanted);
        self.in_use.replace(document, networks);
        let sites = differences::site_lines(&changes);
        let listeners = differences::listener_changes(&before, &after);
        Ok(format!(
            "{diagnostics}{summary}\n{sites}{listeners}{log_lines}{store_line}{restart}"
        ))
    }
}

/// The certificates of a file, which are not in use yet.
enum NewCertificates {
    /// Those in use stay.
    Kept,
    Replaced(PreparedTls),
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
                let prepared = tls.prepare(&file.tls)?;
                Ok(prepared.map_or(NewCertificates::Kept, NewCertificates::Replaced))
            }
            None if file.tls_listeners.is_empty() => Ok(NewCertificates::Kept),
            None => {
                Tls::load(arguments, &file.tls).map(|tls| NewCertificates::First(Box::new(tls)))
            }
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
