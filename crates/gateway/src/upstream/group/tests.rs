//! How servers are shown.

use blitz_config::{Action, Document, Environment, read};

use super::*;

/// The lines about the servers of a site.
fn lines(text: &str) -> Vec<String> {
    let document = Document::new("blitz.toml", text);
    let (configuration, diagnostics) = read(&document, &Environment::default());
    assert_eq!(diagnostics, []);
    let settings = &configuration.sites[0].routes[0].settings;
    let Action::Proxy(proxy) = &settings.action.value else {
        panic!("{text} has another action");
    };
    let target = |url: &blitz_config::Placed<String>| url.value.parse().ok().map(Arc::new);
    let group = proxy.group.as_ref().unwrap();
    GroupConfig::new(group, target).unwrap().lines()
}

#[test]
fn servers_are_shown_with_their_weights() {
    let list = lines(
        "[site.\"*\"]\nto = { \"http://a:1\" = 95, \"h2c://b:2\" = 5 }\nsticky = \"cookie\"\n",
    );
    let expected = [
        "sticky by the cookie blitz-server, else in turn",
        "weight 95 http://a:1",
        "weight 5 h2c://b:2",
    ];
    assert_eq!(list, expected);
    let nested = lines(
        "[site.\"*\"]\nto = { app = 2, \"unix:/run/b\" = 1 }\n[upstream.app]\n\
         servers = { \"http://a:1\" = 3, \"http://a:2\" = 0 }\nbalance = \"hash\"\n\
         hash = \"header:X-User\"\n",
    );
    let expected = [
        "in turn",
        "weight 2 app",
        "  by a hash of the field x-user",
        "  weight 3 http://a:1",
        "  weight 0 http://a:2",
        "weight 1 unix:/run/b",
    ];
    assert_eq!(nested, expected);
    let shedding = lines(
        "[site.\"*\"]\nto = \"app\"\n[upstream.app]\nservers = [\"http://a:1\"]\nshed = true\n",
    );
    let expected = [
        "one server",
        "requests that it cannot take are shed",
        "weight 1 http://a:1",
    ];
    assert_eq!(shedding, expected);
}

#[test]
fn checks_are_shown_with_the_choice() {
    let list = lines(
        "[site.\"*\"]\nto = \"app\"\n[upstream.app]\nservers = [\"http://a:1\"]\nhealth = \"/healthz\"\n",
    );
    let expected = [
        "one server, checked by GET /healthz -> 2xx every 10s",
        "weight 1 http://a:1",
    ];
    assert_eq!(list, expected);
    let several = lines(
        "[site.\"*\"]\nto = [\"app\", \"http://c:1\"]\n[upstream.app]\nservers = [\"http://a:1\", \"http://b:1\"]\n\
         health = { kind = \"tcp\", interval = \"500ms\" }\n",
    );
    assert_eq!(
        several[2],
        "  the better of two by random, checked by a TCP connection every 500ms"
    );
}

#[test]
fn servers_stand_in_the_places_of_services() {
    let document = Document::new(
        "blitz.toml",
        "[site.\"*\"]\nto = { app = 2, \"srv+h2c://_b._tcp.x\" = 1 }\n[upstream.app]\n\
         servers = [\"http://a:1\", \"srv+http://_a._tcp.x\"]\n",
    );
    let (configuration, diagnostics) = read(&document, &Environment::default());
    assert_eq!(diagnostics, []);
    let Action::Proxy(proxy) = &configuration.sites[0].routes[0].settings.action.value else {
        panic!("another action");
    };
    let target = |url: &blitz_config::Placed<String>| url.value.parse().ok().map(Arc::new);
    let config = GroupConfig::new(proxy.group.as_ref().unwrap(), target).unwrap();
    assert!(config.has_services());
    let servers_of = |hosts: &'static [&'static str]| {
        let config = &config;
        config.with_servers(move |at| {
            let service = &config.servers[at];
            let servers = hosts
                .iter()
                .filter_map(|host| service.of_service(host, 8080));
            servers.map(|server| (Arc::new(server), 1)).collect()
        })
    };
    let expanded = servers_of(&["p", "q", "no host", "a/b", "u@h", "a:1", "10.0.0.256"]);
    assert!(!expanded.has_services());
    let expected = [
        "in turn",
        "weight 2 app",
        "  the better of two by random",
        "  weight 65535 http://a:1",
        "  weight 32767 http://p:8080",
        "  weight 32767 http://q:8080",
        "weight 1 srv+h2c://_b._tcp.x",
        "  the better of two by random",
        "  weight 1 h2c://p:8080",
        "  weight 1 h2c://q:8080",
    ];
    assert_eq!(expanded.lines(), expected);
    // Without an answer a service is in its own place.
    assert_eq!(
        servers_of(&[]).lines()[3..5],
        [
            "  weight 65535 http://a:1",
            "  weight 65535 srv+http://_a._tcp.x"
        ]
    );
}

#[test]
fn each_server_that_cannot_be_used_is_asked_for() {
    let document = Document::new(
        "blitz.toml",
        "[site.\"*\"]\nto = [\"http://a:1\", \"http://a:2\"]\n",
    );
    let (configuration, _) = read(&document, &Environment::default());
    let settings = &configuration.sites[0].routes[0].settings;
    let Action::Proxy(proxy) = &settings.action.value else {
        panic!("another action");
    };
    let mut asked = 0;
    let group = GroupConfig::new(proxy.group.as_ref().unwrap(), |_| {
        asked += 1;
        None
    });
    assert_eq!((group, asked), (None, 2));
}
