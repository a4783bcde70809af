//! The configuration that a process uses, for requests at its control interface.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use blitz_config::{Document, Process};

use crate::config::ConfigFile;
use crate::differences::{self, Applied};
use crate::network_files::{Known, NetworkFiles};
use crate::{effective, explain};

/// The text of the file in use, and what the process has kept from its start. The text is read again for each question:
/// the model would be many times as large.
pub(crate) struct InUse {
    path: PathBuf,
    request_trailers: bool,
    /// Settings of the process from flags.
    flags: Process,
    applied: Applied,
    document: Mutex<Document>,
    /// The networks of its files.
    networks: Mutex<NetworkFiles>,
}

impl InUse {
    pub(crate) fn new(
        path: &Path,
        request_trailers: bool,
        flags: &Process,
        process: &Process,
        file: &ConfigFile,
    ) -> InUse {
        InUse {
            path: path.to_owned(),
            request_trailers,
            flags: flags.clone(),
            applied: Applied {
                process: process.clone(),
                trusted_proxies: file.trusted_proxies.clone(),
            },
            document: Mutex::new(file.document().clone()),
            networks: Mutex::new(file.networks.clone()),
        }
    }

    /// The settings of the start, which no reload changes.
    pub(crate) fn applied(&self) -> &Applied {
        &self.applied
    }

    /// Another text is in use.
    pub(crate) fn replace(&self, document: Document, networks: NetworkFiles) {
        *self.lock() = document;
        *self.lock_networks() = networks;
    }

    /// The networks of the files in use.
    pub(crate) fn networks(&self) -> NetworkFiles {
        self.lock_networks().clone()
    }

    /// The effective configuration, and a tag for its version.
    pub(crate) fn effective(&self) -> (String, String) {
        let text = effective::text(&self.file());
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        (text, format!("\"{:016x}\"", hasher.finish()))
    }

    /// The changes of a reload with the file, or with another one; empty if there are none.
    ///
    /// # Errors
    /// The file cannot be read or has mistakes.
    pub(crate) fn differences(&self, other: Option<&Path>) -> Result<String, String> {
        let path = other.unwrap_or(&self.path);
        let file = ConfigFile::load_after(path, self.request_trailers, &self.networks())?;
        if let Some(problem) = file.problem() {
            return Err(format!("{}{problem}", file.report_as_text(false)));
        }
        Ok(differences::text(
            &self.file(),
            file,
            &self.applied,
            &self.flags,
        ))
    }

    /// The explanation of a request.
    ///
    /// # Errors
    /// The question is invalid, or no site has the host.
    pub(crate) fn explain(&self, question: &explain::Question) -> Result<String, String> {
        explain::answer(&self.file(), &self.applied.trusted_proxies, question)
    }

    /// The hosts that clients reach over TLS.
    pub(crate) fn tls_hosts(&self) -> Vec<String> {
        let file = self.file();
        let sites = file.configuration.sites.iter();
        let hosts = sites.filter(|site| site.tls.is_on).flat_map(|site| {
            let others = site.aliases.iter().chain(&site.canonical_for);
            std::iter::once(&site.host).chain(others)
        });
        hosts.map(|host| host.value.to_string()).collect()
    }

    fn file(&self) -> ConfigFile {
        let document = self.lock().clone();
        let networks = (&self.networks(), Known::Same);
        ConfigFile::of_document(document, &self.path, self.request_trailers, networks)
    }

    fn lock_networks(&self) -> MutexGuard<'_, NetworkFiles> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Document> {
        self.document.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
