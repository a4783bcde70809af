//! Certificates: `certificates` at the top, and `tls` of sites.

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Entry, Reader, entries};
use crate::keys::Scope;
use crate::model::{CertificateFile, ClientCertificates, MinVersion};
use crate::span::{Placed, Span};

const FILES: &str = "\"/etc/blitz/certs/*.pem\"";
const FILE: &str = "\"/etc/blitz/certs/site.pem\"";
const AUTHORITIES: &str = "\"/etc/blitz/clients.pem\"";

/// TLS of one level.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnTls {
    pub(super) is_on: bool,
    pub(super) clients: Option<Arc<ClientCertificates>>,
    pub(super) min: Option<Placed<MinVersion>>,
}

/// The keys of a table `tls`.
#[derive(Default, PartialEq)]
struct ReadTls {
    cert: Option<String>,
    key: Option<String>,
    ca: Option<Placed<String>>,
    /// The last key that makes sense with authorities only.
    of_clients: Option<(String, Span)>,
    is_required: Option<bool>,
    is_forwarded: bool,
    has_min: bool,
    min: Option<Placed<MinVersion>>,
}

impl Reader<'_> {
    pub(super) fn certificates(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Vec<Placed<CertificateFile>> {
        let items = self.items(value, FILES, |value| matches!(value, DeValue::Table(_)));
        let mut certificates = Vec::new();
        for item in items {
            let certificate = match item.get_ref() {
                DeValue::Table(table) => self.certificate(Scope::Certificate, item, table),
                _ => self.file(item, FILES).map(|file| CertificateFile {
                    file: file.value,
                    key: None,
                }),
            };
            certificates.extend(certificate.map(|file| Placed::new(file, item.span())));
        }
        certificates
    }

    /// The TLS of a site. Its own certificate becomes one of those of the file.
    pub(super) fn tls(&mut self, value: &Spanned<DeValue<'_>>) -> Option<OwnTls> {
        match value.get_ref() {
            DeValue::String(text) if matches!(text.as_ref(), "acme" | "development") => {
                self.not_yet(value.span(), &format!("`{text}`"));
                None
            }
            DeValue::Table(table) => self.tls_table(value, table),
            DeValue::String(text) if !text.starts_with("${") => {
                let file = self.document.slice(&value.span());
                let label =
                    format!("write true for a file of `certificates`, or {{ cert = {file} }}");
                let wanted = "true, false or a table";
                self.wrong_type(value.span(), value.get_ref(), wanted, &label);
                None
            }
            _ => self.boolean(value).map(|is_on| OwnTls {
                is_on,
                ..OwnTls::default()
            }),
        }
    }

    fn tls_table(&mut self, value: &Spanned<DeValue<'_>>, table: &DeTable<'_>) -> Option<OwnTls> {
        let before = self.diagnostics.len();
        let mut read = ReadTls::default();
        for entry in entries(table) {
            if let Some(entry) = self.known(Scope::Tls, &entry) {
                self.tls_key(&entry, &mut read);
            }
        }
        if self.diagnostics.len() != before {
            return None;
        }
        let needs_cert = read.key.is_some() || read == ReadTls::default();
        match read.cert {
            Some(file) => {
                let key = read.key;
                self.certificates
                    .push(Placed::new(CertificateFile { file, key }, value.span()));
            }
            None if needs_cert => {
                self.no_certificate(value);
                return None;
            }
            None => {}
        }
        let clients = match (read.ca, read.of_clients) {
            (None, Some((name, span))) => {
                let message = format!(
                    "`{name}` is for certificates of clients, whose authorities are missing"
                );
                let label = format!("write for example client_ca = {AUTHORITIES} beside it");
                self.error("client-cert", span, message, label);
                return None;
            }
            (None, None) => None,
            (Some(ca), _) => Some(Arc::new(ClientCertificates {
                ca,
                is_required: read.is_required.unwrap_or(true),
                is_forwarded: read.is_forwarded,
            })),
        };
        Some(OwnTls {
            is_on: true,
            clients,
            min: read.min,
        })
    }

    fn tls_key(&mut self, entry: &Entry<'_, '_>, read: &mut ReadTls) {
        let value = entry.value;
        if matches!(entry.name, "client_auth" | "client_cert_header") {
            read.of_clients = Some((entry.name.to_owned(), entry.key()));
        }
        match entry.name {
            "client_auth" => {
                read.is_required = self
                    .tls_word(value, &["required", "optional"])
                    .map(|at| at == 0);
            }
            "client_cert_header" => {
                read.is_forwarded = self.boolean(value).unwrap_or_default();
            }
            "client_ca" => read.ca = self.file(value, AUTHORITIES),
            "min" => {
                let min = self.tls_word(value, &["1.2", "1.3"]);
                let min = min.filter(|at| *at == 1);
                read.has_min = true;
                read.min = min.map(|_| Placed::new(MinVersion::Tls13, value.span()));
            }
            "cert" => read.cert = self.file(value, FILE).map(|path| path.value),
            _ => read.key = self.file(value, FILE).map(|path| path.value),
        }
    }

    /// Which of these words the value is.
    fn tls_word(&mut self, value: &Spanned<DeValue<'_>>, words: &[&str]) -> Option<usize> {
        let shown: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let label = format!("write {}", shown.join(" or "));
        let text = self.text(value, &shown.join(" or "))?;
        let found = words.iter().position(|word| *word == text.value);
        if found.is_none() {
            let message = format!("`{}` is none of the words for this", text.value);
            self.error("tls", text.span, message, label);
        }
        found
    }

    fn no_certificate(&mut self, value: &Spanned<DeValue<'_>>) {
        let label = format!("write {{ cert = {FILE} }}");
        self.error("no-certificate", value.span(), "`cert` is missing", label);
    }

    fn certificate(
        &mut self,
        scope: Scope,
        value: &Spanned<DeValue<'_>>,
        table: &DeTable<'_>,
    ) -> Option<CertificateFile> {
        let (mut file, mut key) = (None, None);
        let before = self.diagnostics.len();
        for entry in entries(table) {
            let Some(entry) = self.known(scope, &entry) else {
                continue;
            };
            let path = self.file(entry.value, FILE).map(|path| path.value);
            match entry.name {
                "cert" => file = path,
                _ => key = path,
            }
        }
        if file.is_none() && self.diagnostics.len() == before {
            self.no_certificate(value);
        }
        Some(CertificateFile { file: file?, key })
    }
}
