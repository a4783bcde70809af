//! The control socket: other processes of this user ask a running Blitz to read its configuration again.

use std::fmt::Display;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blitz::extract::{Headers, Query, State};
use blitz::{App, Response, Status, blocking};
use blitz_config::{Placed, Socket};
use blitz_host::serving::{self, Serving};
use blitz_http::{Config, IoChoice, Pinning, ServeOptions, Signal};

use crate::control_client::usual_paths;
use crate::explain::Question;
use crate::in_use::InUse;

/// For the user of the process, and nobody else.
const FOLDER_MODE: u32 = 0o700;

/// `--control`: without a socket.
pub(crate) const OFF: &str = "off";

/// The changes of a reload, or the reason for which it changed nothing.
pub(crate) type Outcome = Result<String, String>;

/// The requests that wait for the next reload.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<Vec<Sender<Outcome>>>);

impl Waiting {
    /// Asks for a reload and waits for its outcome. One reload is for all that have asked before it began.
    fn ask(&self) -> Outcome {
        let (sender, outcome) = channel();
        self.lock().push(sender);
        Signal::Hangup.raise();
        let ended = || Err("Blitz has ended".to_owned());
        outcome.recv().unwrap_or_else(|_| ended())
    }

    /// Those whom the reload that begins now is for.
    pub(crate) fn take(&self) -> Vec<Sender<Outcome>> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sender<Outcome>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open control socket.
pub(crate) struct Control {
    serving: Serving,
    pub(crate) waiting: Arc<Waiting>,
}

impl Control {
    /// Opens the socket that was chosen, or the first of the usual ones that can be opened. `None` if there is to be none,
    /// or for the usual ones if none can be opened, which is a warning.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub(crate) fn open(
        chosen: Option<&Placed<Socket>>,
        in_use: &Arc<InUse>,
    ) -> Result<Option<Control>, String> {
        match chosen.map(|chosen| &chosen.value) {
            Some(Socket::Off) => Ok(None),
            Some(Socket::Path(path)) => Control::open_at(Path::new(path), in_use).map(Some),
            None => {
                let opened = Control::open_usual(in_use);
                if let Err(problem) = &opened {
                    let problem = problem.replace("\n  ", "; ");
                    tracing::warn!("`blitz reload` cannot reach this process: {problem}");
                }
                Ok(opened.ok())
            }
        }
    }

    fn open_usual(in_use: &Arc<InUse>) -> Result<Control, String> {
        let mut first_problem = None;
        for path in usual_paths() {
            if UnixStream::connect(&path).is_ok() {
                let path = path.display();
                return Err(format!(
                    "the control socket {path} belongs to another process\n  choose another one with --control PATH"
                ));
            }
            let made = DirBuilder::new()
                .mode(FOLDER_MODE)
                .recursive(true)
                .create(path.parent().unwrap_or(Path::new("/")));
            let made = made.map_err(|error| cannot_open(&path, &error));
            match made.and_then(|()| Control::open_at(&path, in_use)) {
                Ok(control) => return Ok(control),
                Err(problem) => first_problem.get_or_insert(problem),
            };
        }
        Err(first_problem.unwrap_or_default())
    }

    fn open_at(path: &Path, in_use: &Arc<InUse>) -> Result<Control, String> {
        let failed = |error: &dyn Display| cannot_open(path, error);
        let waiting = Arc::new(Waiting::default());
        let app = App::new()
            .state(Arc::clone(&waiting))
            .state(Arc::clone(in_use))
            .get("/config", config)
            .get("/config/diff", config_diff)
            .get("/explain", explain)
            .post("/reload", reload);
        let service = app.into_service().map_err(|error| failed(&error))?;
        let listeners = serving::try_reserve_private(path.to_owned());
        let listeners = listeners.map_err(|error| failed(&error))?;
        // It waits most of the time, and a ring would be memory for nothing.
        let config = Config {
            io: IoChoice::Epoll,
            cores: 1,
            pin: Pinning::Off,
            ..Config::default()
        };
        let make = move || (service.on_core(), ServeOptions::default());
        let serving = serving::start(listeners, &config, make).map_err(|error| failed(&error))?;
        Ok(Control { serving, waiting })
    }

    /// Accepts no more connections.
    pub(crate) fn close(&self) {
        self.serving.drain(Duration::ZERO);
    }
}

async fn reload(State(waiting): State<Arc<Waiting>>) -> Response {
    let waiting = Arc::clone(&waiting);
    match blocking(move || waiting.ask()).await {
        Ok(changes) => Response::text(changes),
        Err(problem) => Response::text(problem).with_status(Status::UNPROCESSABLE_CONTENT),
    }
}

/// The effective configuration, with a tag for its version.
async fn config(State(in_use): State<Arc<InUse>>, headers: Headers) -> Response {
    let in_use = Arc::clone(&in_use);
    let (text, tag) = blocking(move || in_use.effective()).await;
    let known = headers.get("If-None-Match");
    let response = match known.is_some_and(|known| known == tag.as_bytes()) {
        true => Response::new(Status::NOT_MODIFIED),
        false => Response::text(text),
    };
    response.header("ETag", tag)
}

type Pairs = Query<Vec<(String, String)>>;

/// The changes of a reload; empty if there are none. `file` is another file than that of the process.
async fn config_diff(State(in_use): State<Arc<InUse>>, Query(pairs): Pairs) -> Response {
    let in_use = Arc::clone(&in_use);
    let file = pairs.into_iter().find(|(name, _)| name == "file");
    let file = file.map(|(_, path)| PathBuf::from(path));
    let differences = blocking(move || in_use.differences(file.as_deref())).await;
    match differences {
        Ok(text) => Response::text(text),
        Err(problem) => Response::text(problem).with_status(Status::UNPROCESSABLE_CONTENT),
    }
}

/// Explains a request: `method`, `url`, `header`, `from`, or `routes`; `format` may be `json`.
async fn explain(State(in_use): State<Arc<InUse>>, Query(pairs): Pairs) -> Response {
    let in_use = Arc::clone(&in_use);
    let explained = blocking(move || in_use.explain(&Question::of_pairs(pairs)?)).await;
    match explained {
        Ok(text) => Response::text(text),
        Err(problem) => Response::text(problem).with_status(Status::BAD_REQUEST),
    }
}

fn cannot_open(path: &Path, error: &dyn Display) -> String {
    format!(
        "the control socket {} cannot be opened: {error}\n  \
         choose another one with --control PATH, or none with --control {OFF}",
        path.display()
    )
}
