//! What a handler can ask for: its arguments say it, and their types take it from the request.
//!
//! ```
//! use blitz::{App, extract::{Json, Path, Query, State}};
//! use serde::Deserialize;
//!
//! #[derive(Deserialize)]
//! struct Page {
//!     #[serde(default)]
//!     offset: usize,
//! }
//! struct Names(Vec<String>);
//!
//! let names = |State(names): State<Names>, Query(page): Query<Page>| {
//!     names.0.get(page.offset).cloned()
//! };
//! let echo = async |Path(id): Path<u64>, Json(text): Json<String>| format!("{id}: {text}");
//!
//! let app = App::new().state(Names(vec![])).get("/names", names).post("/echo/{id}", echo);
//! # app.build().unwrap();
//! ```

mod body;
mod head;
mod path;
mod state;

use std::future::Future;

use crate::request::Request;
use crate::response::Response;
use crate::site::States;

pub use crate::arena::Arena;
pub use body::{Body, ContentError, Form, Json, Text};
pub use head::{Headers, Query};
pub use path::Path;
pub use state::{Local, Shared, State};

/// Made from the head of a request, at once.
pub trait FromRequest: Sized {
    /// Takes what it needs.
    ///
    /// # Errors
    /// The response to send instead of calling the handler.
    fn from_request(request: &mut Request) -> Result<Self, Response>;

    /// Finds, before anything is served, what would fail for every request.
    ///
    /// # Errors
    /// What is missing, as a sentence about the handler.
    fn check(setup: &Setup<'_>) -> Result<(), String> {
        let _ = setup;
        Ok(())
    }
}

/// Made from the content of a request, once it has arrived.
pub trait FromBody: Sized {
    /// Reads the content.
    ///
    /// # Errors
    /// The response to send instead of calling the handler.
    fn from_body(request: Request) -> impl Future<Output = Result<Self, Response>>;

    /// As [`FromRequest::check`].
    ///
    /// # Errors
    /// What is missing, as a sentence about the handler.
    fn check(setup: &Setup<'_>) -> Result<(), String> {
        let _ = setup;
        Ok(())
    }
}

/// What is known about a route when the app is built.
pub struct Setup<'a> {
    pub(crate) param_names: &'a [Box<str>],
    pub(crate) states: &'a States,
}

impl Setup<'_> {
    /// Names of the route's parameters.
    pub fn param_names(&self) -> &[Box<str>] {
        self.param_names
    }

    /// Whether the app has a state of type `T`.
    pub fn has_state<T: 'static>(&self) -> bool {
        self.states.has::<T>()
    }
}
