//! The configuration file of `blitz run --config` and `blitz check`: it is read, compiled, and checked with the files that
//! it names.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use blitz::serving::ListenerConfig;
use blitz::{CertificateReloader, Certificates};
use blitz_config::{
    Configuration, Diagnostic, Document, Environment, Host, Placed, Severity, Span,
};
use blitz_gateway::{Site, TrustedProxy, compile};
use blitz_http::Address;

use crate::{listen, loaded_file, tls};

/// The name of the file in a folder.
const FILE_NAME: &str = "blitz.toml";

/// The listeners of a file that names none.
const LISTEN: &str = ":80";
const LISTEN_TLS: &str = ":443";

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

/// A file and what it means.
pub(crate) struct ConfigFile {
    document: Document,
    diagnostics: Vec<Diagnostic>,
    pub(crate) configuration: Configuration,
    pub(crate) listeners: Vec<ListenerConfig>,
    pub(crate) tls_listeners: Vec<Address>,
    pub(crate) trusted_proxies: Vec<TrustedProxy>,
    pub(crate) sites: Vec<Site>,
    /// Files of certificates, each with the file of its key.
    pub(crate) certificates: Vec<(PathBuf, PathBuf)>,
}

impl ConfigFile {
    /// Reads a file, or the `blitz.toml` of a folder, and all files that it names. `request_trailers` is for all
    /// targets.
    ///
    /// # Errors
    /// The file cannot be read. Mistakes in it are [diagnostics](ConfigFile::report).
    pub(crate) fn load(path: &Path, request_trailers: bool) -> Result<ConfigFile, String> {
        let path = match path.is_dir() {
            true => path.join(FILE_NAME),
            false => path.to_owned(),
        };
        let text = fs::read_to_string(&path).map_err(|error| {
            let path = path.display();
            format!("{path} cannot be read: {error}\n  write a file, or a folder with {FILE_NAME}")
        })?;
        let document = Document::new(path.display().to_string(), text);
        // Others cannot stand in a value.
        let in_unicode = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let variables: Environment = env::vars_os().filter_map(in_unicode).collect();
        let (configuration, mut diagnostics) = blitz_config::read(&document, &variables);
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut read = |file: &str| loaded_file::read(folder, file);
        let mut sites = compile(&configuration, &mut read, &mut diagnostics);
        if request_trailers {
            let routes = sites.iter_mut().flat_map(|site| &mut site.routes);
            routes.for_each(|(_, route)| route.forward_request_trailers());
        }
        let mut checker = Checker {
            folder,
            diagnostics,
        };
        let has_tls = configuration.sites.iter().any(|site| site.tls.is_on);
        let listeners = match &configuration.listen {
            Some(addresses) => checker.parsed(addresses, listen::parse_listener),
            None => listen::parse_listener(LISTEN).into_iter().collect(),
        };
        let tls_listeners = match &configuration.listen_tls {
            Some(addresses) => checker.parsed(addresses, listen::parse),
            None if has_tls => listen::parse(LISTEN_TLS).into_iter().collect(),
            None => Vec::new(),
        };
        let trusted_proxies = configuration.trusted_proxies.iter();
        let trusted_proxies = trusted_proxies.map(|network| TrustedProxy::from(network.value));
        let trusted_proxies = trusted_proxies.collect();
        let certificates = checker.certificates(&configuration);
        let mut diagnostics = checker.diagnostics;
        diagnostics.sort_by_key(|diagnostic| (diagnostic.span.start, diagnostic.severity));
        Ok(ConfigFile {
            document,
            diagnostics,
            configuration,
            listeners,
            tls_listeners,
            trusted_proxies,
            sites,
            certificates,
        })
    }

    /// The text of a value.
    pub(crate) fn slice(&self, span: &Span) -> &str {
        self.document.slice(span)
    }

    /// The file and the line of a value.
    pub(crate) fn line_of(&self, span: &Span) -> String {
        let (line, _) = self.document.position(span.start);
        format!("{}:{line}", self.document.name)
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

    /// What is wrong with it as a whole, if it must not be used.
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
            counted(self.certificates.len(), "certificate"),
        )
    }
}

/// Checks of values that need other crates or files.
struct Checker<'a> {
    /// Relative paths begin here.
    folder: &'a Path,
    diagnostics: Vec<Diagnostic>,
}

