//! `/upstreams`: the upstreams of the configuration in use, with their addresses and connections.

use std::sync::Arc;
use std::time::SystemTime;

use blitz::extract::State;
use blitz::{Peer, Response};
use blitz_gateway::{AddressOnCore, AddressReport, Failure, UpstreamReport};
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
    json!({
        "url": upstream.url,
        "names": upstream.names,
        "failure": upstream.failure.map(Failure::detail),
        "addresses": addresses,
    })
}

fn of_address(address: &AddressReport, now: SystemTime) -> Value {
    let sum = |value: fn(&AddressOnCore) -> usize| address.cores.iter().map(value).sum::<usize>();
    let cores: Vec<_> = address
        .cores
        .iter()
        .map(|core| of_core(core, now))
        .collect();
    json!({
        "address": text_of(&address.address),
        "idle": sum(|core| core.idle),
        "in_use": sum(|core| core.in_use),
        "cores": cores,
    })
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
    })
}
