//! Policies of access: networks, passwords, keys, one of several; and who the client is.

use blitz::extract::{Identity, Text};
use blitz::policy::{
    AppPolicy, JwtPolicy, allow, any_of, api_keys, basic_auth, body_max, concurrency, cors, deny,
    headers, jwt, rate_limit, request_headers, security_headers,
};
use blitz::{App, Problem};
use blitz_testing::Client;

use crate::server::on_both_drivers;

/// The password of `anna` is `secrets`.
const USERS: &str = "anna:$2y$04$ZmGSbpkAlFMMb6NAs4dimek28x1apJj3gERV7qL6gzUiklxX/Mp.e\n";

/// Of the key `blitz_test_key_of_billing`.
const KEYS: &str =
    "billing:sha256:bf95bd465f7b0c114bfe309a4c115246cf041de451817caed7a0b8544b15dd84\n";

/// `anna:secrets` in base64.
const ANNA: &str = "Authorization: Basic YW5uYTpzZWNyZXRz\r\n";

const KEY: &str = "X-Api-Key: blitz_test_key_of_billing\r\n";

const SECRET: &str = "a secret of exactly 32 bytes ...";

/// With the secret above: `{"exp":4102444800,"sub":"alice"}`.
const TOKEN: &str = "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjQxMDI0NDQ4MDAsInN1YiI6ImFsaWNlIn0.1KiKXLBiB6CHqvr169EaNMr9SFI5ZvPIKO-VqJ0nQe0\r\n";

fn ask(client: &mut Client, line: &str, fields: &str) -> blitz_testing::Response {
    client.send(format!("{line} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
    client.response()
}

/// A policy, to be made anew for each app.
type Make = fn() -> AppPolicy;

#[test]
fn the_order_of_policies_is_fixed_whatever_the_order_of_the_calls() {
    let policies: [Make; 9] = [
        || headers().set("x-own", "1").into(),
        || security_headers().into(),
        || cors().allow_origin("https://a.example").into(),
        || rate_limit("3/h").into(),
        || concurrency(10),
        || basic_auth().users(USERS).into(),
        || body_max(3),
        || deny().networks(["10.0.0.0/8"]).into(),
        || request_headers().set("x-role", "user").into(),
    ];
    for turn in 0..policies.len() {
        let app = || {
            let mut ordered = policies;
            ordered.rotate_left(turn);
            if turn % 2 == 1 {
                ordered.reverse();
            }
            let app = ordered
                .into_iter()
                .fold(App::new(), |app, make| app.policy(make()));
            app.post("/", |Text(text): Text| text)
        };
        on_both_drivers(app, |address| {
            let mut client = Client::connect(address);
            let origin = "Origin: https://a.example\r\n";
            let long = format!("{origin}{ANNA}Content-Length: 4\r\n\r\nabcd");
            let short = format!("{origin}{ANNA}Content-Length: 3\r\n\r\nabc");
            // A preflight needs no proof and counts nothing; then the limit counts before passwords are checked, and
            // these come before the limit of content.
            let preflight = format!("{origin}Access-Control-Request-Method: POST\r\n");
            for (line, fields, status) in [
                ("OPTIONS /", preflight.as_str(), 204),
                (
                    "POST /",
                    &format!("{origin}Content-Length: 4\r\n\r\nabcd"),
                    401,
                ),
                ("POST /", &long, 413),
                ("POST /", &short, 200),
                ("POST /", &short, 429),
            ] {
                let response = {
                    client.send(format!("{line} HTTP/1.1\r\nHost: test\r\n{fields}"));
                    if !fields.contains("\r\n\r\n") {
                        client.send("\r\n");
                    }
                    client.response()
                };
                assert_eq!(response.status, status, "turn {turn}: {line}");
                for (name, value) in [
                    ("x-own", "1"),
                    ("access-control-allow-origin", "https://a.example"),
                    ("x-frame-options", "DENY"),
                ] {
                    assert_eq!(
                        response.field(name),
                        Some(value),
                        "turn {turn}: {line} {status}"
                    );
                }
                if status == 413 {
                    client = Client::connect(address);
                }
            }
        });
    }
}

#[test]
fn handlers_know_who_the_client_is() {
    #[derive(serde::Deserialize)]
    struct Claims {
        sub: String,
    }
    let app = || {
        let any = any_of()
            .or(basic_auth().users(USERS))
            .or(api_keys().keys(KEYS))
            .or(jwt().secret(SECRET))
            .or(allow().networks(["127.0.0.0/8"]));
        App::new()
            .policy(any)
            .get("/", |who: Identity| {
                let names = (who.user(), who.key(), who.claim("sub"), who.is_unknown());
                format!("{names:?}")
            })
            .get("/claims", |who: Identity| {
                let claims: Claims = who.claims()?;
                Ok::<_, Problem>(claims.sub)
            })
            .get("/others", |who: Identity| {
                let claims: Vec<u8> = who.claims()?;
                Ok::<_, Problem>(format!("{claims:?}"))
            })
    };
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        for (fields, expected) in [
            ("", "(None, None, None, true)"),
            (ANNA, "(Some(\"anna\"), None, None, false)"),
            (KEY, "(None, Some(\"billing\"), None, false)"),
            (TOKEN, "(None, None, Some(\"alice\"), false)"),
        ] {
            let response = ask(&mut client, "GET /", fields);
            assert_eq!(
                (response.status, response.text()),
                (200, expected),
                "{fields}"
            );
        }
        assert_eq!(ask(&mut client, "GET /claims", TOKEN).text(), "alice");
        assert_eq!(ask(&mut client, "GET /claims", ANNA).status, 403);
        assert_eq!(ask(&mut client, "GET /others", TOKEN).status, 403);
        assert_eq!(
            ask(&mut client, "GET /", "Authorization: Basic eDp5\r\n").status,
            401
        );
    });
}

