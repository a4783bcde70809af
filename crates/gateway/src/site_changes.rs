//! What differs between the sites of two configurations.

use std::collections::HashMap;

use blitz_config::Host;

use crate::sites::{SiteRoutes, Sites};

/// How a site differs from the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteChange {
    /// There was none with its name.
    Added,
    /// Its hosts, routes or rules are others.
    Changed,
    /// There is none with its name any more.
    Removed,
}

/// The sites that differ, by their first host: those of the new configuration in its order, then those that are gone.
pub(crate) fn changes(before: &Sites, after: &Sites) -> Vec<(SiteChange, Host)> {
    let (old, new) = (by_host(before), by_host(after));
    let added_or_changed = named(after).filter_map(|(host, site)| match old.get(host) {
        None => Some((SiteChange::Added, host.clone())),
        Some(other) => (*other != site).then(|| (SiteChange::Changed, host.clone())),
    });
    let removed = named(before).filter(|(host, _)| !new.contains_key(host));
    let removed = removed.map(|(host, _)| (SiteChange::Removed, host.clone()));
    added_or_changed.chain(removed).collect()
}

fn by_host(sites: &Sites) -> HashMap<&Host, &SiteRoutes> {
    named(sites).collect()
}

/// Targets without a site have no host.
fn named(sites: &Sites) -> impl Iterator<Item = (&Host, &SiteRoutes)> {
    sites
        .iter()
        .filter_map(|site| Some((site.hosts.first()?, site)))
}

#[cfg(test)]
mod tests {
    use blitz_config::{Document, Environment, read};

    use super::*;
    use crate::compile::compile;

    fn sites(text: &str) -> Sites {
        let document = Document::new("blitz.toml", text);
        let (configuration, mut diagnostics) = read(&document, &Environment::default());
        let mut no_file = |_: &str| Err((String::new(), String::new()));
        let sites = compile(&configuration, &mut no_file, &mut diagnostics);
        assert_eq!(diagnostics, []);
        Sites::of_file(sites)
    }

    /// `+`, `~` and `-` with the host.
    fn signs(before: &str, after: &str) -> String {
        let changes = changes(&sites(before), &sites(after));
        let sign = |change| match change {
            SiteChange::Added => '+',
            SiteChange::Changed => '~',
            SiteChange::Removed => '-',
        };
        let texts = changes.iter();
        let texts = texts.map(|(change, host)| format!("{}{host}", sign(*change)));
        texts.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn sites_are_compared_by_what_they_say() {
        let (a, b) = (
            "\"a.example\" = \"http://a:1\"",
            "\"b.example\" = \"http://b:1\"",
        );
        let both = format!("[site]\n{a}\n{b}\n");
        // The upstream of b has another number.
        let other_order = format!("[site]\n{b}\n{a}\n");
        assert_eq!(signs(&both, &other_order), "");
        assert_eq!(signs(&format!("[site]\n{a}\n"), &both), "+b.example");
        assert_eq!(signs(&both, &format!("[site]\n{b}\n")), "-a.example");
        let other = format!(
            "[site]\n\"c.example\" = \"http://c:1\"\n{}\n",
            b.replace(":1", ":2")
        );
        assert_eq!(signs(&both, &other), "+c.example ~b.example -a.example");
    }

    #[test]
    fn each_setting_is_compared() {
        let site = |settings: &str| {
            format!("[site.\"a.example\"]\nto = \"http://a:1\"\n\"/x\" = {{ {settings} }}\n")
        };
        let all = [
            "",
            "path = \"/y{rest}\"",
            "raw_path = true",
            "host = \"upstream\"",
            "host = \"b.example\"",
            "request_trailers = true",
            "timeout.connect = \"1s\"",
            "timeout.response = \"1s\"",
            "timeout.idle = \"1s\"",
            "allow = [\"10.0.0.0/8\"]",
            "deny = [\"10.0.0.0/8\"]",
            "methods = [\"GET\"]",
            "body_max = \"1k\"",
            "when = [{ client = \"unix\", respond = 204 }]",
            "when = [{ client = \"!unix\", respond = 204 }]",
            "when = [{ header.a = \"~b\", respond = 204 }]",
            "when = [{ header.a = \"~c\", respond = 204 }]",
            "when = [{ header.a = \"~c\", respond = 205 }]",
            "headers.a = \"b\"",
            "request_headers.a = \"b\"",
            "redirect = \"301 /y\"",
            "respond = 204",
        ];
        for one in all {
            for other in all {
                let expected = if one == other { "" } else { "~a.example" };
                assert_eq!(signs(&site(one), &site(other)), expected, "{one} | {other}");
            }
        }
    }
}
