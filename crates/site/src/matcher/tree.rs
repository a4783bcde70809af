//! The radix tree: built from literals and parameters, then packed for matching.

use std::ptr;

use super::pattern::{Kind, PARAMS_MAX, Token, tail};

/// No node, no child, no value.
pub(super) const NONE: u32 = u32::MAX;

/// The ranges of a match's parameters in the matched path.
///
/// Ranges, so that a match allocates nothing and borrows nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Params {
    count: u16,
    ranges: [(u16, u16); PARAMS_MAX],
}

/// The longest path that is matched, so that ranges are small. Request lines are much shorter.
pub(super) const PATH_BYTES_MAX: usize = u16::MAX as usize;

impl Params {
    /// The number of parameters.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether the route has no parameters.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The value of parameter `index` in the matched `path`, still percent-encoded.
    pub fn get<'p>(&self, path: &'p str, index: usize) -> Option<&'p str> {
        let (start, end) = self.ranges[..self.len()].get(index)?;
        path.get(usize::from(*start)..usize::from(*end))
    }
}

impl Params {
    /// Where the value of parameter `index` starts in the path.
    pub(super) fn start(&self, index: usize) -> Option<usize> {
        let (start, _) = self.ranges[..self.len()].get(index)?;
        Some(usize::from(*start))
    }
}

/// A node of the tree while it is built: a literal, and the branches that follow it.
#[derive(Debug, Default)]
pub(super) struct Branch {
    literal: Vec<u8>,
    /// Their literals differ in the first byte.
    children: Vec<Branch>,
    /// Sorted by kind, most specific first.
    params: Vec<(Kind, Branch)>,
    /// That of regexes whose matches begin with the path to this branch. They come before parameters.
    regexes: Option<u32>,
    rest: Option<u32>,
    value: Option<u32>,
}

impl Branch {
    /// The slot for the value of this sequence of tokens.
    pub(super) fn slot(&mut self, tokens: &[Token]) -> &mut Option<u32> {
        match tokens {
            [] => &mut self.value,
            [Token::Literal(literal), after @ ..] => self.grow(literal).slot(after),
            [Token::Param(kind), after @ ..] => self.param(*kind).slot(after),
            [Token::Rest, ..] => &mut self.rest,
        }
    }

    /// The slot for the value of regexes whose matches begin with `literal`.
    pub(super) fn regexes(&mut self, literal: &[u8]) -> &mut Option<u32> {
        &mut self.grow(literal).regexes
    }

