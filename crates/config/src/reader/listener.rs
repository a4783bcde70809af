//! Listeners: `listen` and `listen_tls`.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::value::StringValue;
use super::{Entry, Reader, entries};
use crate::keys::Scope;
use crate::model::{Configuration, Listener};
use crate::span::Placed;

const ADDRESS: &str = "\":80\"";

impl Reader<'_> {
    pub(super) fn listeners(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<Placed<Listener>> {
        let is_item = |value: &DeValue<'_>| matches!(value, DeValue::String(_) | DeValue::Table(_));
        let items = self.items(value, ADDRESS, is_item);
        let mut listeners = Vec::new();
        for item in items {
            let listener = match item.get_ref() {
                DeValue::Table(table) => self.listener(item, table),
                _ => self.text(item, ADDRESS).map(|text| Listener {
                    address: text.placed(),
                    proxy_protocol: false,
                }),
            };
            listeners.extend(listener.map(|listener| Placed::new(listener, item.span())));
        }
        listeners
    }

    /// The only addresses of a site.
    pub(super) fn own_addresses(&mut self, entry: &Entry<'_, '_>) -> Option<Vec<Placed<String>>> {
        let before = self.diagnostics.len();
        let texts = self.texts(entry.value, ADDRESS);
        if texts.is_empty() && self.diagnostics.len() == before {
            let message = "the site has no address, so that no request would reach it";
            let label = "write for example [\":8080\"], or leave `listen` out for all addresses";
            self.error("no-listener", entry.key(), message, label);
        }
        Some(texts.into_iter().map(StringValue::placed).collect())
    }

    fn listener(&mut self, value: &Spanned<DeValue<'_>>, table: &DeTable<'_>) -> Option<Listener> {
        let (mut address, mut proxy_protocol) = (None, Some(false));
        let before = self.diagnostics.len();
        for entry in entries(table) {
            let Some(entry) = self.known(Scope::Listener, &entry) else {
                continue;
            };
            match entry.name {
                "address" => address = self.text(entry.value, ADDRESS),
                _ => proxy_protocol = self.boolean(entry.value),
            }
        }
        if address.is_none() && self.diagnostics.len() == before {
            let label = "write for example { address = \":80\" }";
            self.error(
                "no-address",
                value.span(),
                "the listener has no address",
                label,
            );
        }
        Some(Listener {
            address: address?.placed(),
            proxy_protocol: proxy_protocol?,
        })
    }

    /// Listeners that would close every connection.
    pub(super) fn proxies_without_trust(&mut self, configuration: &Configuration) {
        if !configuration.trusted_proxies.is_empty() {
            return;
        }
        let listeners = [&configuration.listen, &configuration.listen_tls];
        for listener in listeners.into_iter().flatten().flatten() {
            if listener.value.proxy_protocol {
                self.error(
                    "no-trusted-proxy",
                    listener.span.clone(),
                    "no proxy may send the PROXY header, so that every connection would be closed",
                    "write for example trusted_proxies = [\"10.0.0.0/8\"] at the top",
                );
            }
        }
    }
}
