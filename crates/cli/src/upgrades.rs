//! `--upgrade`: the protocols that clients of a target may switch to.

use blitz_config::UpgradeProtocol;
use blitz_gateway::Target;
use blitz_http::Protocol;

/// `[PREFIX=]PROTOCOL`.
#[derive(Debug, Clone)]
pub(crate) struct UpgradeArgument {
    /// The prefix of a target as in `--to`; `None` means all targets.
    prefix: Option<String>,
    protocol: UpgradeProtocol,
}

/// # Errors
/// The problem with the value and, on a second line, the remedy.
pub(crate) fn parse(value: &str) -> Result<UpgradeArgument, String> {
    let (prefix, protocol) = match value.split_once('=') {
        Some((prefix, protocol)) => (Some(prefix.to_owned()), protocol),
        None => (None, value),
    };
    let protocol = protocol.parse::<UpgradeProtocol>();
    let protocol = protocol.map_err(|error| error.to_string())?;
    Ok(UpgradeArgument { prefix, protocol })
}

/// The targets with the protocols that they allow.
///
/// # Errors
/// There is no target for a protocol.
pub(crate) fn apply(
    targets: &[Target],
    upgrades: &[UpgradeArgument],
) -> Result<Vec<Target>, String> {
    let mut targets = targets.to_vec();
    for upgrade in upgrades {
        let mut is_used = false;
        for target in &mut targets {
            let is_meant = upgrade
                .prefix
                .as_ref()
                .is_none_or(|prefix| target.prefix.to_string() == *prefix);
            // HTTP/2 has no `Upgrade`.
            if is_meant && target.protocol != Protocol::Http2 {
                target.upgrades.push(upgrade.protocol.clone());
                is_used = true;
            }
        }
        if !is_used {
            return Err(match &upgrade.prefix {
                Some(prefix) => format!(
                    "--upgrade is for {prefix}, but no target over HTTP/1.1 has this prefix\n  \
                     add for example --to {prefix}=http://127.0.0.1:3000"
                ),
                None => "--upgrade is for targets over HTTP/1.1, and there is none\n  \
                         add for example --to http://127.0.0.1:3000"
                    .to_owned(),
            });
        }
    }
    Ok(targets)
}
