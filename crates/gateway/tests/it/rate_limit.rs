//! `rate_limit`: requests beyond a rate are refused, or counted.

use blitz_gateway::{Options, Rejection};
use blitz_http::{BodyLength, IoChoice, Method, Name, RequestHead, Status};
use blitz_testing::h3::request;
use blitz_testing::{Client, Response};

use crate::h2::h2;
use crate::h3_support::{QuicServer, block_on};
use crate::site_rules::{HOST, ask, gateway, gateway_with};
use crate::support::{Proxy, Upstream};

/// Statuses of so many requests with these fields.
fn statuses(client: &mut Client, line: &str, fields: &str, count: usize) -> Vec<u16> {
    let ask = |_| ask(client, line, fields).status;
    (0..count).map(ask).collect()
}

fn trusting(proxies: &[&str]) -> Options {
    Options {
        trusted_proxies: proxies.iter().map(|text| text.parse().unwrap()).collect(),
        ..Options::default()
    }
}

fn assert_throttled(response: &Response) {
    assert_eq!(response.status, 429);
    // A token in ten minutes, two at most; the first was taken less than a minute ago.
    let wait: u64 = response.field("retry-after").unwrap().parse().unwrap();
    assert!((540..=600).contains(&wait), "{wait}");
    let policy = response.field("ratelimit-policy");
    assert_eq!(policy, Some("\"default\";q=2;w=1200"));
    let limit = format!("\"default\";r=0;t={wait}");
    assert_eq!(response.field("ratelimit"), Some(&*limit));
}

const TWO: &str = "rate_limit = { rate = \"6/h\", burst = 2 }";

