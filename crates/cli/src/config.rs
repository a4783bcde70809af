//! The configuration file of `blitz run --config` and `blitz check`: it is read, compiled, and checked with the files that
//! it names.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use blitz_config::{
    Configuration, Control, ControlAddress, Diagnostic, Document, Environment, Listener, Placed,
    Process, Server, Severity, Socket, Span,
};
use blitz_gateway::{LoopId, Site, TrustedProxy, compile};
use blitz_host::serving::ListenerConfig;

use crate::network_files::{FileReader, Known, NetworkFiles};
use crate::site_listeners::Collected;
use crate::tls::FileTls;
use crate::watch::Watch;
use crate::{
    access_log, file_folders, includes, listen, loaded_file, otlp, process, rate_store, secrets,
    site_certificates,
};

/// The name of the file in a folder.
const FILE_NAME: &str = "blitz.toml";

/// The listeners of a file that names none.
const LISTEN: &str = ":80";
const LISTEN_TLS: &str = ":443";

/// The largest configuration file.
pub(crate) const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The variable of the environment that names the file.
const VARIABLE: &str = "BLITZ_CONFIG";

/// The file of a program that is told none: that of `$BLITZ_CONFIG`, of this folder or of `/etc/blitz`.
pub(crate) fn usual() -> Option<PathBuf> {
    let of_variable = env::var_os(VARIABLE).map(PathBuf::from);
    let here = Path::new(FILE_NAME);
    let of_machine = Path::new("/etc/blitz").join(FILE_NAME);
    let found = || [here, &of_machine].into_iter().find(|path| path.is_file());
    of_variable.or_else(|| found().map(Path::to_owned))
}

/// The file that is chosen, or else the usual one, or else that of this folder.
pub(crate) fn chosen(file: Option<&Path>) -> PathBuf {
    let usual = || usual().unwrap_or_else(|| PathBuf::from(FILE_NAME));
    file.map_or_else(usual, Path::to_owned)
}

/// The control socket that a file names: the file that is chosen, or else the usual one. `None` if there is no file, or
/// it names none.
///
/// # Errors
/// The file that is chosen cannot be read.
pub(crate) fn control_socket(file: Option<&Path>) -> Result<Option<(PathBuf, Socket)>, String> {
    let Some(path) = file.map(Path::to_owned).or_else(usual) else {
        return Ok(None);
    };
    let path = file_in(&path);
    let document = match document(&path) {
        Ok(document) => document,
        Err(problem) if file.is_some() => return Err(problem),
        // Others may not read that of the machine.
        Err(_) => return Ok(None),
    };
    // Also of a file with mistakes: the process tells them.
    let (mut configuration, _) = blitz_config::read(&document, &variables());
    resolve_socket(&mut configuration, &path);
    let socket = configuration.process.control.socket;
    Ok(socket.map(|socket| (path, socket.value)))
}

/// A file and its configuration.
pub(crate) struct ConfigFile {
    document: Document,
    diagnostics: Vec<Diagnostic>,
    pub(crate) configuration: Configuration,
    pub(crate) listeners: Vec<ListenerConfig>,
    /// Those for TLS, without its settings.
    pub(crate) tls_listeners: Vec<ListenerConfig>,
    pub(crate) trusted_proxies: Vec<TrustedProxy>,
    pub(crate) sites: Vec<Site>,
    pub(crate) tls: FileTls,
    /// The file itself and all that it names, with the folders where further certificates may appear. Some may be missing.
    files: Vec<PathBuf>,
    /// Those with networks.
    pub(crate) networks: NetworkFiles,
    /// When it began to be read.
    started: SystemTime,
}

impl ConfigFile {
    /// Reads a file, or the `blitz.toml` of a folder, and all files that it names. `request_trailers` is for all
    /// targets.
    ///
    /// # Errors
    /// The file cannot be read. Mistakes in it are [diagnostics](ConfigFile::report).
    pub(crate) fn load(path: &Path, request_trailers: bool) -> Result<ConfigFile, String> {
        ConfigFile::load_after(path, request_trailers, &NetworkFiles::default())
    }

