//! `POST /reload` and `POST /drain`.

use std::sync::Arc;
use std::time::Duration;

use blitz::extract::State;
use blitz::{Response, Status, blocking};
use blitz_http::Signal;

use super::state::ControlState;

/// How long the response of `/drain` has before the drain begins, which may end the process at once.
const RESPONSE_TIME: Duration = Duration::from_millis(50);

pub(super) async fn reload(State(state): State<Arc<ControlState>>) -> Response {
    let state = Arc::clone(&state);
    match blocking(move || state.waiting.ask()).await {
        Ok(changes) => Response::text(changes),
        Err(problem) => Response::text(problem).with_status(Status::UNPROCESSABLE_CONTENT),
    }
}

/// The same as TERM: a second one drops running requests.
pub(super) async fn drain() -> Response {
    blitz::spawn(async {
        blitz::sleep(RESPONSE_TIME).await;
        Signal::Terminate.raise();
    });
    Response::text("the process ends, as after TERM\n").with_status(Status::ACCEPTED)
}
