//! The router of applications: a value for each pattern.

use super::pattern::Pattern;
use super::tree::{Branch, Params, Tree};

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
