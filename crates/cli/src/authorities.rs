//! The certificates of authorities that this system trusts.

use std::path::Path;

use blitz_http::CaSet;

/// Where systems have them.
const FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Those of the system, or if it has none, those that browsers trust.
pub(crate) fn of_system() -> CaSet {
    let mut files = FILES.iter().filter(|file| Path::new(file).exists());
    let system = files.find_map(|file| CaSet::load(file).ok());
    system.unwrap_or_else(CaSet::well_known)
}
