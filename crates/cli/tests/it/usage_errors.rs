//! Usage errors exit with 2, environment errors with 1. Both messages contain a remedy.

use crate::{blitz, stderr, stdout};

/// Arguments of `blitz run`, and what the message contains: the value, the problem, the remedy.
const USAGE_ERRORS: &[(&[&str], &str, &str, &str)] = &[
    (
        &["--speed", "9"],
        "--speed",
        "unexpected argument",
        "--help",
    ),
    (&["extra"], "extra", "unexpected argument", "--help"),
    (&["--io", "magic"], "magic", "--io", "auto, uring, epoll"),
    (&["--log", "loud"], "loud", "--log", "info, debug"),
    (
        &["--http3", "off", "--alt-svc-port", "443"],
        "--alt-svc-port",
        "--http3 off switches off",
        "leave out one",
    ),
    (
        &["--listen", ":8080", "--alt-svc-port", "443"],
        "--alt-svc-port",
        "no listener for HTTPS",
        "--listen-tls",
    ),
    (
        &["--http3", "on"],
        "--http3 on",
        "no listener for HTTPS",
        "--listen-tls",
    ),
    (
        &["--alt-svc-max-age", "1h"],
        "--alt-svc-max-age",
        "no listener for HTTPS",
        "--listen-tls",
    ),
    (
        &["--http3", "on", "--listen-tls", "unix:/run/blitz.sock"],
        "--http3 on",
        "is a unix socket",
        "--listen-tls :8443",
    ),
    (
        &["--alt-svc-max-age", "0", "--alt-svc-port", "443"],
        "--alt-svc-port",
        "--alt-svc-max-age 0 leaves out",
        "leave out one",
    ),
    (
        &["--alt-svc-max-age", "500ms"],
        "500ms",
        "whole seconds",
        "60s, 5m, 24h, 30d, or 0",
    ),
    (
        &["--alt-svc-max-age", "1500ms"],
        "1500ms",
        "whole seconds",
        "60s, 5m, 24h, 30d, or 0",
    ),
    (
        &["--alt-svc-max-age", "soon"],
        "soon",
        "not a duration",
        "60s, 5m, 24h, 30d, or 0",
    ),
    (
        &["--alt-svc-max-age", "3600"],
        "3600",
        "unit is missing",
        "write 3600s",
    ),
    (
        &["--lingering-time", "soon"],
        "soon",
        "not a duration",
        "500ms, 1s",
    ),
    (
        &["--half-close-grace", "soon"],
        "soon",
        "not a duration",
        "500ms, 1s",
    ),
    (
        &["--body-max", "0"],
        "--body-max",
        "refuse all content",
        "leave the flag out",
    ),
    (&["--body-max", "10mb"], "10mb", "not a size", "write 10m,"),
    (&["--head-max", "2m"], "'2m'", "more than", "at most 1m"),
    (
        &["--trailers-max", "0"],
        "'0'",
        "every message",
        "at most 1m",
    ),
    (
        &["--fields-max", "many"],
        "many",
        "not a number",
        "1 to 10000",
    ),
    (
        &["--timeout-connect", "0"],
        "'0'",
        "end every request",
        "500ms, 1s",
    ),
    (
        &["--timeout-response", "30"],
        "'30'",
        "unit is missing",
        "write 30s",
    ),
    (&["--body-max", "ten"], "ten", "not a size", "512k, 10m, 1g"),
    (
        &["--timeout-connect", "forever"],
        "forever",
        "not a duration",
        "500ms, 1s or 5m",
    ),
    (
        &["--timeout-response", "0"],
        "'0'",
        "end every request",
        "forever",
    ),
    (
        &["--timeout-idle", "0s"],
        "0s",
        "end every request",
        "forever",
    ),
    (
        &["--timeout-drain", "-1s"],
        "-1s",
        "not a duration",
        "5m, 0 or forever",
    ),
    (
        &["--cores", "none"],
        "none",
        "not a number of cores",
        "from 1",
    ),
    (
        &["--cores", "0"],
        "0",
        "not a number of cores",
        "leave out --cores",
    ),
    (&["--cores", "-1"], "-1", "not a number of cores", "from 1"),
    (
        &["--cores", "99999"],
        "99999",
        "not a number of cores",
        "to 4096",
    ),
    (&["--loop-id", "a b"], "a b", "not a token", "edge-1"),
    (
        &["--listen", "8080"],
        "8080",
        "port alone",
        "127.0.0.1:8080",
    ),
    (
        &["--listen", "nonsense"],
        "nonsense",
        "not an address",
        "[::1]:8080",
    ),
    (
        &["--listen", "localhost:x"],
        "localhost:x",
        "not a port",
        "65535",
    ),
    (
        &["--listen", "unix:x"],
        "unix:x",
        "absolute path",
        "unix:/run/",
    ),
    (
        &["--to", "unix:run/app.sock"],
        "unix:run/app.sock",
        "absolute path",
        "write unix:/run/app.sock",
    ),
    (
        &["--to", "api=http://a:1"],
        "api=http://a:1",
        "slash before",
        "write /api=http://a:1",
    ),
    (
        &["--to", "a.example=http://a:1"],
        "a.example",
        "selected by path only",
        "for all hosts",
    ),
    (
        &["--to", "127.0.0.1:3000"],
        "127.0.0.1:3000",
        "has no scheme",
        "http://127.0.0.1",
    ),
    (
        &["--to", "localhost:3000"],
        "localhost:3000",
        "has no scheme",
        "https://localhost:3000 for TLS, or h2c://localhost:3000",
    ),
    (
        &["--upstream-ca", "a.pem", "--to", "http://a:1"],
        "--upstream-ca",
        "no --to is https://",
        "--to https://",
    ),
    (
        &["--to", "ftp://a.example"],
        "ftp://a.example",
        "ftp:// is unknown",
        "http://HOST:PORT",
    ),
    (&["--to", "/api"], "/api", "=URL is missing", "/api=http://"),
    (
        &["--to", "http://"],
        "http://",
        "has no host",
        "http://127.0.0.1:80",
    ),
    (
        &["--trusted-proxies", "10/8"],
        "10/8",
        "neither an address",
        "10.0.0.0/8",
    ),
    (
        &["--trusted-proxies", "::1,10.1.2.3/8"],
        "10.1.2.3/8",
        "bits after",
        "10.0.0.0/8 for",
    ),
    (
        &["--to", "/a=http://a:1", "--to", "/a=http://b:2"],
        "/a",
        "given twice",
        "keep one of them",
    ),
    (
        &["--to", "/a=http://a:1", "--to", "/a/=http://b:2"],
        "/a",
        "would get the path /a only",
        "keep one of them",
    ),
    (
        &["--listen", "127.0.0.1:1", "--listen", "127.0.0.1:1"],
        "--listen 127.0.0.1:1",
        "given twice",
        "choose another address",
    ),
    (
        &["--listen", "127.0.0.1:1", "--listen-tls", "127.0.0.1:1"],
        "127.0.0.1:1",
        "either for clear text or for TLS",
        "choose another port",
    ),
    (
        &["--listen-tls", "127.0.0.1:0", "--cert", "a.pem"],
        "--cert",
        "0 --key",
        "same order",
    ),
    (
        &["--cert", "a.pem", "--key", "a.key"],
        "--cert",
        "no listener for HTTPS",
        "--listen-tls",
    ),
    (
        &["--redirect-https"],
        "--redirect-https",
        "no listener for HTTPS",
        "--listen-tls",
    ),
    (
        &["--client-auth", "optional"],
        "--client-ca",
        "not provided",
        "--help",
    ),
    (
        &["--client-ca", "a.pem", "--client-auth", "perhaps"],
        "perhaps",
        "--client-auth",
        "optional, required",
    ),
    (
        &["--listen", "https://127.0.0.1"],
        "https://127.0.0.1",
        "listeners of its own",
        "--listen-tls",
    ),
];

