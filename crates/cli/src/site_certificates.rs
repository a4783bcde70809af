//! The certificates that a configuration file names: their files, keys and names.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use blitz_config::{CertificateFile, Configuration, Diagnostic, Host, Placed, Span};
use blitz_host::certificates::{self, validity_warning};
use blitz_http::Certificate;

use crate::file_pattern::{self, is_pattern, matches};

/// Names of files with which other programs write a certificate, and its key beside it.
const KEY_OF_CHAIN: (&str, &str) = ("fullchain", "privkey.pem");

/// The files of the certificates with their keys. Each can be read, and they cover all sites with TLS.
pub(crate) fn find(
    configuration: &Configuration,
    folder: &Path,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<(PathBuf, PathBuf)> {
    let mut search = CertificateSearch {
        folder,
        diagnostics,
        now: SystemTime::now(),
        pairs: Vec::new(),
        names: Vec::new(),
        is_whole: true,
    };
    for pattern in &configuration.certificates {
        search.add(pattern);
    }
    // Names of a certificate that is wrong are unknown.
    if search.is_whole {
        search.check_coverage(configuration);
    }
    search.pairs
}

struct CertificateSearch<'a> {
    /// Relative paths begin here.
    folder: &'a Path,
    diagnostics: &'a mut Vec<Diagnostic>,
    now: SystemTime,
    pairs: Vec<(PathBuf, PathBuf)>,
    names: Vec<String>,
    /// All certificates could be read.
    is_whole: bool,
}

impl CertificateSearch<'_> {
    fn add(&mut self, pattern: &Placed<CertificateFile>) {
        let CertificateFile { file, key } = &pattern.value;
        let is_pattern = is_pattern(file) && key.is_none();
        let files = match is_pattern {
            // A folder without the file is one that is in use no more, or not yet.
            true => matches(self.folder, file)
                .into_iter()
                .filter(|file| file.is_file())
                .collect(),
            false => vec![self.folder.join(file)],
        };
        if files.iter().all(|file| !file.is_file()) {
            return self.missing(pattern, is_pattern);
        }
        for file in files {
            let key = key.as_ref().map(|key| self.folder.join(key));
            let key = key.unwrap_or_else(|| key_of(&file));
            match Certificate::load(&file, &key) {
                // An authority covers no host, and must not be shown to clients.
                Ok(certificate) if is_pattern && certificate.names().is_empty() => {}
                Ok(certificate) => {
                    if let Some(problem) = validity_warning(&certificate, self.now) {
                        let label = "clients will refuse it then";
                        let span = pattern.span.clone();
                        let warning =
                            Diagnostic::warning("certificate-validity", span, problem, label);
                        self.diagnostics.push(warning);
                    }
                    self.names.extend_from_slice(certificate.names());
                    self.pairs.push((file, key));
                }
                Err(error) => {
                    let text = certificates::message(&error);
                    let (problem, remedy) = text.split_once("\n  ").unwrap_or((&text, ""));
                    let beside = file.with_extension("key");
                    let label = match key == file {
                        true => format!("its key is looked for in it and in {}", beside.display()),
                        false => remedy.to_owned(),
                    };
                    self.error("certificate", &pattern.span, problem, &label);
                }
            }
        }
    }

    fn missing(&mut self, pattern: &Placed<CertificateFile>, is_pattern: bool) {
        let path = self.folder.join(&pattern.value.file);
        let shown = path.display();
        let (message, label) = match path.is_dir() {
            true => (
                "this is a folder",
                format!(
                    "write \"{}/*.pem\"",
                    pattern.value.file.trim_end_matches('/')
                ),
            ),
            false if is_pattern => (
                "no file has such a name",
                format!("it is looked for as {shown}"),
            ),
            false => (
                "the file does not exist",
                format!("it is looked for at {shown}"),
            ),
        };
        self.error("file-missing", &pattern.span, message, &label);
    }

    fn check_coverage(&mut self, configuration: &Configuration) {
        for site in configuration.sites.iter().filter(|site| site.tls.is_on) {
            let hosts = std::iter::once(&site.host).chain(&site.aliases);
            for host in hosts.chain(&site.canonical_for) {
                let is_covered = self.names.iter().any(|name| covers(name, &host.value));
                if is_covered || host.value == Host::Any {
                    continue;
                }
                let label = match &self.names[..] {
                    [] => "add for example certificates = [\"/etc/blitz/certs/*.pem\"] at the top"
                        .to_owned(),
                    names => format!("they cover {}", listed(names)),
                };
                let message = format!("no certificate covers `{}`", host.value);
                self.error("certificate-name", &host.span, &message, &label);
            }
        }
    }

    fn error(&mut self, code: &'static str, span: &Span, message: &str, label: &str) {
        self.is_whole = false;
        let error = Diagnostic::error(code, span.clone(), message, label);
        self.diagnostics.push(error);
    }
}

/// All files that may be certificates and keys, with the folders where further ones may appear; of those that are wrong
/// or missing, too, as their repair is a change.
pub(crate) fn watched(configuration: &Configuration, folder: &Path) -> Vec<PathBuf> {
    let mut watched = Vec::new();
    for pattern in &configuration.certificates {
        let CertificateFile { file, key } = &pattern.value;
        if !is_pattern(file) || key.is_some() {
            let file = folder.join(file);
            match key {
                Some(key) => watched.push(folder.join(key)),
                None => watched.extend(keys_beside(&file)),
            }
            watched.push(file);
            continue;
        }
        watched.extend(file_pattern::watched(folder, file));
        for file in matches(folder, file) {
            watched.extend(keys_beside(&file));
        }
    }
    watched.sort_unstable();
    watched.dedup();
    watched
}

/// The key beside a certificate, or else the same file.
fn key_of(certificate: &Path) -> PathBuf {
    let found = keys_beside(certificate).find(|key| key.exists());
    found.unwrap_or_else(|| certificate.to_owned())
}

/// Where the key of a certificate may be beside it.
fn keys_beside(certificate: &Path) -> impl Iterator<Item = PathBuf> {
    let (chain, key) = KEY_OF_CHAIN;
    let is_chain = certificate.file_stem().is_some_and(|stem| stem == chain);
    let beside = [
        Some(certificate.with_extension("key")),
        is_chain.then(|| certificate.with_file_name(key)),
    ];
    beside.into_iter().flatten()
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
