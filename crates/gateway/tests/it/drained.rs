//! An operator drains servers: they get no new requests but those of clients that stay with them.

use blitz_gateway::{DrainError, Options};
use blitz_testing::Client;

use crate::site_rules::{gateway, gateway_with};
use crate::support::{Proxy, Upstream};

fn file(servers: &[&Upstream], keys: &str) -> String {
    let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
    format!("[site.\"*\"]\nto = \"app\"\n[upstream.app]\nservers = {urls:?}\n{keys}\n")
}

fn texts(client: &mut Client, requests: usize) -> Vec<String> {
    let one = |_| client.get("/").text().to_owned();
    (0..requests).map(one).collect()
}

fn is_drained(proxy: &Proxy, server: &Upstream) -> bool {
    let mut all = proxy.upstreams().into_iter();
    let found = all.find(|one| one.url == server.url());
    found.unwrap().is_drained
}

scenarios! {
    fn a_drained_server_gets_no_requests(io) {
        let [a, b] = ["a", "b"].map(Upstream::with_text);
        for balance in ["p2c", "round_robin", "least_requests", "hash"] {
            let mut proxy = gateway(io, &file(&[&a, &b], &format!("balance = \"{balance}\"")));
            let state = proxy.state_reader();
            assert_eq!(state.set_drained(&a.url(), true), Ok(true));
            assert_eq!(state.set_drained(&a.url(), true), Ok(false), "it is");
            assert_eq!(texts(&mut proxy.client(), 6), ["b"; 6], "{balance}");
            assert_eq!(state.set_drained(&b.url(), true), Err(DrainError::Last("app".to_owned())));
            // It stays so over reloads.
            let c = Upstream::with_text("c");
            proxy.replace_sites(&file(&[&c, &a], "balance = \"round_robin\""));
            assert!(is_drained(&proxy, &a) && !is_drained(&proxy, &c));
            assert_eq!(texts(&mut proxy.client(), 3), ["c"; 3]);
            assert_eq!(state.set_drained(&a.url(), false), Ok(true));
            assert_eq!(texts(&mut proxy.client(), 4), ["c", "a", "c", "a"]);
        }
    }

    fn clients_with_its_cookie_stay(io) {
        let [a, b] = ["a", "b"].map(Upstream::with_text);
        let proxy = gateway(io, &file(&[&a, &b], "sticky = \"cookie\"\nbalance = \"round_robin\""));
        let mut client = proxy.client();
        let response = client.get("/");
        assert_eq!(response.text(), "a");
        let (cookie, _) = response.field("set-cookie").unwrap().split_once("; ").unwrap();
        let cookie = cookie.to_owned();
        proxy.state_reader().set_drained(&a.url(), true).unwrap();
        for _ in 0..3 {
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n"));
            assert_eq!(client.response().text(), "a");
            assert_eq!(client.get("/").text(), "b");
        }
    }

    fn clients_with_the_cookie_of_a_route_stay(io) {
        let [a, b] = ["a", "b"].map(Upstream::with_text);
        let proxy = gateway(io, &format!("[site.\"*\"]\nto = {{ \"{}\" = 1, \"{}\" = 2 }}\nsticky = \"cookie\"\n", a.url(), b.url()));
        let mut client = proxy.client();
        let cookie = loop {
            let response = client.get("/");
            if response.text() == "a" {
                let (cookie, _) = response.field("set-cookie").unwrap().split_once("; ").unwrap();
                break cookie.to_owned();
            }
        };
        proxy.state_reader().set_drained(&a.url(), true).unwrap();
        for _ in 0..3 {
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n"));
            assert_eq!(client.response().text(), "a");
            assert_eq!(texts(&mut client, 3), ["b"; 3]);
        }
    }

    fn a_server_that_is_needed_cannot_be_drained(io) {
        let [a, b] = ["a", "b"].map(Upstream::with_text);
        let text = format!("[site.\"*\"]\nto = \"{}\"\n\"/x\" = {{ to = {{ \"{}\" = 1, \"{}\" = 0 }} }}\n", a.url(), b.url(), a.url());
        let proxy = gateway_with(io, Options::default(), &text);
        let state = proxy.state_reader();
        assert_eq!(state.set_drained(&a.url(), true), Err(DrainError::Alone));
        assert!(matches!(state.set_drained(&b.url(), true), Err(DrainError::Last(_))));
        assert_eq!(state.set_drained("http://127.0.0.1:1", true), Err(DrainError::Unknown));
        assert_eq!(state.set_drained("http://127.0.0.1:1", false), Err(DrainError::Unknown));
    }

    fn servers_that_are_all_drained_get_requests(io) {
        let [a, b] = ["a", "b"].map(Upstream::with_text);
        let mut proxy = gateway(io, &file(&[&a, &b], ""));
        proxy.state_reader().set_drained(&a.url(), true).unwrap();
        // The other one is gone.
        let c = Upstream::with_text("c");
        proxy.replace_sites(&file(&[&a, &c], ""));
        proxy.state_reader().set_drained(&c.url(), true).unwrap_err();
        proxy.replace_sites(&format!("[site.\"*\"]\nto = {{ \"{}\" = 1, \"{}\" = 0 }}\n", a.url(), c.url()));
        assert_eq!(texts(&mut proxy.client(), 3), ["a"; 3]);
    }
}
