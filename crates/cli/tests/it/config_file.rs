//! `--config` and `blitz check`: sites of a file, and mistakes in it.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use blitz_testing::{Client, IO_TIMEOUT, Upstream};

use crate::https::{Folder, Running, config, connect, get};
use crate::{blitz, stderr, stdout};

/// An upstream that answers with its name and the path that it received.
fn upstream(name: &'static str) -> Upstream {
    Upstream::start(move |request| {
        let path = request.line.split(' ').nth(1).unwrap_or_default();
        let text = format!("{name} {path}");
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        )
        .into_bytes()
    })
}

/// Status and content of a response in clear text.
fn ask(running: &Running, host: &str, path: &str) -> (u16, String) {
    let mut client = Client::connect(running.address("http://"));
    client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let response = client.response();
    (response.status, response.text().to_owned())
}

#[test]
fn hosts_and_paths_have_their_upstreams() {
    let folder = Folder::new();
    let names = ["a.example", "none.example"];
    let made = blitz(&[&["cert", "--out", &folder.file("")], &names[..]].concat());
    assert!(made.status.success(), "{}", stderr(&made));
    let (first, second) = (upstream("first"), upstream("second"));
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\ncertificates = [\"*.example.pem\"]\n\n\
         [site.\"a.example\"]\ntls = true\nto = \"app\"\n\"/api\" = \"{second}\"\n\"/v1\".path = \"/v2{{rest}}\"\n\n\
         [site.\"plain.example\"]\naliases = [\"www.plain.example\"]\n\"/only\" = \"app\"\n\n\
         [site]\n\"*.b.example\" = \"{second}\"\n\n\
         [upstream.app]\nservers = [\"{first}\"]\n",
        first = first.url(),
        second = second.url(),
    );
    fs::write(folder.file("blitz.toml"), text).unwrap();
    let running = Running::start_with(&folder, &["--config", &folder.file("")]);
    assert!(
        running.announced.contains("  a.example/api  -> "),
        "{}",
        running.announced
    );
    let trusted = config(Path::new(&folder.file("ca.pem")), None);
    let secure = |host: &str, path: &str| {
        let mut stream = connect(running.address("https://"), "a.example", &trusted);
        get(&mut stream, host, path).unwrap()
    };
    for (path, expected) in [
        ("/", "first /"),
        ("/apix", "first /apix"),
        ("/api", "second /api"),
        ("/api/x?y", "second /api/x?y"),
        ("/v1/x", "first /v2/x"),
    ] {
        let answer = secure("A.example:443", path);
        assert!(answer.ends_with(expected), "{path}: {answer}");
    }
    // No certificate, and no site.
    assert!(secure("b.example", "/").starts_with("HTTP/1.1 421 "));
    assert!(secure("none.example", "/").starts_with("HTTP/1.1 421 "));
    for (host, path, expected) in [
        ("plain.example", "/only/x", (200, "first /only/x")),
        ("www.plain.example.", "/only", (200, "first /only")),
        (
            "plain.example",
            "/",
            (404, "no route of this site matches the path"),
        ),
        ("x.b.example", "/", (200, "second /")),
        ("x.y.b.example", "/", (404, "no site has this host")),
        ("b.example", "/", (404, "no site has this host")),
        ("a.example", "/x", (308, "served over HTTPS only")),
    ] {
        let (status, content) = ask(&running, host, path);
        let is_right = status == expected.0 && content.contains(expected.1);
        assert!(is_right, "{host}{path}: {status} {content}");
    }
}