    /// Replaces each value by the number at its position.
    pub(super) fn renumber(&mut self, numbers: &[u32]) {
        let values = [&mut self.value, &mut self.regexes, &mut self.rest];
        for value in values.into_iter().flatten() {
            *value = numbers[*value as usize];
        }
        let params = self.params.iter_mut().map(|(_, below)| below);
        for below in self.children.iter_mut().chain(params) {
            below.renumber(numbers);
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

    /// Keeps the first `at` bytes here and moves the rest into a single child.
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

/// The packed tree. Finding a child is one table look-up for any number of children.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Box<[Node]>,
    /// The values of regexes, by the numbers of their nodes; empty without regexes, and then no search looks at it.
    regexes: Box<[u32]>,
}

#[derive(Debug)]
struct Node {
    /// The literal of the node, without the first byte, which selected the node.
    literal: Box<[u8]>,
    /// `jumps[byte - first]` is the child whose literal starts with `byte`.
    jumps: Box<[u32]>,
    first: u8,
    /// The least specific parameter and its node; most nodes with parameters have no other.
    widest: Option<Kind>,
    after_widest: u32,
    /// The other parameters, most specific first.
    narrower: Box<[(Kind, u32)]>,
    /// The node has neither parameters nor a catch-all.
    only_literals: bool,
    /// The node also has no literal, only children.
    only_jumps: bool,
    rest: u32,
    value: u32,
}

impl Tree {
    /// Packs a tree of branches.
    pub(super) fn pack(root: Branch) -> Tree {
        let (mut nodes, mut regexes) = (Vec::new(), Vec::new());
        add(&mut nodes, &mut regexes, root, 0);
        if regexes.iter().all(|value| *value == NONE) {
            regexes.clear();
        }
        Tree {
            nodes: nodes.into(),
            regexes: regexes.into(),
        }
    }

    /// Whether it has regexes.
    #[inline]
    pub(super) fn has_regexes(&self) -> bool {
        !self.regexes.is_empty()
    }

    /// The value of the most specific match: literals before parameters before a catch-all.
    pub(super) fn find(&self, path: &str) -> Option<(u32, Params)> {
        self.find_accepted(path, |value| value)
    }

    /// The same without the values for which `accept` returns [`NONE`]; what it returns is the result.
    ///
    /// It gets the values of all matches in the order of their precedence, up to the first that it accepts.
    #[inline]
    pub(super) fn find_accepted(
        &self,
        path: &str,
        accept: impl FnMut(u32) -> u32,
    ) -> Option<(u32, Params)> {
        self.search::<false, _>(path, accept)
    }

    /// The same with the values of regexes, which the tree chooses by their beginnings alone.
    #[inline(never)]
    pub(super) fn find_with_regexes(
        &self,
        path: &str,
        accept: impl FnMut(u32) -> u32,
    ) -> Option<(u32, Params)> {
        self.search::<true, _>(path, accept)
    }

    #[inline]
    fn search<const REGEXES: bool, A: FnMut(u32) -> u32>(
        &self,
        path: &str,
        accept: A,
    ) -> Option<(u32, Params)> {
        let path = path.as_bytes();
        if path.len() > PATH_BYTES_MAX {
            return None;
        }
        let mut search: Search<'_, A, REGEXES> = Search {
            nodes: &self.nodes,
            regexes: &self.regexes,
            path,
            tail: tail(path),
            params: Params::default(),
            accept,
        };
        let value = search.descend(&self.nodes[0], path, 0);
        (value != NONE).then_some((value, search.params))
    }
}

/// Adds a branch without the first `led` bytes of its literal, and its descendants; returns its index.
fn add(nodes: &mut Vec<Node>, regexes: &mut Vec<u32>, branch: Branch, led: usize) -> u32 {
    let index = nodes.len();
    let only_literals =
        branch.params.is_empty() && branch.rest.is_none() && branch.regexes.is_none();
    regexes.push(branch.regexes.unwrap_or(NONE));
    nodes.push(Node {
        literal: branch.literal[led..].into(),
        first: 0,
        jumps: Box::default(),
        widest: None,
        after_widest: NONE,
        narrower: Box::default(),
        only_literals,
        only_jumps: only_literals && branch.literal.len() == led,
        rest: branch.rest.unwrap_or(NONE),
        value: branch.value.unwrap_or(NONE),
    });
    let params = branch.params.into_iter();
    let mut params: Vec<_> = params
        .map(|(kind, below)| (kind, add(nodes, regexes, below, 0)))
        .collect();
    if let Some((kind, after)) = params.pop() {
        let node = &mut nodes[index];
        (node.widest, node.after_widest) = (Some(kind), after);
        node.narrower = params.into();
    }

    let firsts = || branch.children.iter().map(|child| child.literal[0]);
    if let (Some(first), Some(last)) = (firsts().min(), firsts().max()) {
        let mut jumps = vec![NONE; usize::from(last - first) + 1];
        for child in branch.children {
            let byte = child.literal[0];
            jumps[usize::from(byte - first)] = add(nodes, regexes, child, 1);
        }
        nodes[index].first = first;
        nodes[index].jumps = jumps.into();
    }
    index as u32
}

/// One search of a path. Without regexes it has no code for them.
struct Search<'t, A, const REGEXES: bool> {
    nodes: &'t [Node],
    regexes: &'t [u32],
    path: &'t [u8],
    tail: u64,
    params: Params,
    accept: A,
}

impl<'t, A: FnMut(u32) -> u32, const REGEXES: bool> Search<'t, A, REGEXES> {
    /// Matches `node` with the `rest` of the path, after `count` parameters. Recursion stores the remaining
    /// alternatives; without alternatives the loop continues instead. A node can be reached at one
    /// position only, so a search visits each node at most once, however much the routes overlap.
    fn descend(&mut self, mut node: &'t Node, mut rest: &'t [u8], mut count: usize) -> u32 {
        loop {
            let Some(found) = follow_literals(self.nodes, node, rest) else {
                return NONE;
            };
            (node, rest) = (found.0, found.1);
            if rest.is_empty() && node.value != NONE {
                let value = (self.accept)(node.value);
                if value != NONE {
                    self.params.count = count as u16;
                    return value;
                }
            }
            if let Some((byte, after)) = rest.split_first()
                && let Some(child) = self.nodes.get(node.child(*byte) as usize)
            {
                let value = self.descend(child, after, count);
                if value != NONE {
                    return value;
                }
            }
            if REGEXES {
                let value = self.take_regex(node);
                if value != NONE {
                    return value;
                }
            }
            match self.take_param(node, rest, count) {
                Taken::Found(value) => return value,
                Taken::Follow(next, after) => (node, rest, count) = (next, after, count + 1),
            }
        }
    }

