//! `/connections`: connections and requests of each core, and of all; with `top`, the clients that need the most.

use std::sync::Arc;
use std::time::Duration;

use blitz::extract::{Query, State};
use blitz::{Peer, Response, Status};
use blitz_http::Counters;
use serde_json::{Value, json};

use super::access::Reach;
use super::clients;
use super::index::starting;
use super::state::ControlState;

/// Clients that are listed at most.
const TOP_MAX: usize = 100;

/// How many seconds clients are watched, and the most.
const SECONDS: u64 = 2;
const SECONDS_MAX: u64 = 10;

pub(super) async fn connections(
    State(state): State<Arc<ControlState>>,
    peer: Peer,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Result<Response, Response> {
    let asked = asked(&pairs).map_err(|problem| {
        Response::text(format!("{problem}\n")).with_status(Status::BAD_REQUEST)
    })?;
    let Some(gateway) = state.observed().map(|observed| observed.gateway.clone()) else {
        return Err(starting());
    };
    let reach = Reach::of(&peer);
    // Dropped with this future if the client leaves.
    let _permit = match &asked {
        Some(_) => Some(state.admission.watch(reach)?),
        None => None,
    };
    let all = state.admission.run(reach, move || gateway.counters());
    let all = all.await?;
    let mut total = Counters::default();
    let mut cores = Vec::with_capacity(all.len());
    for one in &all {
        total.add(&one.http);
        let mut object = json!({ "core": one.core });
        merge(&mut object, counts(&one.http));
        cores.push(object);
    }
    let mut answer = json!({ "total": counts(&total), "cores": cores });
    if let Some(Asked { top, seconds }) = asked {
        let consumers = state.followers.consumers();
        let time = Duration::from_secs(seconds);
        let clients = clients::watch(consumers, time, top, state.port()).await;
        merge(&mut answer, json!({ "seconds": seconds }));
        merge(&mut answer, clients);
    }
    Ok(Response::json(&answer))
}

/// The clients that are asked for.
struct Asked {
    top: usize,
    seconds: u64,
}

/// # Errors
/// A value is none: the problem and the remedy.
fn asked(pairs: &[(String, String)]) -> Result<Option<Asked>, String> {
    let number = |name: &str, most: u64| {
        let mut pairs = pairs.iter();
        let Some((_, value)) = pairs.find(|(known, _)| known == name) else {
            return Ok(None);
        };
        let number = value
            .parse()
            .ok()
            .filter(|number| (1..=most).contains(number));
        let problem =
            || format!("{name}={value}: this is no number of {name}\n  write 1 to {most}");
        number.map(Some).ok_or_else(problem)
    };
    let seconds = number("seconds", SECONDS_MAX)?.unwrap_or(SECONDS);
    let top = number("top", TOP_MAX as u64)?;
    Ok(top.map(|top| Asked {
        top: top as usize,
        seconds,
    }))
}

fn counts(counters: &Counters) -> Value {
    // HTTP/1.0 counts as 1.1.
    let [http1_0, http1_1, http2, http3] = counters.requests_by_version;
    json!({
        "open": counters.connections,
        "accepted": counters.accepted,
        "evicted": counters.evicted,
        "requests": {
            "http1": http1_0 + http1_1,
            "http2": http2,
            "http3": http3,
        },
        "tunnels": counters.upgrades,
        "upstream": {
            "idle": counters.upstream_idle,
            "connects": counters.upstream_connects,
            "reused": counters.upstream_reused,
        },
    })
}

fn merge(object: &mut Value, others: Value) {
    if let (Value::Object(object), Value::Object(others)) = (object, others) {
        object.extend(others);
    }
}
