//! Cross-origin requests: preflights are answered, and responses get the fields that browsers ask for.

use blitz_gateway::Rejection;

use crate::site_rules::{HOST, ask, gateway};
use crate::support::Upstream;

const ORIGIN: &str = "Origin: https://app.example\r\n";

/// Fields of a preflight about this method.
fn preflight(origin: &str, method: &str) -> String {
    format!("{HOST}Origin: {origin}\r\nAccess-Control-Request-Method: {method}\r\n")
}

scenarios! {
    fn preflights_are_answered_and_reach_no_upstream(io) {
        let upstream = Upstream::with_text("in");
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            methods = ["GET", "PUT"]
            cors = {{ origins = ["https://app.example", "https://*.apps.example"], max_age = "10m" }}
            "/fixed".cors = {{ origins = ["*"], methods = ["PUT"], headers = ["X-A", "x-b"], expose = ["ETag"] }}
            "/with".cors = {{ origins = ["https://app.example"], credentials = true }}
        "#));
        let mut client = proxy.client();
        let asked = preflight("https://app.example", "PUT") + "Access-Control-Request-Headers: x-one,x-two\r\n";
        let response = ask(&mut client, "OPTIONS /x", &asked);
        assert_eq!((response.status, response.text()), (204, ""));
        assert_eq!(response.field("access-control-allow-origin"), Some("https://app.example"));
        assert_eq!(response.field("access-control-allow-methods"), Some("PUT"));
        assert_eq!(response.field("access-control-allow-headers"), Some("x-one,x-two"));
        assert_eq!(response.field("access-control-max-age"), Some("600"));
        assert_eq!(response.field("access-control-allow-credentials"), None);
        let response = ask(&mut client, "OPTIONS /x", &preflight("https://b.apps.example", "PUT"));
        assert_eq!(response.field("access-control-allow-origin"), Some("https://b.apps.example"));
        let asked = preflight("https://any.example", "DELETE") + "Access-Control-Request-Headers: x-other\r\n";
        let response = ask(&mut client, "OPTIONS /fixed", &asked);
        assert_eq!(response.field("access-control-allow-origin"), Some("*"));
        assert_eq!(response.field("access-control-allow-methods"), Some("PUT"));
        assert_eq!(response.field("access-control-allow-headers"), Some("x-a, x-b"));
        assert_eq!(response.field("access-control-expose-headers"), None);
        let response = ask(&mut client, "OPTIONS /with", &preflight("https://app.example", "GET"));
        assert_eq!(response.field("access-control-allow-credentials"), Some("true"));
        for origin in ["https://evil.example", "null", "https://app.example.evil", "https://a.b.apps.example"] {
            let response = ask(&mut client, "OPTIONS /x", &preflight(origin, "PUT"));
            assert_eq!(response.status, 204);
            assert_eq!(response.field("access-control-allow-origin"), None, "{origin}");
            assert_eq!(response.field("access-control-allow-methods"), None, "{origin}");
        }
        assert_eq!(upstream.accepted(), 0);
        assert_eq!(proxy.counters().rejected(Rejection::Preflight), 8);
        // These are no preflights.
        for fields in [HOST.to_owned(), format!("{HOST}{ORIGIN}")] {
            assert_eq!(ask(&mut client, "OPTIONS /x", &fields).status, 405);
        }
    }

    fn responses_have_the_fields_in_place_of_the_upstreams(io) {
        let upstream = Upstream::with_response(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nVary: Accept\r\nAccess-Control-Allow-Origin: *\r\n\
             Access-Control-Allow-Credentials: true\r\nAccess-Control-Expose-Headers: *\r\n\r\nin",
        );
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            cors = {{ origins = ["https://app.example"], expose = ["ETag", "Link"] }}
            "/closed" = {{ deny = ["127.0.0.0/8"], respond = 200 }}
            "/fixed" = {{ respond = "200 fixed", headers.Access-Control-Allow-Origin = "https://own.example" }}
            "/open".cors = false
        "#));
        let mut client = proxy.client();
        let allowed = format!("{HOST}{ORIGIN}");
        let response = ask(&mut client, "GET /", &allowed);
        assert_eq!((response.status, response.text()), (200, "in"));
        assert_eq!(response.field("access-control-allow-origin"), Some("https://app.example"));
        assert_eq!(response.field("access-control-expose-headers"), Some("etag, link"));
        assert_eq!(response.field("access-control-allow-credentials"), None);
        assert_eq!(response.all("vary"), ["Accept", "Origin"]);
        for fields in [HOST.to_owned(), format!("{HOST}Origin: null\r\n"), format!("{allowed}{ORIGIN}")] {
            let response = ask(&mut client, "GET /", &fields);
            assert_eq!(response.field("access-control-allow-origin"), None, "{fields}");
            assert_eq!(response.field("access-control-expose-headers"), None, "{fields}");
            assert_eq!(response.all("vary"), ["Accept", "Origin"]);
        }
        // `headers` come last.
        let response = ask(&mut client, "GET /fixed", &allowed);
        assert_eq!(response.field("access-control-allow-origin"), Some("https://own.example"));
        let response = ask(&mut client, "GET /open", &allowed);
        assert_eq!(response.field("access-control-allow-origin"), Some("*"));
        // Refused before; scripts need not know why.
        let response = ask(&mut client, "OPTIONS /closed", &preflight("https://app.example", "GET"));
        assert_eq!((response.status, response.field("access-control-allow-origin")), (403, None));
    }

    fn a_preflight_takes_the_route_of_its_request(io) {
        let upstream = Upstream::with_text("in");
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            "POST /x".cors = ["https://app.example"]
            "/own" = {{ respond = "200 own" }}
            "PUT /mixed" = {{ cors = ["https://app.example"], when = [{{ header.a = true, cors = false }}] }}
        "#));
        let mut client = proxy.client();
        let response = ask(&mut client, "OPTIONS /x", &preflight("https://app.example", "POST"));
        assert_eq!((response.status, response.field("access-control-allow-methods")), (204, Some("POST")));
        assert_eq!(upstream.accepted(), 0);
        // The route of another method has no such policy, so the application answers.
        for line in ["OPTIONS /x", "OPTIONS /x/y"] {
            let response = ask(&mut client, line, &preflight("https://app.example", "GET"));
            assert_eq!((response.status, response.text()), (200, "in"), "{line}");
        }
        let response = ask(&mut client, "OPTIONS /own", &preflight("https://app.example", "POST"));
        assert_eq!(response.text(), "own");
        // A variant of the route would forward it, so it takes the route of OPTIONS.
        let response = ask(&mut client, "OPTIONS /mixed", &preflight("https://app.example", "PUT"));
        assert_eq!(response.text(), "in");
    }
}
