//! Tips for usage errors: for URLs without their flag, and for arguments of nginx, Caddy and curl.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Arguments that Blitz does not have, and the tip for them.
const TIPS: &[(&[&str], &str)] = &[
    (
        &[
            "-k",
            "--insecure",
            "--insecure-skip-verify",
            "--skip-verify",
            "--no-verify",
        ],
        "certificates of upstreams are always verified; trust their authority with --upstream-ca FILE",
    ),
    (
        &["-c", "-f", "--config", "--conf"],
        "there is no configuration file yet; all settings are flags of blitz run",
    ),
    (
        &["-t", "--test", "test", "check", "validate"],
        "there is no configuration file to check; blitz doctor checks this machine",
    ),
    (
        &["reload"],
        "systemctl reload blitz or kill -HUP PID reads certificates again and resolves names again; \
         other settings need a restart",
    ),
    (
        &["stop", "quit", "shutdown"],
        "systemctl stop blitz or kill PID ends Blitz after its running requests",
    ),
    (
        &["start"],
        "blitz run starts Blitz in the foreground, systemctl start blitz as a service",
    ),
    (
        &["restart", "status"],
        "use systemctl restart blitz, systemctl status blitz",
    ),
    (
        &["-s", "--signal"],
        "send signals with kill: kill -HUP PID reloads, kill PID ends Blitz after its running requests",
    ),
    (
        &[
            "-d",
            "-D",
            "--daemon",
            "--background",
            "--pid-file",
            "--pidfile",
        ],
        "Blitz stays in the foreground; systemd or another service manager runs it in the background",
    ),
    (
        &["-p", "--port", "-b", "--bind", "--address", "--from"],
        "write --listen ADDR:PORT, for example --listen :8080",
    ),
    (
        &["-v", "--verbose", "--debug"],
        "write blitz version for the version, or --log debug for more output",
    ),
    (
        &["serve", "proxy", "reverse-proxy", "reverse_proxy"],
        "write blitz run, for example blitz run --to http://127.0.0.1:3000",
    ),
    (
        &["--upstream", "--backend", "--target", "--proxy-pass"],
        "write --to URL, for example --to http://127.0.0.1:3000",
    ),
    (
        &["--client-max-body-size", "--max-body-size", "--body-limit"],
        "write --body-max, for example --body-max 10m",
    ),
    (
        &["--timeout"],
        "write --timeout-connect, --timeout-response, --timeout-idle or --timeout-drain, \
         for example --timeout-response 30s",
    ),
    (
        &[
            "--http3",
            "--http-3",
            "--h3",
            "--quic",
            "--listen-http3",
            "--listen-h3",
            "--listen-quic",
            "--listen-udp",
        ],
        "HTTP/3 is served by each --listen-tls of blitz run, at the same port over UDP; --http3 off switches it off",
    ),
    (
        &["--user", "--group"],
        "Blitz keeps the user that starts it: write User= in the unit of systemd",
    ),
    (
        &[
            "--accept-proxy",
            "--access-log",
            "--acme",
            "--cache",
            "--compress",
            "--domain",
            "--email",
            "--gzip",
            "--health-check",
            "--host",
            "--metrics",
            "--proxy-protocol",
            "--rate-limit",
            "--root",
            "file-server",
            "file_server",
        ],
        "this is not available yet; README, In production, lists what is missing",
    ),
];

/// Adds a tip to a usage error, if there is one for the unexpected argument.
pub(crate) fn add(error: &mut clap::Error, arguments: &[String]) {
    let Some(unexpected) = unexpected(error) else {
        return;
    };
    // The tips are about serving.
    if arguments.get(1).is_some_and(|command| command == "bench") {
        return;
    }
    if let Some(tip) = tip(&unexpected, arguments) {
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
        // The flag with a similar name is another one, and the usage is of that flag.
        if error.remove(ContextKind::SuggestedArg).is_some() {
            error.remove(ContextKind::Usage);
        }
    }
}

fn unexpected(error: &clap::Error) -> Option<String> {
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        // The second one is a subcommand after flags.
        ErrorKind::InvalidSubcommand | ErrorKind::ArgumentConflict => {
            ContextKind::InvalidSubcommand
        }
        _ => return None,
    };
    match error.get(kind) {
        Some(ContextValue::String(argument)) => Some(argument.clone()),
        _ => None,
    }
}

fn tip(unexpected: &str, arguments: &[String]) -> Option<String> {
    if let Some(url) = url(unexpected) {
        return Some(match prefix_before(unexpected, arguments) {
            Some(prefix) => format!("write --to {prefix}={url}, without a blank"),
            None => format!("write blitz run --to {url} to forward requests there"),
        });
    }
    if unexpected.trim_start_matches(':').parse::<u16>().is_ok() {
        let port = unexpected.trim_start_matches(':');
        return Some(format!(
            "write blitz run --listen :{port} to listen there, or blitz run --to \
             http://127.0.0.1:{port} to forward requests there"
        ));
    }
    if ["run", "cert", "doctor", "version", "bench"].contains(&unexpected) {
        return Some(format!("write {unexpected} first, then its flags"));
    }
    let is_file = [".toml", ".yaml", ".yml", ".json", ".conf"]
        .iter()
        .any(|end| unexpected.ends_with(end));
    let argument = if is_file { "--config" } else { unexpected };
    let known = TIPS.iter().find(|(known, _)| known.contains(&argument));
    known.map(|(_, tip)| (*tip).to_owned())
}

/// The argument as a value of `--to`, if it is a URL, perhaps without its scheme.
fn url(argument: &str) -> Option<String> {
    if argument.contains("://") || argument.starts_with("unix:") {
        return Some(argument.to_owned());
    }
    let (host, port) = argument.rsplit_once(':')?;
    let is_host = !host.is_empty() && !host.contains('/');
    (is_host && port.parse::<u16>().is_ok()).then(|| format!("http://{argument}"))
}

/// The prefix in `--to /api URL`.
fn prefix_before<'a>(url: &str, arguments: &'a [String]) -> Option<&'a str> {
    let at = arguments.iter().position(|argument| argument == url)?;
    match &arguments[..at] {
        [.., flag, prefix] if flag == "--to" && prefix.starts_with('/') => {
            (!prefix.contains('=')).then_some(prefix)
        }
        _ => None,
    }
}
