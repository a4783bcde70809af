//! Presets and blocks `when`.

use blitz_config::{Action, Configuration, Route, Settings, ValueMatch, combination};

use crate::support::{mistakes, valid};

fn route<'a>(configuration: &'a Configuration, key: &str) -> &'a Route {
    let mut routes = configuration.sites[0].routes.iter();
    routes
        .find(|route| route.key.value.to_string() == key)
        .expect("the route is there")
}

/// The settings for these blocks, one of each level or none, the innermost level first.
fn settings<'a>(route: &'a Route, chosen: &[Option<usize>]) -> &'a Settings {
    let variants = route.variants.as_ref().expect("there are blocks");
    let levels = variants.levels.iter().map(|level| level.len());
    let number = combination(chosen.iter().copied().zip(levels));
    variants.settings(number).unwrap_or(&route.settings)
}

fn to(settings: &Settings) -> &str {
    match &settings.action.value {
        Action::Proxy(proxy) => &proxy.to.value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_preset_comes_before_the_keys_beside_it() {
    let configuration = valid(
        r#"
        [preset.a]
        body_max = "1k"
        headers = { one = "a", two = "a" }
        [preset.b]
        headers = { two = "b", three = "b" }
        path = "/b{rest}"
        [site."a.example"]
        to = "http://h:1"
        headers.one = "site"
        "/x" = { use = ["a", "b"], headers.three = "own" }
        "/y" = { use = "a", body_max = "2k", path = "{rest}" }
        "/x/{id}".use = "b"
        "#,
    );
    let (x, y) = (route(&configuration, "/x"), route(&configuration, "/y"));
    let limit = |route: &Route| route.settings.body_max.as_ref().map(|limit| limit.value);
    assert_eq!((limit(x), limit(y)), (Some(1024), Some(2048)));
    let headers = |route: &Route| -> Vec<String> {
        let rules = route.settings.headers.iter();
        rules
            .map(|rule| format!("{}: {:?}", rule.name, rule.change.value))
            .collect()
    };
    let has = |route: &Route, name: &str, value: &str| {
        let is_it =
            |line: &String| line.starts_with(name) && line.contains(&format!("\"{value}\""));
        headers(route).iter().any(is_it)
    };
    assert!(
        has(x, "one", "a") && has(x, "two", "b") && has(x, "three", "own"),
        "{:?}",
        headers(x)
    );
    assert!(has(y, "one", "a") && has(y, "two", "a"), "{:?}", headers(y));
    // `{rest}` is what follows the path of the route that uses the preset.
    let path = |key| match &route(&configuration, key).settings.action.value {
        Action::Proxy(proxy) => proxy.path.as_ref().map(|path| path.value.clone()),
        other => panic!("{other:?}"),
    };
    assert!(path("/x") != path("/x/{id}"));
    assert!(path("/x").is_some());
}

#[test]
fn blocks_of_all_levels_apply_and_that_of_the_site_comes_last() {
    let text = r#"
        [site."a.example"]
        to = "http://h:1"
        "/api" = { to = "http://h:2", body_max = "1k", when = [
            { header.X-Canary = true, to = "http://h:3" },
            { query.beta = "1", body_max = "2k" },
        ] }
        [[site."a.example".when]]
        client = "!10.0.0.0/8"
        to = "http://h:4"
        "#;
    let configuration = valid(text);
    let api = route(&configuration, "/api");
    assert_eq!(to(settings(api, &[None, None])), "http://h:2");
    assert_eq!(to(settings(api, &[Some(0), None])), "http://h:3");
    assert_eq!(to(settings(api, &[Some(0), Some(0)])), "http://h:4");
    assert_eq!(to(settings(api, &[Some(1), None])), "http://h:2");
    let limit = settings(api, &[Some(1), Some(0)]).body_max.as_ref();
    assert_eq!(limit.map(|limit| limit.value), Some(2048));
    let root = route(&configuration, "/");
    assert_eq!(to(settings(root, &[Some(0)])), "http://h:4");
    let variants = api.variants.as_ref().unwrap();
    assert!(variants.blocks(0).is_empty());
    let all = combination([(Some(1), 2), (Some(0), 1)].into_iter());
    let written: Vec<&str> = variants
        .blocks(all)
        .iter()
        .map(|block| &text[block.span.clone()])
        .collect();
    assert_eq!(written, ["query.beta = \"1\"", "client = \"!10.0.0.0/8\""]);
    assert_eq!(variants.levels[0][0].value.headers[0].0, "x-canary");
    assert_eq!(
        variants.levels[0][0].value.headers[0].1.value,
        ValueMatch::Any
    );
}

#[test]
fn access_rules_of_a_block_are_demanded_in_addition() {
    let configuration = valid(
        r#"
        [site."a.example"]
        to = "http://h:1"
        allow = ["10.0.0.0/8", "192.0.2.0/24"]
        deny = ["10.9.0.0/16"]
        [[site."a.example".when]]
        header.a = "b"
        allow = ["10.1.0.0/16", "192.0.0.0/16", "198.51.100.0/24"]
        deny = ["10.1.1.0/24"]
        [[site."a.example".when]]
        client = "192.0.2.7"
        allow = false
        "#,
    );
    let root = route(&configuration, "/");
    let admitted = |block: Option<usize>, address: &str| {
        let settings = settings(root, &[block]);
        let client = Some(address.parse().unwrap());
        let allow = settings.allow.as_ref();
        let is_allowed =
            allow.is_none_or(|all| all.value.networks.iter().any(|one| one.contains(client)));
        let deny = settings.deny.as_ref();
        is_allowed
            && deny.is_none_or(|all| !all.value.networks.iter().any(|one| one.contains(client)))
    };
    for (address, plain, in_block) in [
        ("10.1.2.3", true, true),
        ("10.1.1.3", true, false),
        ("10.2.2.3", true, false),
        ("10.9.0.1", false, false),
        ("192.0.2.1", true, true),
        ("192.0.3.1", false, false),
        ("198.51.100.1", false, false),
    ] {
        assert_eq!(admitted(None, address), plain, "{address}");
        assert_eq!(admitted(Some(0), address), in_block, "{address}");
    }
    assert!(admitted(Some(1), "203.0.113.1"));
}

#[test]
fn a_route_has_a_limited_number_of_combinations() {
    let block = "[[site.\"a.example\".WHERE.when]]\nheader.a = \"NUMBER\"\nbody_max = \"1k\"\n";
    let blocks = |place: &str, count: usize| -> String {
        let block = block.replace("WHERE.", place);
        (0..count)
            .map(|number| block.replace("NUMBER", &number.to_string()))
            .collect()
    };
    let text = |inner: usize| {
        let site = "[site.\"a.example\"]\nto = \"http://h:1\"\n";
        format!("{site}{}{}", blocks("", 15), blocks("\"/x\".", inner))
    };
    assert_eq!(mistakes(&text(15)), "");
    assert!(mistakes(&text(16)).contains("when-combinations"));
}