    /// The same after another configuration, whose networks of unchanged files it shares.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn load_after(
        path: &Path,
        request_trailers: bool,
        networks: &NetworkFiles,
    ) -> Result<ConfigFile, String> {
        let path = file_in(path);
        let started = SystemTime::now();
        let mut document = document(&path)?;
        let included = includes::load(&mut document, &path, &variables());
        let mut file = ConfigFile::of_document(
            document,
            &path,
            request_trailers,
            (networks, Known::Current),
        );
        file.started = started;
        file.files.extend(included.watched);
        file.add(included.diagnostics);
        Ok(file)
    }

    fn add(&mut self, diagnostics: Vec<Diagnostic>) {
        // Definitions of an unreadable file are missing in others.
        if !diagnostics.is_empty() {
            self.diagnostics = diagnostics;
        }
    }

    /// The same of a text that was read from this file.
    pub(crate) fn of_document(
        document: Document,
        path: &Path,
        request_trailers: bool,
        networks: (&NetworkFiles, Known),
    ) -> ConfigFile {
        let path = file_in(path);
        let started = SystemTime::now();
        let (mut configuration, mut diagnostics) = blitz_config::read(&document, &variables());
        let folder = path.parent().unwrap_or(Path::new(""));
        resolve_socket(&mut configuration, &path);
        if let Some(log) = &mut configuration.process.log.access {
            access_log::resolve(&mut log.value, folder);
        }
        configuration.folder = folder.to_owned();
        let mut reader = FileReader {
            folder,
            known: networks,
            files: Vec::new(),
            networks: NetworkFiles::default(),
        };
        let mut sites = compile(&configuration, &mut reader, &mut diagnostics);
        let (mut files, networks) = (vec![path.clone()], reader.networks);
        files.extend(reader.files.iter().map(|file| folder.join(file)));
        secrets::hide(&configuration, &document, &mut sites);
        if request_trailers {
            let routes = sites.iter_mut().flat_map(|site| &mut site.routes);
            routes.for_each(|(_, route)| route.forward_request_trailers());
        }
        let mut checker = Checker { diagnostics };
        let first_with_tls = configuration.sites.iter().find(|site| site.tls.is_on);
        let (listeners, tls_listeners) = checker.listeners(&configuration, &mut sites);
        let trusted_proxies = configuration.trusted_proxies.iter();
        let trusted_proxies = trusted_proxies.map(|network| TrustedProxy::from(network.value));
        let trusted_proxies = trusted_proxies.collect();
        if let (true, Some(site)) = (tls_listeners.is_empty(), first_with_tls) {
            let message = "the site has TLS, and there is no listener for it";
            let label = "write for example listen_tls = [\":443\"] at the top";
            checker.error("tls-without-listener", &site.host.span, message, label);
        }
        checker.server(&configuration.process.server);
        checker.control(&configuration.process.control);
        let mut diagnostics = checker.diagnostics;
        if let Some(log) = &configuration.process.log.access {
            access_log::check(log, &mut diagnostics);
        }
        otlp::check(&configuration.process.tracing, &mut diagnostics);
        rate_store::check(&configuration.process.redis, &mut diagnostics);
        file_folders::check(&configuration, folder, &mut diagnostics);
        let certificates = site_certificates::find(&configuration, folder, &mut diagnostics);
        files.extend(site_certificates::watched(&configuration, folder));
        secrets::hide_in(&mut diagnostics, &document);
        diagnostics.sort_by_key(|diagnostic| (diagnostic.span.start, diagnostic.severity));
        ConfigFile {
            document,
            diagnostics,
            configuration,
            listeners,
            tls_listeners,
            trusted_proxies,
            tls: FileTls::new(certificates, &sites),
            sites,
            files,
            networks,
            started,
        }
    }

    /// Its text.
    pub(crate) fn document(&self) -> &Document {
        &self.document
    }

    /// Watches all files that it was read from, if it says so.
    pub(crate) fn watch(&self, process: &Process) -> Option<Watch> {
        process::watches(process).then(|| Watch::new(self.files.clone(), self.started))
    }

    /// Its sites alone; the text and the model, which are much larger, are freed.
    pub(crate) fn into_sites(self) -> Vec<Site> {
        self.sites
    }

    /// The text of a value.
    pub(crate) fn slice(&self, span: &Span) -> &str {
        self.document.slice(span)
    }

    /// The file and the line of a value.
    pub(crate) fn line_of(&self, span: &Span) -> String {
        let (line, _) = self.document.position(span.start);
        format!("{}:{line}", self.document.name_at(span.start))
    }

    /// Prints the diagnostics on standard error, in colour on a terminal.
    pub(crate) fn report(&self) {
        eprint!("{}", self.report_as_text(stderr().is_terminal()));
    }

    /// The diagnostics for people.
    pub(crate) fn report_as_text(&self, is_coloured: bool) -> String {
        blitz_config::render(&self.document, &self.diagnostics, is_coloured)
    }

    /// The diagnostics as lines of JSON.
    pub(crate) fn report_as_json(&self) -> String {
        blitz_config::to_json(&self.document, &self.diagnostics)
    }

    /// The number of errors and of warnings.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let is_error = |diagnostic: &&Diagnostic| diagnostic.severity == Severity::Error;
        let errors = self.diagnostics.iter().filter(is_error).count();
        (errors, self.diagnostics.len() - errors)
    }

    /// The problem of the file as a whole, if it must not be used.
    pub(crate) fn problem(&self) -> Option<String> {
        let (errors, _) = self.counts();
        let plural = if errors == 1 { "error" } else { "errors" };
        (errors > 0).then(|| format!("{} has {errors} {plural}", self.document.name))
    }

    /// Its sites and routes in few words.
    pub(crate) fn summary(&self) -> String {
        let counted = |number: usize, what: &str| match number {
            1 => format!("1 {what}"),
            _ => format!("{number} {what}s"),
        };
        let routes = self.sites.iter().map(|site| site.routes.len()).sum();
        format!(
            "{}: {}, {}, {}",
            self.document.name,
            counted(self.sites.len(), "site"),
            counted(routes, "route"),
            counted(self.tls.certificates.len(), "certificate"),
        )
    }
}

