//! `/config`, `/config/diff` and `/explain`: questions about the configuration in use.

use std::path::PathBuf;
use std::sync::Arc;

use blitz::extract::{Headers, Query, State};
use blitz::{Peer, Response, Status};

use super::access::Reach;
use super::negotiation::has_tag;
use super::state::ControlState;
use crate::explain::Question;

type Pairs = Query<Vec<(String, String)>>;

/// The effective configuration, with a tag for its version.
pub(super) async fn config(
    State(state): State<Arc<ControlState>>,
    peer: Peer,
    headers: Headers,
) -> Result<Response, Response> {
    let Some(in_use) = state.in_use.clone() else {
        return Err(no_file());
    };
    let effective = state
        .admission
        .run(Reach::of(&peer), move || in_use.effective());
    let (text, tag) = effective.await?;
    let response = match has_tag(&headers, &tag) {
        true => Response::new(Status::NOT_MODIFIED),
        false => Response::text(text),
    };
    Ok(response.header("ETag", tag))
}

/// The changes of a reload; empty if there are none. `file` is another file than that of the process.
pub(super) async fn config_diff(
    State(state): State<Arc<ControlState>>,
    peer: Peer,
    Query(pairs): Pairs,
) -> Result<Response, Response> {
    let Some(in_use) = state.in_use.clone() else {
        return Err(no_file());
    };
    let reach = Reach::of(&peer);
    let is_private = reach == Reach::Socket;
    let file = pairs.into_iter().find(|(name, _)| name == "file");
    let file = file.map(|(_, path)| PathBuf::from(path));
    // Its mistakes would show lines of a file that other users may not read.
    if file.is_some() && !is_private {
        let text = "only the control socket compares another file\n  \
                    write blitz config diff FILE\n";
        return Err(Response::text(text).with_status(Status::FORBIDDEN));
    }
    let compare = move || in_use.differences(file.as_deref());
    Ok(match state.admission.run(reach, compare).await? {
        Ok(text) => Response::text(text),
        Err(problem) => {
            let problem = match is_private {
                true => problem,
                false => {
                    "the file has mistakes, or cannot be read\n  `blitz config diff` shows them\n"
                        .to_owned()
                }
            };
            Response::text(problem).with_status(Status::UNPROCESSABLE_CONTENT)
        }
    })
}

/// Explains a request: `method`, `url`, `header`, `from`, or `routes`; `format` may be `json`.
pub(super) async fn explain(
    State(state): State<Arc<ControlState>>,
    peer: Peer,
    Query(pairs): Pairs,
) -> Result<Response, Response> {
    let Some(in_use) = state.in_use.clone() else {
        return Err(no_file());
    };
    let explain = move || in_use.explain(&Question::of_pairs(pairs)?);
    Ok(
        match state.admission.run(Reach::of(&peer), explain).await? {
            Ok(text) => Response::text(text),
            Err(problem) => Response::text(problem).with_status(Status::BAD_REQUEST),
        },
    )
}

fn no_file() -> Response {
    let text = "this process has no configuration file: flags have started it\n  \
                `blitz run --show-config` with the same flags prints the file that they stand for\n";
    Response::text(text).with_status(Status::NOT_FOUND)
}