    /// Hands over the value of regexes at a node. Their beginnings have no parameters.
    fn take_regex(&mut self, node: &'t Node) -> u32 {
        // Nodes have no numbers, so that they fit into a cache line.
        let offset = ptr::from_ref(node).addr() - self.nodes.as_ptr().addr();
        let regexes = self.regexes[offset / size_of::<Node>()];
        if regexes == NONE {
            return NONE;
        }
        let value = (self.accept)(regexes);
        if value != NONE {
            self.params.count = 0;
        }
        value
    }

    /// Matches a segment with a parameter, or the rest of the path with a catch-all.
    #[inline]
    fn take_param(&mut self, node: &'t Node, rest: &'t [u8], count: usize) -> Taken<'t> {
        if let Some(kind) = node.widest {
            if !node.narrower.is_empty() {
                let value = self.take_narrower(&node.narrower, rest, count);
                if value != NONE {
                    return Taken::Found(value);
                }
            }
            if let Some(len) = kind.measure_end(rest, self.tail) {
                self.set_range(count, rest, len);
                let next = &self.nodes[node.after_widest as usize];
                if node.rest == NONE {
                    return Taken::Follow(next, &rest[len..]);
                }
                let value = self.descend(next, &rest[len..], count + 1);
                if value != NONE {
                    return Taken::Found(value);
                }
            }
        }
        if node.rest == NONE {
            return Taken::Found(NONE);
        }
        let value = (self.accept)(node.rest);
        if value != NONE {
            self.set_range(count, rest, rest.len());
            self.params.count = count as u16 + 1;
        }
        Taken::Found(value)
    }

    /// Matches a segment with one of these parameters, if the rest of the path matches as well.
    #[inline(never)]
    fn take_narrower(&mut self, params: &[(Kind, u32)], rest: &'t [u8], count: usize) -> u32 {
        for (kind, next) in params {
            if let Some(len) = kind.measure_end(rest, self.tail) {
                self.set_range(count, rest, len);
                let value = self.descend(&self.nodes[*next as usize], &rest[len..], count + 1);
                if value != NONE {
                    return value;
                }
            }
        }
        NONE
    }

    /// Stores the first `len` bytes of `rest` as parameter `index`.
    #[inline]
    fn set_range(&mut self, index: usize, rest: &[u8], len: usize) {
        let start = self.path.len() - rest.len();
        self.params.ranges[index] = (start as u16, (start + len) as u16);
    }
}

/// The result of matching a parameter.
enum Taken<'t> {
    /// The search ends with a value, or without.
    Found(u32),
    /// The only remaining alternative.
    Follow(&'t Node, &'t [u8]),
}

impl Node {
    #[inline]
    fn child(&self, byte: u8) -> u32 {
        let offset = usize::from(byte.wrapping_sub(self.first));
        self.jumps.get(offset).copied().unwrap_or(NONE)
    }
}

/// Follows literals to a node with parameters, or to the end of the path.
#[inline]
fn follow_literals<'t>(
    nodes: &'t [Node],
    mut node: &'t Node,
    mut rest: &'t [u8],
) -> Option<(&'t Node, &'t [u8])> {
    loop {
        if !node.only_jumps {
            if !node.literal.is_empty() {
                rest = after_literal(rest, &node.literal)?;
            }
            if !node.only_literals {
                return Some((node, rest));
            }
        }
        let Some((byte, after)) = rest.split_first() else {
            return Some((node, rest));
        };
        let offset = usize::from(byte.wrapping_sub(node.first));
        let child = *node.jumps.get(offset)?;
        node = nodes.get(child as usize)?;
        rest = after;
    }
}

/// The rest after `literal`, if `rest` starts with it.
#[inline]
fn after_literal<'p>(rest: &'p [u8], literal: &[u8]) -> Option<&'p [u8]> {
    let (front, after) = rest.split_at_checked(literal.len())?;
    is_same(front, literal).then_some(after)
}

/// Equality of two slices of the same length. Literals are short, so comparing two overlapping words is
/// faster than a call.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() < 4 {
        a.iter().zip(b).all(|(a, b)| a == b)
    } else if a.len() < 8 {
        a.first_chunk::<4>() == b.first_chunk() && a.last_chunk::<4>() == b.last_chunk()
    } else if a.len() <= 16 {
        a.first_chunk::<8>() == b.first_chunk() && a.last_chunk::<8>() == b.last_chunk()
    } else {
        a == b
    }
}
