//! Servers of upstreams are checked, and those that are down get no requests while others are up.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use blitz_gateway::{CheckReport, CheckState, DrainError, Gateway, UpstreamReport};
use blitz_http::{BodyLength, Fields, IoChoice, Name, ResponseHead, Status};
use blitz_testing::{H1Peer, log_lines, refusing_address};

use crate::failure_log::keep_lines;
use crate::h2::H2Upstream;
use crate::h2_peer::H2Peer;
use crate::site_rules::{gateway, sites_of};
use crate::support::{Proxy, Upstream, config, eventually, ok, serve_all, trusting};
use crate::tls_support::Authority;
use crate::upstream_tls::{Accepted, TlsUpstream};

/// Short ones, so that the outcome is there soon.
const FAST: &str = "interval = \"100ms\", rise = 1, fall = 1";

/// A server that responds to checks with what it is told, and to other requests with its name.
struct Checked {
    upstream: Upstream,
    answer: Arc<Mutex<String>>,
}

impl Checked {
    fn new(name: &'static str) -> Checked {
        let answer = Arc::new(Mutex::new(ok("fine")));
        let current = Arc::clone(&answer);
        let upstream = Upstream::scripted(move |_, peer| {
            while let Some((head, _)) = peer.request() {
                let answer = match is_check(&head.line) {
                    true => current.lock().unwrap().clone(),
                    false => ok(name),
                };
                peer.send(answer);
            }
        });
        Checked { upstream, answer }
    }

    fn url(&self) -> String {
        self.upstream.url()
    }

    fn answers(&self, answer: &str) {
        answer.clone_into(&mut self.answer.lock().unwrap());
    }

    fn checks(&self) -> usize {
        let heads = self.upstream.heads();
        heads.iter().filter(|head| is_check(&head.line)).count()
    }
}

fn is_check(line: &str) -> bool {
    line.starts_with("GET /healthz")
}

fn status(status: u16) -> String {
    format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")
}

/// A file with an upstream that has these servers and this `health`.
fn file(servers: &[&str], health: &str) -> String {
    format!(
        "[site.\"*\"]\nto = \"app\"\n[upstream.app]\nservers = {servers:?}\nbalance = \"round_robin\"\nhealth = {health}\n"
    )
}

fn fast(keys: &str) -> String {
    format!("{{ path = \"/healthz\", {FAST}{keys} }}")
}

/// Checks its servers on another core, which ends with the gateway.
fn check(io: IoChoice, proxy: &Proxy) {
    let checker = proxy.health_checker();
    assert!(checker.is_needed());
    blitz_http::start(&config(io), move |_| checker.clone().run()).unwrap();
}

/// A gateway whose servers are checked.
fn checking(io: IoChoice, text: &str) -> Proxy {
    let proxy = gateway(io, text);
    check(io, &proxy);
    proxy
}

fn report(proxy: &Proxy, url: &str) -> UpstreamReport {
    let mut all = proxy.upstreams().into_iter();
    all.find(|upstream| upstream.url == url).unwrap()
}

/// Its only check.
fn check_of(proxy: &Proxy, url: &str) -> CheckReport {
    let mut checks = report(proxy, url).checks;
    assert_eq!(checks.len(), 1, "{checks:?}");
    checks.remove(0)
}

fn becomes(proxy: &Proxy, url: &str, state: CheckState) -> CheckReport {
    let mut last = None;
    eventually(&format!("{url} is {state:?}"), || {
        let report = check_of(proxy, url);
        let is_there = report.state == state;
        last = Some(report);
        is_there
    });
    last.unwrap()
}

/// Becomes down, and the reason.
fn problem_of(proxy: &Proxy, url: &str) -> String {
    becomes(proxy, url, CheckState::Down).problem.unwrap()
}

