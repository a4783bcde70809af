//! States of the app: `State<T>` is shared by all cores, of `Local<T>` each core has its own.

use std::any::type_name;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use blitz_http::Status;

use super::{FromRequest, Setup};
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse, Response};

/// The value that was passed to [`App::state`](crate::App::state), shared by all cores.
///
/// Extracting it costs no atomic operation, because each core has its own handle. A missing state is an
/// error at start.
pub struct State<T: 'static>(pub Shared<T>);

/// A core's handle to a value that all cores share.
#[allow(clippy::redundant_allocation)] // the outer count belongs to one core and is not atomic
pub struct Shared<T>(Rc<Arc<T>>);

impl<T> Shared<T> {
    /// A handle that may be sent to other threads.
    pub fn to_arc(&self) -> Arc<T> {
        Arc::clone(&self.0)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(Rc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: 'static> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send + Sync + 'static> FromRequest for State<T> {
    fn from_request(request: &mut Request) -> Result<Self, Response> {
        let found = request.core.state::<Arc<T>>();
        found
            .map(|state| State(Shared(state)))
            .ok_or_else(missing::<T>)
    }

    fn check(setup: &Setup<'_>) -> Result<(), String> {
        if setup.has_state::<Arc<T>>() {
            return Ok(());
        }
        Err(format!(
            "its handler takes `State<{}>`, but the app does not set it with `.state(..)`",
            type_name::<T>()
        ))
    }
}

/// A core's own value, made by the function that was passed to [`App::local`](crate::App::local). It needs
/// no lock: a `Cell` or a `RefCell` suffices.
pub struct Local<T: 'static>(pub Rc<T>);

impl<T: 'static> Deref for Local<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: 'static> FromRequest for Local<T> {
    fn from_request(request: &mut Request) -> Result<Self, Response> {
        request
            .core
            .state::<T>()
            .map(Local)
            .ok_or_else(missing::<T>)
    }

    fn check(setup: &Setup<'_>) -> Result<(), String> {
        if setup.has_state::<T>() {
            return Ok(());
        }
        Err(format!(
            "its handler takes `Local<{}>`, but the app does not set it with `.local(..)`",
            type_name::<T>()
        ))
    }
}

/// The response if a state is missing. Routes are checked at start, so only middleware can cause it.
fn missing<T>() -> Response {
    tracing::error!(state = type_name::<T>(), "the app has no such state");
    Problem::new(Status::INTERNAL_SERVER_ERROR).into_response()
}
