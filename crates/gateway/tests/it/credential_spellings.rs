//! A second credential is refused in every spelling that an application may take for the first one.

use crate::jwt::{SECRET, token};
use crate::site_rules::{HOST, ask, gateway};

const KEY: &str = "blitz_test_key_of_billing";

/// Requests with a cookie or a parameter that some applications take for that with the name `a_b`, beside the valid one.
fn seconds(first: &str, second: &str, good: &str) -> Vec<(String, String)> {
    let underscore = format!("{first}_{second}");
    let capital = |text: &str| text[..1].to_uppercase() + &text[1..];
    let capitals = format!("{}_{}", capital(first), capital(second));
    let mut all = Vec::new();
    for other in [
        underscore.clone(),
        capitals.clone(),
        format!("{first}.{second}"),
        format!("{first} {second}"),
        format!("{first}[{second}"),
        format!("{underscore}[]"),
        format!("\"{underscore}\""),
        format!("={underscore}"),
        format!("a=b, {underscore}"),
        format!("a=b, {capitals}"),
        format!("a=b {underscore}"),
    ] {
        for line in [
            format!("{underscore}={good}; {other}=evil"),
            format!("{other}=evil; {underscore}={good}"),
        ] {
            all.push(("/x".to_owned(), format!("Cookie: {line}\r\n")));
        }
    }
    for other in [
        capitals,
        format!("{first}.{second}"),
        format!("{first}%20{second}"),
        format!("{first}+{second}"),
        format!("{first}[{second}"),
        format!("{underscore}%00"),
        format!("{underscore}%00x"),
        format!("{underscore}[]"),
        format!("{underscore}%5B0%5D"),
    ] {
        all.push((
            format!("/x?{underscore}={good}&{other}=evil"),
            String::new(),
        ));
        all.push((
            format!("/x?{other}=evil&{underscore}={good}"),
            String::new(),
        ));
    }
    all
}

scenarios! {
    fn a_second_token_has_no_spelling_that_hides_it(io) {
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            respond = "200 in"
            jwt = {{ secret = "{SECRET}", from = ["cookie:access_token", "query:access_token"] }}
        "#));
        let good = token(r#","sub":"a""#);
        let mut client = proxy.client();
        for (path, fields) in seconds("access", "token", &good) {
            let response = ask(&mut client, &format!("GET {path}"), &format!("{HOST}{fields}"));
            assert_eq!(response.status, 400, "{path} {fields}");
        }
        for (path, fields) in [
            ("/x".to_owned(), format!("Cookie: access_token={good}\r\n")),
            (format!("/x?access_token={good}&token=1&a.b=c"), String::new()),
            // Of other names.
            ("/x".to_owned(), format!("Cookie: a=\"b, x=y\"; access_token={good}; c=d e=f, token=1\r\n")),
        ] {
            let response = ask(&mut client, &format!("GET {path}"), &format!("{HOST}{fields}"));
            assert_eq!(response.status, 200, "{path} {fields}");
        }
    }

    fn a_second_key_has_no_spelling_that_hides_it(io) {
        let proxy = gateway(io, r#"
            [site."a.example"]
            respond = "200 in"
            api_keys = { file = "api-keys", from = ["cookie:api_key", "query:api_key"] }
        "#);
        let mut client = proxy.client();
        for (path, fields) in seconds("api", "key", KEY) {
            let response = ask(&mut client, &format!("GET {path}"), &format!("{HOST}{fields}"));
            assert_eq!(response.status, 400, "{path} {fields}");
        }
        for (path, fields) in [
            ("/x".to_owned(), format!("Cookie: a=b, x=y; api_key={KEY}\r\n")),
            (format!("/x?api_key={KEY}&key=1"), String::new()),
        ] {
            let response = ask(&mut client, &format!("GET {path}"), &format!("{HOST}{fields}"));
            assert_eq!(response.status, 200, "{path} {fields}");
        }
    }
}
