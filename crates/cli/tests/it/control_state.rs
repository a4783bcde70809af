//! The state that the control interface shows: configuration, upstreams, certificates, connections.

use std::fs;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::{Client, Upstream, refusing_address};

use crate::control_support::Controlled;
use crate::https::Folder;

const SECRETS: &str = "[site.\"a.example\"]
to = \"http://127.0.0.1:1\"
request_headers.Authorization = \"Basic czNjcmV0\"
\"/moved\".headers.X-Origin = \"https://user:passw0rd@b.example/\"
";

#[test]
fn secrets_are_hidden() {
    let control = Controlled::with_file(SECRETS);
    for place in control.places() {
        for target in [
            "/config",
            "/explain?url=http://a.example/",
            "/explain?url=http://a.example/&format=json",
            "/explain?url=http://a.example/moved",
        ] {
            let answer = place.get(target);
            assert_eq!(answer.status, 200, "{target}: {}", answer.content);
            let text = &answer.content;
            assert!(
                !text.contains("czNjcmV0") && !text.contains("passw0rd"),
                "{text}"
            );
            assert!(text.contains("***"), "{target}: {text}");
        }
    }
    // Diagnostics quote the file.
    control.write(&SECRETS.replace("to =", "too ="));
    let over_address = control.address.get("/config/diff");
    assert_eq!(over_address.status, 422);
    assert!(over_address.content.contains("blitz config diff"));
    assert!(
        !over_address.content.contains("too"),
        "{}",
        over_address.content
    );
    let over_socket = control.socket.get("/config/diff");
    assert!(
        over_socket.content.contains("unknown-key"),
        "{}",
        over_socket.content
    );
    let other = format!("/config/diff?file={}", control.folder.file("blitz.toml"));
    assert_eq!(control.address.get(&other).status, 403);
    assert_eq!(control.socket.get(&other).status, 422);
}

#[test]
fn the_configuration_has_a_tag() {
    let control = Controlled::with_file(SECRETS);
    let first = control.address.get("/config");
    let tag = first
        .fields
        .lines()
        .find_map(|line| line.strip_prefix("etag: "));
    let tag = tag.expect("it has a tag").to_owned();
    for known in [
        tag.clone(),
        format!("W/{tag}"),
        format!("\"x\", {tag}"),
        "*".to_owned(),
    ] {
        let lines = format!("If-None-Match: {known}\r\n");
        let answer = control.address.ask("GET", "/config", &lines);
        assert_eq!(
            (answer.status, answer.content.as_str()),
            (304, ""),
            "{known}"
        );
    }
    control.write(&SECRETS.replace("/moved", "/gone"));
    assert_eq!(control.socket.post("/reload").status, 200);
    let lines = format!("If-None-Match: {tag}\r\n");
    assert_eq!(control.address.ask("GET", "/config", &lines).status, 200);
}

#[test]
fn upstreams_have_connections_and_failures() {
    let upstream = Upstream::start(|_| b"HTTP/1.1 204 No Content\r\n\r\n".to_vec());
    let refusing = refusing_address();
    let control = Controlled::with_file(&format!(
        "[site.\"a.example\"]\nto = \"app\"\n\
         [upstream.app]\nservers = [\"{}\", \"http://{refusing}\"]\nbalance = \"round_robin\"\n",
        upstream.url()
    ));
    let mut client = Client::connect(control.running.address("http://"));
    for _ in 0..4 {
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.response().status, 204);
    }
    for place in control.places() {
        let answer = place.get("/upstreams").json();
        let upstreams = answer["upstreams"].as_array().unwrap();
        let of = |url: &str| {
            let found = upstreams.iter().find(|one| one["url"] == url);
            let found = found.unwrap_or_else(|| panic!("{answer:#}"));
            assert_eq!(found["names"], serde_json::json!(["app"]));
            assert_eq!(found["failure"], serde_json::Value::Null);
            assert_eq!(found["changed"], serde_json::Value::Null);
            assert_eq!(found["addresses_before"], serde_json::json!([]));
            found["addresses"][0].clone()
        };
        let good = of(&upstream.url());
        assert_eq!(
            (&good["idle"], &good["in_use"]),
            (&1.into(), &0.into()),
            "{answer:#}"
        );
        assert_eq!(
            good["cores"][0]["cooling_down_until"],
            serde_json::Value::Null
        );
        assert_eq!(
            (&good["requests"], &good["failures"], &good["responses"]),
            (&4.into(), &0.into(), &4.into()),
            "{answer:#}"
        );
        assert!(good["recent_mean_seconds"].as_f64().unwrap() < 30.0);
        assert!(good["response_seconds"].as_f64().unwrap() < 120.0);
        let bad = of(&format!("http://{refusing}"));
        assert_eq!(bad["cores"][0]["last_failure_type"], "connection_refused");
        assert_eq!(bad["requests"], bad["failures"], "{answer:#}");
        assert_eq!(bad["recent_mean_seconds"], serde_json::Value::Null);
        assert_eq!(bad["address"], refusing.to_string());
        let until = bad["cores"][0]["last_failure"].as_str().unwrap();
        assert!(until.starts_with("20") && until.ends_with('Z'), "{until}");
    }
}

