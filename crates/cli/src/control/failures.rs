//! `/failures`: the failures of late by cause and route, those that occurred last first.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use blitz::extract::State;
use blitz::{Peer, Response, Status};
use blitz_gateway::{Occurrence, RecentFailure};
use serde_json::{Value, json};

use super::access::Reach;
use super::index::starting;
use super::state::ControlState;
use crate::listen::text_of;
use crate::timestamp::rfc3339;

pub(super) async fn failures(
    State(state): State<Arc<ControlState>>,
    peer: Peer,
) -> Result<Response, Response> {
    let Some(gateway) = state.observed().map(|observed| observed.gateway.clone()) else {
        return Err(starting());
    };
    let failures = state
        .admission
        .run(Reach::of(&peer), move || gateway.failures());
    let failures = failures.await?;
    let now = Now {
        instant: Instant::now(),
        time: SystemTime::now(),
    };
    let failures: Vec<_> = failures
        .iter()
        .map(|failure| object(failure, now))
        .collect();
    Ok(Response::json(&json!({ "failures": failures })))
}

/// The same moment on both clocks.
#[derive(Clone, Copy)]
struct Now {
    instant: Instant,
    time: SystemTime,
}

impl Now {
    fn text(self, moment: Instant) -> String {
        rfc3339(self.time - self.instant.saturating_duration_since(moment))
    }
}

fn object(failure: &RecentFailure, now: Now) -> Value {
    let RecentFailure {
        cause,
        site,
        route,
        upstream,
        count,
        first,
        last,
    } = failure;
    let Occurrence {
        at,
        status,
        grpc_status,
        address,
        phase,
        rule,
        certificate,
        authorizer,
        request_id,
    } = last;
    let authorizer = authorizer.as_ref();
    json!({
        "cause": cause,
        "rule": rule,
        "certificate": certificate.as_deref(),
        "authorizer": authorizer.map(|one| &one.url),
        "authorizer_status": authorizer.and_then(|one| one.status).map(Status::code),
        "problem": authorizer.and_then(|one| one.problem.as_deref()),
        "phase": phase,
        "site": site,
        "route": route,
        "upstream": upstream,
        "address": address.as_ref().map(text_of),
        "status": status.map(Status::code),
        "grpc_status": grpc_status,
        "count": count,
        "first": now.text(*first),
        "seconds_since_first": now.instant.saturating_duration_since(*first).as_secs_f64(),
        "last": now.text(*at),
        "seconds_since_last": now.instant.saturating_duration_since(*at).as_secs_f64(),
        "request_id": request_id,
    })
}
