//! Blitz with a health endpoint beside or behind signed tokens.

use std::process::Command;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{StartOptions, write};
use crate::fixed_response::HEALTH;
use crate::group::{ClientProtocol, Group};
use crate::process::Workers;

/// Not secret: it signs the tokens of measurements.
const SECRET: &str = "the secret of measurements, which is public";

/// The paths of such a gateway that need a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Other paths of the built-in site, by `JWT_SECRET`.
    OtherPaths,
    /// Nothing: the site of a file responds.
    None,
    /// The health endpoint of the same site, by `jwt`.
    Health,
}

impl Protection {
    /// A path that needs a token.
    pub(crate) fn protected_path(self) -> Option<&'static str> {
        match self {
            Protection::OtherPaths => Some("/api/json"),
            Protection::None => None,
            Protection::Health => Some(HEALTH.path),
        }
    }

    /// The field that requests for the health endpoint need.
    pub(crate) fn field(self) -> Option<String> {
        let needs_token = self.protected_path() == Some(HEALTH.path);
        needs_token.then(|| format!("Authorization: Bearer {}", token()))
    }
}

/// The command; writes the configuration.
pub(crate) fn command(
    protection: Protection,
    group: &Group,
    workers: Workers,
    options: &StartOptions<'_>,
) -> Result<Command, String> {
    let listen = options.listen.to_string();
    let cores = workers.count().to_string();
    let mut command = Command::new(options.programs.blitz());
    command.args(["run", "--cores", &cores]);
    let is_tls = group.protocol == ClientProtocol::Tls;
    if protection == Protection::OtherPaths {
        command.env("JWT_SECRET", SECRET);
        if is_tls {
            let tls = options.tls()?;
            command.args(["--listen-tls", &listen]);
            command.arg("--cert").arg(&tls.certificate);
            command.arg("--key").arg(&tls.key);
        } else {
            command.args(["--listen", &listen]);
        }
        return Ok(command);
    }
    let listeners = match is_tls {
        true => {
            let tls = options.tls()?;
            format!(
                "listen = []\nlisten_tls = [\"{listen}\"]\ncertificates = [{{ cert = \"{}\", key = \"{}\" }}]\n",
                tls.certificate.display(),
                tls.key.display()
            )
        }
        false => format!("listen = [\"{listen}\"]\n"),
    };
    let jwt = match protection {
        Protection::Health => format!("jwt = {{ secret = \"{SECRET}\" }}\n"),
        _ => String::new(),
    };
    let text = format!(
        "{listeners}control = false\n\n[site.\"*\"]\n{}\"={}\" = {{ respond = {{ status = 200, body = '{}', \
         headers.Content-Type = \"{}\" }} }}\n{jwt}",
        if is_tls { "tls = true\n" } else { "" },
        HEALTH.path,
        // A brace begins a placeholder.
        HEALTH.body.replace('{', "{{"),
        HEALTH.content_type,
    );
    let file = options
        .folder
        .join(format!("blitz-{}.toml", options.listen.port()));
    write(&file, &text)?;
    command.arg("--config").arg(file);
    Ok(command)
}

/// A token that does not expire before the year 2100.
fn token() -> String {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let header = encode(br#"{"alg":"HS256","typ":"JWT"}"#);
    let claims = encode(br#"{"iss":"bench","sub":"load","exp":4102444800}"#);
    let message = format!("{header}.{claims}");
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", encode(signature.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_protected_endpoint_needs_a_token() {
        assert_eq!(Protection::None.protected_path(), None);
        assert_eq!(Protection::OtherPaths.field(), None);
        let field = Protection::Health.field().unwrap();
        let token = field.strip_prefix("Authorization: Bearer ").unwrap();
        assert_eq!(token.split('.').count(), 3);
    }
}