/// Whole command lines, and their tip.
const TIPS: &[(&[&str], &str)] = &[
    (
        &["run", "--to", "/api", "http://a:1"],
        "write --to /api=http://a:1,",
    ),
    (
        &["--to", "/api", "http://a:1"],
        "write --to /api=http://a:1,",
    ),
    (
        &["--to", "http://a:1", "http://b:2"],
        "write blitz run --to http://b:2",
    ),
    (&["http://a:1"], "write blitz run --to http://a:1"),
    (
        &["run", "localhost:3000"],
        "write blitz run --to http://localhost:3000",
    ),
    (&[":3000"], "blitz run --listen :3000"),
    (&["--insecure"], "--upstream-ca FILE"),
    (&["run", "--to", "https://a", "-k"], "--upstream-ca FILE"),
    (&["--cores", "1", "stop"], "systemctl stop blitz"),
    (&["start"], "systemctl start blitz"),
    (&["run", "--client-max-body-size", "10m"], "--body-max 10m"),
    (&["--max-header-size", "64k"], "--head-max 64k"),
    (&["--upstream", "http://a:1"], "write --to URL"),
    (&["--user", "www-data"], "User= in the unit"),
    (&["run", "--timeout", "30"], "--timeout-response 30s"),
    (&["run", "--debug"], "--log debug"),
    (&["run", "--listen-quic", ":443"], "each --listen-tls"),
    (&["--listen-http3=:443"], "each --listen-tls"),
    (&["run", "--quic"], "each --listen-tls"),
    (&["--http-3"], "each --listen-tls"),
    (&["doctor", "--http3"], "each --listen-tls"),
    (&["--insecure-skip-verify"], "--upstream-ca FILE"),
    (&["run", "--gzip=on"], "not available yet"),
    (&["file-server", "--root", "."], "not available yet"),
    (&["reverse_proxy", ":80"], "write blitz run"),
    (&["-s", "reload"], "blitz reload"),
    (&["-c", "a.conf"], "run --config FILE"),
    (&["/etc/blitz.conf"], "run --config FILE"),
    (&["validate", "a.toml"], "blitz check FILE"),
    (&["--cores", "1", "run"], "write run first"),
    (&["load", "-k", "http://a:1/"], "write --insecure"),
    (&["load", "-s", "post.lua", "http://a:1/"], "-i FILE"),
];