scenarios! {
    fn requests_beyond_the_rate_are_refused(io) {
        let upstream = Upstream::with_text("in");
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            {TWO}
            errors = {{ 429 = "404.html" }}
            headers = {{ X-Site = "a" }}
            "/fixed".respond = "200 fixed"
            "/free".rate_limit = false
            "/own" = {{ rate_limit = "1/h", respond = 204 }}
            [site."b.example"]
            {TWO}
            respond = 204
        "#));
        let mut client = proxy.client();
        // The whole site counts, on any connection.
        assert_eq!(ask(&mut client, "GET /", HOST).status, 200);
        assert_eq!(ask(&mut proxy.client(), "GET /fixed", HOST).status, 200);
        let response = ask(&mut client, "GET /", &format!("{HOST}Accept: text/html\r\n"));
        assert_throttled(&response);
        assert_eq!((response.text(), response.field("x-site")), ("<h1>not here</h1>", Some("a")));
        assert_throttled(&ask(&mut client, "GET /fixed", HOST));
        assert_eq!(statuses(&mut client, "GET /free", HOST, 3), [200, 200, 200]);
        assert_eq!(statuses(&mut client, "GET /own", HOST, 2), [204, 429]);
        // Another site counts on its own.
        assert_eq!(statuses(&mut client, "GET /", "Host: b.example\r\n", 3), [204, 204, 429]);
        assert_eq!(proxy.counters().rejected(Rejection::RateLimited), 4);
    }

    fn each_pipelined_request_counts(io) {
        let proxy = gateway(io, &format!("[site.\"a.example\"]\nrespond = 204\n{TWO}\n"));
        let mut client = proxy.client();
        client.send(format!("GET / HTTP/1.1\r\n{HOST}\r\n").repeat(4));
        let statuses: Vec<u16> = (0..4).map(|_| client.response().status).collect();
        assert_eq!(statuses, [204, 204, 429, 429]);
    }

    fn presets_count_all_their_users(io) {
        let proxy = gateway(io, r#"
            [preset.slow]
            rate_limit = { rate = "6/h", burst = 2 }
            [site."a.example"]
            respond = 204
            use = "slow"
            [site."b.example"]
            respond = 204
            "/x".use = "slow"
        "#);
        let mut client = proxy.client();
        assert_eq!(ask(&mut client, "GET /", HOST).status, 204);
        assert_eq!(ask(&mut client, "GET /x", "Host: b.example\r\n").status, 204);
        assert_eq!(ask(&mut client, "GET /", HOST).status, 429);
        assert_eq!(ask(&mut client, "GET /x", "Host: b.example\r\n").status, 429);
        assert_eq!(ask(&mut client, "GET /", "Host: b.example\r\n").status, 204);
    }

    fn blocks_count_on_their_own(io) {
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            respond = 204
            {TWO}
            when = [{{ header.X-Bulk = true, rate_limit = "1/h" }}]
        "#));
        let mut client = proxy.client();
        let bulk = format!("{HOST}X-Bulk: 1\r\n");
        assert_eq!(statuses(&mut client, "GET /", &bulk, 2), [204, 429]);
        assert_eq!(statuses(&mut client, "GET /", HOST, 3), [204, 204, 429]);
    }

    fn a_dry_run_counts_and_passes(io) {
        let proxy = gateway(io, "[site.\"a.example\"]\nrespond = 204\n\
            rate_limit = { rate = \"1/h\", dry_run = true }\n");
        let mut client = proxy.client();
        assert_eq!(statuses(&mut client, "GET /", HOST, 3), [204, 204, 204]);
        let counters = proxy.counters();
        assert_eq!((counters.rate_limit_dry_runs, counters.rejected(Rejection::RateLimited)), (2, 0));
    }

    fn clients_behind_trusted_proxies_are_told_apart(io) {
        let file = format!("[site.\"a.example\"]\nrespond = 204\n{TWO}\n");
        let proxy = gateway_with(io, trusting(&["127.0.0.1"]), &file);
        let mut client = proxy.client();
        let from = |address: &str| format!("{HOST}X-Forwarded-For: {address}\r\n");
        assert_eq!(statuses(&mut client, "GET /", &from("192.0.2.1"), 3), [204, 204, 429]);
        assert_eq!(statuses(&mut client, "GET /", &from("192.0.2.2"), 3), [204, 204, 429]);
        // The rightmost address that is not trusted is the client; it may write others before.
        assert_eq!(ask(&mut client, "GET /", &from("192.0.2.9, 192.0.2.1")).status, 429);
        // One network of IPv6 is one client.
        assert_eq!(ask(&mut client, "GET /", &from("2001:db8::1")).status, 204);
        assert_eq!(ask(&mut client, "GET /", &from("2001:db8::2")).status, 204);
        assert_eq!(ask(&mut client, "GET /", &from("2001:db8::3")).status, 429);
        assert_eq!(ask(&mut client, "GET /", &from("2001:db8:0:1::1")).status, 204);
        // Without an address all share one key, which is not that of the proxy.
        let unknown = format!("{HOST}Forwarded: for=unknown\r\n");
        assert_eq!(statuses(&mut client, "GET /", &unknown, 3), [204, 204, 429]);
    }

    fn fields_of_other_peers_change_no_key(io) {
        let file = format!("[site.\"a.example\"]\nrespond = 204\n{TWO}\n");
        for options in [Options::default(), trusting(&["192.0.2.0/24"])] {
            let proxy = gateway_with(io, options, &file);
            let mut client = proxy.client();
            let statuses: Vec<u16> = (0..4).map(|number| {
                let address = format!("192.0.2.{number}");
                let fields = format!("{HOST}X-Forwarded-For: {address}\r\nForwarded: for={address}\r\n\
                    X-Real-IP: {address}\r\n");
                ask(&mut client, "GET /", &fields).status
            }).collect();
            assert_eq!(statuses, [204, 204, 429, 429]);
        }
    }

    fn other_values_have_keys_of_their_own(io) {
        let proxy = gateway(io, r#"
            [site."a.example"]
            respond = 204
            "/header".rate_limit = { rate = "1/h", by = "header:X-Key" }
            "/cookie".rate_limit = { rate = "1/h", by = "cookie:id" }
            "/both".rate_limit = { rate = "1/h", by = ["client", "header:X-Key"] }
            "/all".rate_limit = { rate = "1/h", by = "route" }
        "#);
        let mut client = proxy.client();
        let key = |value: &str| format!("{HOST}X-Key: {value}\r\n");
        for path in ["/header", "/both"] {
            let line = format!("GET {path}");
            assert_eq!(statuses(&mut client, &line, &key("a"), 2), [204, 429], "{path}");
            assert_eq!(statuses(&mut client, &line, &key("b"), 2), [204, 429], "{path}");
            assert_eq!(statuses(&mut client, &line, HOST, 2), [204, 429], "{path}");
        }
        let cookie = |value: &str| format!("{HOST}Cookie: a=1; id={value}\r\n");
        assert_eq!(statuses(&mut client, "GET /cookie", &cookie("a"), 2), [204, 429]);
        assert_eq!(statuses(&mut client, "GET /cookie", &cookie("b"), 2), [204, 429]);
        assert_eq!(statuses(&mut client, "GET /all", &key("a"), 1), [204]);
        assert_eq!(statuses(&mut client, "GET /all", &key("b"), 1), [429]);
    }

    fn a_reload_refills_nothing(io) {
        let file = |rest: &str| format!("[site.\"a.example\"]\nrespond = \"200 x\"\n{TWO}\n{rest}");
        let mut proxy = gateway(io, &file(""));
        let mut client = proxy.client();
        assert_eq!(statuses(&mut client, "GET /", HOST, 3), [200, 200, 429]);
        let more = "\"/new\" = { respond = 204 }\n[site.\"0.example\"]\nrespond = 204\n";
        proxy.replace_sites(&file(more));
        assert_eq!(ask(&mut client, "GET /new", HOST).status, 429);
        // Another rate begins anew.
        let other = file("").replace("6/h", "7/h");
        proxy.replace_sites(&other);
        assert_eq!(statuses(&mut client, "GET /", HOST, 3), [200, 200, 429]);
        proxy.replace_sites(&file(""));
        assert_eq!(ask(&mut client, "GET /", HOST).status, 429);
    }

    fn all_versions_share_the_limit(io) {
        block_on(async move {
            let server = QuicServer::with(|slot| {
                let gateway = Proxy::gateway_over_tls(io, slot);
                let sites = crate::site_rules::sites_of(&format!("[site.\"*\"]\nrespond = 204\n{TWO}\n"));
                Proxy::start(sites.into_iter().fold(gateway, blitz_gateway::Gateway::site), &[])
            });
            let client = server.raw_client().await;
            for status in [204, 204, 429] {
                let response = client.ask(request("GET", "/")).await;
                assert_eq!(response.heads, [Some(status)]);
            }
        });
    }

    fn http2_and_websockets_count(io) {
        let proxy = gateway(io, &format!("[site.\"*\"]\nto = \"http://127.0.0.1:1\"\n{TWO}\n"));
        let mut client = h2(&proxy);
        // An attempt counts, whatever comes of it.
        for status in [502, 502, 429] {
            assert_eq!(client.get("/").status, Status::new(status));
        }
        let mut head = RequestHead::new(Method::Get, "/chat");
        head.set_authority("a");
        head.set_protocol(Some("websocket"));
        head.fields.append(Name::SecWebSocketVersion, "13");
        let stream = client.send_head(&head, BodyLength::Unknown);
        let answer = client.answer(stream);
        assert_eq!(answer.status, Some(Status::TOO_MANY_REQUESTS));
        let upgrade = "Host: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
        assert_throttled(&ask(&mut proxy.client(), "GET /chat", upgrade));
    }

    fn calls_get_their_status(io) {
        let proxy = gateway(io, "[site.\"*\"]\nto = \"h2c://127.0.0.1:1\"\nrate_limit = \"1/h\"\n");
        let mut client = h2(&proxy);
        let mut statuses = Vec::new();
        for _ in 0..2 {
            let mut head = RequestHead::new(Method::Post, "/s.S/M");
            head.set_authority("a");
            head.fields.append(Name::ContentType, "application/grpc");
            head.fields.append(Name::Te, "trailers");
            let stream = client.send_head(&head, BodyLength::Empty);
            let answer = client.answer(stream);
            statuses.push(answer.fields.get_str("grpc-status").map(str::to_owned));
            if statuses.len() == 2 {
                assert_eq!(answer.status, Some(Status::OK));
                assert_eq!(answer.fields.get_str("retry-after"), Some("3600"));
            }
        }
        // Unavailable, then exhausted.
        assert_eq!(statuses, [Some("14".to_owned()), Some("8".to_owned())]);
    }
}

/// Two cores, and connections on both.
#[test]
fn cores_share_the_limit() {
    let file = "[site.\"*\"]\nrespond = 204\nrate_limit = { rate = \"1/h\", burst = 20 }\n";
    let gateway = blitz_gateway::Gateway::new()
        .listen(crate::support::any_port())
        .config(blitz_http::Config {
            cores: 2,
            ..crate::support::config(IoChoice::Auto)
        });
    let sites = crate::site_rules::sites_of(file);
    let gateway = sites
        .into_iter()
        .fold(gateway, blitz_gateway::Gateway::site);
    let proxy = Proxy::start(gateway, &[]);
    let statuses: Vec<u16> = (0..40).map(|_| proxy.client().get("/").status).collect();
    let passed = statuses.iter().filter(|status| **status == 204).count();
    assert_eq!(passed, 20, "{statuses:?}");
}