#[test]
fn files_of_policies_are_read_when_the_app_is_made() {
    let folder = std::env::temp_dir().join(format!("blitz-app-policies-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let users = file("users", USERS);
    let keys = file("keys", KEYS);
    let secret = file("secret", &format!("{SECRET}\n"));
    let near = file("near", "# the office\n10.0.0.0/8\n127.0.0.0/8\n");
    let app = || {
        let part = |policy: AppPolicy| App::new().policy(policy).get("/", || "in");
        App::new()
            .policy(allow().file(&near))
            .nest("/basic", part(basic_auth().users_file(&users).into()))
            .nest("/keys", part(api_keys().file(&keys).into()))
            .nest("/jwt", part(jwt().secret_file(&secret).into()))
    };
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        for (path, fields) in [("/basic", ANNA), ("/keys", KEY), ("/jwt", TOKEN)] {
            let line = format!("GET {path}");
            assert_eq!(ask(&mut client, &line, "").status, 401, "{path}");
            assert_eq!(ask(&mut client, &line, fields).status, 200, "{path}");
        }
    });
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn policies_of_nested_apps_replace_and_join_those_of_the_outer_one() {
    let app = || {
        let inner = App::new()
            .policy(allow().networks(["127.0.0.0/8"]))
            .policy(headers().set("x-b", "inner"))
            .policy(body_max(8))
            .post("/", |Text(text): Text| text)
            .get("/", || "in");
        App::new()
            .policy(allow().networks(["10.0.0.0/8"]))
            .policy(headers().set("x-a", "outer").set("x-b", "outer"))
            .policy(body_max(2))
            .get("/", || "in")
            .nest("/inner", inner)
    };
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        let closed = client.get("/");
        assert_eq!((closed.status, closed.field("x-b")), (403, Some("outer")));
        assert_eq!(client.get("/none").status, 403);
        let open = client.get("/inner");
        assert_eq!(open.status, 200);
        assert_eq!(
            (open.field("x-a"), open.field("x-b")),
            (Some("outer"), Some("inner"))
        );
        client.send("POST /inner HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n12345678");
        assert_eq!(client.response().text(), "12345678");
        client.send("POST /inner HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123456789");
        assert_eq!(client.response().status, 413);
    });
}