/// The names in the responses to these many requests.
fn names(proxy: &Proxy, requests: usize) -> Vec<String> {
    let mut client = proxy.client();
    let one = |_| {
        let response = client.get("/");
        assert_eq!(response.status, 200, "{response:?}");
        response.text().to_owned()
    };
    (0..requests).map(one).collect()
}

/// A server over HTTP/2 whose health is a status of `grpc.health.v1`, or the status of gRPC if there is no message.
fn grpc(answer: Arc<Mutex<Result<u8, u8>>>) -> impl Fn(H2Peer) + Send + Sync + 'static {
    move |mut peer: H2Peer| {
        while let Some((stream, received)) = peer.request() {
            let mut head = ResponseHead::new(Status::OK);
            head.fields.append(Name::ContentType, "application/grpc");
            let is_health = received.head.path_and_query() == "/grpc.health.v1.Health/Check";
            let is_of_service = received.content == b"\0\0\0\0\x0a\x0a\x08shop.Car";
            assert!(received.content.is_empty() || !is_health || is_of_service);
            let answer = *answer.lock().unwrap();
            let (message, status) = match answer {
                Ok(number) => (Some([0, 0, 0, 0, 2, 8, number]), 0),
                Err(status) => (None, status),
            };
            let mut trailers = Fields::default();
            trailers.append("grpc-status", status.to_string());
            peer.start(stream, &head, BodyLength::Unknown);
            if let Some(message) = message {
                peer.send(stream, &message, false);
            }
            peer.finish(stream, Some(&trailers));
        }
    }
}

