//! The meaning of valid files.

use blitz_config::{Action, Host, Site};

use crate::support::valid;

/// The routes of a site: path, upstream, and the path that the upstream receives.
fn routes(site: &Site) -> Vec<(String, String, Option<String>)> {
    let mut routes: Vec<_> = site.routes.iter().collect();
    routes.sort_by_key(|route| route.key.span.start);
    let routes = routes.into_iter().map(|route| {
        let Action::Proxy(proxy) = &route.settings.action.value else {
            panic!("{route:?} has another action");
        };
        let path = proxy.path.as_ref().map(|path| path.value.to_string());
        (route.key.value.to_string(), proxy.to.value.clone(), path)
    });
    routes.collect()
}

#[track_caller]
fn check_routes(text: &str, expected: &[(&str, &str, Option<&str>)]) {
    let configuration = valid(text);
    let found = routes(&configuration.sites[0]);
    let found: Vec<_> = found
        .iter()
        .map(|(key, to, path)| (key.as_str(), to.as_str(), path.as_deref()))
        .collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn one_application_is_two_lines() {
    let text = "[site.\"App.example\"]\nto = \"http://127.0.0.1:3000\"\n";
    check_routes(text, &[("/", "http://127.0.0.1:3000", None)]);
    let site = &valid(text).sites[0];
    assert_eq!(site.host.value, Host::Exact("app.example".to_owned()));
    assert!(!site.tls.is_on && !site.tls.redirects);
}

#[test]
fn many_hosts_are_a_line_each() {
    let configuration = valid(
        "certificates = [\"/etc/blitz/certs/*.pem\"]\ndefaults.tls = true\n\n[site]\n\
         \"shop.example\" = \"http://127.0.0.1:3001\"\n\"*.apps.example\" = \"http://127.0.0.1:3007\"\n\
         \"*\" = \"http://127.0.0.1:1\"\n\"[::1]\" = \"http://127.0.0.1:2\"\n\
         \"plain.example\" = { to = \"http://127.0.0.1:3\", tls = false }\n",
    );
    let hosts: Vec<String> = configuration
        .sites
        .iter()
        .map(|site| format!("{} {}", site.host.value, site.tls.redirects))
        .collect();
    assert_eq!(
        hosts,
        [
            "shop.example true",
            "*.apps.example true",
            "* true",
            "::1 true",
            "plain.example false"
        ]
    );
}

#[test]
fn routes_inherit_from_the_enclosing_route_that_says_most() {
    check_routes(
        "[site.\"a.example\"]\nto = \"http://h:1\"\n\"/api\" = \"http://h:2\"\n\"/api/v2\".path = \"/x{rest}\"\n\
         \"/v1\".path = \"/v2{rest}\"\n\"/img*\" = \"http://h:3\"\n",
        &[
            ("/", "http://h:1", None),
            ("/api", "http://h:2", None),
            ("/api/v2", "http://h:2", Some("/x{rest}")),
            ("/v1", "http://h:1", Some("/v2{rest}")),
            ("/img*", "http://h:3", None),
        ],
    );
    // An action replaces the inherited one and its options, and `{rest}` follows the path that says it.
    check_routes(
        "[site.\"a.example\"]\nto = \"http://h:1\"\npath = \"/base{rest}\"\n\"/api\" = \"http://h:2\"\n\
         \"/api/x\" = { path = \"{rest}\" }\n\"/own\" = {}\n",
        &[
            ("/", "http://h:1", Some("/base{rest}")),
            ("/api", "http://h:2", None),
            ("/api/x", "http://h:2", Some("{rest}")),
            ("/own", "http://h:1", Some("/base{rest}")),
        ],
    );
}

#[test]
fn a_site_may_have_nothing_but_routes() {
    check_routes(
        "[site.\"a.example\".\"/api\"]\nto = \"app\"\n[upstream.app]\nservers = [\"h2c://h:1\"]\n",
        &[("/api", "h2c://h:1", None)],
    );
}

#[test]
fn variables_stand_in_values_and_names() {
    let configuration = valid("[site.\"${NAME:a.example}\"]\nto = \"${APP}\"\ntls = \"${YES}\"\n");
    assert_eq!(configuration.sites[0].host.value.to_string(), "a.example");
    assert_eq!(routes(&configuration.sites[0])[0].1, "http://h:3000");
    assert!(configuration.sites[0].tls.is_on);
}

#[test]
fn the_order_of_tables_changes_nothing() {
    let parts = [
        "[site.\"a.example\"]\nto = \"app\"\n",
        "[site.\"b.example\"]\n\"/x\" = \"app\"\n\"/\" = \"http://h:2\"\n",
        "[upstream.app]\nservers = [\"http://h:1\"]\n",
        "[site.\"a.example\".\"/y\"]\nto = \"http://h:3\"\n",
    ];
    let meaning = |order: [usize; 4]| {
        let text: String = order.iter().map(|&at| parts[at]).collect();
        let configuration = valid(&text);
        let mut sites: Vec<_> = configuration
            .sites
            .iter()
            .map(|site| {
                let mut routes: Vec<_> = routes(site)
                    .into_iter()
                    .map(|(path, to, _)| format!("{path} {to}"))
                    .collect();
                routes.sort();
                format!("{} {routes:?}", site.host.value)
            })
            .collect();
        sites.sort();
        sites
    };
    let first = meaning([0, 1, 2, 3]);
    for order in [[3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2], [0, 3, 1, 2]] {
        assert_eq!(meaning(order), first, "{order:?}");
    }
}
