//! Settings of the process: keys of the file, the flags above them, and `server.watch`.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::{Client, IO_TIMEOUT, Upstream};

use crate::https::{Folder, Running, config, connect, get};
use crate::{blitz, stderr, stdout};

/// An upstream that answers with the fields of the request.
fn echo() -> Upstream {
    Upstream::start(|request| {
        let lines = request.fields.iter();
        let text: String = lines
            .map(|(name, value)| format!("{name}: {value}\n"))
            .collect();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        )
        .into_bytes()
    })
}

fn write(folder: &Folder, settings: &str, sites: &str) {
    let text = format!("{settings}\nlisten = [\"127.0.0.1:0\"]\n[site]\n{sites}");
    fs::write(folder.file("blitz.toml"), text).unwrap();
}

fn start(folder: &Folder, flags: &[&str]) -> Running {
    let config = folder.file("");
    Running::announcing(folder, &[&["--config", &config], flags].concat(), "http://")
}

/// Status and content for a request with a field of this many bytes.
fn ask(running: &Running, bytes: usize) -> (u16, String) {
    let mut client = Client::connect(running.address("http://"));
    let field = "a".repeat(bytes);
    client.send(format!(
        "GET / HTTP/1.1\r\nHost: a.example\r\nX-Long: {field}\r\n\r\n"
    ));
    let response = client.response();
    (response.status, response.text().to_owned())
}

#[test]
fn the_file_says_what_flags_say_and_flags_stand_above_it() {
    let (folder, upstream) = (Folder::new(), echo());
    let site = format!("\"a.example\" = \"{}\"\n", upstream.url());
    let settings = "server.via = true\nserver.id = \"edge-1\"\nlimits.head_max = \"1k\"\ncontrol.socket = \"own.sock\"";
    write(&folder, settings, &site);
    let running = start(&folder, &["--control", &folder.file("own.sock")]);
    let (status, fields) = ask(&running, 10);
    assert_eq!(status, 200);
    let fields = fields.to_ascii_lowercase();
    assert!(
        fields.contains("via: 1.1 ") && fields.contains("cdn-loop: edge-1"),
        "{fields}"
    );
    assert_eq!(ask(&running, 2_000).0, 431);
    drop(running);
    let flags = [
        "--head-max=4k",
        "--loop-id=edge-2",
        "--control",
        &folder.file("own.sock"),
    ];
    let running = start(&folder, &flags);
    let (status, fields) = ask(&running, 2_000);
    assert_eq!(status, 200);
    assert!(
        fields.to_ascii_lowercase().contains("cdn-loop: edge-2"),
        "{fields}"
    );
}

