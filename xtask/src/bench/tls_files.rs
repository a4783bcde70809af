//! The certificate that all servers of a run show, and the authority that clients trust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::{Artifact, artifact_path, build};

/// The name that it is for, beside 127.0.0.1.
pub(crate) const HOST: &str = "localhost";

/// What clients of OpenSSL offer, by way of its configuration: not all have flags for it.
const OFFER: &str = "\
openssl_conf = all
[all]
ssl_conf = ssl
[ssl]
system_default = offer
[offer]
MinProtocol = TLSv1.3
Ciphersuites = TLS_AES_128_GCM_SHA256
Groups = X25519
";

/// Files in PEM: ECDSA on P-256.
pub(crate) struct TlsFiles {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// For OPENSSL_CONF of clients.
    pub(crate) offer: PathBuf,
}

impl TlsFiles {
    /// Has `blitz cert` make them in `folder`.
    pub(crate) fn make(folder: &Path) -> Result<TlsFiles, String> {
        build(Artifact::Blitz)?;
        let folder = folder.join("tls");
        let output = Command::new(artifact_path(Artifact::Blitz))
            .arg("cert")
            .arg("--out")
            .arg(&folder)
            .args([HOST, "127.0.0.1"])
            .output()
            .map_err(|e| format!("blitz cert: {e}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("blitz cert: {said}"));
        }
        let offer = folder.join("offer.cnf");
        fs::write(&offer, OFFER).map_err(|e| format!("{}: {e}", offer.display()))?;
        Ok(TlsFiles {
            offer,
            authority: folder.join("ca.pem"),
            certificate: folder.join(format!("{HOST}.pem")),
            key: folder.join(format!("{HOST}.key")),
        })
    }
}
