//! Files that the configuration includes, in their folders.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use blitz_testing::Client;

use crate::https::{Folder, Running};
use crate::{blitz, stderr, stdout};

const MAIN: &str = "listen = [\"127.0.0.1:0\"]\ninclude = [\"sites/*.toml\"]\nserver.watch = true\n\
                    [upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n";

#[test]
fn patterns_begin_at_the_folder_of_a_file_without_one() {
    let folder = Folder::new();
    fs::write(folder.file("blitz.toml"), "include = [\"s*.toml\"]\n").unwrap();
    fs::write(
        folder.file("shop.toml"),
        "[site.\"a.example\"]\nrespond = 404\n",
    )
    .unwrap();
    let checked = Command::new(env!("CARGO_BIN_EXE_blitz"))
        .args(["check", "blitz.toml"])
        .current_dir(folder.file(""))
        .output()
        .unwrap();
    assert!(stdout(&checked).contains("1 site"), "{}", stderr(&checked));
}

/// A folder with the main file, the page of a site, and the folder of sites.
fn folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.file("sites")).unwrap();
    fs::write(folder.file("blitz.toml"), MAIN).unwrap();
    fs::write(folder.file("sites/closed.txt"), "closed").unwrap();
    folder
}

fn site(name: &str) -> String {
    format!(
        "[site.\"{name}\"]\nrespond = {{ status = 200, file = \"closed.txt\" }}\n\"/app\".to = \"app\"\n"
    )
}

#[test]
fn check_and_explain_name_the_included_file() {
    let folder = folder();
    let file = folder.file("blitz.toml");
    fs::write(folder.file("sites/a.toml"), site("a.example")).unwrap();
    let checked = blitz(&["check", "--deny-warnings", &file]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let explained = blitz(&["explain", "--config", &file, "GET", "http://a.example/x"]);
    assert!(
        stdout(&explained).contains("sites/a.toml:1"),
        "{}",
        stdout(&explained)
    );

    fs::write(folder.file("sites/b.toml"), site("a.example")).unwrap();
    fs::write(folder.file("sites/c.toml"), "log.level = \"warn\"\n").unwrap();
    let checked = blitz(&["check", &file]);
    let text = stderr(&checked);
    assert_eq!(checked.status.code(), Some(1), "{text}");
    assert!(
        text.contains("sites/b.toml:1:7") && text.contains("sites/a.toml:1:7"),
        "{text}"
    );
    assert!(
        text.contains("error[not-in-include]") && text.contains("sites/c.toml:1:1"),
        "{text}"
    );

    fs::write(&file, MAIN.replace("sites/*.toml", "sites/none.toml")).unwrap();
    let checked = blitz(&["check", "--format", "json", &file]);
    assert!(
        stdout(&checked).contains("\"code\":\"include\""),
        "{}",
        stdout(&checked)
    );
}

#[test]
fn a_new_file_is_a_reload_of_a_watched_folder() {
    let folder = folder();
    let file = folder.file("blitz.toml");
    fs::write(folder.file("sites/a.toml"), site("a.example")).unwrap();
    let running = Running::announcing(&folder, &["--config", &file], "http://");
    let address = running.address("http://");
    let status = |host: &str| {
        let mut client = Client::connect(address);
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response().status
    };
    assert_eq!((status("a.example"), status("b.example")), (200, 404));
    fs::write(folder.file("sites/b.toml"), site("b.example")).unwrap();
    let started = Instant::now();
    while status("b.example") != 200 {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{}",
            running.log()
        );
        sleep(Duration::from_millis(100));
    }
    // A file with a mistake changes nothing.
    fs::write(folder.file("sites/a.toml"), "[site").unwrap();
    while !running.log().contains("the configuration in use stays") {
        assert!(
            started.elapsed() < Duration::from_secs(40),
            "{}",
            running.log()
        );
        sleep(Duration::from_millis(100));
    }
    assert_eq!((status("a.example"), status("b.example")), (200, 200));
}

/// A file with an access rule must not get lost.
#[test]
fn what_a_star_matches_and_cannot_be_read_is_an_error() {
    let folder = folder();
    let file = folder.file("blitz.toml");
    fs::write(folder.file("sites/a.toml"), site("a.example")).unwrap();
    std::os::unix::fs::symlink("/nowhere/b.toml", folder.file("sites/b.toml")).unwrap();
    fs::create_dir(folder.file("sites/folder.toml")).unwrap();
    std::os::unix::fs::symlink("me@host.1:2", folder.file("sites/.#a.toml")).unwrap();
    let checked = blitz(&["check", &file]);
    assert_eq!(checked.status.code(), Some(1), "{}", stderr(&checked));
    assert!(
        stderr(&checked).contains("sites/b.toml"),
        "{}",
        stderr(&checked)
    );
    fs::remove_file(folder.file("sites/b.toml")).unwrap();

    // Each file counts once, in whatever way it is named.
    let twice = "include = [\"sites/*.toml\", \"./sites/a.toml\", \"sites/../sites/a*.toml\"]";
    fs::write(&file, MAIN.replace("include = [\"sites/*.toml\"]", twice)).unwrap();
    let checked = blitz(&["check", "--deny-warnings", &file]);
    assert!(checked.status.success(), "{}", stderr(&checked));

    fs::write(&file, MAIN.replace("sites/*.toml", "sitse/*.toml")).unwrap();
    let checked = blitz(&["check", &file]);
    assert!(
        stderr(&checked).contains("warning[include]"),
        "{}",
        stderr(&checked)
    );
}
