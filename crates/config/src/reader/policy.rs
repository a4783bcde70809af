//! Keys of policies.

mod access;
mod client_cert;
mod cors;
mod early_hints;
mod forward_auth;
mod jwt;
mod limit;
mod security_headers;

use super::own::OwnSettings;
use super::{Entry, Reader};

impl Reader<'_> {
    /// Reads the value of a policy.
    pub(super) fn policy(&mut self, entry: &Entry<'_, '_>, own: &mut OwnSettings) {
        let value = entry.value;
        match entry.name {
            "cors" => own.policies.cors = self.own(value, |reader| reader.cors(value)),
            "early_hints" => {
                own.policies.early_hints = self.own(value, |reader| reader.early_hints(value));
            }
            "rate_limit" => {
                own.policies.rate_limit = self.own(value, |reader| reader.rate_limit(value, own));
            }
            "concurrency" => {
                own.policies.concurrency = self.own(value, |reader| reader.concurrency(value, own));
            }
            "security_headers" => {
                let read = |reader: &mut Self| reader.security_headers(value);
                own.policies.security_headers = self.own(value, read);
            }
            "forward_auth" => {
                own.policies.forward_auth = self.own(value, |reader| reader.forward_auth(value));
            }
            "jwt" => own.policies.jwt = self.own(value, |reader| reader.jwt(value)),
            "basic_auth" => {
                own.policies.basic_auth = self.own(value, |reader| reader.basic_auth(value));
            }
            "api_keys" => own.policies.api_keys = self.own(value, |reader| reader.api_keys(value)),
            "client_cert" => {
                own.policies.client_cert = self.own(value, |reader| reader.client_cert(value));
            }
            "satisfy" => self.satisfy(value, own),
            _ => {}
        }
    }
}
