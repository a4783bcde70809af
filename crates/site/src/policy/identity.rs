//! Fields of a request that tell who the client is.

use std::ops::Deref;
use std::rc::Rc;

use super::token_facts::TokenFacts;
use crate::edit::Edit;

/// Fields of a request that tell who the client is. Those that a client sends are removed in any case.
#[derive(Debug)]
pub enum Identity<'p> {
    /// The client is unknown.
    None(&'p [Edit]),
    /// The client has proved who it is.
    Verified(Rc<[Edit]>),
    /// The client has proved that it is a user.
    User {
        /// The name, which a field can have.
        name: Rc<str>,
        /// The changes of the request.
        edits: Rc<[Edit]>,
    },
    /// The client has proved that it has a key, by the name of it, which is empty if nobody asks for it.
    Key {
        /// The name.
        name: &'p str,
        /// The changes of the request.
        edits: &'p [Edit],
    },
    /// A token has proved it.
    Token(Rc<TokenFacts>),
    /// A token has proved it, of which the action is told nothing.
    Subject(Rc<TokenFacts>),
}

impl Identity<'_> {
    /// The value of a claim; of several tokens, that of the last one with the claim.
    #[must_use]
    pub fn claim<'i>(identities: &'i [Identity<'_>], name: &str) -> Option<&'i str> {
        identities.iter().rev().find_map(|identity| {
            let Identity::Token(token) = identity else {
                return None;
            };
            let mut claims = token.claims.iter();
            let (_, value) = claims.find(|(known, _)| **known == *name)?;
            Some(&**value)
        })
    }

    /// The name of the client: of its user, of its key, or the subject of its token. Names are kept if somebody asks
    /// for them.
    #[must_use]
    pub fn user<'i>(identities: &'i [Identity<'_>]) -> Option<&'i str> {
        identities.iter().find_map(|identity| match identity {
            Identity::User { name, .. } => Some(&**name),
            Identity::Key { name, .. } => Some(*name).filter(|name| !name.is_empty()),
            Identity::Token(token) | Identity::Subject(token) => token.subject.as_deref(),
            Identity::None(_) | Identity::Verified(_) => None,
        })
    }

    /// Whether the action is told about the client.
    #[must_use]
    pub fn is_told(&self) -> bool {
        match self {
            Identity::None(_) | Identity::Verified(_) | Identity::Token(_) => true,
            Identity::User { .. } | Identity::Key { .. } => !self.edits().is_empty(),
            Identity::Subject(_) => false,
        }
    }

    pub(super) fn edits(&self) -> &[Edit] {
        match self {
            Identity::None(edits) | Identity::Key { edits, .. } => edits,
            Identity::Verified(edits) | Identity::User { edits, .. } => edits,
            Identity::Token(token) => &token.edits,
            Identity::Subject(_) => &[],
        }
    }
}

/// The identities of a request, in the order in which policies have noted them. A route mostly has one policy of
/// identity, and one needs no memory of its own.
#[derive(Debug)]
pub struct Identities<'p>(Noted<'p>);

#[derive(Debug)]
enum Noted<'p> {
    One(Option<Identity<'p>>),
    Several(Vec<Identity<'p>>),
}

impl Default for Identities<'_> {
    fn default() -> Self {
        Identities(Noted::One(None))
    }
}

impl<'p> Identities<'p> {
    /// Adds one, if there is one.
    #[inline]
    pub(super) fn add(&mut self, identity: Option<Identity<'p>>) {
        match (&mut self.0, identity) {
            (_, None) => {}
            (Noted::One(one @ None), identity) => *one = identity,
            (_, Some(identity)) => self.add_further(identity),
        }
    }

    #[cold]
    fn add_further(&mut self, identity: Identity<'p>) {
        match &mut self.0 {
            Noted::One(one) => {
                let all = one.take().into_iter().chain([identity]);
                self.0 = Noted::Several(all.collect());
            }
            Noted::Several(all) => all.push(identity),
        }
    }
}

impl<'p> Deref for Identities<'p> {
    type Target = [Identity<'p>];

    #[inline]
    fn deref(&self) -> &[Identity<'p>] {
        match &self.0 {
            Noted::One(one) => one.as_slice(),
            Noted::Several(all) => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_keep_their_order() {
        let mut identities = Identities::default();
        identities.add(None);
        assert!(identities.is_empty());
        for name in ["one", "two", "three"] {
            identities.add(Some(Identity::Key { name, edits: &[] }));
            identities.add(None);
        }
        let names = identities.iter().map(|identity| match identity {
            Identity::Key { name, .. } => *name,
            _ => "",
        });
        assert_eq!(names.collect::<Vec<_>>(), ["one", "two", "three"]);
    }
}
