//! `POST /upstreams/drain` and `POST /upstreams/undrain`: whether a server gets new requests.

use std::sync::Arc;

use blitz::extract::{Query, State};
use blitz::{Response, Status};
use blitz_gateway::{DrainError, StateReader};

use super::index::starting;
use super::state::ControlState;

pub(super) async fn drain(
    State(state): State<Arc<ControlState>>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Response {
    set_drained(&state, &pairs, true)
}

pub(super) async fn undrain(
    State(state): State<Arc<ControlState>>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Response {
    set_drained(&state, &pairs, false)
}

fn set_drained(state: &ControlState, pairs: &[(String, String)], is_drained: bool) -> Response {
    let Some(observed) = state.observed() else {
        return starting();
    };
    let refused = |status: Status, text: String| Response::text(text).with_status(status);
    let action = if is_drained { "drain" } else { "undrain" };
    let Some((_, url)) = pairs.iter().find(|(name, _)| name == "server") else {
        let text = format!(
            "the server is missing\n  send POST /upstreams/{action}?server=URL; GET /upstreams lists the URLs\n"
        );
        return refused(Status::BAD_REQUEST, text);
    };
    match change(&observed.gateway, url, is_drained) {
        Ok(text) => Response::text(text),
        Err((status, text)) => refused(status, text),
    }
}

fn change(gateway: &StateReader, url: &str, is_drained: bool) -> Result<String, (Status, String)> {
    let changed = gateway.set_drained(url.trim_end_matches('/'), is_drained);
    match (changed, is_drained) {
        (Ok(true), true) => {
            tracing::info!("the server {url} is drained: only clients with its cookie stay");
            Ok(format!(
                "{url} gets no new requests but those of clients with its cookie\n"
            ))
        }
        (Ok(true), false) => {
            tracing::info!("the server {url} is not drained any more");
            Ok(format!("{url} gets requests again\n"))
        }
        (Ok(false), true) => Ok(format!("{url} was drained before\n")),
        (Ok(false), false) => Ok(format!("{url} was not drained\n")),
        (Err(DrainError::Unknown), _) => Err((
            Status::NOT_FOUND,
            format!("no upstream has the server {url}\n  GET /upstreams lists the URLs\n"),
        )),
        (Err(DrainError::Alone), _) => Err((
            Status::CONFLICT,
            format!(
                "{url} is the only server of a route\n  add another one to its upstream first\n"
            ),
        )),
        (Err(DrainError::Last(name)), _) => Err((
            Status::CONFLICT,
            format!(
                "{url} is the last server of {name} that gets requests: the others are drained, or down\n  \
                 undrain another one, or add one first\n"
            ),
        )),
    }
}
