//! Browsers get links of a route before the page.

use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};

use crate::site_rules::{HOST, ask, gateway};
use crate::support::{Upstream, ok};

const PAGE: &str = "Sec-Fetch-Mode: navigate\r\n";

scenarios! {
    fn browsers_get_links_before_the_page(io) {
        let (has_hints, waits) = mpsc::channel::<()>();
        let waits = Mutex::new(waits);
        let upstream = Upstream::scripted(move |_, peer| {
            while peer.head().is_some() {
                // The response comes only when the client has the links.
                let waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
                waits.recv().expect("the test goes on");
                peer.send(ok("page"));
            }
        });
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            early_hints = ["</a.css>; rel=preload; as=style", "<https://cdn.example>; rel=preconnect"]
            "/closed".deny = ["127.0.0.0/8"]
            "/get".methods = ["POST"]
            "/none".early_hints = false
            "/fixed".respond = "200 fixed"
        "#));
        let mut client = proxy.client();
        let page = format!("{HOST}{PAGE}");
        let hints = ask(&mut client, "GET /", &page);
        assert_eq!(hints.status, 103);
        assert_eq!(hints.all("link"), ["</a.css>; rel=preload; as=style", "<https://cdn.example>; rel=preconnect"]);
        has_hints.send(()).unwrap();
        let response = client.response();
        assert_eq!((response.status, response.field("link"), response.text()), (200, None, "page"));
        assert_eq!(ask(&mut client, "GET /fixed", &page).status, 103);
        assert_eq!(client.response().text(), "fixed");
        // Others get none: not clients that show no page, and not requests that are refused.
        let other = format!("{HOST}Sec-Fetch-Mode: cors\r\n");
        for (line, fields, status) in [
            ("GET /fixed", HOST, 200),
            ("GET /fixed", &other, 200),
            ("POST /fixed", &page, 200),
            ("GET /closed", &page, 403),
            ("GET /get", &page, 405),
        ] {
            assert_eq!(ask(&mut client, line, fields).status, status, "{line} {fields}");
        }
        has_hints.send(()).unwrap();
        assert_eq!(ask(&mut client, "GET /none", &page).text(), "page");
    }
}
