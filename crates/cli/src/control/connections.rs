//! `/connections`: connections and requests of each core, and of all.

use std::sync::Arc;

use blitz::extract::State;
use blitz::{Response, blocking};
use blitz_http::Counters;
use serde_json::{Value, json};

use super::index::starting;
use super::state::ControlState;

pub(super) async fn connections(State(state): State<Arc<ControlState>>) -> Response {
    let Some(gateway) = state.observed().map(|observed| observed.gateway.clone()) else {
        return starting();
    };
    let all = blocking(move || gateway.counters()).await;
    let mut total = Counters::default();
    let mut cores = Vec::with_capacity(all.len());
    for one in &all {
        total.add(&one.http);
        let mut object = json!({ "core": one.core });
        merge(&mut object, counts(&one.http));
        cores.push(object);
    }
    Response::json(&json!({ "total": counts(&total), "cores": cores }))
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
