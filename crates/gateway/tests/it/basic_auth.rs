//! Names with passwords: which requests pass, and what holds while a password is being checked.

use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use blitz_gateway::{Gateway, Options, Rejection};
use blitz_http::{BodyLength, Method, Name, RequestHead, Status};
use blitz_testing::h3::headers;

use crate::h2::h2;
use crate::h3_support::{QuicServer, block_on};
use crate::site_rules::{HOST, ask, gateway, gateway_with, sites_of};
use crate::support::{Proxy, Upstream, eventually};

const CHALLENGE: &str = "Basic realm=\"staff only\", charset=\"UTF-8\"";

pub(crate) fn basic(credentials: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(credentials))
}

scenarios! {
    fn a_route_demands_a_password(io) {
        let upstream = Upstream::with_text("in");
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            basic_auth = {{ users_file = "users.htpasswd", realm = "staff only" }}
            cors = ["https://app.example"]
            "=/health".basic_auth = false
        "#));
        let mut client = proxy.client();
        // The second time the password is known, on the same connection and on others.
        for credentials in ["anna:secrets", "bert:ünd:er", "anna:secrets"] {
            let response = ask(&mut client, "GET /x", &format!("{HOST}{}", basic(credentials)));
            assert_eq!((response.status, response.text()), (200, "in"), "{credentials}");
        }
        // As with nginx the upstream gets the field.
        let expected = format!("Basic {}", STANDARD.encode("anna:secrets"));
        assert_eq!(upstream.heads().pop().unwrap().field("authorization"), Some(&*expected));
        let scheme = basic("anna:secrets").replace("Basic", "bAsIc ");
        assert_eq!(ask(&mut client, "GET /x", &format!("{HOST}{scheme}")).status, 200);
        assert_eq!(ask(&mut client, "GET /health", HOST).status, 200);
        let accepted = upstream.heads().len();
        let right = basic("anna:secrets");
        for (fields, status) in [
            (String::new(), 401),
            ("Origin: https://app.example\r\n".to_owned(), 401),
            ("Authorization: Bearer YW5uYTpzZWNyZXRz\r\n".to_owned(), 401),
            ("Authorization: Basic\r\n".to_owned(), 401),
            ("Authorization: Basic YW5uYTpzZWNyZXRz,\r\n".to_owned(), 401),
            (basic("anna:secret"), 401),
            (basic("anna:secrets2"), 401),
            (basic("Anna:secrets"), 401),
            (basic("anna:"), 401),
            (basic("carl:secrets"), 401),
            (basic(":secrets"), 401),
            (basic("anna"), 401),
            (basic("anna:secrets\n"), 401),
            (basic(&format!("anna:{}", "x".repeat(2000))), 401),
            (format!("{right}{right}"), 400),
            (format!("{right}Authorization: Bearer x\r\n"), 400),
            (right.replace("\r\n", ", Bearer x\r\n"), 400),
            ("Authorization: Bearer x, Basic YW5uYTpzZWNyZXRz\r\n".to_owned(), 400),
            ("Authorization: Digest username=\"anna\", realm=\"r\"\r\n".to_owned(), 401),
        ] {
            let response = ask(&mut client, "GET /x", &format!("{HOST}{fields}"));
            assert_eq!(response.status, status, "{fields}");
            assert_eq!(response.field("www-authenticate"), Some(CHALLENGE), "{fields}");
            let allowed = fields.starts_with("Origin").then_some("https://app.example");
            assert_eq!(response.field("access-control-allow-origin"), allowed);
        }
        assert_eq!(upstream.heads().len(), accepted);
        let counters = proxy.counters();
        assert_eq!(counters.rejected(Rejection::NoCredentials), 4);
        assert_eq!(counters.rejected(Rejection::InvalidCredentials), 11);
        assert_eq!(counters.rejected(Rejection::SeveralCredentials), 4);
        let preflight = format!("{HOST}Origin: https://app.example\r\nAccess-Control-Request-Method: PUT\r\n");
        assert_eq!(ask(&mut client, "OPTIONS /x", &preflight).status, 204);
    }

    fn the_upstream_gets_the_user_whose_password_was_checked(io) {
        let upstream = Upstream::with_text("in");
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            basic_auth = {{ users_file = "users.htpasswd", forward = ["X-User", "Remote-User"] }}
            "/any" = {{ satisfy = "any", allow = ["127.0.0.1"], basic_auth = {{ users_file = "users.htpasswd", forward = "X-User" }} }}
        "#));
        let told = |names: [&str; 4]| {
            let head = upstream.heads().pop().unwrap();
            names.map(|name| {
                let fields = head.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
                fields.map(|(_, value)| value.clone()).collect::<Vec<_>>().join("|")
            })
        };
        let names = ["x-user", "remote-user", "x_user", "remote.user"];
        let spoofed = "X-User: root\r\nx_user: root\r\nRemote.User: root\r\nConnection: keep-alive, X-User\r\n";
        let mut client = proxy.client();
        // The second time the password is known.
        for _ in 0..2 {
            let fields = format!("{HOST}{spoofed}{}", basic("anna:secrets"));
            assert_eq!(ask(&mut client, "GET /x", &fields).status, 200);
            assert_eq!(told(names), ["anna", "anna", "", ""]);
        }
        for (credentials, user) in [(basic("bert:ünd:er"), "bert"), (String::new(), "")] {
            let fields = format!("{HOST}{spoofed}{credentials}");
            assert_eq!(ask(&mut client, "GET /any", &fields).status, 200);
            assert_eq!(told(["x-user", "x_user", "X-USER", "x.user"]), [user, "", user, ""]);
        }
        let accepted = upstream.heads().len();
        let fields = format!("{HOST}{spoofed}{}", basic("anna:wrong"));
        assert_eq!(ask(&mut client, "GET /x", &fields).status, 401);
        assert_eq!(ask(&mut client, "GET /any", &fields).status, 401);
        assert_eq!(upstream.heads().len(), accepted);
        let mut client = h2(&proxy);
        let mut head = RequestHead::new(Method::Get, "/x");
        head.set_authority("a.example");
        head.fields.append("authorization", format!("Basic {}", STANDARD.encode("bert:ünd:er")));
        for name in names {
            head.fields.append(name, "root");
        }
        let stream = client.send_head(&head, BodyLength::Empty);
        assert_eq!(client.answer(stream).status, Some(Status::OK));
        assert_eq!(told(names), ["bert", "bert", "", ""]);
    }

    fn a_changed_password_is_demanded_after_a_reload(io) {
        let site = |file: &str| format!(
            "[site.\"a.example\"]\nrespond = \"200 in\"\nbasic_auth = \"{file}\"\n"
        );
        let mut proxy = gateway(io, &site("users.htpasswd"));
        let mut client = proxy.client();
        let status = |client: &mut _, credentials: &str| {
            ask(client, "GET /", &format!("{HOST}{}", basic(credentials))).status
        };
        assert_eq!(status(&mut client, "anna:secrets"), 200);
        assert_eq!(status(&mut client, "anna:changed"), 401);
        proxy.replace_sites(&site("changed.htpasswd"));
        assert_eq!(status(&mut client, "anna:secrets"), 401);
        assert_eq!(status(&mut client, "anna:changed"), 200);
        assert_eq!(status(&mut client, "bert:ünd:er"), 200);
        assert_eq!(status(&mut client, "slow:secrets"), 401);
    }

    fn a_client_that_leaves_during_the_check_has_one_record(io) {
        let upstream = Upstream::with_text("in");
        let url = upstream.url();
        let proxy = gateway(io, &format!(
            "[site.\"a.example\"]\nto = \"{url}\"\nbasic_auth = \"users.htpasswd\"\nconcurrency = 1\n"
        ));
        for left in 1..=3 {
            let mut stream = TcpStream::connect(proxy.address).unwrap();
            // Another password each time, or they would share a check.
            let fields = basic(&format!("slow:{left}"));
            let request = format!("GET / HTTP/1.1\r\n{HOST}{fields}\r\n");
            std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
            eventually("the request is there", || proxy.http_counters().requests == left);
            socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
            drop(stream);
            eventually("there is a record", || proxy.counters().routed == left);
        }
        assert_eq!(proxy.counters().in_flight, 0);
        // No permit is left, and the next ones are served.
        let mut client = proxy.client();
        let fields = format!("{HOST}{}", basic("anna:secrets"));
        assert_eq!(ask(&mut client, "GET /", &fields).text(), "in");
        assert_eq!(proxy.counters().routed, 4);
        assert_eq!(upstream.heads().len(), 1);
    }

    fn other_policies_decide_before_and_after_the_check(io) {
        let proxy = gateway(io, r#"
            [site."a.example"]
            respond = "200 in"
            basic_auth = "users.htpasswd"
            "/few".rate_limit = "3/h"
            "/page".early_hints = ["</a.css>; rel=preload; as=style"]
            "/small" = { body_max = "3", methods = ["POST"] }
        "#);
        let mut client = proxy.client();
        let right = format!("{HOST}{}", basic("anna:secrets"));
        let wrong = format!("{HOST}{}", basic("anna:wrong"));
        // Wrong passwords count, so they cannot be tried quickly.
        for (fields, status) in [(&right, 200), (&wrong, 401), (&wrong, 401), (&right, 429)] {
            assert_eq!(ask(&mut client, "GET /few", fields).status, status);
        }
        // Not those that wait, but those who may read the page, get its links.
        let page = "Sec-Fetch-Mode: navigate\r\n";
        let bert = format!("{HOST}{}", basic("bert:ünd:er"));
        assert_eq!(ask(&mut client, "GET /page", &format!("{wrong}{page}")).status, 401);
        assert_eq!(ask(&mut client, "GET /page", &format!("{bert}{page}")).status, 103);
        assert_eq!(client.response().text(), "in");
        // Neither is the password told to those who may not know, nor is content read for them.
        let long = "Content-Length: 4\r\n";
        for (line, fields, status) in [
            ("GET /small", &wrong, 401),
            ("GET /small", &bert, 405),
            ("POST /small", &format!("{bert}Content-Length: 0\r\n"), 200),
        ] {
            assert_eq!(ask(&mut client, line, fields).status, status, "{line} {fields}");
        }
        for (fields, status) in [(&wrong, 401), (&right, 413)] {
            let mut client = proxy.client();
            client.send(format!("POST /small HTTP/1.1\r\n{fields}{long}\r\nabcd"));
            assert_eq!(client.response().status, status, "{fields}");
        }
        // The content waits with the request.
        let mut client = proxy.client();
        client.send(format!("POST /small HTTP/1.1\r\n{HOST}{}Content-Length: 3\r\n\r\nabc", basic("slow:secrets")));
        assert_eq!(client.response().status, 200);
    }

    fn a_flood_of_wrong_passwords_is_turned_down(io) {
        let proxy = gateway(io, "[site.\"a.example\"]\nrespond = \"200 in\"\nbasic_auth = \"users.htpasswd\"\n");
        let ask_for = |credentials: &str| ask(&mut proxy.client(), "GET /", &format!("{HOST}{}", basic(credentials)));
        assert_eq!(ask_for("anna:secrets").status, 200);
        let mut client = h2(&proxy);
        let streams: Vec<_> = (0..90)
            .map(|number| {
                let mut head = RequestHead::new(Method::Get, "/");
                head.set_authority("a.example");
                let credentials = STANDARD.encode(format!("slow:{number}"));
                head.fields.append("authorization", format!("Basic {credentials}"));
                client.send_head(&head, BodyLength::Empty)
            })
            .collect();
        let first = client.until(streams[89], |answer| answer.is_complete);
        assert_eq!(first.status, Some(Status::SERVICE_UNAVAILABLE));
        assert_eq!(first.fields.get_str(Name::RetryAfter), Some("1"));
        // Those whose password is known are served meanwhile.
        assert_eq!(ask_for("anna:secrets").status, 200);
        drop(client);
        eventually("all have a record", || proxy.counters().routed == 92);
        let counters = proxy.counters();
        assert!(counters.rejected(Rejection::AuthenticationBusy) >= 1);
        // Clients that have left make room.
        assert_eq!(ask_for("bert:ünd:er").status, 200);
    }

    fn a_client_has_a_share_of_the_passwords_that_wait(io) {
        let options = Options {
            trusted_proxies: ["127.0.0.1".parse().unwrap()].into_iter().collect(),
            ..Options::default()
        };
        let site = "[site.\"a.example\"]\nrespond = \"200 in\"\nbasic_auth = \"users.htpasswd\"\n";
        let proxy = gateway_with(io, options, site);
        let mut client = h2(&proxy);
        let mut ask_from = |address: &str, credentials: &str| {
            let mut head = RequestHead::new(Method::Get, "/");
            head.set_authority("a.example");
            head.fields.append("x-forwarded-for", address);
            head.fields.append("authorization", format!("Basic {}", STANDARD.encode(credentials)));
            client.send_head(&head, BodyLength::Empty)
        };
        // Less than may wait, from addresses of one network.
        let flood: Vec<_> = (0..24)
            .map(|number| ask_from(&format!("2001:db8::{number}"), &format!("slow:{number}")))
            .collect();
        let other = ask_from("2001:db8:0:1::1", "bert:ünd:er");
        let last = client.until(flood[23], |answer| answer.is_complete);
        assert_eq!(last.status, Some(Status::SERVICE_UNAVAILABLE));
        assert_eq!(client.answer(other).status, Some(Status::OK));
        let busy = proxy.counters().rejected(Rejection::AuthenticationBusy);
        assert!((1..=16).contains(&busy), "{busy}");
    }

    fn requests_with_the_same_password_share_a_check(io) {
        let proxy = Arc::new(gateway(io, "[site.\"a.example\"]\nrespond = \"200 in\"\nbasic_auth = \"users.htpasswd\"\n"));
        let start = Arc::new(Barrier::new(40));
        let clients: Vec<_> = (0..40)
            .map(|_| {
                let (proxy, start) = (Arc::clone(&proxy), Arc::clone(&start));
                thread::spawn(move || {
                    let mut client = proxy.client();
                    start.wait();
                    ask(&mut client, "GET /", &format!("{HOST}{}", basic("slow:secrets"))).status
                })
            })
            .collect();
        // More than may wait.
        for client in clients {
            assert_eq!(client.join().unwrap(), 200);
        }
    }

    fn passwords_have_the_same_verdict_in_all_versions(io) {
        let text = "[site.\"localhost\"]\nrespond = \"200 in\"\nbasic_auth = \"users.htpasswd\"\n";
        let site = |gateway: Gateway| Proxy::start(sites_of(text).into_iter().fold(gateway, Gateway::site), &[]);
        let encode = |credentials: &str| format!("Basic {}", STANDARD.encode(credentials));
        let cases = [
            (vec![], 401),
            (vec![encode("anna:secrets")], 200),
            (vec![encode("anna:secrets"), encode("anna:secrets")], 400),
            (vec![encode("anna:wrong")], 401),
            (vec![encode("carl:secrets")], 401),
            (vec!["Basic x".to_owned()], 401),
        ];
        let proxy = site(Proxy::gateway(io));
        let mut client = h2(&proxy);
        for (lines, expected) in &cases {
            let mut head = RequestHead::new(Method::Get, "/");
            head.set_authority("localhost");
            for line in lines {
                head.fields.append("authorization", line.as_str());
            }
            let stream = client.send_head(&head, BodyLength::Empty);
            assert_eq!(client.answer(stream).status.map(Status::code), Some(*expected), "{lines:?}");
        }
        let mut client = proxy.client();
        for (lines, expected) in &cases {
            let lines: String = lines.iter().map(|line| format!("Authorization: {line}\r\n")).collect();
            let response = ask(&mut client, "GET /", &format!("Host: localhost\r\n{lines}"));
            assert_eq!(response.status, *expected, "{lines:?}");
        }
        let server = QuicServer::with(|tls| site(Proxy::gateway_over_tls(io, tls)));
        block_on(async {
            let client = server.raw_client().await;
            for (lines, expected) in &cases {
                let mut fields = vec![
                    (":method", "GET"),
                    (":scheme", "https"),
                    (":authority", "localhost"),
                    (":path", "/"),
                ];
                fields.extend(lines.iter().map(|line| ("authorization", line.as_str())));
                let response = client.ask(headers(&fields)).await;
                assert_eq!(response.heads.first().copied().flatten(), Some(*expected), "{lines:?}");
            }
        });
    }
}
