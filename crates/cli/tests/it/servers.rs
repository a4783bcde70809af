//! Servers of upstreams: their checks, and draining them.

use blitz_testing::{Client, Upstream};

use crate::control_support::{Controlled, Place};
use crate::{blitz, stderr, stdout};

fn named(name: &'static str) -> Upstream {
    Upstream::start(move |_| {
        let length = name.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}").into_bytes()
    })
}

fn file(servers: [&Upstream; 2], keys: &str) -> String {
    let urls = servers.map(Upstream::url);
    format!(
        "[site.\"a.example\"]\nto = \"app\"\n[upstream.app]\nservers = {urls:?}\nbalance = \"round_robin\"\n{keys}\n"
    )
}

fn states(control: &Controlled) -> Vec<String> {
    let answer = control.address.get("/upstreams").json();
    let servers = answer["upstreams"].as_array().unwrap().iter();
    let state = |server: &serde_json::Value| server["checks"][0]["state"].to_string();
    servers.map(state).collect()
}

/// Waits for the states of all servers.
fn become_all(control: &Controlled, expected: [&str; 2]) {
    let deadline = std::time::Instant::now() + blitz_testing::IO_TIMEOUT;
    let expected = expected.map(|state| format!("\"{state}\""));
    while states(control) != expected {
        assert!(
            std::time::Instant::now() < deadline,
            "{:?}",
            states(control)
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn servers_are_checked_from_the_reload_that_says_so() {
    let (good, bad) = (named("good"), named("bad"));
    let control = Controlled::with_file(&file([&good, &bad], ""));
    assert_eq!(states(&control), ["null"; 2]);
    let health = "health = { path = \"/healthz\", body = \"good\", interval = \"200ms\" }";
    control.write(&file([&good, &bad], health));
    assert_eq!(control.socket.post("/reload").status, 200);
    become_all(&control, ["up", "down"]);
    let answer = control.address.get("/upstreams").json();
    let check = &answer["upstreams"][1]["checks"][0];
    assert_eq!(check["problem"], "its response does not have the text");
    assert_eq!(
        check["check"],
        "GET /healthz -> 2xx with a text every 200ms"
    );
    assert_eq!(check["names"], serde_json::json!(["app"]));
    assert!(check["since"].as_str().unwrap().ends_with('Z') && check["last_seconds"].is_number());
    assert!(check["failed"].as_u64().unwrap() >= 1 && check["passed"] == 0);
    let mut client = Client::connect(control.running.address("http://"));
    for _ in 0..4 {
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.response().text(), "good");
    }
}

#[test]
fn servers_are_drained_over_the_socket() {
    let (a, b) = (named("a"), named("b"));
    let control = Controlled::with_file(&file([&a, &b], ""));
    let Place::Socket(socket) = &control.socket else {
        panic!("it is a socket");
    };
    let servers =
        |arguments: &[&str]| blitz(&[&["servers", "--control", socket], arguments].concat());
    let texts = || {
        let mut client = Client::connect(control.running.address("http://"));
        let mut ask = |_| {
            client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
            client.response().text().to_owned()
        };
        [0, 1, 2, 3].map(&mut ask)
    };
    let drained = servers(&["drain", &a.url()]);
    assert!(drained.status.success(), "{}", stderr(&drained));
    assert_eq!(
        stdout(&drained),
        format!(
            "{} gets no new requests but those of clients with its cookie\n",
            a.url()
        )
    );
    assert_eq!(texts(), ["b"; 4]);
    let listed = format!("{}  app  drained\n{}  app\n", a.url(), b.url());
    assert_eq!(stdout(&servers(&[])), listed);
    let last = servers(&["drain", &b.url()]);
    assert_eq!(last.status.code(), Some(1));
    assert!(
        stderr(&last).contains("the last server of app"),
        "{}",
        stderr(&last)
    );
    assert!(stderr(&servers(&["drain", "http://h:1"])).contains("no upstream has the server"));
    // A reload changes nothing, and the address nothing either.
    assert_eq!(control.socket.post("/reload").status, 200);
    assert_eq!(texts(), ["b"; 4]);
    assert_eq!(
        control.address.post("/upstreams/undrain?server=x").status,
        403
    );
    assert_eq!(control.socket.post("/upstreams/undrain").status, 400);
    let undrained = servers(&["undrain", &format!("{}/", a.url())]);
    assert!(stdout(&undrained).ends_with("gets requests again\n"));
    let mut texts = texts();
    texts.sort_unstable();
    assert_eq!(texts, ["a", "a", "b", "b"]);
}
