//! The router: a radix tree with typed parameters.
//!
//! Literals have precedence over parameters, and parameters over a catch-all. The search backtracks if a
//! more specific route does not match the rest of the path:
//!
//! ```
//! use blitz::router::{Pattern, RouterBuilder};
//!
//! let mut builder = RouterBuilder::<&str>::default();
//! for text in ["/users/me", "/users/{id:u64}", "/users/{name}", "/files/{rest...}"] {
//!     *builder.entry(&Pattern::parse(text)?) = text;
//! }
//! let router = builder.build();
//!
//! let (route, params) = router.find("/users/42").unwrap();
//! assert_eq!((*route, params.get("/users/42", 0)), ("/users/{id:u64}", Some("42")));
//! assert_eq!(*router.find("/users/me").unwrap().0, "/users/me");
//! assert_eq!(*router.find("/users/bob").unwrap().0, "/users/{name}");
//! assert!(router.find("/groups").is_none());
//! # Ok::<(), blitz::router::PatternError>(())
//! ```

mod pattern;
mod tree;

use tree::{Branch, Tree};

pub use pattern::{Kind, PARAMS_MAX, Pattern, PatternError, Token};
pub use tree::Params;

/// Collects routes. Patterns that differ only in the names of parameters are the same route.
#[derive(Debug)]
pub struct RouterBuilder<T> {
    root: Branch,
    values: Vec<T>,
}

impl<T> Default for RouterBuilder<T> {
    fn default() -> Self {
        RouterBuilder {
            root: Branch::default(),
            values: Vec::new(),
        }
    }
}

impl<T: Default> RouterBuilder<T> {
    /// The value of the route of `pattern`; the default value if the route is new.
    pub fn entry(&mut self, pattern: &Pattern) -> &mut T {
        let slot = self.root.slot(pattern.tokens());
        let index = *slot.get_or_insert(self.values.len() as u32) as usize;
        if index == self.values.len() {
            self.values.push(T::default());
        }
        &mut self.values[index]
    }

    /// Packs the routes for matching.
    pub fn build(self) -> Router<T> {
        Router {
            tree: Tree::pack(self.root),
            values: self.values,
        }
    }
}

/// Finds the route of a path.
#[derive(Debug)]
pub struct Router<T> {
    tree: Tree,
    values: Vec<T>,
}

impl<T> Router<T> {
    /// The most specific route of a normalised path, and the ranges of its parameters in the path.
    pub fn find(&self, path: &str) -> Option<(&T, Params)> {
        let (value, params) = self.tree.find(path)?;
        Some((&self.values[value as usize], params))
    }

    /// The value of each route, in the order in which the routes were added.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The same routes with other values.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> Router<U> {
        Router {
            tree: self.tree,
            values: self.values.into_iter().map(change).collect(),
        }
    }
}
