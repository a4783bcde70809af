//! `satisfy`: one of several proofs suffices, and no mixture of them is a way in.

use blitz_gateway::Rejection;

use crate::basic_auth::basic;
use crate::site_rules::{HOST, ask, gateway};
use crate::support::Upstream;

const KEY: &str = "X-Api-Key: blitz_test_key_of_billing\r\n";
const OLD: &str = "X-Api-Key: blitz_test_key_of_old\r\n";
const SECRET: &str = "a secret of exactly 32 bytes ...";

/// With the secret above: `{"exp":4102444800,"sub":"alice"}`.
const TOKEN: &str = "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjQxMDI0NDQ4MDAsInN1YiI6ImFsaWNlIn0.1KiKXLBiB6CHqvr169EaNMr9SFI5ZvPIKO-VqJ0nQe0\r\n";

scenarios! {
    fn one_of_several_proofs_suffices(io) {
        let upstream = Upstream::with_text("in");
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            satisfy = "any"
            basic_auth = "users.htpasswd"
            jwt = {{ secret = "{SECRET}", forward = {{ X-User = "sub" }} }}
            api_keys = {{ file = "api-keys", forward = "X-Client" }}

            "/office" = {{ satisfy = "any", allow = ["127.0.0.0/8"], basic_auth = "users.htpasswd" }}
            "/both".allow = ["10.0.0.0/8"]
            "/open".satisfy = false
        "#));
        let mut client = proxy.client();
        let anna = basic("anna:secrets");
        let spoofed = "X-User: root\r\nX_Client: root\r\nX-Client: root\r\n";
        for (fields, user, key) in [
            (anna.clone(), None, None),
            (TOKEN.to_owned(), Some("alice"), None),
            (KEY.to_owned(), None, Some("billing")),
            (format!("{anna}{KEY}"), None, Some("billing")),
            (format!("{TOKEN}{KEY}"), Some("alice"), Some("billing")),
        ] {
            let response = ask(&mut client, "GET /", &format!("{HOST}{spoofed}{fields}"));
            assert_eq!(response.status, 200, "{fields}");
            let head = upstream.heads().pop().unwrap();
            assert_eq!((head.field("x-user"), head.field("x-client")), (user, key), "{fields}");
            assert_eq!(head.field("x_client"), None);
        }
        let accepted = upstream.heads().len();
        // Each proof that is there has to be valid, also beside one that suffices.
        let forged = TOKEN.replace("alice", "x").replace("eyJleHAi", "eyJleHAj");
        for (fields, status, rejection) in [
            (String::new(), 401, Rejection::NoProof),
            ("Authorization: Digest x\r\n".to_owned(), 401, Rejection::NoProof),
            (basic("anna:wrong"), 401, Rejection::InvalidCredentials),
            (basic("carl:secrets"), 401, Rejection::InvalidCredentials),
            (format!("{}{KEY}", basic("anna:wrong")), 401, Rejection::InvalidCredentials),
            (format!("{KEY}{forged}"), 401, Rejection::InvalidToken),
            (format!("{anna}{OLD}"), 401, Rejection::ApiKeyExpired),
            (format!("{TOKEN}X-Api-Key: x\r\n"), 401, Rejection::InvalidApiKey),
            (format!("{anna}{TOKEN}"), 400, Rejection::SeveralCredentials),
            (format!("{anna}{anna}"), 400, Rejection::SeveralCredentials),
            (format!("{anna}{KEY}{KEY}"), 400, Rejection::SeveralCredentials),
        ] {
            let before = proxy.counters().rejected(rejection);
            let response = ask(&mut client, "GET /", &format!("{HOST}{fields}"));
            assert_eq!(response.status, status, "{fields}");
            assert_eq!(proxy.counters().rejected(rejection), before + 1, "{fields} {rejection:?}");
            // All that would suffice, each in its line.
            let challenges = response.all("www-authenticate");
            let schemes: Vec<_> = challenges.iter().map(|line| line.split(' ').next()).collect();
            assert_eq!(schemes, [Some("Basic"), Some("ApiKey"), Some("Bearer")], "{fields}");
        }
        assert_eq!(upstream.heads().len(), accepted);
        // An address suffices, but not beside a wrong password; the proofs of the site are replaced or stay.
        for (path, fields, status) in [
            ("/office", format!("{anna}{KEY}"), 200),
            ("/office", KEY.to_owned(), 200),
            ("/office", String::new(), 401),
            ("/office", format!("{}{KEY}", basic("anna:wrong")), 401),
            ("/both", anna.clone(), 403),
            ("/open", String::new(), 200),
            ("/open", basic("anna:wrong"), 200),
        ] {
            let response = ask(&mut client, &format!("GET {path}"), &format!("{HOST}{fields}"));
            assert_eq!(response.status, status, "{path} {fields}");
        }
    }

    fn an_address_is_one_of_the_proofs(io) {
        let proxy = gateway(io, r#"
            [site."a.example"]
            respond = "200 in"
            "/near" = { satisfy = "any", allow = ["127.0.0.0/8"], basic_auth = "users.htpasswd" }
            "/far" = { satisfy = "any", allow = ["10.0.0.0/8"], basic_auth = "users.htpasswd" }
            "/denied" = { satisfy = "any", allow = ["127.0.0.0/8"], basic_auth = "users.htpasswd", deny = ["127.0.0.1"] }
            "/far/key".api_keys = { file = "api-keys" }
            [[site."a.example"."/block".when]]
            client = "127.0.0.0/8"
            satisfy = "any"
            allow = ["10.0.0.0/8"]
            api_keys = { file = "api-keys" }
        "#);
        let (anna, wrong) = (basic("anna:secrets"), basic("anna:wrong"));
        for (path, fields, status) in [
            ("/near", String::new(), 200),
            ("/near", anna.clone(), 200),
            // Its upstream might take it for checked.
            ("/near", wrong.clone(), 401),
            ("/far", String::new(), 401),
            ("/far", anna.clone(), 200),
            ("/far", wrong, 401),
            ("/denied", String::new(), 403),
            ("/denied", anna.clone(), 403),
            // Keys that are written further in are demanded in addition.
            ("/far/key", anna.clone(), 401),
            ("/far/key", KEY.to_owned(), 401),
            ("/far/key", format!("{anna}{KEY}"), 200),
            ("/block", String::new(), 401),
            ("/block", KEY.to_owned(), 200),
            // Many servers take it for /far.
            ("/x/..%2Ffar", String::new(), 400),
            ("//far", String::new(), 400),
            ("//far", anna, 400),
        ] {
            let response = ask(&mut proxy.client(), &format!("GET {path}"), &format!("{HOST}{fields}"));
            assert_eq!(response.status, status, "{path} {fields}");
        }
    }
}