impl Checker<'_> {
    /// The values. `parse` returns a problem and its remedy on two lines.
    fn parsed<T>(
        &mut self,
        values: &[Placed<String>],
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        let mut parsed = Vec::new();
        for value in values {
            match parse(&value.value) {
                Ok(value) => parsed.push(value),
                Err(error) => {
                    let (problem, remedy) = error.split_once("\n  ").unwrap_or((&error, ""));
                    self.error("address", &value.span, problem, remedy);
                }
            }
        }
        parsed
    }

    /// The files of the certificates with their keys. Each can be read, and they cover all sites with TLS.
    fn certificates(&mut self, configuration: &Configuration) -> Vec<(PathBuf, PathBuf)> {
        let (mut pairs, mut names) = (Vec::new(), Vec::new());
        let before = self.diagnostics.len();
        for pattern in &configuration.certificates {
            for certificate in self.files(pattern) {
                let beside = certificate.with_extension("key");
                let key = match beside.exists() {
                    true => beside,
                    false => certificate.clone(),
                };
                let pair = Certificates::from_files(&certificate, &key);
                match CertificateReloader::load(pair, SystemTime::now()) {
                    Ok(loaded) => {
                        let slot = loaded.slot().current();
                        names.extend(slot.certificates().flat_map(|one| one.names().to_vec()));
                        pairs.push((certificate, key));
                    }
                    Err(error) => {
                        let text = tls::message(&error);
                        let (problem, remedy) = text.split_once("\n  ").unwrap_or((&text, ""));
                        self.error("certificate", &pattern.span, problem, remedy);
                    }
                }
            }
        }
        // Names of a certificate that is wrong are unknown.
        if self.diagnostics.len() == before {
            self.check_coverage(configuration, &names);
        }
        pairs
    }

    fn check_coverage(&mut self, configuration: &Configuration, names: &[String]) {
        for site in configuration.sites.iter().filter(|site| site.tls.is_on) {
            for host in std::iter::once(&site.host).chain(&site.aliases) {
                if !names.iter().any(|name| covers(name, &host.value)) && host.value != Host::Any {
                    let label = match names {
                        [] => {
                            "add for example certificates = [\"/etc/blitz/certs/*.pem\"] at the top"
                                .to_owned()
                        }
                        names => format!("they cover {}", listed(names)),
                    };
                    let message = format!("no certificate covers `{}`", host.value);
                    self.error("certificate-name", &host.span, &message, &label);
                }
            }
        }
    }

    /// The files of a pattern, in order.
    fn files(&mut self, pattern: &Placed<String>) -> Vec<PathBuf> {
        let path = self.folder.join(&pattern.value);
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let Some((before, after)) = name.split_once('*') else {
            if !path.is_file() {
                let folder = path.parent().unwrap_or(Path::new("")).display().to_string();
                let message = "the file does not exist";
                self.error(
                    "file-missing",
                    &pattern.span,
                    message,
                    &format!("it is looked for in {folder}"),
                );
                return Vec::new();
            }
            return vec![path];
        };
        let is_match = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.len() >= before.len() + after.len()
                && name.starts_with(before)
                && name.ends_with(after)
        };
        let entries = fs::read_dir(path.parent().unwrap_or(Path::new("")));
        let entries = entries.into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_match).collect();
        files.sort();
        if files.is_empty() {
            let message = "no file has such a name";
            self.error(
                "file-missing",
                &pattern.span,
                message,
                "write a file, or a pattern such as certs/*.pem",
            );
        }
        files
    }

    fn error(&mut self, code: &'static str, span: &Span, message: &str, label: &str) {
        self.diagnostics
            .push(Diagnostic::error(code, span.clone(), message, label));
    }
}

/// Whether a name of a certificate covers a host: a star stands for one label (RFC 9525, section 6.3).
fn covers(name: &str, host: &Host) -> bool {
    let name = name.to_ascii_lowercase();
    let below_star = name.strip_prefix("*.");
    match host {
        Host::Exact(host) => {
            name == *host
                || host
                    .split_once('.')
                    .is_some_and(|(_, rest)| below_star == Some(rest))
        }
        Host::Wildcard(parent) => below_star == Some(parent.as_str()),
        Host::Any => true,
    }
}

/// The first names.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len() {
        0..=SHOWN => shown,
        more => format!("{shown} and {} more names", more - SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_of_a_certificate_stands_for_one_label() {
        let exact = |name: &str| Host::Exact(name.to_owned());
        for (name, host, expected) in [
            ("a.example", exact("a.example"), true),
            ("A.example", exact("a.example"), true),
            ("*.example", exact("a.example"), true),
            ("*.example", exact("b.a.example"), false),
            ("*.example", exact("example"), false),
            ("*.example", Host::Wildcard("example".to_owned()), true),
            ("a.example", Host::Wildcard("example".to_owned()), false),
            ("127.0.0.1", exact("127.0.0.1"), true),
        ] {
            assert_eq!(covers(name, &host), expected, "{name} {host}");
        }
    }
}