#[test]
fn a_file_with_mistakes_starts_nothing() {
    let folder = Folder::new();
    let file = folder.file("blitz.toml");
    let text = "listen = [\"80\"]\ncertificates = [\"none.pem\"]\n[site.\"a.example\"]\ntoo = \"http://h:1\"\n\
                [site.\"b.example\"]\nto = \"http://h h\"\n";
    fs::write(&file, text).unwrap();
    for arguments in [
        ["run", "--config", file.as_str()].as_slice(),
        &["check", &file],
    ] {
        let output = blitz(arguments);
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        for part in [
            "error[address]: this is a port alone",
            "error[file-missing]: the file does not exist",
            "error[unknown-key]: unknown key `too` in a site",
            "error[upstream-url]: ",
            "blitz.toml:4:1",
            "has 4 errors",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    let output = blitz(&["check", "--format", "json", &file]);
    let lines: Vec<serde_json::Value> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[2]["start"]["line"], 4);
}

/// A client connection and the upstream's stay; a broken file changes nothing.
#[test]
fn hup_reads_the_file_again() {
    let folder = Folder::new();
    let (certificate, _) = folder.certificate("a.example");
    let (first, second) = (upstream("first"), upstream("second"));
    let write = |sites: &str| {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\ncertificates = [\"*.example.pem\"]\n[site]\n{sites}"
        );
        fs::write(folder.file("blitz.toml"), text).unwrap();
    };
    write(&format!("\"a.example\" = \"{}\"\n", first.url()));
    let running = Running::start_with(&folder, &["--config", &folder.file("")]);
    let mut client = Client::connect(running.address("http://"));
    let mut ask = |host: &str| {
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response().text().to_owned()
    };
    assert_eq!(ask("a.example"), "first /");
    assert!(ask("b.example").contains("no site"));
    folder.certificate("b.example");
    let both = format!(
        "\"a.example\" = \"{}\"\n\"b.example\" = \"{}\"\n",
        first.url(),
        second.url()
    );
    write(&both);
    running.reload("the configuration was read again");
    assert_eq!(ask("a.example"), "first /");
    assert_eq!(ask("b.example"), "second /");
    let trusted = config(Path::new(&folder.file("ca.pem")), None);
    let mut secure = connect(running.address("https://"), "b.example", &trusted);
    assert!(
        get(&mut secure, "b.example", "/")
            .unwrap()
            .ends_with("second /")
    );
    write("\"a.example\" = \"h:1\"\n");
    running.reload("the configuration in use stays");
    assert_eq!(ask("a.example"), "first /");
    assert_eq!(ask("b.example"), "second /");
    write(&both.replace("a.example", "c.example"));
    fs::remove_file(certificate).unwrap();
    running.reload("the configuration was read again");
    assert!(ask("a.example").contains("no site"));
    assert_eq!(ask("c.example"), "first /");
}

#[test]
fn blitz_reload_prints_what_has_changed_or_what_is_wrong() {
    let folder = Folder::new();
    folder.certificate("a.example");
    let (socket, first) = (folder.file("control.sock"), upstream("first"));
    let write = |sites: &str| {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\ncertificates = [\"*.example.pem\"]\n[site]\n{sites}"
        );
        fs::write(folder.file("blitz.toml"), text).unwrap();
    };
    let site = |name: &str| format!("\"{name}\" = \"{}\"\n", first.url());
    let reload = || blitz(&["reload", "--control", &socket]);
    let output = reload();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no process listens at"));
    write(&(site("a.example") + &site("b.example")));
    let flags = ["--config", &folder.file(""), "--control", &socket];
    let running = Running::start_with(&folder, &flags);
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for (sites, expected) in [
        (
            site("a.example") + &site("b.example"),
            "2 sites, 2 routes, 1 certificate\n  no site has changed\n",
        ),
        (
            site("c.example") + "\"a.example\" = \"http://127.0.0.1:1\"\n",
            "2 sites, 2 routes, 1 certificate\n  + c.example\n  ~ a.example\n  - b.example\n",
        ),
        (site("a.example"), "  ~ a.example\n  - c.example\n"),
    ] {
        write(&sites);
        let output = reload();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).ends_with(expected), "{}", stdout(&output));
    }
    assert_eq!(ask(&running, "a.example", "/"), (200, "first /".to_owned()));
    write("\"a.example\" = \"h:1\"\n");
    let output = reload();
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("error[scheme-missing]"), "{text}");
    assert!(text.ends_with("the configuration in use stays\n"), "{text}");
    assert_eq!(ask(&running, "a.example", "/"), (200, "first /".to_owned()));
    write(&site("a.example"));
    let second = blitz(&[&["run"], &flags[..]].concat());
    assert_eq!(second.status.code(), Some(1));
    assert!(
        stderr(&second).contains("control.sock cannot be opened"),
        "{}",
        stderr(&second)
    );
}