#[test]
fn arguments_of_other_programs_get_a_tip() {
    for (args, tip) in TIPS {
        let output = blitz(args);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        let tips = message.split_once("tip: ").map(|(_, tips)| tips);
        assert!(
            tips.is_some_and(|tips| tips.contains(tip)),
            "{args:?}: no {tip} in: {message}"
        );
        assert!(!message.contains("a similar "), "{message}");
    }
}

#[test]
fn usage_errors_are_named_with_a_remedy() {
    for (args, value, problem, fix) in USAGE_ERRORS {
        let output = blitz(&[&["run", "--listen", "127.0.0.1:0"], *args].concat());
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        for expected in [value, problem, fix] {
            assert!(
                message.contains(expected),
                "{args:?}: no {expected} in: {message}"
            );
        }
    }
}

/// The missing certificate ends the process after the warning.
#[test]
fn settings_that_are_probably_not_meant_are_warnings() {
    let cases: &[(&[&str], &str)] = &[
        (&["--cores", "4000"], "--cores 4000 is more than the"),
        (
            &["--listen", "127.0.0.1:1", "--to", "http://localhost:1"],
            "--to http://localhost:1 is this process",
        ),
    ];
    let without_file = ["--cert", "/no/such.pem", "--key", "/no/such.key"];
    for (args, warning) in cases {
        let fixed = ["run", "--listen-tls", "127.0.0.1:0"];
        let output = blitz(&[&fixed, *args, &without_file].concat());
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("WARN"), "{message}");
        assert!(message.contains(warning), "{message}");
        let output = blitz(&[&fixed[..], &without_file].concat());
        assert!(!stderr(&output).contains("WARN"), "{}", stderr(&output));
    }
}

#[test]
fn a_too_long_socket_path_is_refused() {
    let long = format!("unix:/{}", "x".repeat(107));
    for args in [["--listen", &long], ["--to", &long]] {
        let output = blitz(&["run", args[0], args[1]]);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            stderr(&output).contains("at most 107"),
            "{}",
            stderr(&output)
        );
    }
}

/// Valid addresses that cannot be bound on this machine.
#[test]
fn addresses_that_cannot_be_bound_are_failures_with_a_remedy() {
    let folder = std::env::temp_dir().join(format!("blitz-wrong-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let file = folder.join("file");
    std::fs::write(&file, "precious").expect("a file");
    let file = format!("unix:{}", file.display());
    let nowhere = format!("unix:{}", folder.join("no/where").display());
    for (address, problem, fix) in [
        ("192.0.2.1:8080", "does not have that address", "ip address"),
        (&nowhere, "folder does not exist", "make it"),
        (&file, "is not a socket", "choose another path"),
    ] {
        let output = blitz(&["run", "--listen", address]);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{address}: {message}");
        for expected in [address, problem, fix] {
            assert!(
                message.contains(expected),
                "{address}: no {expected} in: {message}"
            );
        }
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

/// One of them would get the connections of the other one.
#[test]
fn addresses_that_overlap_are_failures_with_a_remedy() {
    for [wide, part] in [
        ["0.0.0.0:18080", "127.0.0.1:18080"],
        ["[::]:18080", "127.0.0.1:18080"],
        ["[::]:18080", "0.0.0.0:18080"],
    ] {
        let output = blitz(&["run", "--listen", wide, "--listen", part]);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{message}");
        let expected = format!("cannot listen on {part}: another listener of this process");
        assert!(message.contains(&expected), "{message}");
        assert!(message.contains("leave out one of them"), "{message}");
    }
}

#[test]
fn help_contains_examples() {
    for args in [&["--help"][..], &["run", "--help"]] {
        let output = blitz(args);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("--to http://127.0.0.1:3000"));
        assert!(stdout(&output).contains("--trusted-proxies 10.0.0.0/8"));
    }
}

#[test]
fn the_help_of_alt_svc_names_units_and_defaults() {
    let help = stdout(&blitz(&["run", "--help"]));
    let words: Vec<_> = help.split_whitespace().collect();
    let help = words.join(" ");
    for text in [
        "write 60s, 5m, 24h, 30d, or 0 to leave the field out",
        "Alt-Svc) [default: 1h]",
        "over UDP [default: on]",
    ] {
        assert!(help.contains(text), "no {text} in: {help}");
    }
}

#[test]
fn the_short_help_is_a_summary_of_the_long_one() {
    let help = |flag| stdout(&blitz(&["run", flag]));
    let (short, long) = (help("-h"), help("--help"));
    for text in [&short, &long] {
        let headings = ["Listeners:", "Targets:", "Limits and timeouts:", "Process:"];
        for heading in headings {
            assert!(text.contains(heading), "no {heading} in: {text}");
        }
    }
    let has_detail = |text: &str| {
        let words: Vec<_> = text.split_whitespace().collect();
        words
            .join(" ")
            .contains("The longest matching prefix wins.")
    };
    assert!(has_detail(&long) && !has_detail(&short), "{long}");
}
