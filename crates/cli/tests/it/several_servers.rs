//! Several servers in the output of commands.

use std::fs;

use blitz_testing::{Client, Upstream};

use crate::config_file::lines;
use crate::https::{Folder, Running};
use crate::{blitz, stderr, stdout};

#[test]
fn explain_and_show_name_several_servers() {
    let folder = Folder::new();
    let file = folder.file("blitz.toml");
    let text = "[site.\"a.example\"]\nto = \"app\"\nsticky = \"client\"\n\
                \"/x\".to = { app = 2, \"http://h:3\" = 1 }\n[upstream.app]\n\
                servers = { \"http://h:1\" = 3, \"http://h:2\" = 1 }\nbalance = \"round_robin\"\n";
    fs::write(&file, text).unwrap();
    let explain = |url: &str| stdout(&blitz(&["explain", "--config", &file, "GET", url]));
    lines(
        &explain("http://a.example/"),
        &[
            "outcome http://h:1/",
            "servers sticky by the client's address, else in turn",
            "weight 3 http://h:1",
            "weight 1 http://h:2",
        ],
    );
    let of_targets = [
        "servers in turn",
        "weight 2 app",
        "in turn",
        "weight 1 http://h:3",
    ];
    lines(&explain("http://a.example/x"), &of_targets);
    let shown = stdout(&blitz(&["config", "show", &file])).replace(&file, "FILE");
    lines(
        &shown,
        &[
            "to = { \"http://h:1\" = 3, \"http://h:2\" = 1 } # FILE:6",
            "balance = \"round_robin\" # FILE:7",
            "sticky = \"client\" # FILE:3",
            "to = { app = 2, \"http://h:3\" = 1 } # FILE:4",
            "upstream.app.servers = { \"http://h:1\" = 3, \"http://h:2\" = 1 } # FILE:6",
        ],
    );
}

#[test]
fn cookies_outlive_the_process() {
    let folder = Folder::new();
    let servers = ["a", "b", "c"].map(|name| {
        Upstream::start(move |_| {
            format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{name}").into_bytes()
        })
    });
    let urls: Vec<String> = servers.iter().map(Upstream::url).collect();
    let file = folder.file("blitz.toml");
    let text =
        format!("listen = [\"127.0.0.1:0\"]\n[site.\"*\"]\nto = {urls:?}\nsticky = \"cookie\"\n");
    fs::write(&file, text).unwrap();
    let mut cookie = None;
    let mut first = String::new();
    for _ in 0..3 {
        let running = Running::announcing(&folder, &["--config", &file], "http://");
        let mut client = Client::connect(running.address("http://"));
        let line = cookie.as_deref().unwrap_or_default();
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{line}\r\n"));
        let response = client.response();
        match cookie {
            None => {
                let set = response.field("set-cookie").unwrap();
                let (pair, _) = set.split_once("; ").unwrap();
                cookie = Some(format!("Cookie: {pair}\r\n"));
                first = response.text().to_owned();
            }
            Some(_) => {
                assert_eq!(response.field("set-cookie"), None);
                assert_eq!(response.text(), first);
            }
        }
    }
}

#[test]
fn a_service_is_shown_by_its_name() {
    let folder = Folder::new();
    let file = folder.file("blitz.toml");
    let text = "[site.\"a.example\"]\nto = \"app\"\n\"/one\".to = \"srv+h2c://_b._tcp.internal.example\"\n\
                [upstream.app]\nservers = [\"srv+http://_a._tcp.internal.example\"]\nbalance = \"hash\"\n";
    fs::write(&file, text).unwrap();
    let checked = blitz(&["check", "--deny-warnings", &file]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let explain = |url: &str| stdout(&blitz(&["explain", "--config", &file, "GET", url]));
    lines(
        &explain("http://a.example/"),
        &[
            "outcome srv+http://_a._tcp.internal.example/",
            "servers by a hash of the client's address",
            "weight 1 srv+http://_a._tcp.internal.example",
        ],
    );
    lines(
        &explain("http://a.example/one"),
        &["weight 1 srv+h2c://_b._tcp.internal.example"],
    );
    for (url, problem) in [
        (
            "srv+http://_a._tcp.x:80",
            "the ports of a service are those of its SRV records",
        ),
        ("srv+http://10.0.0.1", "only a name has SRV records"),
        ("srv+http://localhost", "only a name has SRV records"),
        ("srv+tcp://x", "srv+ comes before http://"),
        ("srv+srv+http://x", "srv+ comes before http://"),
    ] {
        fs::write(&file, format!("[site.\"a.example\"]\nto = \"{url}\"\n")).unwrap();
        let checked = blitz(&["check", &file]);
        assert!(
            stderr(&checked).contains(problem),
            "{url}: {}",
            stderr(&checked)
        );
    }
}