/// Other users cannot connect before the process has restricted the socket either.
#[test]
fn the_control_socket_is_private_from_the_beginning() {
    let folder = Folder::new();
    let (socket, first) = (folder.file("control.sock"), upstream("first"));
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n[site]\n\"a.example\" = {{ to = \"{}\", tls = false }}\n",
        first.url()
    );
    fs::write(folder.file("blitz.toml"), text).unwrap();
    let path = socket.clone();
    let seen = thread::spawn(move || {
        let end = Instant::now() + IO_TIMEOUT;
        while Instant::now() < end {
            if let Ok(found) = fs::metadata(&path) {
                return Some(found.permissions().mode() & 0o777);
            }
        }
        None
    });
    let flags = ["--config", &folder.file(""), "--control", &socket];
    let _running = Running::announcing(&folder, &flags, "http://");
    assert_eq!(seen.join().unwrap(), Some(0o600));
}

#[test]
fn certificates_are_found_as_other_programs_write_them() {
    let folder = Folder::new();
    let (certificate, key) = folder.certificate("a.example");
    let live = folder.file("live/a.example");
    fs::create_dir_all(&live).unwrap();
    fs::copy(&certificate, format!("{live}/fullchain.pem")).unwrap();
    fs::copy(&key, format!("{live}/privkey.pem")).unwrap();
    let file = folder.file("blitz.toml");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        let output = blitz(&["check", &file]);
        (output.status.code(), stdout(&output) + &stderr(&output))
    };
    let site = "[site.\"a.example\"]\nto = \"http://h:1\"\ntls = true\n";
    // The authority of `blitz cert` is in the folder too, and is none of them.
    for pattern in [
        "live/*/fullchain.pem",
        "live/a.example/fullchain.pem",
        "*.pem",
    ] {
        let (code, text) = check(&format!("certificates = [\"{pattern}\"]\n{site}"));
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("1 certificate\n"), "{pattern}: {text}");
    }
    for (text, expected) in [
        (
            format!("certificates = [\"*.pem\"]\nlisten_tls = []\n{site}"),
            "tls-without-listener",
        ),
        (
            format!("certificates = [\"*.pem\"]\n{site}canonical_for = [\"www.a.example\"]\n"),
            "no certificate covers `www.a.example`",
        ),
        (
            format!("certificates = [\"live\"]\n{site}"),
            "write \"live/*.pem\"",
        ),
        (
            format!("certificates = [\"live/none.pem\"]\n{site}"),
            "/live/none.pem",
        ),
    ] {
        let (code, found) = check(&text);
        assert_eq!(code, Some(1), "{text}");
        assert!(found.contains(expected), "{expected}: {found}");
    }
    let mut expired = rcgen::CertificateParams::new(vec!["old.example".to_owned()]).unwrap();
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let pair = rcgen::KeyPair::generate().unwrap();
    let signed = expired.self_signed(&pair).unwrap();
    fs::write(folder.file("old.pem"), signed.pem() + &pair.serialize_pem()).unwrap();
    let (code, text) = check(&format!("certificates = [\"*.pem\"]\n{site}"));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("warning[certificate-validity]"), "{text}");
    assert!(text.contains("expired"), "{text}");
}

/// One certificate that nobody renews must not stop the others.
#[test]
fn a_site_may_name_its_certificate_and_its_key() {
    let folder = Folder::new();
    folder.certificate("a.example");
    let key = folder.file("elsewhere");
    fs::rename(folder.file("a.example.key"), &key).unwrap();
    for (tls, problem) in [
        ("{ cert = \"a.example.pem\", key = \"elsewhere\" }", None),
        ("{ cert = \"a.example.pem\" }", Some("error[certificate]")),
        ("{ cert = \"none.pem\" }", Some("error[file-missing]")),
    ] {
        let text = format!(
            "listen_tls = [\"127.0.0.1:0\"]\n[site.\"a.example\"]\nto = \"http://127.0.0.1:1\"\ntls = {tls}\n"
        );
        fs::write(folder.file("blitz.toml"), text).unwrap();
        let output = blitz(&["check", &folder.file("")]);
        let text = stderr(&output);
        assert_eq!(output.status.success(), problem.is_none(), "{text}");
        assert!(text.contains(problem.unwrap_or_default()), "{text}");
    }
}

