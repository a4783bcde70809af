//! Several servers for the requests of a route: their weights, clients that stay with one, and servers that are down.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use blitz_gateway::Options;
use blitz_http::{BodyLength, Method, RequestHead, Status};
use blitz_testing::{Client, H1Peer, LateListener, Response, refusing_address};

use crate::h2::{H2Upstream, h2};
use crate::name_server::NameServer;
use crate::site_rules::{gateway, gateway_with};
use crate::support::{Upstream, eventually, held, ok, serve_all, unix_upstream};

/// Upstreams that respond with their names.
fn servers<const N: usize>(names: [&str; N]) -> [Upstream; N] {
    names.map(Upstream::with_text)
}

fn config(to: &str, keys: &str) -> String {
    format!("[site.\"*\"]\nto = {to}\n{keys}\n")
}

/// How often each text is the answer.
fn counts(client: &mut Client, requests: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..requests {
        let response = client.get("/");
        assert_eq!(response.status, 200, "{response:?}");
        *counts.entry(response.text().to_owned()).or_default() += 1;
    }
    counts
}

fn count_of<const N: usize>(counts: &BTreeMap<String, usize>, names: [&str; N]) -> [usize; N] {
    names.map(|name| counts.get(name).copied().unwrap_or_default())
}

fn get_with(client: &mut Client, fields: &str) -> Response {
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    client.response()
}

/// Name and value of the cookie that a response sets, and its attributes.
fn cookie_of(response: &Response) -> Option<(String, String)> {
    let line = response.field("set-cookie")?;
    let (cookie, attributes) = line.split_once("; ").unwrap();
    Some((cookie.to_owned(), attributes.to_owned()))
}

/// A server that answers one request, and is gone.
fn leaving(text: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut peer = H1Peer::new(stream);
        peer.request();
        peer.send(ok(text));
    });
    address
}

/// With the same secret of cookies as others.
fn with_secret() -> Options {
    Options {
        sticky_secret: || [7; 32],
        ..Options::default()
    }
}

fn trusting() -> Options {
    Options {
        trusted_proxies: ["127.0.0.1".parse().unwrap()].into_iter().collect(),
        ..Options::default()
    }
}

/// A file with an upstream that has these servers.
fn named(servers: &str, keys: &str) -> String {
    format!("[site.\"*\"]\nto = \"app\"\n[upstream.app]\nservers = {servers}\n{keys}\n")
}

fn list(servers: &[&Upstream]) -> String {
    let urls: Vec<String> = servers
        .iter()
        .map(|server| format!("\"{}\"", server.url()))
        .collect();
    format!("[{}]", urls.join(", "))
}

