//! Certificates: `certificates` at the top, and `tls` of sites.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Reader, entries};
use crate::keys::Scope;
use crate::model::CertificateFile;
use crate::span::Placed;

const FILES: &str = "\"/etc/blitz/certs/*.pem\"";
const FILE: &str = "\"/etc/blitz/certs/site.pem\"";

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

    /// Whether a site has TLS. Its own certificate becomes one of those of the file.
    pub(super) fn tls(&mut self, value: &Spanned<DeValue<'_>>) -> Option<bool> {
        match value.get_ref() {
            DeValue::String(text) if matches!(text.as_ref(), "acme" | "development") => {
                self.not_yet(value.span(), &format!("`{text}`"));
                None
            }
            DeValue::Table(table) => {
                let certificate = self.certificate(Scope::Tls, value, table)?;
                self.certificates
                    .push(Placed::new(certificate, value.span()));
                Some(true)
            }
            DeValue::String(text) if !text.starts_with("${") => {
                let file = self.document.slice(&value.span());
                let label =
                    format!("write true for a file of `certificates`, or {{ cert = {file} }}");
                let wanted = "true, false or a table";
                self.wrong_type(value.span(), value.get_ref(), wanted, &label);
                None
            }
            _ => self.boolean(value),
        }
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
            let label = format!("write {{ cert = {FILE} }}");
            self.error("no-certificate", value.span(), "`cert` is missing", label);
        }
        Some(CertificateFile { file: file?, key })
    }
}
