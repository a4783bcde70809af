//! The radix tree: grown as literals and parameters, then packed for matching.

use super::pattern::{Kind, PARAMS_MAX, Token};

/// No node, no child, no value.
const NONE: u32 = u32::MAX;

/// Where the parameters of a match lie in the path that was matched.
///
/// Ranges, so that a match allocates nothing and borrows nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Params {
    count: u32,
    ranges: [(u32, u32); PARAMS_MAX],
}

impl Params {
    /// How many parameters the route has.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether the route has no parameter.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes of parameter `index`, still percent-encoded, in the `path` that was matched.
    pub fn get<'p>(&self, path: &'p str, index: usize) -> Option<&'p str> {
        let (start, end) = self.ranges[..self.len()].get(index)?;
        path.get(*start as usize..*end as usize)
    }
}

/// A tree under construction: a literal, then what can follow it.
#[derive(Debug, Default)]
pub(super) struct Branch {
    literal: Vec<u8>,
    /// Each starts with a byte of its own.
    children: Vec<Branch>,
    /// Sorted by kind, narrowest first.
    params: Vec<(Kind, Branch)>,
    rest: Option<u32>,
    value: Option<u32>,
}

impl Branch {
    /// The place where the value of this token sequence is kept.
    pub(super) fn slot(&mut self, tokens: &[Token]) -> &mut Option<u32> {
        match tokens {
            [] => &mut self.value,
            [Token::Literal(literal), after @ ..] => self.grow(literal).slot(after),
            [Token::Param(kind), after @ ..] => self.param(*kind).slot(after),
            [Token::Rest, ..] => &mut self.rest,
        }
    }

    /// The branch at the end of `literal`, splitting and adding branches as needed.
    fn grow(&mut self, literal: &[u8]) -> &mut Branch {
        if literal.is_empty() {
            return self;
        }
        let first_is = |child: &Branch| child.literal[0] == literal[0];
        let Some(at) = self.children.iter().position(first_is) else {
            self.children.push(Branch {
                literal: literal.to_vec(),
                ..Branch::default()
            });
            let last = self.children.len() - 1;
            return &mut self.children[last];
        };
        let child = &mut self.children[at];
        let shared = child
            .literal
            .iter()
            .zip(literal)
            .take_while(|(a, b)| a == b)
            .count();
        if shared < child.literal.len() {
            child.split(shared);
        }
        child.grow(&literal[shared..])
    }

    /// Keeps the first `at` bytes here and moves everything else into an only child.
    fn split(&mut self, at: usize) {
        let mut lower = std::mem::take(self);
        self.literal = lower.literal[..at].to_vec();
        lower.literal.drain(..at);
        self.children.push(lower);
    }

    fn param(&mut self, kind: Kind) -> &mut Branch {
        let at = match self.params.binary_search_by_key(&kind, |(known, _)| *known) {
            Ok(at) => at,
            Err(at) => {
                self.params.insert(at, (kind, Branch::default()));
                at
            }
        };
        &mut self.params[at].1
    }
}

/// The packed tree. A child is found by one look into a table, whatever the fan-out.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    literal: Box<[u8]>,
    /// `jumps[byte - first]` is the child that starts with `byte`.
    first: u8,
    jumps: Box<[u32]>,
    params: Box<[(Kind, u32)]>,
    rest: u32,
    value: u32,
}

impl Tree {
    /// Packs what was grown.
    pub(super) fn pack(root: Branch) -> Tree {
        let mut tree = Tree { nodes: Vec::new() };
        tree.add(root);
        tree
    }

    /// The value of the best match: literals before parameters before a catch-all.
    pub(super) fn find(&self, path: &str) -> Option<(u32, Params)> {
        let path = path.as_bytes();
        let mut search = Search {
            nodes: &self.nodes,
            path,
            params: Params::default(),
        };
        let value = search.descend(&self.nodes[0], 0, 0);
        (value != NONE).then_some((value, search.params))
    }

    /// Adds a branch and all below it; returns its index.
    fn add(&mut self, branch: Branch) -> u32 {
        let index = self.nodes.len();
        self.nodes.push(Node {
            literal: branch.literal.into(),
            first: 0,
            jumps: Box::default(),
            params: Box::default(),
            rest: branch.rest.unwrap_or(NONE),
            value: branch.value.unwrap_or(NONE),
        });
        let params = branch
            .params
            .into_iter()
            .map(|(kind, below)| (kind, self.add(below)));
        self.nodes[index].params = params.collect();

        let firsts = || branch.children.iter().map(|child| child.literal[0]);
        if let (Some(first), Some(last)) = (firsts().min(), firsts().max()) {
            let mut jumps = vec![NONE; usize::from(last - first) + 1];
            for child in branch.children {
                let byte = child.literal[0];
                jumps[usize::from(byte - first)] = self.add(child);
            }
            self.nodes[index].first = first;
            self.nodes[index].jumps = jumps.into();
        }
        index as u32
    }
}

/// One look-up.
struct Search<'t> {
    nodes: &'t [Node],
    path: &'t [u8],
    params: Params,
}

impl<'t> Search<'t> {
    /// Follows `node` from byte `at`, `count` parameters being known. Recursion remembers the
    /// choices that are still open. A node can be reached at one position only, so a search
    /// visits each node at most once, however much the routes overlap.
    fn descend(&mut self, mut node: &'t Node, mut at: usize, count: usize) -> u32 {
        loop {
            let Some(after) = skip_literal(self.path, at, &node.literal) else {
                return NONE;
            };
            at = after;
            let child = match self.path.get(at) {
                Some(byte) => node.child(*byte),
                None if node.value != NONE => {
                    self.params.count = count as u32;
                    return node.value;
                }
                None => NONE,
            };
            if !node.params.is_empty() || node.rest != NONE {
                return self.choose(node, child, at, count);
            }
            if child == NONE {
                return NONE;
            }
            node = &self.nodes[child as usize];
        }
    }

    /// Tries the literal child, then the parameters, then the catch-all.
    fn choose(&mut self, node: &'t Node, child: u32, at: usize, count: usize) -> u32 {
        if child != NONE {
            let value = self.descend(&self.nodes[child as usize], at, count);
            if value != NONE {
                return value;
            }
        }
        let end = segment_end(self.path, at);
        for (kind, next) in &node.params {
            if end == at || !kind.accepts(&self.path[at..end]) {
                continue;
            }
            self.params.ranges[count] = (at as u32, end as u32);
            let value = self.descend(&self.nodes[*next as usize], end, count + 1);
            if value != NONE {
                return value;
            }
        }
        if node.rest != NONE {
            self.params.ranges[count] = (at as u32, self.path.len() as u32);
            self.params.count = count as u32 + 1;
        }
        node.rest
    }
}

impl Node {
    fn child(&self, byte: u8) -> u32 {
        let offset = usize::from(byte.wrapping_sub(self.first));
        self.jumps.get(offset).copied().unwrap_or(NONE)
    }
}

/// The position after `literal`, if it stands at `at`.
fn skip_literal(path: &[u8], at: usize, literal: &[u8]) -> Option<usize> {
    let end = at + literal.len();
    (path.get(at..end)? == literal).then_some(end)
}

fn segment_end(path: &[u8], at: usize) -> usize {
    path[at..]
        .iter()
        .position(|byte| *byte == b'/')
        .map_or(path.len(), |length| at + length)
}
