//! `client_cert` of routes, and what it has to do with `client_ca` of their site.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::super::Reader;
use super::super::own::{Own, OwnSettings};
use crate::claims::{all_settings, of_templates};
use crate::model::{ClientCertificates, Configuration, Host, Site};
use crate::policy::ClientCert;
use crate::settings::Settings;
use crate::span::{Placed, Span};

const CODE: &str = "client-cert";

impl Reader<'_> {
    pub(super) fn client_cert(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Arc<Placed<ClientCert>>> {
        let is_on = self.boolean(value)?;
        let own = ClientCert { is_implied: false };
        is_on.then(|| Arc::new(Placed::new(own, value.span())))
    }

    /// A site with `client_ca` demands certificates, unless it says otherwise. `inherited` are the defaults, if they have
    /// the `client_ca`.
    pub(in super::super) fn demand_certificates(
        own: &mut OwnSettings,
        inherited: Option<&OwnSettings>,
        clients: &ClientCertificates,
    ) {
        let is_written = |own: &OwnSettings| {
            let mut presets = own.presets.iter();
            own.policies.client_cert.is_written()
                || presets.any(|(_, preset)| preset.policies.client_cert.is_written())
        };
        if !is_written(own) && !inherited.is_some_and(is_written) {
            let implied = ClientCert { is_implied: true };
            let demand = Placed::new(implied, clients.ca.span.clone());
            own.policies.client_cert = Own::Value(Arc::new(demand));
        }
    }

    /// `client_cert = false` in a site whose clients do not get as far as a request without a certificate.
    pub(in super::super) fn demanded_certificates(
        &mut self,
        own: &[OwnSettings],
        clients: &ClientCertificates,
    ) {
        if !clients.is_required {
            return;
        }
        for own in own {
            let is_joined = own.policies.satisfy.value().is_some();
            if matches!(own.policies.client_cert, Own::Removed) && !is_joined {
                self.error(
                    CODE,
                    own.key.span.clone(),
                    "no handshake gets as far as this `client_cert = false`",
                    "write client_auth = \"optional\" beside `client_ca`, so that routes decide",
                );
            }
        }
    }

    /// Certificates of clients where no authority has issued them, and sites that no handshake names.
    pub(in super::super) fn certificates_without_authorities(
        &mut self,
        configuration: &Configuration,
    ) {
        const LABEL: &str =
            "write for example tls = { client_ca = \"/etc/blitz/clients.pem\" } in the site";
        // By place, because sites inherit the same text: the placeholder, and whether one of them has authorities.
        let mut placeholders: BTreeMap<(usize, usize), (String, bool)> = BTreeMap::new();
        for site in &configuration.sites {
            let clients = &site.tls.clients;
            if let Some(clients) = clients {
                self.unnamed_sites(site, &clients.ca.span);
            }
            for settings in site.routes.iter().flat_map(all_settings) {
                if clients.is_none() {
                    for span in demands(settings) {
                        let message = "no request has a certificate: the site has no `client_ca`";
                        self.certificate_error(span.clone(), message.to_owned(), LABEL);
                    }
                }
                of_templates(settings, |template, span| {
                    if let Some(placeholder) = template.client_certificate() {
                        let place = placeholders.entry((span.start, span.end));
                        let (_, one_has) =
                            place.or_insert_with(|| (placeholder.to_string(), false));
                        *one_has |= clients.is_some();
                    }
                });
            }
        }
        for ((start, end), (placeholder, one_has)) in placeholders {
            if !one_has {
                let message = format!("`{{{placeholder}}}` has no value without `client_ca`");
                self.certificate_error(start..end, message, LABEL);
            }
        }
    }

    /// RFC 6066, section 3: clients name no addresses.
    fn unnamed_sites(&mut self, site: &Site, ca: &Span) {
        let mut hosts = std::iter::once(&site.host).chain(&site.aliases);
        let is_address = |host: &&Placed<Host>| match &host.value {
            Host::Exact(name) => name.parse::<std::net::IpAddr>().is_ok(),
            Host::Wildcard(_) | Host::Any => false,
        };
        if let Some(host) = hosts.find(is_address) {
            let message = format!(
                "no handshake names `{}`, so its authorities are never used",
                host.value
            );
            let label = "write a name: clients send no addresses as server names";
            self.certificate_error(ca.clone(), message, label);
        }
    }

    /// One error for each place.
    fn certificate_error(&mut self, span: Span, message: String, label: &str) {
        let mut errors = self.diagnostics.iter();
        if !errors.any(|error| error.code == CODE && error.span == span) {
            self.error(CODE, span, message, label);
        }
    }
}

/// The places that demand a certificate.
fn demands(settings: &Settings) -> impl Iterator<Item = &Span> {
    let own = settings.policies.client_cert.iter().map(|cert| &cert.span);
    let alternatives = settings.policies.alternatives();
    let alternatives = alternatives.filter(|(key, _)| *key == "client_cert");
    own.chain(alternatives.map(|(_, span)| span))
}
