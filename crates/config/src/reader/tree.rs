//! The routes of a site as a tree of segments, so that routes with common requests are found without comparing all.

use std::collections::BTreeMap;

use crate::pattern::{PathEnd, Segment};
use crate::route_key::RouteKey;

/// Routes by their segments; a route is its number in the list that the tree is made of.
pub(super) struct RouteTree<'a> {
    keys: Vec<&'a RouteKey>,
    nodes: Vec<Node<'a>>,
}

#[derive(Default)]
struct Node<'a> {
    text: BTreeMap<&'a str, usize>,
    parameter: Option<usize>,
    /// Routes whose pattern goes on with the beginning of a segment.
    prefixes: BTreeMap<&'a str, Vec<usize>>,
    /// Routes whose segments end here, but those in `prefixes`.
    ends: Vec<usize>,
}

const ROOT: usize = 0;

impl<'a> RouteTree<'a> {
    pub(super) fn new(keys: Vec<&'a RouteKey>) -> RouteTree<'a> {
        let segments = keys.iter().map(|key| key.path.segments.len());
        let mut nodes = Vec::with_capacity(1 + segments.sum::<usize>());
        nodes.push(Node::default());
        for (route, key) in keys.iter().enumerate() {
            let mut at = ROOT;
            for segment in &key.path.segments {
                let new = nodes.len();
                let next = match segment {
                    Segment::Text(text) => *nodes[at].text.entry(text).or_insert(new),
                    Segment::Parameter(_) => *nodes[at].parameter.get_or_insert(new),
                };
                if next == new {
                    nodes.push(Node::default());
                }
                at = next;
            }
            match &key.path.end {
                PathEnd::Prefix(text) => nodes[at].prefixes.entry(text).or_default().push(route),
                PathEnd::Exact | PathEnd::Below | PathEnd::Subtree | PathEnd::Regex { .. } => {
                    nodes[at].ends.push(route);
                }
            }
        }
        RouteTree { keys, nodes }
    }

    /// The routes that match all requests of a key; the least specific first.
    pub(super) fn enclosing(&self, key: &RouteKey) -> Vec<usize> {
        let path = &*key.path.without_regex();
        let mut found: Vec<usize> = Vec::new();
        let mut open = vec![(ROOT, 0)];
        while let Some((at, depth)) = open.pop() {
            let node = &self.nodes[at];
            found.extend(&node.ends);
            let text = match (path.segments.get(depth), &path.end) {
                (Some(Segment::Text(text)), _) => {
                    open.extend(node.text.get(&**text).map(|&next| (next, depth + 1)));
                    text
                }
                (None, PathEnd::Prefix(text)) if depth == path.segments.len() => text,
                (Some(Segment::Parameter(_)), _) => "",
                (None, _) => continue,
            };
            open.extend(node.parameter.map(|next| (next, depth + 1)));
            // Paths are ASCII.
            let beginnings = (1..=text.len()).filter_map(|length| text.get(..length));
            found.extend(
                beginnings
                    .filter_map(|text| node.prefixes.get(text))
                    .flatten(),
            );
        }
        found.retain(|&other| self.keys[other].encloses(key));
        found.sort_by(|&a, &b| self.keys[b].by_rank(self.keys[a]));
        found
    }

    /// The routes that come before this one for a request that both match, and that do not inherit from it.
    pub(super) fn ahead(&self, route: usize) -> Vec<usize> {
        let key = self.keys[route];
        let mut found: Vec<usize> = Vec::new();
        // As long as the segments are the same, either may come first.
        let mut open = vec![(ROOT, 0, true)];
        while let Some((at, depth, is_same)) = open.pop() {
            let node = &self.nodes[at];
            found.extend(&node.ends);
            found.extend(node.prefixes.values().flatten());
            let children = node.text.values().map(|&next| (next, depth + 1, false));
            match key.path.segments.get(depth) {
                Some(Segment::Text(text)) => {
                    open.extend(
                        node.text
                            .get(&**text)
                            .map(|&next| (next, depth + 1, is_same)),
                    );
                    // With text where the other has a parameter this route comes first.
                    if !is_same {
                        open.extend(node.parameter.map(|next| (next, depth + 1, false)));
                    }
                }
                Some(Segment::Parameter(_)) => {
                    open.extend(node.parameter.map(|next| (next, depth + 1, is_same)));
                    open.extend(children);
                }
                // It has all requests below the same segments, unless it has methods or is a regex.
                None if key.path.end == PathEnd::Exact => {}
                None if is_same && key.methods.is_none() && key.path.regex().is_none() => {}
                None => {
                    open.extend(node.parameter.map(|next| (next, depth + 1, is_same)));
                    open.extend(children);
                }
            }
        }
        found.retain(|&other| {
            let other = self.keys[other];
            other.by_rank(key).is_lt() && !key.encloses(other) && key.intersection(other).is_some()
        });
        found
    }
}