#[test]
fn upstreams_have_requests_without_a_response_and_their_uses() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let start = || Upstream::start(|_| b"HTTP/1.1 204 No Content\r\n\r\n".to_vec());
    let (upstream, other) = (start(), start());
    let control = Controlled::with_file(&format!(
        "[site.\"a.example\"]\nto = \"{url}\"\n\"/pool\" = \"pool\"\n\"/other\" = \"other\"\n\
         [upstream.pool]\nservers = [\"{url}\", \"{0}\"]\n[upstream.other]\nservers = [\"{0}\", \"{1}\"]\n",
        upstream.url(),
        other.url()
    ));
    let address = control.running.address("http://");
    let mut waiting: Vec<_> = (0..3).map(|_| Client::connect(address)).collect();
    for client in &mut waiting {
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    }
    let mut client = Client::connect(address);
    client.send("GET /other HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!(client.response().status, 204);
    let answer = || control.address.get("/upstreams").json();
    let of = |answer: &serde_json::Value, url: &str| {
        let upstreams = answer["upstreams"].as_array().unwrap().iter();
        let mut upstreams = upstreams.filter(|one| one["url"] == url);
        upstreams.next().unwrap().clone()
    };
    let started = Instant::now();
    while of(&answer(), &url)["addresses"][0]["unanswered"] != 3 {
        assert!(started.elapsed().as_secs() < 20, "{:#}", answer());
        thread::sleep(Duration::from_millis(20));
    }
    let answer = answer();
    let hung = of(&answer, &url);
    assert_eq!(
        (&hung["names"], &hung["used_alone"]),
        (&serde_json::json!(["pool"]), &true.into())
    );
    let address = &hung["addresses"][0];
    assert_eq!(address["in_use"], 3, "{answer:#}");
    assert!(address["seconds_unanswered"].as_f64().unwrap() < 60.0);
    let good = of(&answer, &upstream.url());
    assert_eq!(
        (&good["names"], &good["used_alone"]),
        (&serde_json::json!(["other", "pool"]), &false.into())
    );
    let address = &good["addresses"][0];
    assert_eq!(
        (&address["unanswered"], &address["seconds_unanswered"]),
        (&0.into(), &serde_json::Value::Null)
    );
}

#[test]
fn certificates_have_names_and_dates() {
    let folder = Folder::new();
    folder.certificate("a.example");
    let file = folder.file("a.example.pem");
    let text = "listen_tls = [\"127.0.0.1:0\"]\ncertificates = [\"a.example.pem\"]\n\
                [site.\"a.example\"]\nrespond = 204\ntls = true\n\
                [site.\"b.example\"]\nrespond = 204\n";
    let control = Controlled::with_file_in(folder, text);
    for place in control.places() {
        let answer = place.get("/certificates").json();
        let all = answer["certificates"].as_array().unwrap();
        assert_eq!(all.len(), 1, "{answer:#}");
        let one = &all[0];
        assert_eq!(one["names"], serde_json::json!(["a.example"]));
        assert_eq!(one["sites"], serde_json::json!(["a.example"]));
        assert!(!one["issuer"].as_str().unwrap().is_empty(), "{answer:#}");
        assert_eq!(one["file"], file.as_str());
        assert!(one["days_left"].as_i64().unwrap() > 0, "{answer:#}");
        let (from, to) = (one["not_before"].as_str(), one["not_after"].as_str());
        assert!(from < to && to.unwrap().len() == "2026-11-29T18:55:00Z".len());
    }
    // Without listeners for TLS there are none.
    let plain = Controlled::with_file(SECRETS);
    let answer = plain.address.get("/certificates").json();
    assert_eq!(answer["certificates"], serde_json::json!([]));
}

