//! Policies of a route: decisions on a request before its action, in a fixed order, and changes of its response.
//!
//! A policy is compiled once for each configuration: for a request nothing is parsed or looked up by name. [`Notes`] are
//! for later phases of its request.

mod cors;
mod early_hints;

use std::borrow::Cow;
use std::sync::Arc;

use blitz_http::RequestHead;

use crate::client::ClientAddress;
use crate::edit::Edit;
use crate::rejection::Rejection;

pub use cors::{Cors, CorsSettings, Origin, preflight_method};
pub use early_hints::EarlyHints;

/// The policies of a route, in the order in which they decide.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Policies(Box<[Policy]>);

/// A policy. Routes that inherit it share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Responds to preflights, and adds the fields for scripts of other origins.
    Cors(Arc<Cors>),
    /// Tells browsers what a page will need.
    EarlyHints(Arc<EarlyHints>),
}

/// The request that policies decide on.
pub struct PolicyRequest<'a> {
    /// Its head.
    pub head: &'a RequestHead,
    /// Its client.
    pub client: ClientAddress,
}

/// Notes of policies for later phases of a request.
#[derive(Debug, Default)]
pub struct Notes<'p> {
    /// Changes of the final response, before those of `headers`.
    pub response_edits: Cow<'p, [Edit]>,
    /// Are sent when all checks have passed.
    pub early_hints: Option<&'p EarlyHints>,
}

impl Policies {
    /// These policies, in any order.
    #[must_use]
    pub fn new(mut policies: Vec<Policy>) -> Policies {
        policies.sort_by_key(Policy::rank);
        Policies(policies.into())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether preflights are taken by the route of the request that they are about.
    #[must_use]
    pub fn takes_preflights(&self) -> bool {
        self.0
            .iter()
            .any(|policy| matches!(policy, Policy::Cors(_)))
    }

    /// Decides on a request.
    ///
    /// # Errors
    /// A policy responds in place of the action. The response is that of the rejection, with the changes in the notes.
    pub fn decide<'p>(
        &'p self,
        request: &PolicyRequest<'_>,
        notes: &mut Notes<'p>,
    ) -> Result<(), Rejection> {
        self.0.iter().try_for_each(|policy| match policy {
            Policy::Cors(cors) => cors.decide(request, notes),
            Policy::EarlyHints(hints) => {
                notes.early_hints = hints.for_request(request.head);
                Ok(())
            }
        })
    }
}

impl Policy {
    /// Its place in the order.
    fn rank(&self) -> u8 {
        match self {
            Policy::Cors(_) => 0,
            Policy::EarlyHints(_) => 60,
        }
    }
}

impl<'p> Notes<'p> {
    /// Adds changes of the final response.
    pub fn edit_response(&mut self, edits: impl Into<Cow<'p, [Edit]>>) {
        let edits = edits.into();
        match self.response_edits.is_empty() {
            true => self.response_edits = edits,
            false => self.response_edits.to_mut().extend(edits.into_owned()),
        }
    }
}
