//! Extractors: the types of a handler's arguments, which are made from the request.
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
mod identity;
mod path;
mod state;

use std::future::Future;

use crate::app_data::States;
use crate::request::Request;
use crate::response::Response;

pub use crate::arena::Arena;
pub use crate::body::{Body, ContentError};
pub use crate::identity::Identity;
pub use body::{Form, Json, Text};
pub use head::{Headers, Query};
pub use path::Path;
pub use state::{Local, Shared, State};

/// An extractor that uses the head of a request only.
pub trait FromRequest: Sized {
    /// Makes the value.
    ///
    /// # Errors
    /// The response to send instead of calling the handler.
    fn from_request(request: &mut Request) -> Result<Self, Response>;

    /// Checks, before the server starts, for errors that would affect every request.
    ///
    /// # Errors
    /// The missing state or parameter, as a sentence about the handler.
    fn check(setup: &Setup<'_>) -> Result<(), String> {
        let _ = setup;
        Ok(())
    }
}

/// An extractor that reads the content of a request.
pub trait FromBody: Sized {
    /// Reads the content and makes the value.
    ///
    /// # Errors
    /// The response to send instead of calling the handler.
    fn from_body(request: Request) -> impl Future<Output = Result<Self, Response>>;

    /// As [`FromRequest::check`].
    ///
    /// # Errors
    /// The missing state or parameter, as a sentence about the handler.
    fn check(setup: &Setup<'_>) -> Result<(), String> {
        let _ = setup;
        Ok(())
    }
}

/// The properties of a route that are known when the app is built.
pub struct Setup<'a> {
    pub(crate) param_names: &'a [Box<str>],
    pub(crate) states: &'a States,
    /// Whether a policy of the route demands a proof of who the client is.
    pub(crate) has_identity: bool,
}

impl Setup<'_> {
    /// The names of the route's parameters.
    pub fn param_names(&self) -> &[Box<str>] {
        self.param_names
    }

    /// Whether the app has a state of type `T`.
    pub fn has_state<T: 'static>(&self) -> bool {
        self.states.has::<T>()
    }
}