/// The first listener for TLS brings certificates.
#[test]
fn certificates_follow_reloads() {
    let folder = Folder::new();
    folder.certificate("a.example");
    let control = Controlled::with_file_in(folder, "[site.\"a.example\"]\nrespond = 204\n");
    let text = "listen_tls = [\"127.0.0.1:0\"]\ncertificates = [\"a.example.pem\"]\n\
                [site.\"a.example\"]\nrespond = 204\ntls = true\n";
    control.write(text);
    let reloaded = control.socket.post("/reload");
    assert_eq!(reloaded.status, 200, "{}", reloaded.content);
    let answer = control.address.get("/certificates").json();
    assert_eq!(
        answer["certificates"].as_array().unwrap().len(),
        1,
        "{answer:#}"
    );
    assert!(fs::exists(control.folder.file("a.example.pem")).unwrap());
}

#[test]
fn connections_and_requests_are_counted_by_core_and_version() {
    let control = Controlled::with_file("[site.\"a.example\"]\nrespond = 204\n");
    let mut client = Client::connect(control.running.address("http://"));
    for _ in 0..3 {
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.response().status, 204);
    }
    for place in control.places() {
        let answer = place.get("/connections").json();
        let total = &answer["total"];
        assert_eq!(total["open"], 1, "{answer:#}");
        assert_eq!(total["accepted"], 1, "{answer:#}");
        assert_eq!(total["requests"]["http1"], 3, "{answer:#}");
        assert_eq!(total["requests"]["http2"], 0, "{answer:#}");
        let cores = answer["cores"].as_array().unwrap();
        assert_eq!(cores.len(), 2, "{answer:#}");
        let sum: u64 = cores
            .iter()
            .map(|core| core["requests"]["http1"].as_u64().unwrap())
            .sum();
        assert_eq!(sum, 3, "{answer:#}");
    }
}

#[test]
fn failures_are_listed_by_cause_and_route() {
    let refusing = refusing_address();
    let control = Controlled::with_file(&format!(
        "[site.\"a.example\"]\nrespond = 204\n\"/broken\" = \"http://{refusing}\"\n"
    ));
    let mut client = Client::connect(control.running.address("http://"));
    for place in control.places() {
        assert_eq!(
            place.get("/failures").json(),
            serde_json::json!({ "failures": [] })
        );
    }
    for _ in 0..15 {
        client.send("GET /broken HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.response().status, 502);
    }
    for place in control.places() {
        let answer = place.get("/failures").json();
        let failures = answer["failures"].as_array().unwrap();
        let [failure] = &failures[..] else {
            panic!("{answer:#}")
        };
        assert_eq!(failure["site"], "a.example");
        assert_eq!(failure["route"], "/broken");
        assert_eq!(failure["upstream"], format!("http://{refusing}"));
        assert_eq!(failure["address"], refusing.to_string());
        assert_eq!(failure["status"], 502);
        assert_eq!(failure["count"], 15);
        assert!(
            failure["seconds_since_last"].as_f64().unwrap() < 30.0,
            "{answer:#}"
        );
        assert!(!failure["request_id"].as_str().unwrap().is_empty() && failure["last"].is_string());
    }
}

#[test]
fn clients_that_need_the_most_are_watched_when_somebody_asks() {
    let control = Controlled::with_file("[site.\"a.example\"]\nrespond = \"200 hello\"\n");
    let address = control.running.address("http://");
    let _silent = [Client::connect(address), Client::connect(address)];
    let place = control.address.clone();
    let asked = thread::spawn(move || place.get("/connections?top=5&seconds=1"));
    let mut client = Client::connect(address);
    while !asked.is_finished() {
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.response().status, 200);
        thread::sleep(Duration::from_millis(10));
    }
    let answer = asked.join().unwrap().json();
    assert_eq!(answer["seconds"], 1, "{answer:#}");
    let clients = answer["clients"].as_array().unwrap();
    assert_eq!(clients.len(), 1, "{answer:#}");
    let first = &clients[0];
    assert_eq!(
        (&first["client"], &first["open"]),
        (&"127.0.0.1".into(), &3.into()),
        "{answer:#}"
    );
    let requests = first["requests"].as_u64().unwrap();
    assert!((10..200).contains(&requests), "{answer:#}");
    assert_eq!(first["bytes_out"], 5 * requests, "{answer:#}");
    assert!(control.socket.get("/connections").json()["clients"].is_null());
    for query in ["top=0", "top=101", "top=a", "top=5&seconds=11"] {
        let refused = control.socket.get(&format!("/connections?{query}"));
        assert_eq!(refused.status, 400, "{query}");
        assert!(
            refused.content.contains("\n  write 1 to "),
            "{}",
            refused.content
        );
    }
}
