//! `/upstreams`: the upstreams of the configuration in use, with their addresses and connections.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blitz::extract::State;
use blitz::{Peer, Response};
use blitz_gateway::{
    AddressOnCore, AddressReport, CheckReport, CheckState, Failure, ResponseTimes, UpstreamReport,
};
use serde_json::{Value, json};

use super::access::Reach;
use super::index::starting;
use super::state::ControlState;
use crate::listen::text_of;
use crate::timestamp::rfc3339;

pub(super) async fn upstreams(
    State(state): State<Arc<ControlState>>,
    peer: Peer,
) -> Result<Response, Response> {
    let Some(gateway) = state.observed().map(|observed| observed.gateway.clone()) else {
        return Err(starting());
    };
    let upstreams = state
        .admission
        .run(Reach::of(&peer), move || gateway.upstreams());
    let upstreams = upstreams.await?;
    let now = SystemTime::now();
    let upstreams = upstreams.iter().map(|upstream| of_upstream(upstream, now));
    let upstreams: Vec<_> = upstreams.collect();
    Ok(Response::json(&json!({ "upstreams": upstreams })))
}

fn of_upstream(upstream: &UpstreamReport, now: SystemTime) -> Value {
    let addresses = upstream.addresses.iter();
    let addresses: Vec<_> = addresses.map(|address| of_address(address, now)).collect();
    let change = upstream.change.as_deref();
    let before = change.map_or(&[][..], |change| &change.before);
    let age = change.map(|change| now.duration_since(change.at).unwrap_or_default());
    json!({
        "url": upstream.url,
        "names": upstream.names,
        "used_alone": upstream.is_used_alone,
        "drained": upstream.is_drained,
        "checks": upstream.checks.iter().map(of_check).collect::<Vec<_>>(),
        "failure": upstream.failure.map(Failure::detail),
        "addresses": addresses,
        "addresses_before": before.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "changed": change.map(|change| rfc3339(change.at)),
        "seconds_since_change": age.map(|age| age.as_secs_f64()),
    })
}

fn of_check(check: &CheckReport) -> Value {
    let last = check.last;
    json!({
        "names": check.names,
        "check": check.way,
        "state": state_name(check.state),
        "since": check.changed.map(rfc3339),
        "problem": check.problem,
        "last": last.map(|(ended, _)| rfc3339(ended)),
        "last_seconds": last.map(|(_, took)| took.as_secs_f64()),
        "passed": check.passed,
        "failed": check.failed,
    })
}

fn state_name(state: CheckState) -> &'static str {
    match state {
        CheckState::Unknown => "unknown",
        CheckState::Up => "up",
        CheckState::Down => "down",
    }
}

fn of_address(address: &AddressReport, now: SystemTime) -> Value {
    let sum = |value: fn(&AddressOnCore) -> usize| address.cores.iter().map(value).sum::<usize>();
    let count = |value: fn(&AddressOnCore) -> u64| address.cores.iter().map(value).sum::<u64>();
    let times = |value: fn(&AddressOnCore) -> ResponseTimes| {
        let all = address.cores.iter().map(value);
        all.fold(ResponseTimes::default(), ResponseTimes::and)
    };
    let responses = times(|core| core.figures.responses);
    let recent = times(|core| core.figures.recent).mean();
    let unanswered = unanswered(address);
    let cores: Vec<_> = address
        .cores
        .iter()
        .map(|core| of_core(core, now))
        .collect();
    json!({
        "address": text_of(&address.address),
        "former": address.is_former,
        "idle": sum(|core| core.idle),
        "in_use": sum(|core| core.in_use),
        "requests": count(|core| core.figures.requests),
        "failures": count(|core| core.figures.failures),
        "responses": responses.count,
        "response_seconds": responses.time.as_secs_f64(),
        "recent_mean_seconds": recent.map(|mean| mean.as_secs_f64()),
        "unanswered": count(|core| core.figures.unanswered),
        "seconds_unanswered": unanswered.map(|time| time.as_secs_f64()),
        "cores": cores,
    })
}

/// How long requests have been sent while no core got a response head.
fn unanswered(address: &AddressReport) -> Option<Duration> {
    let figures = || address.cores.iter().map(|core| core.figures);
    let first = figures().filter_map(|one| one.first_unanswered).max()?;
    let last_response = figures().filter_map(|one| one.last_response).min();
    Some(last_response.map_or(first, |ago| first.min(ago)))
}

fn of_core(core: &AddressOnCore, now: SystemTime) -> Value {
    let until = core.cooling_down.map(|left| rfc3339(now + left));
    let failed = core.last_failure.map(|ago| rfc3339(now - ago));
    json!({
        "core": core.core,
        "idle": core.idle,
        "in_use": core.in_use,
        "cooling_down_until": until,
        "last_failure": failed,
        "last_failure_type": core.last_failure_cause.map(Failure::token),
    })
}