#[test]
fn a_reload_takes_expired_certificates() {
    let folder = Folder::new();
    folder.certificate("a.example");
    let (socket, first) = (folder.file("control.sock"), upstream("first"));
    let write = |sites: &str| {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\ncertificates = [\"*.pem\"]\n[site]\n{sites}"
        );
        fs::write(folder.file("blitz.toml"), text).unwrap();
    };
    let site = |name: &str| format!("\"{name}\" = \"{}\"\n", first.url());
    write(&site("a.example"));
    let flags = ["--config", &folder.file(""), "--control", &socket];
    let running = Running::start_with(&folder, &flags);
    let mut expired = rcgen::CertificateParams::new(vec!["old.example".to_owned()]).unwrap();
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let pair = rcgen::KeyPair::generate().unwrap();
    let signed = expired.self_signed(&pair).unwrap();
    fs::write(folder.file("old.pem"), signed.pem() + &pair.serialize_pem()).unwrap();
    write(&(site("a.example") + &site("b.example")));
    let output = blitz(&["reload", "--control", &socket]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("warning[certificate-validity]"));
    assert_eq!(ask(&running, "b.example", "/").1, "first /");
}

#[test]
fn the_usual_file_is_found() {
    let (folder, other) = (Folder::new(), Folder::new());
    let write = |folder: &Folder, name: &str| {
        let text =
            format!("listen = [\"127.0.0.1:0\"]\n[site]\n\"{name}\" = \"http://127.0.0.1:1\"\n");
        fs::write(folder.file("blitz.toml"), text).unwrap();
    };
    write(&folder, "here.example");
    write(&other, "other.example");
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blitz"));
        command.args(arguments).current_dir(folder.file(""));
        command
    };
    let explain = |variable: Option<&str>| {
        let mut command = command(&["explain", "--routes", "other.example"]);
        command.env_remove("BLITZ_CONFIG");
        command.envs(variable.map(|path| ("BLITZ_CONFIG", path)));
        command.output().unwrap().status.code()
    };
    assert_eq!(explain(None), Some(1));
    assert_eq!(explain(Some(&other.file(""))), Some(0));
    let mut running = command(&[
        "--cores",
        "1",
        "--control",
        "off",
        "--control-listen",
        "off",
    ])
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let found = lines.find(|line| line.as_ref().unwrap().contains("here.example"));
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(found.is_some());
}

/// Both outputs of a command, with a variable that the files use.
fn blitz_with_host(host: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blitz"));
    let output = command
        .args(arguments)
        .env("BLITZ_TEST_HOST", host)
        .output()
        .unwrap();
    stdout(&output) + &stderr(&output)
}

