//! Tips for usage errors: for URLs without their flag, and for arguments of nginx, Caddy, curl and load generators.

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
        "write blitz run --config FILE; the file is in TOML",
    ),
    (
        &["-t", "--test", "test", "validate"],
        "write blitz check FILE; blitz doctor checks this machine",
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
        "blitz reload reads the file of --config again, as kill -HUP PID does; kill PID ends Blitz after its \
         running requests",
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
        &[
            "--large-client-header-buffers",
            "--client-header-buffer-size",
            "--max-header-size",
            "--header-max",
        ],
        "write --head-max and --request-line-max, for example --head-max 64k",
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
        "this is not available yet; docs/production.md lists what is missing",
    ),
];

/// Arguments of other load generators, and the tip for them in `blitz load`.
const LOAD_TIPS: &[(&[&str], &str)] = &[
    (
        &["-k"],
        "write --insecure to accept any certificate; connections are kept alive without a flag",
    ),
    (
        &["-s", "--script"],
        "there are no scripts; -i FILE has a list of requests with weights, or a HAR file",
    ),
    (
        &["-p", "-T", "--data", "--post-file", "--data-binary"],
        "write -b TEXT or -b @FILE for the content, -H 'Content-Type: …' for its type, -m N for streams",
    ),
    (&["--h1", "--http1.1"], "write --http 1.1"),
    (&["--h2c", "--http2", "--h2"], "write --http 2"),
    (&["--h3", "--http3"], "write --http 3"),
    (
        &["--no-tui", "--no-color"],
        "write --quiet to print no progress",
    ),
    (
        &["-a", "-A", "-u", "--user"],
        "write -H 'Authorization: Basic …' with the credentials in Base64",
    ),
    (
        &["-L", "--location", "--redirect"],
        "redirects are not followed; name the URL that they lead to",
    ),
    (
        &["-o", "--output", "--output-format"],
        "write --json FILE, --csv FILE, --markdown FILE or --html FILE",
    ),
];

/// Adds a tip to a usage error, if there is one for the unexpected argument.
pub(crate) fn add(error: &mut clap::Error, arguments: &[String]) {
    let Some(unexpected) = unexpected(error) else {
        return;
    };
    let tip = match arguments.get(1).map(String::as_str) {
        Some("bench") => None,
        Some("load") => find(LOAD_TIPS, &unexpected),
        // The others are about serving.
        _ => tip(&unexpected, arguments),
    };
    if let Some(tip) = tip {
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
        // The flag with a similar name is another one, and the usage is of that flag.
        if error.remove(ContextKind::SuggestedArg).is_some() {
            error.remove(ContextKind::Usage);
        }
        // So is the subcommand: `load` is no `reload`.
        error.remove(ContextKind::SuggestedSubcommand);
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
    find(TIPS, argument)
}

fn find(tips: &[(&[&str], &str)], argument: &str) -> Option<String> {
    let known = tips.iter().find(|(known, _)| known.contains(&argument));
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
