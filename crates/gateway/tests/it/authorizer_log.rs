//! The line of a request on which an authorizer gave no decision names the authorizer and the problem.

use blitz_gateway::Failure;
use blitz_testing::refusing_address;

use crate::failure_log::{keep_lines, line_of};
use crate::jwt::{SECRET, bearer, token};
use crate::site_rules::{HOST, ask, gateway};
use crate::support::Upstream;
use crate::upstream_tls::TlsUpstream;

scenarios! {
    fn the_line_of_a_request_without_a_decision_names_the_authorizer(io) {
        keep_lines();
        let to = Upstream::with_text("in");
        let failing = Upstream::with_response("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
        let no_http = Upstream::with_response("no HTTP\r\n\r\n");
        let silent = Upstream::scripted(|_, peer| { peer.rest(); });
        // Nobody knows its authority.
        let tls = TlsUpstream::scripted(&[], |_, _| {});
        let refusing = format!("http://{}", refusing_address());
        let unknown = Failure::TlsCertificateUnknownIssuer.detail().replace("the upstream", "the authorizer");
        let invalid = Failure::HttpProtocolError.detail().replace("the upstream", "the authorizer");
        let late = "problem=\"the authorizer took too long to respond (forward_auth.timeout)\"";
        for (at, (url, rule, parts)) in [
            (failing.url(), "authorizer-failed", vec!["authorizer_status=500".to_owned()]),
            (no_http.url(), "authorizer-failed", vec![format!("problem=\"{invalid}: status-line-malformed\"")]),
            (silent.url(), "authorizer-timeout", vec![late.to_owned()]),
            (refusing, "authorizer-unreachable", vec!["problem=\"the authorizer refused the connection\"".to_owned()]),
            (tls.url(), "authorizer-unreachable", vec![unknown, "certificate=\"for ".to_owned()]),
        ].into_iter().enumerate() {
            let timeout = if rule == "authorizer-timeout" { "300ms" } else { "60s" };
            let proxy = gateway(io, &format!(r#"
                [site."a.example"]
                to = "{}"
                forward_auth = {{ url = "{url}/verify?token=hidden", timeout = "{timeout}" }}
            "#, to.url()));
            let id = format!("authorizer-{at}-{io:?}");
            let response = ask(&mut proxy.client(), "GET /", &format!("{HOST}X-Request-Id: {id}\r\n"));
            assert_eq!(response.status, 503, "{url}");
            let line = line_of("WARN", &id);
            let port = url.rsplit(':').next().unwrap();
            assert!(line.contains(&format!("authorizer=\"{url}/verify\"")), "{line}");
            assert!(line.contains(&format!("address=\"127.0.0.1:{port}\"")), "{line}");
            assert!(line.contains(&format!("rule=\"{rule}\"")), "{line}");
            assert!(!line.contains("upstream=\"") && !line.contains("hidden"), "{line}");
            assert_eq!(line.contains("authorizer_status="), at == 0, "{line}");
            for part in parts {
                assert!(line.contains(&part), "{part}: {line}");
            }
            // Clients learn nothing of it.
            assert!(!response.text().contains(port), "{}", response.text());
            let failures = proxy.failures();
            assert!(failures.iter().any(|one| {
                let authorizer = one.last.authorizer.as_ref();
                authorizer.is_some_and(|known| *known.url == *format!("{url}/verify"))
            }), "{failures:?}");
        }
        assert_eq!(to.heads().len(), 0);
    }

    fn the_line_of_a_request_whose_token_is_refused_has_the_reason(io) {
        keep_lines();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            respond = "200 in"
            jwt = {{ secret = "{SECRET}", audience = "api" }}
        "#));
        let id = format!("token-{io:?}");
        let fields = format!("{}X-Request-Id: {id}\r\n", bearer(&token(r#","aud":"web""#)));
        let response = ask(&mut proxy.client(), "GET /", &fields);
        assert_eq!(response.status, 401);
        assert!(!response.text().contains("web"), "{}", response.text());
        let line = line_of("DEBUG", &id);
        let reason = r#"its audience `aud` is \"web\", and the route expects \"api\""#;
        assert!(line.contains(reason), "{line}");
    }
}
