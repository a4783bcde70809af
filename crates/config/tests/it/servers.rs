//! Several servers of an upstream.

use std::sync::Arc;

use blitz_config::{Action, Balance, ClientKey, Proxy, ServerKey, Sticky, TargetGroup};

use crate::support::{mistakes, valid};

/// The upstreams of the routes of the first site, in the order of the file.
fn proxies(text: &str) -> Vec<Arc<Proxy>> {
    let configuration = valid(text);
    let mut routes: Vec<_> = configuration.sites[0].routes.iter().collect();
    routes.sort_by_key(|route| route.key.span.start);
    let proxies = routes
        .into_iter()
        .map(|route| match &route.settings.action.value {
            Action::Proxy(proxy) => Arc::clone(proxy),
            _ => panic!("{route:?} has another action"),
        });
    proxies.collect()
}

/// The groups of the routes.
fn groups(text: &str) -> Vec<Option<Arc<TargetGroup>>> {
    let proxies = proxies(text).into_iter();
    proxies.map(|proxy| proxy.group.clone()).collect()
}

/// `NAME*WEIGHT(URL*WEIGHT …)` of each target.
fn shown(group: &TargetGroup) -> String {
    let targets = group.targets.iter().map(|target| {
        let servers = target.servers.iter();
        let servers = servers.map(|server| format!("{}*{}", server.url.value, server.weight));
        let servers: Vec<_> = servers.collect();
        format!("{}*{}({})", target.name, target.weight, servers.join(" "))
    });
    targets.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_to_may_have_a_list_or_weights() {
    let groups = groups(
        "[site.\"a.example\"]\nto = [\"http://h:1\", \"http://h:2\"]\n\
         \"/map\" = { to = { \"http://h:1\" = 95, \"http://h:2\" = \"${W:5}\" } }\n\
         \"/one\" = { to = [\"http://h:1\"] }\n\"/none\" = { to = { \"http://h:1\" = 7 } }\n",
    );
    let shown: Vec<_> = groups
        .iter()
        .map(|group| group.as_deref().map_or_else(String::new, shown))
        .collect();
    let expected = [
        "http://h:1*1(http://h:1*1) http://h:2*1(http://h:2*1)",
        "http://h:1*95(http://h:1*1) http://h:2*5(http://h:2*1)",
        "",
        "",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn targets_of_a_to_keep_the_settings_of_their_upstreams() {
    let groups = groups(
        "[site.\"a.example\"]\nto = { stable = 95, canary = 5 }\nsticky = \"cookie\"\n\
         [upstream.stable]\nservers = { \"http://h:1\" = 2, \"http://h:2\" = 1 }\nbalance = \"hash\"\n\
         hash = \"header:X-User\"\n[upstream.canary]\nservers = [\"http://h:3\"]\n",
    );
    let group = groups[0].as_ref().unwrap();
    let expected = "stable*95(http://h:1*2 http://h:2*1) canary*5(http://h:3*1)";
    assert_eq!(shown(group), expected);
    let sticky = group.sticky.as_ref().unwrap();
    assert_eq!(sticky.value, Sticky::Cookie("blitz-server".to_owned()));
    let balance = group.targets[0].balance.as_ref().unwrap();
    let key = ServerKey::Request(ClientKey::Header("x-user".to_owned()));
    assert_eq!(balance.value, Balance::Hash(key));
    assert_eq!(group.targets[0].sticky, None);
}

#[test]
fn routes_share_an_upstream_until_they_say_otherwise() {
    let groups = groups(
        "[site.\"a.example\"]\nto = \"app\"\n\"/same\".body_max = \"1m\"\n\"/again\" = \"app\"\n\
         \"/own\".sticky = \"header:X-User\"\n\"/off\".sticky = false\n\
         [upstream.app]\nservers = [\"http://h:1\", \"http://h:2\"]\nsticky = \"client\"\nbalance = \"round_robin\"\n",
    );
    let group = |at: usize| groups[at].as_ref().unwrap();
    assert!(Arc::ptr_eq(group(0), group(1)) && Arc::ptr_eq(group(0), group(2)));
    let sticky = |at: usize| group(at).targets[0].sticky.as_ref().unwrap().value.clone();
    assert_eq!(
        sticky(0),
        Sticky::Key(ServerKey::Request(ClientKey::Client))
    );
    assert_eq!(
        sticky(3),
        Sticky::Key(ServerKey::Request(ClientKey::Header("x-user".to_owned())))
    );
    // A key that the route lacks is that of the upstream.
    assert_eq!(
        sticky(4),
        Sticky::Key(ServerKey::Request(ClientKey::Client))
    );
    let balance = group(3).targets[0].balance.as_ref().unwrap();
    assert_eq!(balance.value, Balance::RoundRobin);
}

#[test]
fn a_route_and_the_same_with_a_slash_may_have_the_same_servers() {
    let text = |second: &str| {
        format!(
            "[site.\"a.example\"]\n\"/a\" = {{ to = [\"http://h:1\", \"http://h:2\"] }}\n\
             \"/a/\" = {{ to = {second}, methods = [\"GET\"] }}\n"
        )
    };
    assert_eq!(mistakes(&text("[\"http://h:1\", \"http://h:2\"]")), "");
    let other = mistakes(&text("{ \"http://h:1\" = 1, \"http://h:2\" = 2 }"));
    assert!(other.contains("slash-pair"), "{other}");
}

#[test]
fn sticky_of_one_server_is_a_warning_where_it_is_written() {
    let text = |keys: &str| format!("{keys}\n[site.\"a.example\"]\nto = \"http://h:1\"\n");
    assert_eq!(mistakes(&text("defaults.sticky = \"cookie\"")), "");
    let own = mistakes("[site.\"a.example\"]\nto = \"http://h:1\"\nsticky = \"cookie\"\n");
    assert!(own.starts_with("warning 3:10 sticky: "), "{own}");
}

#[test]
fn there_is_a_limit_of_servers() {
    let text = |count: usize| {
        let urls: Vec<String> = (1..=count)
            .map(|port| format!("\"http://h:{port}\""))
            .collect();
        format!("[site.\"a.example\"]\nto = [{}]\n", urls.join(", "))
    };
    assert_eq!(mistakes(&text(256)), "");
    assert!(mistakes(&text(257)).contains("2:6 servers: there are 257 servers"));
}

#[test]
fn a_claim_that_chooses_a_server_needs_a_token() {
    let text = |jwt: &str| {
        format!(
            "[site.\"a.example\"]\nto = \"app\"\n\"/api\" = {{ to = \"app\", sticky = \"jwt:/org/id\"{jwt} }}\n\
             [upstream.app]\nservers = [\"http://h:1\", \"http://h:2\"]\nbalance = \"hash\"\nhash = \"jwt:sub\"\n"
        )
    };
    // The routes without a token fall back to another choice, if there is one that has it.
    let with = text(", jwt = { keys_url = \"https://id.example/keys\" }");
    assert_eq!(mistakes(&with), "");
    assert_eq!(valid(&with).claims(), ["/org/id", "sub"]);
    let without = mistakes(&text(""));
    for claim in ["`jwt:sub`", "`jwt:/org/id`"] {
        let expected = format!("{claim} is a claim, and no route to it has `jwt`");
        assert!(without.contains(&expected), "{without}");
    }
    assert!(mistakes(&text("").replace("jwt:sub", "jwt:")).contains("hash"));
}