/// The file that a path means: in a folder its `blitz.toml`.
pub(crate) fn file_in(path: &Path) -> PathBuf {
    match path.is_dir() {
        true => path.join(FILE_NAME),
        false => path.to_owned(),
    }
}

/// # Errors
/// The problem and the remedy.
pub(crate) fn document(path: &Path) -> Result<Document, String> {
    let content = loaded_file::read_regular(path, FILE_BYTES_MAX);
    let text = content.and_then(|content| {
        String::from_utf8(content).map_err(|_| io::Error::other("it is not UTF-8"))
    });
    let shown = path.display();
    let text = text.map_err(|error| {
        format!("{shown} cannot be read: {error}\n  write a file, or a folder with {FILE_NAME}")
    });
    Ok(Document::new(shown.to_string(), text?))
}

/// The address of a listener for TLS.
fn parse_address(text: &str) -> Result<ListenerConfig, String> {
    listen::parse(text).map(ListenerConfig::from)
}

/// The variables of the environment. Those that are not Unicode cannot stand in a value.
pub(crate) fn variables() -> Environment {
    let in_unicode = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    env::vars_os().filter_map(in_unicode).collect()
}

/// A relative path of the control socket begins at the folder of the file.
fn resolve_socket(configuration: &mut Configuration, file: &Path) {
    let folder = file.parent().unwrap_or(Path::new(""));
    let socket = configuration.process.control.socket.as_mut();
    if let Some(Socket::Path(socket)) = socket.map(|socket| &mut socket.value) {
        *socket = folder.join(&socket).display().to_string();
    }
}

/// Checks of values that need other crates or files.
struct Checker {
    diagnostics: Vec<Diagnostic>,
}

impl Checker {
    /// The listeners for clear text and for TLS. A default one is for sites without addresses of their own.
    fn listeners(
        &mut self,
        configuration: &Configuration,
        sites: &mut [Site],
    ) -> (Vec<ListenerConfig>, Vec<ListenerConfig>) {
        let plain = match &configuration.listen {
            Some(addresses) => self.parsed(addresses, listen::parse_listener),
            None if configuration.has_default_listener() => {
                listen::parse_listener(LISTEN).into_iter().collect()
            }
            None => Vec::new(),
        };
        let tls = match &configuration.listen_tls {
            Some(addresses) => self.parsed(addresses, parse_address),
            None if configuration.has_default_tls_listener() => {
                parse_address(LISTEN_TLS).into_iter().collect()
            }
            None => Vec::new(),
        };
        let mut all = Collected {
            plain,
            tls,
            diagnostics: &mut self.diagnostics,
        };
        all.add_own(configuration, sites);
        (all.plain, all.tls)
    }

    /// The listeners. `parse` returns a problem and its remedy on two lines.
    fn parsed(
        &mut self,
        listeners: &[Placed<Listener>],
        parse: impl Fn(&str) -> Result<ListenerConfig, String>,
    ) -> Vec<ListenerConfig> {
        let mut parsed = Vec::new();
        for listener in listeners {
            let Listener {
                address,
                proxy_protocol,
            } = &listener.value;
            match parse(&address.value) {
                Ok(config) => parsed.push(ListenerConfig {
                    proxy_protocol: *proxy_protocol,
                    ..config
                }),
                Err(error) => {
                    let (problem, remedy) = error.split_once("\n  ").unwrap_or((&error, ""));
                    self.error("address", &address.span, problem, remedy);
                }
            }
        }
        parsed
    }

    fn server(&mut self, server: &Server) {
        let id = server.id.as_ref();
        let id = id.and_then(|id| Some((id, id.value.parse::<LoopId>().err()?.to_string())));
        if let Some((id, error)) = id {
            let (problem, remedy) = error.split_once("\n  ").unwrap_or((&error, ""));
            self.error("id", &id.span, problem, remedy);
        }
        let is_off = server.http3.as_ref().is_some_and(|http3| !http3.value);
        if let (Some(port), true) = (&server.alt_svc_port, is_off) {
            let message = "`alt_svc_port` is for HTTP/3, which `http3 = false` switches off";
            self.error(
                "contradiction",
                &port.span,
                message,
                "leave out one of the two",
            );
        }
    }

    fn control(&mut self, control: &Control) {
        let Some(listen) = &control.listen else {
            return;
        };
        if let ControlAddress::On(address) = &listen.value
            && let Err(error) = listen::parse_control(address)
        {
            let (problem, remedy) = error.split_once("\n  ").unwrap_or((&error, ""));
            self.error("address", &listen.span, problem, remedy);
        }
    }

    fn error(&mut self, code: &'static str, span: &Span, message: &str, label: &str) {
        self.diagnostics
            .push(Diagnostic::error(code, span.clone(), message, label));
    }
}