/// They may be secret.
#[test]
fn values_of_variables_are_not_shown() {
    let folder = Folder::new();
    let file = folder.file("blitz.toml");
    let hosts = "${BLITZ_TEST_HOST}";
    for (text, value) in [
        (
            format!("[site]\n\"a.example\" = \"http://{hosts}\"\n"),
            "s3cret host",
        ),
        (
            format!("[site]\n\"a.example\" = \"http://{hosts}:1\"\n"),
            "s3cret_host",
        ),
        (
            format!("[site.\"a.example\"]\nredirect = \"302 https://t.example/?key={hosts}\"\n"),
            "s3cret-key",
        ),
        (
            format!("[site.\"a.example\"]\nto = \"http://h:1\"\npath = \"/hook/{hosts}\"\n"),
            "s3cret-hook",
        ),
        (
            format!(
                "[site.\"a.example\"]\nto = \"http://h:1\"\nrequest_headers.X-Key = \"key {hosts}\"\n"
            ),
            "s3cret-field",
        ),
        (
            format!("listen = [\"{hosts}\"]\n[site]\n\"a.example\" = \"http://h:1\"\n"),
            "http://user:s3cret@h:1",
        ),
        (
            format!("[site]\n\"a.example\" = \"u\"\n[upstream.u]\nservers = [\"{hosts}\"]\n"),
            "s3cret",
        ),
        (
            format!("[site.\"a.example\"]\nto = {{ \"{hosts}\" = 2, \"http://h:2\" = 1 }}\n"),
            "http://s3cret:1",
        ),
        (
            format!("[site.\"a.example\"]\nto = [\"{hosts}\", \"http://h:2\"]\n"),
            "http://user:s3cret@h:1",
        ),
        (
            format!("[site]\n\"a.example\" = \"u\"\n[upstream.u]\nservers = [\"{hosts}\"]\n"),
            "http://s3cret/path",
        ),
    ] {
        fs::write(&file, &text).unwrap();
        for arguments in [
            &["check", &file][..],
            &["check", "--format", "json", &file],
            &["config", "show", &file],
            &["explain", "--config", &file, "--routes", "a.example"],
            &["explain", "--config", &file, "GET", "http://a.example/x"],
        ] {
            let shown = blitz_with_host(value, arguments);
            assert!(!shown.contains("s3cret"), "{arguments:?} {text}{shown}");
        }
    }
}

/// Each of these lines is in the text, whatever the columns.
pub(crate) fn lines(text: &str, expected: &[&str]) {
    let squeezed: Vec<_> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for line in expected {
        let is_there = squeezed.iter().any(|known| known == line);
        assert!(is_there, "no `{line}` in:\n{text}");
    }
}

/// The explanation of a request over TLS to a trusted proxy, for a site that redirects clear text.
fn text_of_told(folder: &Folder) -> String {
    folder.certificate("t.example");
    let file = folder.file("told.toml");
    let text = "trusted_proxies = [\"127.0.0.1\"]\ncertificates = [\"t.example.pem\"]\n[site.\"t.example\"]\ntls = true\nto = \"http://h:1\"\n";
    fs::write(&file, text).unwrap();
    let field = "X-Forwarded-Proto: https";
    let arguments = [
        "explain",
        "--config",
        &file,
        "-H",
        field,
        "GET",
        "http://t.example/",
    ];
    stdout(&blitz(&arguments))
}

