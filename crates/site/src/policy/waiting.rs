//! Policies that wait: for a computation on another thread, or for another service.
//!
//! The policies before one that waits have decided, and those after it decide once it has ended. A client that leaves
//! ends the wait.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use blitz_http::{Chunk, Pooled, PooledFuture, ResponseHead};

use super::{Identity, NoDecision, Notes, Policies, PolicyRequest};
use crate::edit::Edit;
use crate::rejection::Rejection;

/// The end of a wait: the decision, with what it leaves for later phases.
#[derive(Debug, Default)]
pub(super) struct Waited {
    /// Why the request is rejected.
    pub(super) rejection: Option<Rejection>,
    /// The client, as the wait has verified.
    pub(super) identities: Vec<Identity<'static>>,
    /// Changes of the final response.
    pub(super) response_edits: Vec<Edit>,
    /// The response of a rejected request in place of the gateway's own.
    pub(super) response: Option<Box<PolicyResponse>>,
    /// Why an authorizer gave no decision.
    pub(super) no_decision: Option<Box<NoDecision>>,
}

/// A response that another service has made.
#[derive(Debug)]
pub struct PolicyResponse {
    /// Its head, with the fields that the client gets.
    pub head: Pooled<ResponseHead>,
    /// Its content.
    pub content: Chunk,
}

/// The policies of a request, one of which waits.
pub(super) struct Suspended<'p> {
    pub(super) policies: &'p Policies,
    /// The index of the policy after the one that waits.
    pub(super) next: usize,
    pub(super) waiting: PooledFuture<'p, Waited>,
}

impl std::fmt::Debug for Suspended<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Suspended")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl<'p> Notes<'p> {
    /// Whether a policy waits, so that nothing is decided yet.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.suspended.is_some()
    }

    /// Waits until all policies have decided.
    ///
    /// # Errors
    /// As for [`Policies::decide`].
    pub async fn wait(&mut self, request: &PolicyRequest<'_>) -> Result<(), Rejection> {
        while let Some(suspended) = self.suspended.take() {
            let Suspended {
                policies,
                next,
                mut waiting,
            } = suspended;
            let waited = poll_fn(|cx| poll_caught(&mut waiting, cx)).await;
            self.take(waited)?;
            policies.decide_from(next, request, self)?;
        }
        Ok(())
    }

    /// Decides as if those that wait let the request pass.
    ///
    /// # Errors
    /// As for [`Policies::decide`].
    pub fn assume_passed(&mut self, request: &PolicyRequest<'_>) -> Result<(), Rejection> {
        while let Some(suspended) = self.suspended.take() {
            suspended
                .policies
                .decide_from(suspended.next, request, self)?;
        }
        Ok(())
    }

    fn take(&mut self, waited: Waited) -> Result<(), Rejection> {
        for identity in waited.identities {
            self.identities.add(Some(identity));
        }
        if !waited.response_edits.is_empty() {
            self.edit_response(waited.response_edits);
        }
        self.response = waited.response;
        self.no_decision = waited.no_decision;
        waited.rejection.map_or(Ok(()), Err)
    }
}

/// A policy that panics fails the request.
fn poll_caught(waiting: &mut PooledFuture<'_, Waited>, cx: &mut Context<'_>) -> Poll<Waited> {
    let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(waiting).poll(cx)));
    polled.unwrap_or_else(|_| {
        Poll::Ready(Waited {
            rejection: Some(Rejection::PolicyPanicked),
            ..Waited::default()
        })
    })
}
