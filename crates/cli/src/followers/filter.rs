//! Which requests a follower wants.

use std::net::IpAddr;
use std::time::Duration;

use blitz_config::Network;

/// The conditions of a follower. A request meets one if it has any of its values, and is wanted if it meets all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) statuses: Vec<WantedStatus>,
    pub(crate) sites: Vec<String>,
    /// The paths of routes as written, or with their site before them as metrics have them.
    pub(crate) routes: Vec<String>,
    pub(crate) clients: Vec<Network>,
    /// The request took longer.
    pub(crate) slower: Option<Duration>,
}

/// A status of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WantedStatus {
    Code(u16),
    /// All statuses with this first digit.
    Class(u16),
    /// No response.
    None,
}

/// The facts of a request that conditions are about.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Facts<'a> {
    pub(crate) status: Option<u16>,
    pub(crate) site: Option<&'a str>,
    pub(crate) route: Option<&'a str>,
    pub(crate) client: Option<IpAddr>,
    pub(crate) duration: Duration,
}

impl WantedStatus {
    /// # Errors
    /// The text is no status: the problem and the remedy.
    pub(crate) fn parse(text: &str) -> Result<WantedStatus, String> {
        match text.as_bytes() {
            b"none" => Ok(WantedStatus::None),
            [digit @ b'1'..=b'5', b'x', b'x'] => Ok(WantedStatus::Class((digit - b'0').into())),
            [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'] => {
                Ok(WantedStatus::Code(text.parse().unwrap_or_default()))
            }
            _ => Err("this is no status\n  write for example 404, 5xx or none".to_owned()),
        }
    }

    fn is(self, status: Option<u16>) -> bool {
        match self {
            WantedStatus::Code(wanted) => status == Some(wanted),
            WantedStatus::Class(wanted) => status.is_some_and(|status| status / 100 == wanted),
            WantedStatus::None => status.is_none(),
        }
    }
}

impl Filter {
    pub(super) fn wants(&self, request: &Facts<'_>) -> bool {
        let Filter {
            statuses,
            sites,
            routes,
            clients,
            slower,
        } = self;
        let has_site = |wanted: &String| request.site == Some(wanted);
        let is_empty_or = |is_empty: bool, is_met: bool| is_empty || is_met;
        slower.is_none_or(|slower| request.duration > slower)
            && is_empty_or(
                statuses.is_empty(),
                statuses.iter().any(|wanted| wanted.is(request.status)),
            )
            && is_empty_or(sites.is_empty(), sites.iter().any(has_site))
            && is_empty_or(
                routes.is_empty(),
                routes.iter().any(|wanted| is_route(wanted, request)),
            )
            && is_empty_or(
                clients.is_empty(),
                clients.iter().any(|wanted| wanted.contains(request.client)),
            )
    }
}

fn is_route(wanted: &str, request: &Facts<'_>) -> bool {
    let Some(route) = request.route else {
        return false;
    };
    let path = request
        .site
        .and_then(|site| wanted.strip_prefix(site))
        .unwrap_or(wanted);
    path == route || wanted == route
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Facts<'static> {
        Facts {
            status: Some(502),
            site: Some("app.example"),
            route: Some("/api"),
            client: Some([192, 0, 2, 7].into()),
            duration: Duration::from_millis(120),
        }
    }

    fn statuses(texts: &[&str]) -> Filter {
        let statuses = texts.iter().map(|text| WantedStatus::parse(text).unwrap());
        Filter {
            statuses: statuses.collect(),
            ..Filter::default()
        }
    }

    #[test]
    fn a_condition_is_met_by_any_of_its_values() {
        for (texts, expected) in [
            (&[][..], true),
            (&["502"], true),
            (&["5xx"], true),
            (&["404", "5xx"], true),
            (&["404", "4xx", "none"], false),
        ] {
            assert_eq!(statuses(texts).wants(&request()), expected, "{texts:?}");
        }
        let none = Facts {
            status: None,
            ..request()
        };
        assert!(statuses(&["none"]).wants(&none) && !statuses(&["5xx"]).wants(&none));
        for text in ["", "6xx", "5x", "600", "99", "abc", "5XX"] {
            assert!(WantedStatus::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_request_meets_all_conditions() {
        let filter = |site: &str, route: &str, client: &str, slower: u64| Filter {
            statuses: vec![WantedStatus::Class(5)],
            sites: vec![site.to_owned()],
            routes: vec![route.to_owned()],
            clients: vec![Network::parse(client).unwrap()],
            slower: Some(Duration::from_millis(slower)),
        };
        for (filter, expected) in [
            (filter("app.example", "/api", "192.0.2.0/24", 100), true),
            (
                filter("app.example", "app.example/api", "192.0.2.7", 0),
                true,
            ),
            (filter("shop.example", "/api", "192.0.2.0/24", 100), false),
            (filter("app.example", "/", "192.0.2.0/24", 100), false),
            (
                filter("app.example", "shop.example/api", "192.0.2.7", 0),
                false,
            ),
            (filter("app.example", "/api", "198.51.100.0/24", 100), false),
            (filter("app.example", "/api", "192.0.2.0/24", 120), false),
        ] {
            assert_eq!(filter.wants(&request()), expected, "{filter:?}");
        }
        let unrouted = Facts {
            route: None,
            ..request()
        };
        assert!(!filter("app.example", "/api", "192.0.2.7", 0).wants(&unrouted));
    }
}