scenarios! {
    fn requests_are_distributed_by_weights(io) {
        let [a, b, c] = servers(["a", "b", "c"]);
        let to = format!("{{ \"{}\" = 3, \"{}\" = 1, \"{}\" = 0 }}", a.url(), b.url(), c.url());
        let proxy = gateway(io, &config(&to, ""));
        let counts = counts(&mut proxy.client(), 40);
        assert_eq!(count_of(&counts, ["a", "b", "c"]), [30, 10, 0]);
        assert_eq!((a.accepted(), b.accepted(), c.accepted()), (1, 1, 0));
    }

    fn a_list_of_servers_takes_turns(io) {
        let [a, b] = servers(["a", "b"]);
        let proxy = gateway(io, &config(&list(&[&a, &b]), ""));
        let mut client = proxy.client();
        let texts: Vec<String> = (0..4).map(|_| client.get("/").text().to_owned()).collect();
        assert_eq!(texts, ["a", "b", "a", "b"]);
    }

    fn requests_of_all_versions_are_distributed(io) {
        let [a] = servers(["a"]);
        let b = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.request() {
                peer.answer(stream, Status::OK, "b");
            }
        });
        let unix = unix_upstream(&format!("balance-{io:?}"), "c");
        let to = format!("[\"{}\", \"{}\", \"unix:{}\"]", a.url(), b.url, unix.display());
        let proxy = gateway(io, &config(&to, ""));
        let mut client = h2(&proxy);
        let texts: Vec<Vec<u8>> = (0..6).map(|_| client.get("/").content).collect();
        assert_eq!(texts, [b"a", b"b", b"c", b"a", b"b", b"c"]);
    }

    fn a_server_that_is_down_fails_no_request(io) {
        let [a, b] = servers(["a", "b"]);
        for keys in ["", "balance = \"round_robin\"", "balance = \"least_requests\"", "balance = \"hash\"", "sticky = \"client\""] {
            let down = refusing_address();
            let all = format!("[\"http://{down}\", \"{}\", \"{}\"]", a.url(), b.url());
            let proxy = gateway(io, &named(&all, keys));
            let mut client = proxy.client();
            for _ in 0..30 {
                client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
                assert_eq!(client.response().status, 200, "{keys}");
            }
            // Others avoid it after the first failure, for a second.
            let failures = proxy.counters().connect_failures;
            assert!(failures <= 3, "{keys}: {failures}");
        }
    }

    fn a_socket_that_is_missing_is_avoided(io) {
        let [a] = servers(["a"]);
        let to = format!("[\"unix:/nonexistent/blitz.sock\", \"{}\"]", a.url());
        let proxy = gateway(io, &config(&to, ""));
        assert_eq!(count_of(&counts(&mut proxy.client(), 20), ["a"]), [20]);
        assert!(proxy.counters().connect_failures <= 2);
    }

    fn a_server_that_comes_back_gets_requests_again(io) {
        let late = LateListener::bind();
        let [a] = servers(["a"]);
        let all = format!("[\"http://{}\", \"{}\"]", late.address(), a.url());
        let proxy = gateway(io, &named(&all, "balance = \"round_robin\""));
        let mut client = proxy.client();
        assert_eq!(count_of(&counts(&mut client, 10), ["a", "late"]), [10, 0]);
        let _late = serve_all(late.listen(), |_, peer| {
            while peer.request().is_some() {
                peer.send(ok("late"));
            }
        });
        eventually("it gets a request", || client.get("/").text() == "late");
        assert_eq!(count_of(&counts(&mut client, 10), ["a", "late"]), [5, 5]);
    }

    fn if_all_servers_are_down_the_client_is_told(io) {
        let addresses = [refusing_address(), refusing_address()];
        let to = format!("[\"http://{}\", \"http://{}\"]", addresses[0], addresses[1]);
        let proxy = gateway(io, &config(&to, ""));
        let mut client = proxy.client();
        for _ in 0..3 {
            let response = client.get("/");
            assert_eq!(response.status, 502);
            assert_eq!(response.field("proxy-status"), Some("blitz; error=connection_refused"));
        }
        assert_eq!(proxy.counters().connect_failures, 6, "each request tries both");
    }

    fn a_name_without_addresses_is_no_obstacle(io) {
        let [a] = servers(["a"]);
        let names = NameServer::with_ttl(0, 200);
        let to = format!("[\"http://gone.example:80\", \"{}\"]", a.url());
        let proxy = gateway_with(io, names.options(), &config(&to, ""));
        assert_eq!(count_of(&counts(&mut proxy.client(), 6), ["a"]), [6]);
    }

    fn a_request_that_may_be_sent_again_goes_to_another_server(io) {
        let closing = Upstream::scripted(|_, peer| {
            peer.request();
        });
        let [a] = servers(["a"]);
        let proxy = gateway(io, &config(&list(&[&closing, &a]), ""));
        let mut client = proxy.client();
        assert_eq!(client.get("/").text(), "a");
        assert_eq!((closing.accepted(), a.accepted(), proxy.counters().retries), (1, 1, 1));
        // A request that is not idempotent is not sent again.
        assert_eq!(client.get("/").text(), "a");
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        let statuses = [client.response().status, {
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
            client.response().status
        }];
        assert!(statuses.contains(&502) && statuses.contains(&200), "{statuses:?}");
    }

    fn a_retry_returns_to_its_server_if_no_other_can_be_reached(io) {
        for is_first in [true, false] {
            let closing = Upstream::scripted(|number, peer| {
                while peer.request().is_some() && number > 0 {
                    peer.send(ok("second"));
                }
            });
            let (url, down) = (closing.url(), format!("http://{}", refusing_address()));
            let to = match is_first {
                true => format!("[\"{url}\", \"{down}\"]"),
                false => format!("[\"{down}\", \"{url}\"]"),
            };
            let proxy = gateway(io, &config(&to, ""));
            assert_eq!(proxy.client().get("/").text(), "second", "{is_first}");
            let counters = proxy.counters();
            assert_eq!((closing.accepted(), counters.retries, counters.connect_failures), (2, 1, 1));
        }
    }

    fn a_cookie_keeps_clients_with_their_server(io) {
        let [a, b] = servers(["a", "b"]);
        let proxy = gateway_with(io, with_secret(), &config(&list(&[&a, &b]), "sticky = \"cookie\""));
        let mut client = proxy.client();
        let first = client.get("/");
        let (cookie, attributes) = cookie_of(&first).unwrap();
        assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax");
        let (name, value) = cookie.split_once('=').unwrap();
        assert_eq!((name, value.len()), ("blitz-server", 32));
        for unknown in ["", "x", &value[1..], &value.to_uppercase(), &a.url(), &"0".repeat(32), &"0".repeat(900)] {
            let other = get_with(&mut client, &format!("Cookie: blitz-server={unknown}\r\n"));
            assert!(other.field("set-cookie").is_some(), "an unknown value is replaced: {unknown}");
        }
        for _ in 0..5 {
            let response = get_with(&mut client, &format!("Cookie: x=y; {cookie}\r\n"));
            assert_eq!(response.text(), first.text());
            assert_eq!(response.field("set-cookie"), None);
        }
        // Another process with the secret knows the cookie, also if the order is another.
        let [c] = servers(["c"]);
        let others = config(&list(&[&c, &b, &a]), "sticky = \"cookie\"");
        let mut proxy = gateway_with(io, with_secret(), &others);
        let mut client = proxy.client();
        for _ in 0..5 {
            let response = get_with(&mut client, &format!("Cookie: {cookie}\r\n"));
            assert_eq!((response.text(), response.field("set-cookie")), (first.text(), None));
        }
        // And so does the next configuration.
        proxy.replace_sites(&config(&list(&[&a, &b]), "sticky = \"cookie\""));
        let response = get_with(&mut client, &format!("Cookie: {cookie}\r\n"));
        assert_eq!((response.text(), response.field("set-cookie")), (first.text(), None));
        // One without it gives another cookie.
        let stranger = gateway(io, &config(&list(&[&a, &b]), "sticky = \"cookie\""));
        let response = get_with(&mut stranger.client(), &format!("Cookie: {cookie}\r\n"));
        assert!(cookie_of(&response).is_some_and(|(other, _)| other != cookie));
        // The upstream gets the cookie as well.
        let heads = [a.heads(), b.heads()].concat();
        assert!(heads.iter().any(|head| head.field("cookie") == Some(&cookie)));
    }

    fn a_client_whose_server_is_down_gets_another_cookie(io) {
        let [a] = servers(["a"]);
        let leaving = leaving("leaving");
        let to = format!("[\"http://{leaving}\", \"{}\"]", a.url());
        let proxy = gateway(io, &config(&to, "sticky = \"cookie:side\""));
        let mut client = proxy.client();
        let response = client.get("/");
        assert_eq!(response.text(), "leaving");
        let (cookie, _) = cookie_of(&response).unwrap();
        assert!(cookie.starts_with("side="), "{cookie}");
        eventually("the server is gone", || TcpStream::connect(leaving).is_err());
        let response = get_with(&mut client, &format!("Cookie: {cookie}\r\n"));
        assert_eq!(response.text(), "a");
        let (new, _) = cookie_of(&response).unwrap();
        assert_ne!(new, cookie);
        let response = get_with(&mut client, &format!("Cookie: {new}\r\n"));
        assert_eq!((response.text(), response.field("set-cookie")), ("a", None));
    }

    fn a_server_without_weight_keeps_its_clients_only(io) {
        let [a, b] = servers(["a", "b"]);
        let to = |b_weight: u16| format!("{{ \"{}\" = 1, \"{}\" = {b_weight} }}", a.url(), b.url());
        let proxy = gateway_with(io, with_secret(), &config(&to(1), "sticky = \"cookie\""));
        let mut client = proxy.client();
        let responses = [client.get("/"), client.get("/")];
        let of_b = responses.iter().find(|response| response.text() == "b").unwrap();
        let (cookie, _) = cookie_of(of_b).unwrap();
        let draining = gateway_with(io, with_secret(), &config(&to(0), "sticky = \"cookie\""));
        let mut client = draining.client();
        assert_eq!(get_with(&mut client, &format!("Cookie: {cookie}\r\n")).text(), "b");
        assert_eq!(count_of(&counts(&mut client, 6), ["a", "b"]), [6, 0]);
    }

    fn the_cookie_is_secure_for_clients_over_tls(io) {
        let [a, b] = servers(["a", "b"]);
        let text = config(&list(&[&a, &b]), "sticky = \"cookie\"");
        let proxy = gateway_with(io, trusting(), &text);
        let fields = "X-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.1\r\n";
        let response = get_with(&mut proxy.client(), fields);
        let (_, attributes) = cookie_of(&response).unwrap();
        assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax; Secure");
    }

    fn a_field_or_an_address_keeps_clients_with_their_server(io) {
        let [a, b, c] = servers(["a", "b", "c"]);
        let all = list(&[&a, &b, &c]);
        for (keys, field) in [
            ("sticky = \"client\"", "X-Forwarded-For: 192.0.2."),
            ("sticky = \"header:X-User\"", "X-User: "),
            ("balance = \"hash\"", "X-Forwarded-For: 192.0.2."),
            ("balance = \"hash\"\nhash = \"cookie:user\"", "Cookie: user="),
        ] {
            let texts = |servers: &str| -> Vec<String> {
                let proxy = gateway_with(io, trusting(), &named(servers, keys));
                let mut client = proxy.client();
                let texts = (1..=40).map(|user| {
                    let field = format!("{field}{user}\r\n");
                    let text = get_with(&mut client, &field).text().to_owned();
                    assert_eq!(get_with(&mut client, &field).text(), text, "{keys}");
                    text
                });
                texts.collect()
            };
            let (before, after) = (texts(&all), texts(&list(&[&c, &a])));
            for name in ["a", "b", "c"] {
                assert!(before.iter().any(|text| text == name), "{keys}: {before:?}");
            }
            // Only clients of the server that is gone move.
            for (before, after) in before.iter().zip(&after) {
                assert!(before == after || before == "b", "{keys}");
            }
        }
    }

    fn requests_without_the_field_are_balanced(io) {
        let [a, b] = servers(["a", "b"]);
        let proxy = gateway(io, &config(&list(&[&a, &b]), "sticky = \"header:X-User\""));
        assert_eq!(count_of(&counts(&mut proxy.client(), 10), ["a", "b"]), [5, 5]);
    }

    fn clients_of_a_canary_stay_there(io) {
        let [a, b, c] = servers(["a", "b", "c"]);
        let proxy = gateway(io, &format!(
            "[site.\"*\"]\nto = {{ stable = 95, canary = 5 }}\nsticky = \"cookie\"\n\
             [upstream.stable]\nservers = {}\nbalance = \"round_robin\"\n\
             [upstream.canary]\nservers = [\"{}\"]\n", list(&[&a, &b]), c.url(),
        ));
        let mut client = proxy.client();
        let mut cookies: BTreeMap<String, String> = BTreeMap::new();
        let mut found = BTreeMap::new();
        for _ in 0..100 {
            let response = client.get("/");
            let (cookie, _) = cookie_of(&response).unwrap();
            cookies.insert(response.text().to_owned(), cookie);
            *found.entry(response.text().to_owned()).or_default() += 1;
        }
        let of_canary = count_of(&found, ["c"]);
        assert_eq!(of_canary, [5], "{found:?}");
        assert_eq!(cookies["a"], cookies["b"], "the cookie is that of the target");
        for _ in 0..10 {
            let response = get_with(&mut client, &format!("Cookie: {}\r\n", cookies["c"]));
            assert_eq!((response.text(), response.field("set-cookie")), ("c", None));
            let response = get_with(&mut client, &format!("Cookie: {}\r\n", cookies["a"]));
            assert_ne!(response.text(), "c");
        }
    }

    fn targets_and_their_servers_have_cookies_of_their_own(io) {
        let [a, b, c] = servers(["a", "b", "c"]);
        let proxy = gateway(io, &format!(
            "[site.\"*\"]\nto = {{ stable = 1, \"{}\" = 1 }}\nsticky = \"cookie:side\"\n\
             [upstream.stable]\nservers = {}\nsticky = \"cookie\"\n", c.url(), list(&[&a, &b]),
        ));
        let mut client = proxy.client();
        let responses = [client.get("/"), client.get("/")];
        let first = responses.iter().find(|response| response.text() != "c").unwrap();
        let cookies: Vec<&str> = first.fields.iter()
            .filter(|(name, _)| name == "set-cookie")
            .map(|(_, value)| value.split_once(';').unwrap().0)
            .collect();
        assert!(cookies[0].starts_with("side=") && cookies[1].starts_with("blitz-server="), "{cookies:?}");
        for _ in 0..10 {
            let response = get_with(&mut client, &format!("Cookie: {}\r\n", cookies.join("; ")));
            assert_eq!(response.text(), first.text());
        }
    }

    fn a_server_with_fewer_requests_gets_the_next(io) {
        for balance in ["least_requests", "p2c"] {
            let ((slow, release), [fast]) = (held("slow"), servers(["fast"]));
            let text = named(&list(&[&slow, &fast]), &format!("balance = \"{balance}\""));
            let proxy = gateway(io, &text);
            let ask = || {
                let mut peer = proxy.peer();
                peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                let is_answered = peer.has_more_within(Duration::from_millis(100));
                (peer, is_answered)
            };
            // Requests that go to the slow one wait there.
            let mut waiting = Vec::new();
            while slow.heads().is_empty() {
                waiting.push(ask());
            }
            waiting.extend((0..24).map(|_| ask()));
            let answered = waiting.iter().rev().take(24).filter(|(_, is_answered)| *is_answered);
            // With `p2c` a quarter of the requests knows only the slow one.
            let least = if balance == "p2c" { 10 } else { 24 };
            assert!(answered.count() >= least, "{balance}");
            for _ in &waiting {
                release.send(()).unwrap();
            }
        }
    }

    fn websockets_are_distributed_and_stay(io) {
        const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                                 Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        let echo = |name: &'static str| Upstream::scripted(move |_, peer| {
            peer.request();
            peer.send(format!("{SWITCHING}{name}"));
            while let Some(bytes) = peer.some() {
                peer.send(bytes);
            }
        });
        let (a, b) = (echo("a"), echo("b"));
        let down = refusing_address();
        let to = format!("[\"http://{down}\", \"{}\", \"{}\"]", a.url(), b.url());
        let proxy = gateway(io, &config(&to, "sticky = \"cookie\""));
        let mut names = Vec::new();
        for _ in 0..8 {
            let mut socket = proxy.peer();
            socket.send("GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n");
            let head = socket.head().unwrap();
            assert!(head.line.contains("101") && head.field("set-cookie").is_some(), "{head:?}");
            names.push(String::from_utf8(socket.exactly(1).unwrap()).unwrap());
            socket.send("ping");
            assert_eq!(socket.exactly(4).unwrap(), b"ping");
        }
        names.sort();
        names.dedup();
        assert_eq!(names, ["a", "b"]);
    }

    fn the_host_may_be_that_of_the_server(io) {
        let [a, b] = servers(["a", "b"]);
        let proxy = gateway(io, &config(&list(&[&a, &b]), "host = \"upstream\""));
        counts(&mut proxy.client(), 2);
        for server in [a, b] {
            assert_eq!(server.head().field("host"), Some(&server.url()["http://".len()..]));
        }
    }

    fn redirects_to_any_server_become_those_of_the_client(io) {
        let redirecting = || Upstream::scripted(|_, peer| {
            while let Some((head, _)) = peer.request() {
                let host = head.field("host").unwrap();
                let location = format!("Location: http://{host}/there");
                peer.send(format!("HTTP/1.1 302 Found\r\n{location}\r\nContent-Length: 0\r\n\r\n"));
            }
        });
        let (a, b) = (redirecting(), redirecting());
        let to = list(&[&a, &b]);
        let route = format!("\"/app\" = {{ to = {to}, path = \"{{rest}}\", host = \"upstream\" }}");
        let proxy = gateway(io, &format!("[site.\"*\"]\n{route}\n"));
        let mut client = proxy.client();
        for _ in 0..4 {
            let response = client.get("/app/here");
            assert_eq!(response.field("location"), Some("http://test/app/there"));
        }
        assert_eq!((a.heads().len(), b.heads().len()), (2, 2));
    }

    fn all_servers_get_the_proxy_header(io) {
        let telling = || Upstream::scripted(|_, peer| {
            let Some(line) = peer.line() else { return };
            while peer.request().is_some() {
                peer.send(ok(&line));
            }
        });
        let (a, b) = (telling(), telling());
        let keys = "balance = \"round_robin\"\nproxy_protocol = \"v1\"";
        let proxy = gateway(io, &named(&list(&[&a, &b]), keys));
        let mut client = proxy.client();
        for _ in 0..4 {
            let text = client.get("/").text().to_owned();
            assert!(text.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "), "{text}");
        }
        assert_eq!((a.accepted(), b.accepted()), (1, 1));
    }

    fn a_reload_keeps_the_connections_of_servers_that_stay(io) {
        let [a, b, c] = servers(["a", "b", "c"]);
        let mut proxy = gateway(io, &config(&list(&[&a, &b]), ""));
        counts(&mut proxy.client(), 4);
        eventually("both connections are idle", || proxy.http_counters().upstream_idle == 2);
        proxy.replace_sites(&config(&list(&[&b, &c]), ""));
        assert_eq!(count_of(&counts(&mut proxy.client(), 4), ["a", "b", "c"]), [0, 2, 2]);
        assert_eq!((a.accepted(), b.accepted(), c.accepted()), (1, 1, 1));
        // A single server shares the connections of the same server among several.
        proxy.replace_sites(&config(&format!("\"{}\"", b.url()), ""));
        assert_eq!(count_of(&counts(&mut proxy.client(), 4), ["b"]), [4]);
        assert_eq!(b.accepted(), 1);
    }

    fn an_http2_client_stays_with_its_cookie(io) {
        let [a, b] = servers(["a", "b"]);
        let proxy = gateway(io, &config(&list(&[&a, &b]), "sticky = \"cookie\""));
        let mut client = h2(&proxy);
        let ask = |client: &mut crate::h2_client::Client, cookie: &str| {
            let mut head = RequestHead::new(Method::Get, "/");
            head.set_authority("a");
            if !cookie.is_empty() {
                head.fields.try_append("cookie", cookie).unwrap();
            }
            let stream = client.send_head(&head, BodyLength::Empty);
            client.answer(stream)
        };
        let first = ask(&mut client, "");
        let line = first.fields.get_str("set-cookie").unwrap().to_owned();
        let cookie = line.split_once(';').unwrap().0.to_owned();
        for _ in 0..5 {
            assert_eq!(ask(&mut client, &cookie).content, first.content);
        }
    }
}
