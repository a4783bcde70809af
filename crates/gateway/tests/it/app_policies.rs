//! Policies of an app give the same verdicts as those of a route, behind a route and over every version.

use blitz::App;
use blitz::policy::{compress, cors, rate_limit};
use blitz_gateway::{Gateway, Options, Rejection, TrustedProxies, TrustedProxy};
use blitz_http::{BodyLength, Method, Name, RequestHead, Status};
use blitz_site::EndpointMaker;
use blitz_site::matcher::RouteKey;
use blitz_testing::h3::headers;

use crate::decoders::decoded;
use crate::h2::h2;
use crate::h3_support::{QuicServer, block_on};
use crate::site_rules::{HOST, ask, sites_of};
use crate::support::Proxy;

const PAGE: &str = "a line of a page\n";

fn page() -> String {
    PAGE.repeat(200)
}

/// An app whose clients may have so many requests an hour.
fn app(requests: u32) -> EndpointMaker {
    let app = App::new()
        .policy(cors().allow_origin("https://app.example"))
        .policy(rate_limit(&format!("{requests}/h")))
        .policy(compress())
        .get("/app", || "in")
        .get("/app/page", page)
        .get("/app/stream", || {
            let response = blitz::Response::stream(async |writer| {
                for _ in 0..200 {
                    writer.send(PAGE).await?;
                }
                Ok(())
            });
            response.header("x-own", "1")
        });
    let app = app.build().unwrap();
    EndpointMaker::new(move || app.on_core())
}

/// A gateway with the sites of a text, the first of which has the app below `/app`.
fn with(gateway: Gateway, text: &str, app: EndpointMaker) -> Gateway {
    let mut sites = sites_of(text);
    let served = sites[0].serve(RouteKey::parse("/app").unwrap(), app);
    served.map_err(|gap| gap.to_string()).unwrap();
    sites.into_iter().fold(gateway, Gateway::site)
}

const SITE: &str = "[site.\"*\"]\nrespond = 204\n";

