//! A reload of the configuration file: it is used as a whole or not at all.

use std::path::{Path, PathBuf};

use blitz_gateway::Reloading;

use crate::config::ConfigFile;
use crate::tls::Tls;

/// The file in use.
pub(crate) struct ReloadedFile {
    path: PathBuf,
    request_trailers: bool,
    /// What only a restart changes, as text.
    fixed: String,
}

impl ReloadedFile {
    pub(crate) fn new(path: &Path, request_trailers: bool, file: &ConfigFile) -> ReloadedFile {
        ReloadedFile {
            path: path.to_owned(),
            request_trailers,
            fixed: fixed(file),
        }
    }

    /// Reads the file again. Its sites and certificates replace those in use, unless it has mistakes.
    pub(crate) fn reload(&mut self, running: &mut Reloading<'_>, tls: Option<&mut Tls>) {
        match self.replace(running, tls) {
            Ok(summary) => tracing::info!("the configuration was read again: {summary}"),
            Err(problem) => tracing::error!("the configuration in use stays: {problem}"),
        }
    }

    fn replace(
        &mut self,
        running: &mut Reloading<'_>,
        tls: Option<&mut Tls>,
    ) -> Result<String, String> {
        let file = ConfigFile::load(&self.path, self.request_trailers)?;
        file.report();
        if let Some(problem) = file.problem() {
            return Err(problem);
        }
        let summary = file.summary();
        let is_fixed_changed = fixed(&file) != self.fixed;
        let certificates = match &tls {
            Some(tls) => tls.prepare(&file.certificates)?,
            None => None,
        };
        let replaced = running.replace_sites(file.sites);
        replaced.map_err(|error| error.to_string())?;
        if let (Some(tls), Some(certificates)) = (tls, certificates) {
            tls.apply(certificates);
        }
        if is_fixed_changed {
            tracing::warn!(
                "listeners and trusted proxies have changed in the file; a restart applies them"
            );
        }
        Ok(summary)
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
