//! The listeners of flags or of a file, for clear text and for TLS.

use blitz_config::Process;
use blitz_gateway::StartError;
use blitz_host::serving::{self, ListenerConfig};

use crate::config::ConfigFile;
use crate::tls::Tls;
use crate::{listen, process};

/// The listeners for clear text and for TLS.
#[derive(Debug, Clone)]
pub(crate) struct ListenAddresses {
    pub(crate) plain: Vec<ListenerConfig>,
    /// Those for TLS, without its settings.
    pub(crate) tls: Vec<ListenerConfig>,
    /// They are those of a file.
    pub(crate) is_file: bool,
}

impl ListenAddresses {
    pub(crate) fn of_file(file: &ConfigFile) -> ListenAddresses {
        ListenAddresses {
            plain: file.listeners.clone(),
            tls: file.tls_listeners.clone(),
            is_file: true,
        }
    }

    /// With the certificates that listeners for TLS have; without them there are no such listeners.
    pub(crate) fn configs(&self, process: &Process, tls: Option<&Tls>) -> Vec<ListenerConfig> {
        let slot = tls.map(Tls::slot);
        let secure = slot.iter().flat_map(|slot| {
            self.tls.iter().map(|listener| ListenerConfig {
                proxy_protocol: listener.proxy_protocol,
                ..ListenerConfig::secure(listener.address.clone(), slot.clone())
            })
        });
        let secure = secure.map(|listener| process::listener(process, listener));
        self.plain.iter().cloned().chain(secure).collect()
    }

    /// The problem and the remedy, if one of them is the reason of an error.
    pub(crate) fn problem(&self, error: &StartError) -> Option<String> {
        let StartError::Serving(serving::StartError::Listen(address, cause)) = error else {
            return None;
        };
        let is_tls = self.tls.iter().any(|listener| listener.address == *address);
        let setting = match (is_tls, self.is_file) {
            (true, false) => "--listen-tls",
            (false, false) => "--listen",
            (true, true) => "listen_tls",
            (false, true) => "listen",
        };
        Some(listen::cannot_bind(setting, address, cause))
    }
}
