//! The tables below the summary.

use super::table::{Cell, Column, Kind, Row, Table, number, text};
use crate::live::{
    Cause, Certificate, Client, Latency, OTHERS, Quantile, RecentFailure, Responses, Route, Routes,
    Severity, State, Upstream, View,
};
use crate::terminal::line::Tone;
use crate::terminal::number::{age, count, percent, quantile, rate};

pub(super) use crate::live::CLASSES;

/// A certificate is renewed earlier than so many days before its end.
const DAYS_LOW: i64 = 21;

/// One that expires so soon needs attention now.
const DAYS_BAD: i64 = 7;

const OF_ROUTES: &[Column] = &[
    number("REQ/S", 0),
    number("P50", 4),
    number("P90", 6),
    number("P99", 1),
    number("4XX", 5),
    number("5XX", 2),
    number("NONE", 3),
];

const OF_UPSTREAMS: &[Column] = &[
    text("STATE", 0),
    number("ACTIVE", 2),
    number("IDLE", 6),
    number("REQ/S", 3),
    // The times until the head of the response has arrived.
    number("MEAN", 5),
    number("HEAD P50", 7),
    number("HEAD P99", 1),
    number("FAILED", 4),
];

const OF_FAILURES: &[Column] = &[
    number("COUNT", 1),
    number("SINCE", 4),
    number("LAST", 0),
    number("CODE", 5),
    text("ROUTE", 2),
    text("UPSTREAM", 3),
];

const OF_CLIENTS: &[Column] = &[
    number("REQ/S", 0),
    number("SHARE", 2),
    number("CONNECTIONS", 1),
];

const OF_CAUSES: &[Column] = &[
    number("RECENT", 0),
    number("SINCE START", 1),
    Column {
        title: "MEANING",
        kind: Kind::Meaning,
        rank: 2,
    },
];

const OF_CERTIFICATES: &[Column] = &[text("EXPIRES", 0), text("FILE", 1)];

/// The tables that have something to tell, the most important ones first.
pub(super) fn tables(view: &View, order: Routes) -> Vec<Table> {
    let mut certificates = view.certificates.iter();
    let expires_soon = certificates.any(|one| one.days_left < DAYS_LOW);
    let mut tables = vec![routes(view, order)];
    if !view.upstreams.is_empty() {
        tables.push(Table {
            title: "UPSTREAMS".to_owned(),
            columns: OF_UPSTREAMS,
            rows: view.upstreams.iter().flat_map(upstream).collect(),
            is_optional: false,
            empty: "",
        });
    }
    if !view.failures.is_empty() {
        tables.push(Table {
            title: "RECENT FAILURES".to_owned(),
            columns: OF_FAILURES,
            rows: view.failures.iter().map(failure).collect(),
            is_optional: false,
            empty: "",
        });
    }
    if !view.clients.is_empty() {
        tables.push(Table {
            title: "CLIENTS".to_owned(),
            columns: OF_CLIENTS,
            rows: view.clients.iter().map(client).collect(),
            is_optional: expires_soon,
            empty: "",
        });
    }
    tables.push(Table {
        title: "FAILURES AND LIMITS".to_owned(),
        columns: OF_CAUSES,
        rows: view.causes.iter().map(cause).collect(),
        is_optional: false,
        empty: "none since the start",
    });
    if !view.certificates.is_empty() {
        tables.push(Table {
            title: "CERTIFICATES".to_owned(),
            columns: OF_CERTIFICATES,
            rows: view.certificates.iter().map(certificate).collect(),
            is_optional: !expires_soon,
            empty: "",
        });
    }
    tables
}

fn routes(view: &View, order: Routes) -> Table {
    let order_name = match order {
        Routes::Slowest => "slowest",
        Routes::Busiest => "busiest",
        Routes::Failing => "failing",
    };
    Table {
        title: format!("ROUTES, {order_name} first"),
        columns: OF_ROUTES,
        rows: view.routes(order).into_iter().map(route).collect(),
        is_optional: false,
        empty: match view.window {
            Some(_) => "no request has ended",
            None => "",
        },
    }
}

fn route(route: &Route) -> Row {
    let traffic = &route.traffic;
    let [_, _, client_errors, server_errors, none] = traffic.classes;
    let Latency { p50, p90, p99 } = traffic.latency;
    Row {
        name: plain(route.name.clone()),
        cells: vec![
            plain(rate(traffic.rate)),
            plain(quantile(p50)),
            plain(quantile(p90)),
            plain(quantile(p99)),
            share(client_errors, Tone::Plain),
            share(server_errors, Tone::Bad),
            share(none, Tone::Bad),
        ],
    }
}

/// An upstream, and below it the details of its state and the change of its name.
fn upstream(upstream: &Upstream) -> impl Iterator<Item = Row> {
    let indent = if upstream.is_server { "  " } else { "" };
    let requests = upstream.requests;
    let of_requests =
        |text: fn(&Responses) -> String| plain(requests.as_ref().map_or_else(String::new, text));
    // Only the mean is known of the servers of an upstream.
    let of_all = |text: fn(&Responses) -> String| match upstream.is_server {
        true => plain(String::new()),
        false => of_requests(text),
    };
    let number =
        |value: Option<u64>| plain(value.map_or_else(String::new, |value| count(value as f64)));
    let shared = if upstream.is_shared { " (shared)" } else { "" };
    let tone_of_failed = match upstream.is_server && upstream.is_shared {
        true => Tone::Dim,
        false => Tone::Bad,
    };
    let row = Row {
        name: plain(format!("{indent}{}{shared}", upstream.name)),
        cells: vec![
            state(upstream),
            number(upstream.active),
            number(upstream.idle),
            of_requests(|requests| rate(requests.rate)),
            of_requests(|requests| quantile(requests.mean.map(Quantile::At))),
            of_all(|requests| quantile(requests.latency.p50)),
            of_all(|requests| quantile(requests.latency.p99)),
            requests.map_or_else(
                || plain(String::new()),
                |requests| share(requests.failed, tone_of_failed),
            ),
        ],
    };
    let change = upstream.change.as_ref().map(|change| change.text.clone());
    let below = details(upstream).into_iter().chain(change);
    let below = below.map(move |text| Row {
        name: dim(format!("{indent}  {text}")),
        cells: OF_UPSTREAMS.iter().map(|_| plain(String::new())).collect(),
    });
    [row].into_iter().chain(below)
}