/// The first line of the error of an app with a policy, and the begin of its remedy.
fn assert_mistakes(policies: Vec<(AppPolicy, &str)>) {
    for (policy, expected) in policies {
        let error = App::new().policy(policy).build().err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with(expected), "{expected}: {error}");
    }
}

fn token() -> JwtPolicy {
    jwt().secret(SECRET)
}

#[test]
fn mistakes_in_proofs_are_found_when_the_app_is_built() {
    assert_mistakes(vec![
        (allow().into(), "`allow` has no networks\n  Call"),
        (deny().into(), "`deny` has no networks\n  Call"),
        (
            allow().networks(["10.0.0.1/8"]).into(),
            "`10.0.0.1/8`: bits after the first 8 are set\n  Write 10.0.0.0/8 for the network",
        ),
        (
            deny().file("/nonexistent/nets").into(),
            "the file /nonexistent/nets does not exist\n  Relative paths begin at",
        ),
        (
            jwt().secret_file("/nonexistent/secret").into(),
            "the file /nonexistent/secret does not exist",
        ),
        (jwt().keys_file("Cargo.toml").into(), "Cargo.toml: "),
        (
            jwt().secret_file("Cargo.toml").algorithms(["RS256"]).into(),
            "Cargo.toml: ",
        ),
        (basic_auth().into(), "`basic_auth` has no users\n  Call"),
        (
            basic_auth().users_file("/nonexistent/users").into(),
            "the file /nonexistent/users does not exist",
        ),
        (
            basic_auth().users("anna").into(),
            "line 1 has not the form of a user\n  Write NAME:HASH",
        ),
        (
            basic_auth().users(USERS).realm("a\nb").into(),
            "a realm has no control characters",
        ),
        (api_keys().into(), "`api_keys` has no keys"),
        (
            api_keys().keys("a:md5:x").into(),
            "line 1 has a hash that is not SHA-256",
        ),
        (
            api_keys().keys(KEYS).forward("te").into(),
            "`te` belongs to the connection\n  Leave it out",
        ),
        (
            api_keys().keys(KEYS).forward("x-a").forward("X_A").into(),
            "the field `x_a` gets the name of the key twice",
        ),
        (
            any_of().or(token()).into(),
            "one of several suffices, and `any_of` has not two of them",
        ),
        (
            any_of().or(token().optional()).or(allow()).into(),
            "every request passes",
        ),
        (
            any_of().or(rate_limit("1/s")).or(token()).into(),
            "`any_of` has a policy that proves nothing",
        ),
        (
            any_of().or(token()).or(basic_auth()).into(),
            "`basic_auth` has no users",
        ),
    ]);
}

#[test]
fn proofs_that_exclude_each_other_are_found_when_the_app_is_built() {
    let inner = App::new().policy(token()).get("/", || "in");
    let both = App::new()
        .policy(basic_auth().users(USERS))
        .nest("/n", inner);
    let error = both.build().err().unwrap().to_string();
    let expected = "no request passes: `basic_auth` and `jwt` both need the field Authorization\n  Join them with `any_of`";
    assert!(error.starts_with(expected), "{error}");
    let error = App::new()
        .get("/", |_: Identity| "in")
        .build()
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("takes `Identity`, but no policy of the app demands a proof"),
        "{error}"
    );
}

#[test]
fn mistakes_in_fields_are_found_when_the_app_is_built() {
    assert_mistakes(vec![
        (
            headers().set("a b", "c").into(),
            "`a b` is no name of a field",
        ),
        (
            headers().set("a", "b\r\nc").into(),
            "`b\\r\\nc` is no value of a field",
        ),
        (
            headers().set("Content-Length", "1").into(),
            "`content-length` belongs to the connection",
        ),
        (
            request_headers().remove("x-a").set("X_A", "b").into(),
            "the field `x_a` is changed twice",
        ),
        (
            security_headers().csp("a\nb").into(),
            "`a\\nb` is no value of `content-security-policy`",
        ),
    ]);
}
