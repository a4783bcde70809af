//! The certificate of all servers of a run, and the authority that clients trust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::Programs;

/// The name of the certificate, in addition to 127.0.0.1.
pub(crate) const HOST: &str = "localhost";

/// The TLS parameters of OpenSSL clients, as a configuration file, because not all have flags for them.
const OPENSSL_CONFIG: &str = "\
openssl_conf = all
[all]
ssl_conf = ssl
[ssl]
system_default = clients
[clients]
MinProtocol = TLSv1.3
Ciphersuites = TLS_AES_128_GCM_SHA256
Groups = X25519
";

/// PEM files with ECDSA on P-256.
#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// The value of OPENSSL_CONF for clients.
    pub(crate) openssl_config: PathBuf,
}

impl TlsFiles {
    /// Creates the files in `folder` with `blitz cert`.
    pub(crate) fn create(folder: &Path, programs: &Programs) -> Result<TlsFiles, String> {
        let folder = folder.join("tls");
        let output = Command::new(programs.blitz())
            .arg("cert")
            .arg("--out")
            .arg(&folder)
            .args([HOST, "127.0.0.1"])
            .output()
            .map_err(|e| format!("blitz cert: {e}"))?;
        if !output.status.success() {
            let output = String::from_utf8_lossy(&output.stderr);
            return Err(format!("blitz cert: {output}"));
        }
        let openssl_config = folder.join("openssl.cnf");
        fs::write(&openssl_config, OPENSSL_CONFIG)
            .map_err(|e| format!("{}: {e}", openssl_config.display()))?;
        Ok(TlsFiles {
            openssl_config,
            authority: folder.join("ca.pem"),
            certificate: folder.join(format!("{HOST}.pem")),
            key: folder.join(format!("{HOST}.key")),
        })
    }
}
