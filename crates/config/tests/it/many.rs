//! Large files.

use std::fmt::Write;
use std::time::Instant;

use blitz_config::read;

use crate::support::{document, environment, valid};

/// Sites that inherit most of their settings, each with this number of routes.
fn sites(count: usize, routes: usize) -> String {
    let mut text = "defaults.headers = { X-Frame-Options = \"DENY\", Server = false }\n\
                    defaults.timeout.response = \"5m\"\n"
        .to_owned();
    for site in 0..count {
        let _ = writeln!(
            text,
            "[site.\"s{site}.example\"]\nto = \"http://10.0.0.1:3000\""
        );
        let _ = writeln!(text, "allow = [\"10.0.0.0/8\", \"192.0.2.0/24\"]");
        for route in 1..routes {
            let _ = match route % 3 {
                0 => writeln!(
                    text,
                    "\"/api/v{route}/{{id}}\" = \"http://10.0.0.2:{route}\""
                ),
                1 => writeln!(
                    text,
                    "\"GET /r{route}\".headers.Cache-Control = \"no-cache\""
                ),
                _ => writeln!(text, "\"/r{route}\".path = \"/x{{rest}}\""),
            };
        }
    }
    text
}

/// Each route is compared with those that it shares segments with, not with all: else this takes minutes.
#[test]
fn a_site_may_have_many_routes() {
    let configuration = valid(&sites(1, 10_000));
    assert_eq!(configuration.sites[0].routes.len(), 10_000);
}

#[test]
fn lists_of_defaults_are_shared_by_all_sites() {
    let configuration = valid(&sites(3, 3));
    let routes = configuration.sites.iter().flat_map(|site| &site.routes);
    let of_defaults: Vec<_> = routes
        .filter(|route| route.settings.headers.len() == 2)
        .collect();
    assert_eq!(of_defaults.len(), 6);
    let first = &of_defaults[0].settings.headers;
    let is_shared =
        |route: &&blitz_config::Route| route.settings.headers.as_ptr() == first.as_ptr();
    assert!(of_defaults.iter().all(is_shared));
}

/// Prints the time and the memory of 10,000 sites with 10 routes each: `--ignored --nocapture`, in a release build.
#[test]
#[ignore = "it measures"]
fn ten_thousand_sites() {
    let text = sites(10_000, 10);
    let (document, environment) = (document(&text), environment());
    let mut kept = Vec::new();
    // From the second time on the memory of the parser is there, and grows by that of the model.
    for _ in 0..4 {
        let before = resident_kib();
        let start = Instant::now();
        let (configuration, diagnostics) = read(&document, &environment);
        let time = start.elapsed();
        assert_eq!(diagnostics, []);
        let sites = configuration.sites.iter();
        let routes: usize = sites.map(|site| site.routes.len()).sum();
        kept.push(configuration);
        let kib = resident_kib() - before;
        println!("{routes} routes, {} bytes: {time:?}, {kib} KiB", text.len());
    }
}

/// Memory of this process, in KiB.
fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}