scenarios! {
    fn the_verdict_is_the_same_in_each_version(io) {
        let proxy = Proxy::start(with(Proxy::gateway(io), SITE, app(2)), &[]);
        let origin = format!("{HOST}Origin: https://app.example\r\n");
        let mut client = proxy.client();
        let preflight = format!("{origin}Access-Control-Request-Method: GET\r\n");
        let response = ask(&mut client, "OPTIONS /app", &preflight);
        assert_eq!(response.status, 204);
        assert_eq!(response.field("access-control-allow-methods"), Some("GET"));
        let allowed = |response: &blitz_testing::Response| {
            let field = response.field("access-control-allow-origin");
            (response.status, field.map(str::to_owned))
        };
        let named = Some("https://app.example".to_owned());
        assert_eq!(allowed(&ask(&mut client, "GET /app", &origin)), (200, named.clone()));
        assert_eq!(allowed(&ask(&mut client, "GET /app/none", &origin)), (404, named.clone()));
        assert_eq!(allowed(&ask(&mut client, "GET /app", &origin)), (429, named));
        let mut client = h2(&proxy);
        let mut head = RequestHead::new(Method::Get, "/app");
        head.set_authority("a.example");
        head.fields.append("origin", "https://app.example");
        let stream = client.send_head(&head, BodyLength::Empty);
        let answer = client.answer(stream);
        assert_eq!(answer.status, Some(Status::TOO_MANY_REQUESTS));
        assert_eq!(answer.fields.get_str("access-control-allow-origin"), Some("https://app.example"));
        assert!(answer.fields.get_str("retry-after").is_some());
        assert_eq!(proxy.counters().rejected(Rejection::RateLimited), 2);
        assert_eq!(proxy.counters().rejected(Rejection::Preflight), 1);
    }

    fn the_verdict_is_the_same_over_quic(io) {
        let server = QuicServer::with(|tls| {
            let gateway = Proxy::gateway_over_tls(io, tls);
            Proxy::start(with(gateway, SITE, app(1)), &[])
        });
        block_on(async {
            let client = server.raw_client().await;
            for status in [200, 429] {
                let request = headers(&[
                    (":method", "GET"),
                    (":scheme", "https"),
                    (":authority", "localhost"),
                    (":path", "/app/page"),
                    ("accept-encoding", "gzip"),
                ]);
                let answer = client.ask(request).await;
                assert_eq!(answer.heads, [Some(status)]);
                if status == 200 {
                    assert!(decoded("gzip", &answer.content) == page().as_bytes());
                }
            }
        });
    }

    fn the_client_of_an_app_is_the_one_that_a_trusted_proxy_names(io) {
        let proxy: TrustedProxy = "127.0.0.0/8".parse().unwrap();
        let trusted_proxies = TrustedProxies::from_iter([proxy]);
        let options = Options { trusted_proxies, ..Options::default() };
        // The field that the route sends the app does not count.
        let text = format!("{SITE}request_headers.X-Forwarded-For = \"192.0.2.1\"\n");
        let proxy = Proxy::start(with(Proxy::gateway(io).options(options), &text, app(1)), &[]);
        let mut client = proxy.client();
        for (from, status) in [("192.0.2.7", 200), ("192.0.2.8", 200), ("192.0.2.7", 429)] {
            let fields = format!("{HOST}X-Forwarded-For: {from}\r\n");
            assert_eq!(ask(&mut client, "GET /app", &fields).status, status, "{from}");
        }
    }

    fn policies_of_the_route_come_before_those_of_the_app(io) {
        let text = format!("{SITE}cors = [\"https://other.example\"]\nrate_limit = \"2/h\"\n");
        let proxy = Proxy::start(with(Proxy::gateway(io), &text, app(1)), &[]);
        let mut client = proxy.client();
        let fields = format!("{HOST}Origin: https://other.example\r\n");
        let first = ask(&mut client, "GET /app", &fields);
        assert_eq!(first.status, 200);
        assert_eq!(first.field("access-control-allow-origin"), Some("https://other.example"));
        for _ in 0..2 {
            let refused = ask(&mut client, "GET /app", &fields);
            assert_eq!(refused.status, 429);
            assert_eq!(refused.field("access-control-allow-origin"), Some("https://other.example"));
        }
        assert_eq!(proxy.counters().rejected(Rejection::RateLimited), 2);
    }

    fn responses_of_apps_are_compressed_by_the_route_or_the_app(io) {
        let plain = || {
            let app = App::new().get("/app/page", page).get("/app/long", || page().repeat(100));
            let app = app.build().unwrap();
            EndpointMaker::new(move || app.on_core())
        };
        for (text, app, paths) in [
            (SITE.to_owned(), app(100), ["/app/page", "/app/page"]),
            (format!("{SITE}compress = true\n"), plain(), ["/app/page", "/app/long"]),
        ] {
            let proxy = Proxy::start(with(Proxy::gateway(io), &text, app), &[]);
            let mut client = h2(&proxy);
            for path in paths {
                for coding in ["zstd", "br", "gzip"] {
                    let mut head = RequestHead::new(Method::Get, path);
                    head.set_authority("a.example");
                    head.fields.append(Name::AcceptEncoding, coding);
                    let stream = client.send_head(&head, BodyLength::Empty);
                    let answer = client.answer(stream);
                    assert_eq!(answer.fields.get_str(Name::ContentEncoding), Some(coding), "{path}");
                    let content = decoded(coding, &answer.content);
                    let times = if path.ends_with("long") { 100 } else { 1 };
                    assert!(content == page().repeat(times).as_bytes(), "{path} {coding}");
                }
            }
            assert_eq!(proxy.counters().compressed, 6);
        }
        let proxy = Proxy::start(with(Proxy::gateway(io), SITE, plain()), &[]);
        let fields = format!("{HOST}Accept-Encoding: gzip\r\n");
        let answer = ask(&mut proxy.client(), "GET /app/page", &fields);
        assert_eq!(answer.field("content-encoding"), None);
    }
}