#[test]
fn the_socket_of_the_file_is_below_its_folder_and_a_reload_names_what_needs_a_restart() {
    let folder = Folder::new();
    let site = "\"a.example\" = \"http://127.0.0.1:1\"\n";
    write(
        &folder,
        "control.socket = \"own.sock\"\nlog.summary = \"30s\"",
        site,
    );
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_blitz"))
        .args(["run", "--cores=1", "--control-listen=off"])
        .args(["--config", &folder.file("")])
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn();
    let mut child = child.expect("the binary starts");
    let socket = folder.file("own.sock");
    until(|| Path::new(&socket).exists());
    write(
        &folder,
        "control.socket = \"own.sock\"\nserver.via = true",
        site,
    );
    let output = blitz(&["reload", "--control", &socket]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for key in ["log.summary", "server.via"] {
        assert!(
            text.contains(&format!("{key} has changed: a restart applies it")),
            "{text}"
        );
    }
    assert!(!text.contains("control.socket"), "{text}");
    let shown = stdout(&blitz(&["config", "show", &folder.file("")]));
    assert!(shown.contains("\nserver.via = true  # "), "{shown}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_watched_file_is_read_again_when_it_or_a_file_that_it_names_changes() {
    let (folder, upstream) = (Folder::new(), echo());
    let (settings, proxied) = (
        "server.watch = true",
        format!("\"a.example\" = \"{}\"\n", upstream.url()),
    );
    write(&folder, settings, &proxied);
    let running = start(&folder, &[]);
    assert_eq!(ask(&running, 1).0, 200);
    let page = "\"a.example\" = { respond = { status = 503, file = \"page\" } }\n";
    fs::write(folder.file("page"), "first").unwrap();
    write(&folder, settings, page);
    until(|| ask(&running, 1) == (503, "first".to_owned()));
    fs::write(folder.file("page"), "second").unwrap();
    until(|| ask(&running, 1) == (503, "second".to_owned()));
    write(&folder, settings, "\"a.example\" = \"h:1\"\n");
    until(|| running.log().contains("the configuration in use stays"));
    assert_eq!(ask(&running, 1).0, 503);
    write(&folder, settings, &page.replace("page", "later"));
    until(|| running.log().contains("later"));
    assert_eq!(ask(&running, 1).0, 503);
    fs::write(folder.file("later"), "third").unwrap();
    until(|| ask(&running, 1) == (503, "third".to_owned()));
}

/// A reload that was refused watches what it lacks: files of a certificate may come one after the other.
#[test]
fn a_watched_certificate_may_come_in_pieces() {
    let folder = Folder::new();
    folder.certificate("a.example");
    let site = |text: &str| format!("\"a.example\" = {{ respond = \"200 {text}\" }}\n");
    let settings = |file: &str| format!("server.watch = true\ncertificates = [\"{file}\"]");
    write(&folder, "server.watch = true", &site("first"));
    let running = start(&folder, &[]);
    let is = |text: &str| ask(&running, 1) == (200, text.to_owned());
    let copy = |from: &str, to: &str| {
        fs::copy(folder.file(from), folder.file(to)).unwrap();
    };
    for folder_name in ["live/one", "live/empty", "live/two"] {
        fs::create_dir_all(folder.file(folder_name)).unwrap();
    }
    write(&folder, &settings("late.pem"), &site("second"));
    until(|| running.log().contains("late.pem"));
    copy("a.example.pem", "late.pem");
    until(|| running.log().contains("late.key"));
    copy("a.example.key", "late.key");
    until(|| is("second"));
    // A folder without a certificate is no mistake.
    copy("a.example.pem", "live/one/fullchain.pem");
    copy("a.example.key", "live/one/privkey.pem");
    write(&folder, &settings("live/*/fullchain.pem"), &site("third"));
    until(|| is("third"));
    fs::write(folder.file("live/two/fullchain.pem"), "half").unwrap();
    write(&folder, &settings("live/*/fullchain.pem"), &site("fourth"));
    until(|| running.log().contains("two/fullchain.pem"));
    assert!(is("third"));
    copy("a.example.pem", "live/two/fullchain.pem");
    copy("a.example.key", "live/two/privkey.pem");
    until(|| is("fourth"));
}

fn until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + IO_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < end, "it is not so after {IO_TIMEOUT:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_reload_with_other_settings_of_http3_replaces_no_listener() {
    let folder = Folder::new();
    folder.certificate("a.example");
    let site = "\"a.example\" = { respond = \"200 here\", tls = true }\n";
    let write = |age: &str| {
        let tls = "listen_tls = [\"127.0.0.1:0\"]\ncertificates = [\"a.example.pem\"]";
        write(
            &folder,
            &format!("server.alt_svc_max_age = \"{age}\"\n{tls}"),
            site,
        );
    };
    write("5m");
    let socket = folder.file("own.sock");
    let flags = ["--config", &folder.file(""), "--control", &socket];
    let running = Running::start_with(&folder, &flags);
    let trusted = config(Path::new(&folder.file("ca.pem")), None);
    let announced = || {
        let mut stream = connect(running.address("https://"), "a.example", &trusted);
        get(&mut stream, "a.example", "/")
            .unwrap()
            .contains("; ma=300\r\n")
    };
    assert!(announced());
    write("1m");
    let output = blitz(&["reload", "--control", &socket]);
    let text = stdout(&output);
    assert!(
        text.contains("server.alt_svc_max_age has changed: a restart applies it"),
        "{text}"
    );
    assert!(
        announced() && !running.log().contains("no HTTP/3"),
        "{}",
        running.log()
    );
}

#[test]
fn more_cores_than_there_are_have_a_warning() {
    let folder = Folder::new();
    write(
        &folder,
        "server.cores = 300",
        "\"a.example\" = \"http://127.0.0.1:1\"\n",
    );
    // Without --cores, which the other tests have.
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_blitz"))
        .args([
            "run",
            "--control=off",
            "--upstream-ca=none.pem",
            "--config",
            &folder.file(""),
        ])
        .output()
        .unwrap();
    assert!(
        stderr(&output).contains("server.cores = 300 is more than the"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn mistakes_of_the_process_are_found_by_check() {
    let folder = Folder::new();
    let site = "\"a.example\" = \"http://127.0.0.1:1\"\n";
    write(
        &folder,
        "server.id = \"a b\"\nserver.http3 = false\nserver.alt_svc_port = 443",
        site,
    );
    let output = blitz(&["check", &folder.file("")]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    for code in ["error[id]", "error[contradiction]"] {
        assert!(text.contains(code), "{text}");
    }
}