/// The remedy is one for the file: its flags would be errors.
#[test]
fn a_port_in_use_is_to_be_changed_in_the_file() {
    let folder = Folder::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let text = format!("listen = [\"{address}\"]\n[site]\n\"a.example\" = \"http://h:1\"\n");
    fs::write(folder.file("blitz.toml"), text).unwrap();
    let output = blitz(&["run", "--config", &folder.file(""), "--control", "off"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("such as listen = [\"127.0.0.1:"), "{text}");
}

#[test]
fn explain_and_show_say_what_a_request_meets() {
    let folder = Folder::new();
    let file = folder.file("blitz.toml");
    let text = "defaults.timeout.response = \"30s\"\n\n[site.\"a.example\"]\nto = \"http://${BLITZ_TEST_HOST:h}:1\"\n\
                canonical_for = [\"www.a.example\"]\n\"/api\".path = \"/v2{rest}\"\n\
                \"/admin\".allow = [\"10.0.0.0/8\"]\n\"/old\" = { redirect = \"301 /new{rest}\" }\n";
    fs::write(&file, text).unwrap();
    let explain = |arguments: &[&str]| {
        let output = blitz(&[&["explain", "--config", &file], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).replace(&file, "FILE")
    };
    let arguments = ["explain", "--config", &file, "GET", "http://a.example/"];
    let shown = blitz_with_host("s3cret-host", &arguments);
    assert!(
        shown.contains("outcome") && !shown.contains("s3cret-host"),
        "{shown}"
    );
    let text = text.replace("${BLITZ_TEST_HOST:h}", "h");
    fs::write(&file, text).unwrap();
    lines(
        &explain(&["GET", "http://a.example/api/x?y=1"]),
        &[
            "site a.example FILE:3",
            "route /api FILE:6",
            "rule timeout.response = \"30s\" FILE:1",
            "action http://h:1/v2{rest} FILE:4",
            "outcome http://h:1/v2/x?y=1",
            "Host: a.example",
            "X-Forwarded-For: 127.0.0.1",
            "not / /api comes first",
            "/admin another path",
        ],
    );
    let refused = ["GET", "http://a.example/admin/x", "--from", "192.0.2.9"];
    lines(
        &explain(&refused),
        &["outcome 403 forbidden this address may not request the path"],
    );
    lines(
        &explain(&["GET", "http://a.example/admin", "--from", "10.1.1.1"]),
        &["outcome http://h:1/admin"],
    );
    lines(
        &explain(&["GET", "http://www.a.example/x"]),
        &["outcome 308 http://a.example/x"],
    );
    lines(
        &explain(&["GET", "http://a.example/old/1"]),
        &["outcome 301 /new/1"],
    );
    lines(
        &explain(&["GET", "https://b.example/"]),
        &["outcome 404, over TLS 421 no site has this host"],
    );
    let told = text_of_told(&folder);
    lines(&told, &["outcome http://h:1/"]);
    lines(
        &explain(&["TRACE", "http://a.example/"]),
        &["outcome 405 method-not-forwarded this method is not forwarded"],
    );
    lines(
        &explain(&["--routes", "a.example"]),
        &["/admin http://h:1 FILE:7"],
    );
    shows_the_file(&file);
}

#[test]
fn explain_names_a_regex_with_its_groups() {
    let folder = Folder::new();
    let file = folder.file("blitz.toml");
    let text = "[site.\"a.example\"]\nto = \"http://h:1\"\nlisten = [\"127.0.0.1:81\"]\n\
                '~/u/(?<id>\\d+)(?<tail>/.*)?' = { path = \"/v2/{id}{tail}\", priority = 2 }\n\
                '~/team/[a-z]+/'.deny = [\"127.0.0.0/8\"]\n";
    fs::write(&file, text).unwrap();
    let explain = |arguments: &[&str]| {
        let output = blitz(&[&["explain", "--config", &file], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).replace(&file, "FILE")
    };
    lines(
        &explain(&["GET", "http://a.example/u/17/%61"]),
        &[
            "route ~/u/(?<id>\\d+)(?<tail>/.*)? FILE:4",
            "group id = 17",
            "group tail = /%61",
            "outcome http://h:1/v2/17/%61",
            "not / ~/u/(?<id>\\d+)(?<tail>/.*)? comes first",
        ],
    );
    lines(
        &explain(&["GET", "http://a.example/team/red"]),
        &["servers may read /team/red/"],
    );
    let json = explain(&["GET", "http://a.example/u/17", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["groups"],
        serde_json::json!([{ "name": "id", "value": "17" }])
    );
    let shown = stdout(&blitz(&["config", "show", &file])).replace(&file, "FILE");
    for line in [
        "[site.\"a.example\".'~/u/(?<id>\\d+)(?<tail>/.*)?']  # FILE:4",
        "priority = 2  # FILE:4",
        "listen = [\"127.0.0.1:81\"]  # FILE:3",
    ] {
        assert!(
            shown.lines().any(|found| found == line),
            "no {line} in:\n{shown}"
        );
    }
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_blitz"))
        .arg("schema")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

/// `config show` names the lines, and `schema` is one.
fn shows_the_file(file: &str) {
    let shown = stdout(&blitz(&["config", "show", file])).replace(file, "FILE");
    assert!(shown.contains("to = \"http://h:1\"  # FILE:4"), "{shown}");
    assert!(
        shown.contains("[site.\"a.example\".\"/admin\"]  # FILE:7\n"),
        "{shown}"
    );
    let top = "listen = [\":80\"]\n\n[site.\"a.example\"]  # FILE:3\ncanonical_for = [\"www.a.example\"]  # FILE:5\n\n";
    assert!(shown.starts_with(top), "{shown}");
    let schema: serde_json::Value = serde_json::from_str(&stdout(&blitz(&["schema"]))).unwrap();
    assert!(schema["properties"]["site"].is_object());
}

#[test]
fn check_says_what_a_file_has() {
    let folder = Folder::new();
    folder.certificate("a.example");
    let file = folder.file("blitz.toml");
    let write = |text: &str| fs::write(&file, text).unwrap();
    write(
        "certificates = [\"a.example.pem\"]\n[site.\"a.example\"]\nto = \"http://h:1\"\ntls = true\n",
    );
    let output = blitz(&["check", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).ends_with(": 1 site, 1 route, 1 certificate\n"));
    write(
        "certificates = [\"a.example.pem\"]\n[site.\"b.example\"]\nto = \"http://h:1\"\ntls = true\n",
    );
    let text = stderr(&blitz(&["check", &file]));
    assert!(text.contains("no certificate covers `b.example`"), "{text}");
    assert!(text.contains("they cover a.example"), "{text}");
    write("[site]\n\"a.example\" = \"http://h:1\"\n[upstream.old]\nservers = [\"http://h:1\"]\n");
    let output = blitz(&["check", &file]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("warning[unused]"));
    assert_eq!(
        blitz(&["check", "--deny-warnings", &file]).status.code(),
        Some(1)
    );
    let output = blitz(&["check", &folder.file("none.toml")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot be read"));
}

#[test]
fn flags_for_what_the_file_says_are_usage_errors() {
    for flag in [
        "--to=http://h:1",
        "--listen=:80",
        "--cert=a.pem",
        "--redirect-https",
    ] {
        let output = blitz(&["run", "--config", "blitz.toml", flag]);
        assert_eq!(output.status.code(), Some(2), "{flag}");
        assert!(stderr(&output).contains("--config"), "{}", stderr(&output));
    }
}

#[test]
fn variables_that_are_not_unicode_do_no_harm() {
    let folder = Folder::new();
    let file = folder.file("blitz.toml");
    fs::write(&file, "[site]\n\"a.example\" = \"${BLITZ_APP}\"\n").unwrap();
    let check = |application: &str| {
        Command::new(env!("CARGO_BIN_EXE_blitz"))
            .args(["check", &file])
            .env("BLITZ_BYTES", OsStr::from_bytes(b"\xff"))
            .env("BLITZ_APP", application)
            .output()
            .expect("the binary starts")
    };
    assert_eq!(check("http://h:1").status.code(), Some(0));
    // Its value may be secret.
    let text = stderr(&check("pass.word"));
    assert!(
        text.contains("scheme-missing") && !text.contains("pass.word"),
        "{text}"
    );
}

#[test]
fn flags_are_printed_as_a_file() {
    let shown = blitz(&[
        "run",
        "--show-config",
        "--listen=127.0.0.1:0",
        "--to=/api=http://127.0.0.1:1/v2",
        "--via",
    ]);
    assert!(shown.status.success(), "{}", stderr(&shown));
    assert_eq!(
        stdout(&shown),
        "listen = [\"127.0.0.1:0\"]\n\
         server.via = true\n\
         \n\
         [site.\"*\"]\n\
         # Other paths get the built-in site with flags, and 404 with a file.\n\
         \"/api\" = { to = \"http://127.0.0.1:1\", path = \"/v2{rest}\" }\n"
    );
    for (flags, code, problem) in [
        (
            vec!["--to=/a,*b*=http://127.0.0.1:1"],
            1,
            "no file says the same",
        ),
        (vec!["--config=x.toml"], 2, "cannot be used with"),
        (
            vec!["--to=http://a", "--to=http://b"],
            2,
            "--to is given twice",
        ),
    ] {
        let shown = blitz(&[vec!["run", "--show-config"], flags.clone()].concat());
        assert_eq!(shown.status.code(), Some(code), "{flags:?}");
        assert!(stderr(&shown).contains(problem), "{}", stderr(&shown));
    }
}

#[test]
fn a_reload_that_is_not_answered_has_a_limit() {
    let folder = Folder::new();
    let path = folder.file("control.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let asked = blitz(&["reload", "--control", &path, "--timeout", "100ms"]);
    assert_eq!(asked.status.code(), Some(1));
    assert!(
        stderr(&asked).contains("not answered within --timeout"),
        "{}",
        stderr(&asked)
    );
}
