//! Questions to a running process: what it uses, what a reload would change, what a request meets.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::https::{Folder, Running};
use crate::{blitz, stderr, stdout};

const TEXT: &str = "\
listen = [\"127.0.0.1:0\"]
server.cores = 1

[site.\"a.example\"]
to = \"http://127.0.0.1:1\"
\"/x\" = \"http://127.0.0.1:2\"
\"/secret\" = \"${NO_SUCH_VARIABLE:http://127.0.0.1:9}\"

[site.\"b.example\"]
to = \"http://127.0.0.1:3\"
";

/// A process with [`TEXT`], the path of its file and of its socket.
fn start() -> (Folder, Running, String, String) {
    let folder = Folder::new();
    let (file, socket) = (folder.file("blitz.toml"), folder.file("control.sock"));
    fs::write(&file, TEXT).unwrap();
    let flags = ["--config", &file, "--control", &socket];
    let running = Running::announcing(&folder, &flags, "http://");
    (folder, running, file, socket)
}

/// The response of the socket to a request with these lines.
fn ask(socket: &str, lines: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    let head = format!("{lines}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn config_diff_says_what_a_reload_changes() {
    let (_folder, _running, file, socket) = start();
    let diff = |arguments: &[&str]| {
        let output = blitz(&[&["config", "diff", "--control", &socket], arguments].concat());
        (output.status.code(), stdout(&output), stderr(&output))
    };
    // Comments and spaces are no change.
    fs::write(&file, format!("# one\n{}", TEXT.replace(" = ", "="))).unwrap();
    assert_eq!(diff(&[]), (Some(0), String::new(), String::new()));

    let changed = TEXT
        .replace("\"127.0.0.1:0\"", "\"127.0.0.1:1\"")
        .replace("cores = 1", "cores = 2")
        .replace("b.example", "c.example")
        .replace(
            "\"/x\" = \"http://127.0.0.1:2\"",
            "\"/y\" = \"http://127.0.0.1:2\"",
        );
    let expected = "  ~ a.example
      + /y
      - /x
  + c.example
  - b.example
  + listener http://127.0.0.1:1
  - listener http://127.0.0.1:0
    connections of closed listeners have `server.drain_timeout` to end; all others stay
  server.cores has changed: a restart applies it
";
    let other = format!("{file}.new");
    fs::write(&other, &changed).unwrap();
    let (code, text, errors) = diff(&[&other]);
    // With `--cores` of the test, the file does not decide.
    let expected = expected.replace("  server.cores has changed: a restart applies it\n", "");
    assert_eq!((code, text), (Some(1), expected), "{errors}");
    assert_eq!(diff(&[]).0, Some(0), "the file of the process is as it was");

    // A reload makes it the configuration in use.
    fs::write(&file, TEXT.replace("b.example", "c.example")).unwrap();
    assert_eq!(diff(&[]).1, "  + c.example\n  - b.example\n");
    let reloaded = blitz(&["reload", "--control", &socket]);
    assert!(reloaded.status.success(), "{}", stderr(&reloaded));
    assert_eq!(diff(&[]).0, Some(0));

    fs::write(&file, "[site]\n\"a.example\" = \"h:1\"\n").unwrap();
    let (code, text, errors) = diff(&[]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    assert!(errors.contains("error[scheme-missing]"), "{errors}");
    let nobody = blitz(&["config", "diff", "--control", &format!("{socket}.none")]);
    assert_eq!(nobody.status.code(), Some(2));
    assert!(stderr(&nobody).contains("no process listens at"));
}

#[test]
fn the_socket_shows_the_configuration_in_use() {
    let (_folder, _running, file, socket) = start();
    let shown = blitz(&["config", "show", "--running", "--control", &socket]);
    let from_file = blitz(&["config", "show", &file]);
    assert_eq!(stdout(&shown), stdout(&from_file), "{}", stderr(&shown));
    assert!(stdout(&shown).contains("[site.\"a.example\".\"/x\"]"));
    // A variable is shown as it is written.
    assert!(stdout(&shown).contains("${NO_SUCH_VARIABLE:"));

    let first = ask(&socket, "GET /config HTTP/1.1");
    let tag = first.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("etag").then_some(value.trim())
    });
    let same = ask(
        &socket,
        &format!("GET /config HTTP/1.1\r\nIf-None-Match: {}", tag.unwrap()),
    );
    assert!(same.starts_with("HTTP/1.1 304 "), "{same}");
    // A refused file changes nothing, another one does.
    fs::write(&file, "to = 1\n").unwrap();
    assert!(!blitz(&["reload", "--control", &socket]).status.success());
    assert!(ask(&socket, "GET /config HTTP/1.1").contains(tag.unwrap()));
    fs::write(&file, TEXT.replace("b.example", "c.example")).unwrap();
    assert!(blitz(&["reload", "--control", &socket]).status.success());
    let other = ask(
        &socket,
        &format!("GET /config HTTP/1.1\r\nIf-None-Match: {}", tag.unwrap()),
    );
    assert!(
        other.starts_with("HTTP/1.1 200 ") && other.contains("c.example"),
        "{other}"
    );
}

#[test]
fn explain_asks_the_process() {
    let (_folder, _running, file, socket) = start();
    let question = [
        "GET",
        "http://a.example/x/y?z=1",
        "--from",
        "192.0.2.1",
        "-H",
        "A: b c",
    ];
    let of_file =
        |arguments: &[&str]| blitz(&[&["explain", "--config", &file], arguments].concat());
    let of_process = |arguments: &[&str]| {
        blitz(&[&["explain", "--running", "--control", &socket], arguments].concat())
    };
    for arguments in [
        &question[..],
        &[&question[..], &["--format", "json"]].concat(),
        &["--routes", "a.example"],
        &["--routes", "a.example", "--format", "json"],
    ] {
        // The identity of a request is random.
        let steady = |text: String| {
            let lines = text.lines().filter(|line| !line.contains("Request-Id"));
            lines.collect::<Vec<_>>().join("\n")
        };
        let (expected, found) = (of_file(arguments), of_process(arguments));
        assert!(found.status.success(), "{}", stderr(&found));
        if !arguments.contains(&"json") || arguments.contains(&"--routes") {
            assert_eq!(steady(stdout(&found)), steady(stdout(&expected)));
        }
    }
    let json = of_process(&[&question[..], &["--format", "json"]].concat());
    let object: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(object["site"]["value"], "a.example");
    assert_eq!(object["route"]["value"], "/x");
    assert_eq!(object["route"]["place"], format!("{file}:6"));
    assert_eq!(object["outcome"]["value"], "http://127.0.0.1:2/x/y?z=1");
    assert_eq!(object["not"][0]["route"], "/");
    assert_eq!(object["fields"][0]["name"], "Host");

    // The file has changed, and the process has not read it.
    fs::write(&file, TEXT.replace("127.0.0.1:2", "127.0.0.1:4")).unwrap();
    assert!(stdout(&of_process(&question)).contains("http://127.0.0.1:2/x"));
    assert!(stdout(&of_file(&question)).contains("http://127.0.0.1:4/x"));
    let unknown = of_process(&["--routes", "none.example"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert_eq!(
        stderr(&unknown),
        "blitz: no site has the host none.example\n"
    );
    assert!(ask(&socket, "GET /explain?metod=GET HTTP/1.1").starts_with("HTTP/1.1 400 "));
}

/// Networks of files are those of the last reload, in answers and in explanations, until another one reads the files.
#[test]
fn networks_of_files_change_with_a_reload() {
    let folder = Folder::new();
    let (file, socket) = (folder.file("blitz.toml"), folder.file("control.sock"));
    let networks = folder.file("networks.txt");
    let text = TEXT.replace("\"/x\" =", "deny = { file = \"networks.txt\" }\n\"/x\" =");
    fs::write(&file, &text).unwrap();
    fs::write(&networks, "10.0.0.0/8\n# a comment\nfd00::/8\n").unwrap();
    let flags = ["--config", &file, "--control", &socket];
    let _running = Running::announcing(&folder, &flags, "http://");
    let run = |arguments: &[&str]| {
        let output = blitz(&[arguments, &["--control", &socket]].concat());
        (output.status.code(), stdout(&output) + &stderr(&output))
    };
    let explained = |client: &str| {
        let question = [
            "explain",
            "--running",
            "GET",
            "http://a.example/x",
            "--from",
            client,
        ];
        let (code, text) = run(&question);
        assert_eq!(code, Some(0), "{text}");
        (text.contains("403 forbidden"), text)
    };
    let (is_refused, text) = explained("10.1.2.3");
    assert!(
        is_refused && text.contains("networks.txt: 2 networks"),
        "{text}"
    );
    assert!(!explained("192.0.2.1").0);
    assert_eq!(run(&["config", "diff"]), (Some(0), String::new()));

    fs::write(&networks, "192.0.2.0/24\n").unwrap();
    let (code, diff) = run(&["config", "diff"]);
    assert_eq!(code, Some(1));
    assert!(
        diff.contains("~ networks of networks.txt: 2 before, 1 network\n"),
        "{diff}"
    );
    // The process has not read the file again.
    assert!(explained("10.1.2.3").0 && !explained("192.0.2.1").0);

    let (code, changes) = run(&["reload"]);
    assert_eq!(code, Some(0), "{changes}");
    assert!(
        changes.contains("~ a.example") && changes.contains("2 before, 1 network"),
        "{changes}"
    );
    assert!(!explained("10.1.2.3").0 && explained("192.0.2.1").0);

    // A wrong line replaces nothing.
    fs::write(&networks, "10.0.0.0/8\n10.0.0.1/8\n").unwrap();
    let (code, problem) = run(&["reload"]);
    assert_eq!(code, Some(1));
    for part in [
        "networks.txt, line 2: bits after the first 8 are set",
        "write 10.0.0.0/8",
        "stays",
    ] {
        assert!(problem.contains(part), "{part} in {problem}");
    }
    assert!(explained("192.0.2.1").0);
    fs::remove_file(&networks).unwrap();
    assert_eq!(run(&["reload"]).0, Some(1));
    assert!(explained("192.0.2.1").0);
}

#[test]
fn the_socket_of_the_file_is_found() {
    let (folder, other) = (Folder::new(), Folder::new());
    // A path that begins at the folder of the file.
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\ncontrol.socket = \"own.sock\"\n[site]\n\"a.example\" = \"{}\"\n",
        "http://127.0.0.1:1"
    );
    fs::write(folder.file("blitz.toml"), &text).unwrap();
    let socket = folder.file("own.sock");
    let flags = ["--config", &folder.file(""), "--control", &socket];
    let _running = Running::announcing(&folder, &flags, "http://");
    let in_folder = |folder: &Folder, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blitz"));
        let command = command
            .current_dir(folder.file(""))
            .env_remove("BLITZ_CONFIG");
        command.args(arguments).output().unwrap()
    };
    let explain = ["explain", "GET", "http://a.example/", "--running"];
    for arguments in [&["reload"][..], &explain] {
        let output = in_folder(&folder, arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let output = blitz(&[arguments, &["--config", &folder.file("blitz.toml")]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    // No other process is meant where the file names a socket, or none at all.
    for (line, problem) in [
        ("control.socket = \"gone.sock\"\n", "gone.sock"),
        ("control.socket = false\n", "`control.socket = false`"),
    ] {
        fs::write(other.file("blitz.toml"), line).unwrap();
        for arguments in [&["reload"][..], &explain] {
            let output = in_folder(&other, arguments);
            assert_eq!(output.status.code(), Some(1));
            let text = stderr(&output);
            assert!(text.contains(problem) && !text.contains("/run/"), "{text}");
        }
    }
    let output = blitz(&["reload", "--config", &other.file("missing.toml")]);
    assert!(
        stderr(&output).contains("cannot be read"),
        "{}",
        stderr(&output)
    );
}
