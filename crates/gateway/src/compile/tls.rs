//! The demands of the handshakes of a site, with the content of its file.

use blitz_config::MinVersion;
use blitz_http::{CaSet, ClientAuth, TlsPolicy, TlsVersion};

use super::Compiler;
use crate::sites::SiteTls;

impl<'a> Compiler<'a, '_> {
    /// The policy of a site. A file that cannot be used adds a diagnostic.
    pub(super) fn tls(&mut self, site: &'a blitz_config::Site) -> SiteTls {
        let clients = site.tls.clients.as_deref();
        let authorities = clients.and_then(|clients| {
            let file = self.file(&clients.ca)?;
            let set = CaSet::from_pem(&file.content).map_err(|error| {
                let problem = error.to_string();
                self.error("client-ca", &clients.ca, &problem, error.remedy());
            });
            set.ok()
        });
        let client_auth = match (clients, authorities) {
            (Some(clients), Some(set)) if clients.is_required => ClientAuth::Required(set),
            (Some(_), Some(set)) => ClientAuth::Optional(set),
            _ => ClientAuth::None,
        };
        let min = site.tls.min.as_ref();
        SiteTls {
            policy: TlsPolicy {
                client_auth,
                min_version: min.map(|min| match min.value {
                    MinVersion::Tls13 => TlsVersion::V1_3,
                }),
            },
            sends_certificate: clients.is_some_and(|clients| clients.is_forwarded),
        }
    }
}