/// The part of a state for which its column has no room.
fn details(upstream: &Upstream) -> Option<String> {
    match upstream.state.as_ref()? {
        State::Unresolved(reason) | State::Unhealthy(reason) => Some(reason.clone()),
        State::Unreachable {
            failed, addresses, ..
        } if failed.len() < *addresses => Some(failed.join(", ")),
        State::Silent {
            address,
            active,
            seconds,
        } => Some(format!(
            "{address}: {active} in use, no response for {}",
            age(*seconds as f64)
        )),
        _ => None,
    }
}

fn dim(text: String) -> Cell {
    Cell {
        tone: Tone::Dim,
        text,
    }
}

/// Short, so that no terminal cuts it.
fn state(upstream: &Upstream) -> Cell {
    let Some(state) = &upstream.state else {
        return plain(String::new());
    };
    let (tone, text) = match state {
        State::Ok | State::Unused if upstream.is_failing() => (Tone::Bad, "failing".to_owned()),
        State::Ok => (Tone::Plain, "ok".to_owned()),
        State::Unused => (Tone::Dim, "unused".to_owned()),
        State::Unresolved(_) => (Tone::Bad, "no address".to_owned()),
        State::Unhealthy(_) => (Tone::Bad, "unhealthy".to_owned()),
        State::Drained => (Tone::Dim, "drained".to_owned()),
        State::Unreachable {
            failed,
            addresses,
            at_tls,
        } => match (failed.len(), at_tls) {
            (some, false) if some < *addresses => {
                (Tone::Warning, format!("{some} of {addresses} down"))
            }
            (some, true) if some < *addresses => {
                (Tone::Warning, format!("tls: {some} of {addresses}"))
            }
            (_, true) => (Tone::Bad, "tls fails".to_owned()),
            (_, false) => (Tone::Bad, "unreachable".to_owned()),
        },
        State::Silent { .. } => (Tone::Bad, "no response".to_owned()),
        State::Servers { down, servers } if down < servers => {
            (Tone::Warning, format!("{down} of {servers} down"))
        }
        State::Servers { .. } => (Tone::Bad, "down".to_owned()),
    };
    Cell { tone, text }
}

fn failure(failure: &RecentFailure) -> Row {
    let tone = match failure.recent {
        0 => Tone::Dim,
        _ => Tone::Bad,
    };
    let cell = |text: String| Cell { tone, text };
    let status = failure.status;
    Row {
        name: cell(failure.cause.clone()),
        cells: vec![
            cell(count(failure.count as f64)),
            cell(age(failure.since)),
            cell(format!("{} ago", age(failure.age))),
            cell(status.map_or("-".to_owned(), |status| status.to_string())),
            cell(failure.route.clone()),
            cell(failure.upstream.clone()),
        ],
    }
}

fn client(client: &Client) -> Row {
    let tone = match client.name.as_str() {
        OTHERS => Tone::Dim,
        _ => Tone::Plain,
    };
    let cell = |text: String| Cell { tone, text };
    Row {
        name: cell(client.name.clone()),
        cells: vec![
            cell(rate(client.rate)),
            cell(percent(client.share)),
            cell(count(client.open as f64)),
        ],
    }
}

fn cause(cause: &Cause) -> Row {
    let tone = match cause.severity {
        _ if cause.recent == 0.0 => Tone::Dim,
        Severity::Failure => Tone::Bad,
        Severity::Limit => Tone::Warning,
    };
    let cell = |text: String| Cell { tone, text };
    Row {
        name: cell(cause.text.clone()),
        cells: vec![
            cell(count(cause.recent)),
            cell(count(cause.total)),
            Cell {
                tone: Tone::Dim,
                text: cause.meaning.clone(),
            },
        ],
    }
}

fn certificate(certificate: &Certificate) -> Row {
    let days = certificate.days_left;
    let tone = match days {
        ..DAYS_BAD => Tone::Bad,
        DAYS_BAD..DAYS_LOW => Tone::Warning,
        _ => Tone::Plain,
    };
    let text = certificate.expiry();
    let text = text.trim_start_matches("expires ").to_owned();
    Row {
        name: plain(certificate.names.join(", ")),
        cells: vec![
            Cell { tone, text },
            Cell {
                tone: Tone::Dim,
                text: certificate.file.clone().unwrap_or_default(),
            },
        ],
    }
}

/// A share, which has a tone if it is not zero.
fn share(share: f64, tone: Tone) -> Cell {
    Cell {
        tone: if share == 0.0 { Tone::Dim } else { tone },
        text: percent(share),
    }
}

fn plain(text: String) -> Cell {
    Cell {
        tone: Tone::Plain,
        text,
    }
}
