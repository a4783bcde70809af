//! What is known of a request that the core refuses on its own, as far as the answer depends on it.

use std::rc::Rc;

use blitz_proto::Fields;

use super::exchange::After;
use super::server::ServerSide;
use super::wire::{State, Wire};
use crate::error::{Refusal, content_of};
use crate::problem::accepts_problem;

impl Wire {
    /// Refuses a head that is malformed or incomplete; the fields before the fault are known.
    #[cold]
    pub(super) fn refuse_head(&self, refusal: Refusal) -> After {
        let mut state = self.state.borrow_mut();
        let side = state.side.server();
        let head = side.head.as_ref();
        side.takes_problem = head.is_some_and(|head| takes_problem(&head.fields));
        drop(state);
        self.refuse(refusal)
    }
}

impl ServerSide {
    /// Remembers what a refusal of the request's content will depend on, since the head is the
    /// service's by then.
    pub(super) fn remember_accept(&mut self, fields: &Fields) {
        self.takes_problem = takes_problem(fields);
    }
}

impl State {
    /// Encodes the answer that the core gives on its own.
    pub(super) fn send_refusal(&mut self, refusal: Refusal) {
        let nothing = Fields::new();
        let side = self.side.server();
        let options = Rc::clone(&side.options);
        // After the head it belongs to no request.
        let head = side.head.take();
        let asked = head.as_ref().map_or(&nothing, |head| &head.fields);
        let (mut head, content) = content_of(refusal, asked, side.takes_problem, &options);
        side.machine.drain();
        self.send_whole(&mut head, content);
    }
}

fn takes_problem(fields: &Fields) -> bool {
    accepts_problem(fields) == Some(true)
}
