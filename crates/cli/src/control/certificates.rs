//! `/certificates`: the certificates of listeners, with the sites that they are for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use blitz::extract::State;
use blitz::{Peer, Response};
use blitz_http::{Certificate, TlsSlot};
use serde_json::{Value, json};

use super::access::Reach;
use super::state::ControlState;
use crate::in_use::InUse;
use crate::timestamp::rfc3339;

/// Seconds of a day.
const DAY: i64 = 24 * 60 * 60;

pub(super) async fn certificates(
    State(state): State<Arc<ControlState>>,
    peer: Peer,
) -> Result<Response, Response> {
    let (tls, in_use) = (state.tls(), state.in_use.clone());
    let all = state
        .admission
        .run(Reach::of(&peer), move || -> Vec<Value> {
            let Some(tls) = tls else {
                return Vec::new();
            };
            let hosts = in_use.as_deref().map(InUse::tls_hosts);
            list(&tls, &hosts.unwrap_or_default(), SystemTime::now())
        });
    let all = all.await?;
    Ok(Response::json(&json!({ "certificates": all })))
}

fn list(tls: &TlsSlot, hosts: &[String], now: SystemTime) -> Vec<Value> {
    let current = tls.current();
    let all: Vec<_> = current.certificates().collect();
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, certificate) in all.iter().enumerate() {
        for name in certificate.names() {
            by_name.entry(name.as_str()).or_default().push(number);
        }
    }
    let mut sites: Vec<Vec<&str>> = vec![Vec::new(); all.len()];
    for host in hosts {
        let mut covering = covering_names(host).into_iter();
        let found = covering.find_map(|name| by_name.get(name.as_str()));
        for number in found.into_iter().flatten() {
            sites[*number].push(host);
        }
    }
    let with_sites = all.into_iter().zip(sites);
    with_sites
        .map(|(certificate, sites)| object(certificate, &sites, now))
        .collect()
}

/// The names of certificates that cover a host: itself, and a star for its first label.
fn covering_names(host: &str) -> Vec<String> {
    let host = host.to_ascii_lowercase();
    let wildcard = host.split_once('.').map(|(_, rest)| format!("*.{rest}"));
    std::iter::once(host).chain(wildcard).collect()
}

fn object(certificate: &Certificate, sites: &[&str], now: SystemTime) -> Value {
    json!({
        "names": certificate.names(),
        "issuer": certificate.issuer(),
        "not_before": rfc3339(certificate.not_before()),
        "not_after": rfc3339(certificate.not_after()),
        "days_left": days_left(certificate.not_after(), now),
        "seconds_left": seconds_left(certificate.not_after(), now),
        "sites": sites,
        "file": certificate.file().map(|file| file.display().to_string()),
    })
}

/// Whole days until a certificate expires, below zero if it has expired.
fn days_left(not_after: SystemTime, now: SystemTime) -> i64 {
    seconds_left(not_after, now).div_euclid(DAY)
}

fn seconds_left(not_after: SystemTime, now: SystemTime) -> i64 {
    match not_after.duration_since(now) {
        Ok(left) => left.as_secs().cast_signed(),
        Err(past) => -past.duration().as_secs().cast_signed(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_days_of_an_expired_certificate_are_negative() {
        let now = SystemTime::now();
        for (seconds, expected) in [(-1, -1), (0, 0), (DAY, 1), (DAY - 1, 0), (-DAY, -1)] {
            let distance = Duration::from_secs(i64::unsigned_abs(seconds));
            let not_after = if seconds < 0 {
                now - distance
            } else {
                now + distance
            };
            assert_eq!(days_left(not_after, now), expected, "{seconds}");
        }
    }

    #[test]
    fn a_star_covers_one_label() {
        assert_eq!(covering_names("A.example"), ["a.example", "*.example"]);
        assert_eq!(
            covering_names("*.a.example"),
            ["*.a.example", "*.a.example"]
        );
    }
}