scenarios! {
    fn a_server_that_is_down_gets_no_requests(io) {
        let (a, b) = (Checked::new("a"), Checked::new("b"));
        let proxy = checking(io, &file(&[&a.url(), &b.url()], &fast("")));
        for url in [a.url(), b.url()] {
            let report = becomes(&proxy, &url, CheckState::Up);
            assert_eq!((report.names, report.problem), (vec!["app".to_owned()], None));
        }
        assert_eq!(names(&proxy, 4), ["a", "b", "a", "b"]);
        b.answers(&status(503));
        assert_eq!(problem_of(&proxy, &b.url()), "it responds with status 503");
        assert_eq!(names(&proxy, 6), ["a"; 6]);
        b.answers(&ok("fine"));
        becomes(&proxy, &b.url(), CheckState::Up);
        assert!(names(&proxy, 2).contains(&"b".to_owned()));
        // Each check has a connection of its own, and requests share theirs.
        let checks = b.checks();
        assert!(b.upstream.accepted() >= checks, "{checks}");
        assert_eq!(proxy.counters().connect_failures, 0);
    }

    fn requests_go_to_servers_that_are_down_if_all_are(io) {
        let (a, b) = (Checked::new("a"), Checked::new("b"));
        a.answers(&status(500));
        b.answers(&status(500));
        let proxy = checking(io, &file(&[&a.url(), &b.url()], &fast("")));
        for url in [a.url(), b.url()] {
            becomes(&proxy, &url, CheckState::Down);
        }
        assert_eq!(names(&proxy, 4), ["a", "b", "a", "b"]);
    }

    fn outcomes_in_a_row_decide(io) {
        let (a, b) = (Checked::new("a"), Checked::new("b"));
        let keys = "{ path = \"/healthz\", interval = \"100ms\", rise = 3, fall = 2 }";
        let proxy = checking(io, &file(&[&a.url(), &b.url()], keys));
        becomes(&proxy, &b.url(), CheckState::Up);
        let before = check_of(&proxy, &b.url());
        b.answers(&status(503));
        let down = becomes(&proxy, &b.url(), CheckState::Down);
        assert!(down.failed >= before.failed + 2, "{before:?} {down:?}");
        b.answers(&ok(""));
        let up = becomes(&proxy, &b.url(), CheckState::Up);
        assert!(up.passed >= down.passed + 3, "{down:?} {up:?}");
    }

    fn a_response_has_a_status_and_a_text(io) {
        let server = Checked::new("a");
        let healthy = ["{ \"up\": true }".to_owned(), format!("{}true", " ".repeat(60_000))];
        let proxy = checking(io, &file(&[&server.url()], &fast(", status = [200, \"3xx\"], body = \"true\"")));
        let chunked = |pieces: &[&str]| {
            let chunks = pieces.iter().map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len()));
            format!("HTTP/1.1 302 X\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", chunks.collect::<String>())
        };
        let mut good = healthy.map(|text| ok(&text)).to_vec();
        good.push(chunked(&["\"up\": tr", "ue"]));
        let no_text = "its response does not have the text";
        let bad = [
            (ok("tru"), no_text),
            (ok(""), no_text),
            (status(204), "it responds with status 204"),
            (ok(&format!("{}true", " ".repeat(70_000))), "the first 64 KiB of its response do not have the text"),
            ("garbage\r\n\r\n".to_owned(), "malformed response: "),
        ];
        for (number, (answer, problem)) in bad.iter().enumerate() {
            server.answers(&good[number % good.len()]);
            becomes(&proxy, &server.url(), CheckState::Up);
            server.answers(answer);
            let found = problem_of(&proxy, &server.url());
            assert!(found.starts_with(problem), "{answer:.80}: {found}");
        }
    }

    fn a_request_has_the_host_of_the_server_or_another_one(io) {
        let (a, b) = (Checked::new("a"), Checked::new("b"));
        let text = file(&[&a.url()], "\"/healthz?a=b\"") + &format!(
            "[site.\"b.example\"]\nto = \"other\"\n[upstream.other]\nservers = [\"{}\"]\nhealth = {}\n",
            b.url(), fast(", host = \"b.internal:8080\"")
        );
        let proxy = checking(io, &text);
        becomes(&proxy, &a.url(), CheckState::Up);
        becomes(&proxy, &b.url(), CheckState::Up);
        let head = a.upstream.heads().remove(0);
        assert_eq!(head.line, "GET /healthz?a=b HTTP/1.1");
        assert_eq!(head.field("host"), Some(a.url().trim_start_matches("http://")));
        assert!(head.field("user-agent").unwrap().ends_with(" (health check)"));
        assert_eq!(b.upstream.heads()[0].field("host"), Some("b.internal:8080"));
    }

    fn a_server_that_refuses_or_does_not_answer_is_down(io) {
        let refusing = format!("http://{}", refusing_address());
        // It accepts nothing: connections wait in its queue.
        let hole = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let silent = Upstream::scripted(|_, peer| {
            peer.request();
            peer.is_closed_by_peer();
        });
        let hole_url = format!("http://{}", hole.local_addr().unwrap());
        let good = Checked::new("good");
        let all = [refusing.clone(), hole_url.clone(), silent.url(), good.url()];
        let all = all.each_ref().map(String::as_str);
        let proxy = checking(io, &file(&all, &fast(", timeout = \"300ms\"")));
        assert_eq!(problem_of(&proxy, &refusing), "connection refused");
        for url in [hole_url, silent.url()] {
            let problem = problem_of(&proxy, &url);
            assert!(["no answer in time", "no response in time"].contains(&&*problem), "{problem}");
        }
        becomes(&proxy, &good.url(), CheckState::Up);
        assert_eq!(names(&proxy, 8), ["good"; 8]);
        assert_eq!(proxy.counters().connect_failures, 0, "no request has tried another one");
    }

    fn a_reload_keeps_verdicts(io) {
        let (a, b) = (Checked::new("a"), Checked::new("b"));
        b.answers(&status(503));
        let health = "{ path = \"/healthz\", interval = \"1h\" }";
        let mut proxy = checking(io, &file(&[&a.url(), &b.url()], health));
        becomes(&proxy, &b.url(), CheckState::Down);
        becomes(&proxy, &a.url(), CheckState::Up);
        let c = Checked::new("c");
        proxy.replace_sites(&file(&[&b.url(), &a.url(), &c.url()], health));
        assert_eq!(check_of(&proxy, &b.url()).state, CheckState::Down);
        becomes(&proxy, &c.url(), CheckState::Up);
        assert_eq!((a.checks(), b.checks(), c.checks()), (1, 1, 1));
        // Other settings have a verdict of their own.
        b.answers(&ok(""));
        proxy.replace_sites(&file(&[&b.url(), &c.url()], "{ path = \"/healthz?2\", interval = \"1h\" }"));
        becomes(&proxy, &b.url(), CheckState::Up);
        assert!(proxy.upstreams().iter().all(|one| one.url != a.url()));
    }

    fn a_server_whose_others_are_down_cannot_be_drained(io) {
        let (a, b) = (Checked::new("a"), Checked::new("b"));
        b.answers(&status(503));
        let proxy = checking(io, &file(&[&a.url(), &b.url()], &fast("")));
        becomes(&proxy, &b.url(), CheckState::Down);
        let state = proxy.state_reader();
        let last = DrainError::Last("app".to_owned());
        assert_eq!(state.set_drained(&a.url(), true), Err(last));
        b.answers(&ok(""));
        becomes(&proxy, &b.url(), CheckState::Up);
        assert_eq!(state.set_drained(&a.url(), true), Ok(true));
        assert_eq!(names(&proxy, 3), ["b"; 3]);
    }

    fn a_server_that_is_gone_is_not_checked(io) {
        let (a, b) = (Checked::new("a"), Checked::new("b"));
        let mut proxy = checking(io, &file(&[&a.url(), &b.url()], &fast("")));
        becomes(&proxy, &b.url(), CheckState::Up);
        proxy.replace_sites(&file(&[&a.url()], &fast("")));
        // One that has begun may still come.
        let mut checks = (a.checks(), b.checks());
        eventually("only the other one is checked", || {
            let now = (a.checks(), b.checks());
            let is_so = now.0 > checks.0 + 3 && now.1 == checks.1;
            if now.1 != checks.1 {
                checks = now;
            }
            is_so
        });
    }

    fn a_server_of_several_upstreams_is_checked_once(io) {
        let (a, b) = (Checked::new("a"), Checked::new("b"));
        let hourly = |path: &str| format!("{{ path = \"/healthz{path}\", interval = \"1h\" }}");
        let text = file(&[&a.url(), &b.url()], &hourly("")) + &format!(
            "[site.\"b.example\"]\nto = \"same\"\n[upstream.same]\nservers = [\"{0}\"]\nhealth = {1}\n\
             [site.\"c.example\"]\nto = \"other\"\n[upstream.other]\nservers = [\"{0}\"]\nhealth = {2}\n",
            a.url(), hourly(""), hourly("?2")
        );
        let proxy = checking(io, &text);
        let mut checks = Vec::new();
        eventually("all are up", || {
            checks = report(&proxy, &a.url()).checks;
            checks.iter().all(|check| check.state == CheckState::Up)
        });
        let names: Vec<_> = checks.iter().map(|check| check.names.join(" ")).collect();
        assert_eq!(names, ["app same", "other"]);
        assert_eq!(a.checks(), 2);
    }

    fn a_change_is_logged_once(io) {
        keep_lines();
        let (a, b) = (Checked::new("a"), Checked::new("b"));
        let proxy = checking(io, &file(&[&a.url(), &b.url()], &fast("")));
        becomes(&proxy, &b.url(), CheckState::Up);
        b.answers(&status(500));
        let down = becomes(&proxy, &b.url(), CheckState::Down);
        eventually("further checks fail", || check_of(&proxy, &b.url()).failed > down.failed + 2);
        b.answers(&ok(""));
        becomes(&proxy, &b.url(), CheckState::Up);
        let of_server = format!("the server {} is ", b.url());
        let mut lines = Vec::new();
        eventually("it is logged", || {
            lines = log_lines();
            lines.retain(|line| line.contains(&of_server));
            lines.len() >= 2
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("WARN") && lines[0].contains("is down: it responds with status 500;"), "{lines:?}");
        assert!(lines[1].contains("INFO") && lines[1].trim_end().ends_with("is up again"), "{lines:?}");
    }

    fn checks_are_counted(io) {
        let (a, b) = (Checked::new("a"), Checked::new("b"));
        b.answers(&status(500));
        let proxy = checking(io, &file(&[&a.url(), &b.url()], "{ path = \"/healthz\", interval = \"1h\" }"));
        becomes(&proxy, &a.url(), CheckState::Up);
        becomes(&proxy, &b.url(), CheckState::Down);
        let text = proxy.metrics().read().open_metrics();
        for (name, url, labels, value) in [
            ("blitz_upstream_checks_total", a.url(), ",outcome=\"passed\"", 1),
            ("blitz_upstream_checks_total", b.url(), ",outcome=\"failed\"", 1),
            ("blitz_upstream_up", a.url(), "", 1),
            ("blitz_upstream_up", b.url(), "", 0),
        ] {
            let line = format!("{name}{{upstream=\"{url}\"{labels}}} {value}");
            assert!(text.lines().any(|one| one.starts_with(&line)), "{line} in {text}");
        }
    }

    fn a_connection_is_enough_for_a_check_of_tcp(io) {
        let accepting = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let good = format!("http://{}", accepting.local_addr().unwrap());
        let refusing = refusing_address();
        let text = file(&[&good, &format!("http://{refusing}")], &format!("{{ kind = \"tcp\", {FAST} }}"));
        let proxy = checking(io, &text);
        becomes(&proxy, &good, CheckState::Up);
        assert_eq!(problem_of(&proxy, &format!("http://{refusing}")), "connection refused");
        let (connection, _) = accepting.accept().unwrap();
        assert_eq!(H1Peer::new(connection).rest().0, b"", "it says nothing, and closes");
    }

    fn a_check_of_tls_needs_a_certificate_that_is_trusted(io) {
        let upstream = TlsUpstream::echoing(&["h2"]);
        for (authority, problem) in [(&upstream.authority, None), (&Authority::new(), Some("TLS: "))] {
            let health = format!("{{ kind = \"tls\", {FAST} }}");
            let sites = sites_of(&file(&[&upstream.url()], &health));
            let gateway = Proxy::gateway(io).upstream_tls(trusting(authority));
            let proxy = Proxy::start(sites.into_iter().fold(gateway, Gateway::site), &[]);
            check(io, &proxy);
            match problem {
                None => drop(becomes(&proxy, &upstream.url(), CheckState::Up)),
                Some(problem) => {
                    let found = problem_of(&proxy, &upstream.url());
                    assert!(found.starts_with(problem), "{found}");
                }
            }
        }
    }

    fn checks_use_the_protocol_of_the_server(io) {
        let paths = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&paths);
        let h2c = H2Upstream::scripted(move |_, mut peer| {
            while let Some((stream, received)) = peer.request() {
                seen.lock().unwrap().push(received.head.path_and_query().to_owned());
                peer.answer(stream, Status::OK, "fine");
            }
        });
        for alpn in ["h2", "http/1.1"] {
            let secure = TlsUpstream::echoing(&[alpn]);
            let short = &alpn[..2].replace("ht", "h1");
            let health = fast(&format!(", body = \"{short} \""));
            let text = file(&[&secure.url()], &health) + &format!(
                "[site.\"b.example\"]\nto = \"h2c\"\n[upstream.h2c]\nservers = [\"{}\"]\nhealth = {}\n",
                h2c.url, fast(", body = \"fine\"")
            );
            let gateway = Proxy::gateway(io).upstream_tls(trusting(&secure.authority));
            let proxy = Proxy::start(sites_of(&text).into_iter().fold(gateway, Gateway::site), &[]);
            check(io, &proxy);
            becomes(&proxy, &secure.url(), CheckState::Up);
            becomes(&proxy, &h2c.url, CheckState::Up);
        }
        assert!(paths.lock().unwrap().iter().all(|path| path == "/healthz"));
    }

    fn a_service_of_grpc_says_whether_it_serves(io) {
        let answer = Arc::new(Mutex::new(Ok(1)));
        let serve = grpc(Arc::clone(&answer));
        let upstream = H2Upstream::scripted(move |_, peer| serve(peer));
        let health = format!("{{ kind = \"grpc\", service = \"shop.Car\", {FAST} }}");
        let proxy = checking(io, &file(&[&upstream.url], &health));
        for (bad, problem) in [
            (Ok(2), "it is NOT_SERVING"),
            (Ok(3), "it is SERVICE_UNKNOWN"),
            (Err(12), "it has no health protocol (gRPC status 12)"),
            (Err(5), "it does not know the service (gRPC status 5)"),
            (Err(14), "the call fails with gRPC status 14"),
        ] {
            *answer.lock().unwrap() = Ok(1);
            becomes(&proxy, &upstream.url, CheckState::Up);
            *answer.lock().unwrap() = bad;
            assert_eq!(problem_of(&proxy, &upstream.url), problem);
        }
    }

    fn a_server_without_http2_has_no_health_of_grpc(io) {
        let upstream = TlsUpstream::scripted(&["http/1.1"], |_, accepted| {
            if let Accepted::H1(mut peer) = accepted {
                peer.request();
            }
        });
        let health = format!("{{ kind = \"grpc\", {FAST} }}");
        let sites = sites_of(&file(&[&upstream.url()], &health));
        let gateway = Proxy::gateway(io).upstream_tls(trusting(&upstream.authority));
        let proxy = Proxy::start(sites.into_iter().fold(gateway, Gateway::site), &[]);
        check(io, &proxy);
        assert_eq!(problem_of(&proxy, &upstream.url()), "it does not speak HTTP/2, which gRPC needs");
    }

    fn checks_begin_with_a_proxy_header_if_connections_do(io) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        let upstream = Upstream::scripted(move |_, peer| {
            let line = peer.line();
            seen.lock().unwrap().extend(line);
            if peer.request().is_some() {
                peer.send(ok(""));
            }
        });
        let text = file(&[&upstream.url()], &fast("")) + "proxy_protocol = \"v1\"\n";
        let proxy = checking(io, &text);
        becomes(&proxy, &upstream.url(), CheckState::Up);
        assert_eq!(lines.lock().unwrap()[0], "PROXY UNKNOWN");
    }

    fn a_name_is_up_if_one_of_its_addresses_is(io) {
        // Nothing listens on the other address of this machine.
        let upstream = Checked::new("a");
        let url = format!("http://localhost:{}", upstream.upstream.port());
        let proxy = checking(io, &file(&[&url], &fast("")));
        becomes(&proxy, &url, CheckState::Up);
        upstream.answers(&status(500));
        let problem = problem_of(&proxy, &url);
        assert!(problem.contains("127.0.0.1") && problem.contains("it responds with status 500"), "{problem}");
    }

    fn a_server_that_is_new_is_checked_at_once(io) {
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&accepted);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let upstream = serve_all(listener, move |_, peer| {
            counter.fetch_add(1, Ordering::SeqCst);
            peer.request();
            peer.send(status(503));
        });
        let good = Checked::new("good");
        let text = file(&[&upstream.url(), &good.url()], "{ path = \"/healthz\", interval = \"1h\", fall = 3 }");
        let proxy = checking(io, &text);
        becomes(&proxy, &upstream.url(), CheckState::Down);
        assert_eq!(accepted.load(Ordering::SeqCst), 1, "its first check decides alone");
        assert_eq!(names(&proxy, 3), ["good"; 3]);
    }
}
