//! Routes of one site: keys in the tree, and the choice by method.

use blitz_http::Method;

use super::explain::Verdict;
use super::key::{PathPattern, Places, RouteKey};
use super::methods::{Methods, bit};
use super::rank::ranked;
use super::tree::{Branch, NONE, PATH_BYTES_MAX, Params, Tree};

/// All methods.
const ALL: u16 = u16::MAX;

/// The routes of a site. It has no values, so that all cores can share it: a route is its position in the list of
/// keys.
#[derive(Debug)]
pub struct RouteTable {
    tree: Tree,
    /// The routes at each place of the tree by rank, from the number that the tree has to one that is the last.
    entries: Box<[Entry]>,
    keys: Box<[RouteKey]>,
    /// All requests get the only route.
    has_one_for_all: bool,
    /// The most segments of a key.
    segments_max: usize,
}

/// A route at a place of the tree.
#[derive(Debug, Clone, Copy)]
struct Entry {
    route: u32,
    /// Bits of methods.
    methods: u16,
    /// The number of parameters of the key, so that a search needs nothing else of it.
    params: u8,
    /// Methods that are not known ones have to be compared by name.
    has_names: bool,
    is_last: bool,
}

/// A route that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteMatch {
    /// The position of its key.
    pub route: usize,
    /// Those of the pattern, and then what follows them if the path goes on.
    ranges: Params,
    params: usize,
}

impl RouteTable {
    /// The table of these keys. Of keys that [clash](RouteKey::clashes) the first one is found.
    #[must_use]
    pub fn new(keys: Vec<RouteKey>) -> RouteTable {
        let order = ranked(&keys);
        let methods = method_bits(&keys, &order);
        let mut root = Branch::default();
        let mut places: Vec<Vec<Entry>> = Vec::new();
        // By rank, so that the routes of each place are in this order.
        for route in order {
            let key = &keys[route];
            let entry = Entry {
                route: route as u32,
                methods: methods[route],
                params: key.path.params(),
                has_names: key.methods.is_some(),
                is_last: true,
            };
            let Places { at, below, regexes } = key.path.places();
            for tokens in [at, below].into_iter().flatten() {
                add(root.slot(&tokens), &mut places, entry);
            }
            if let Some(beginning) = regexes {
                add(root.regexes(beginning), &mut places, entry);
            }
        }
        let starts = places.iter().scan(0, |next, entries| {
            let start = *next;
            *next += entries.len() as u32;
            Some(start)
        });
        root.renumber(&starts.collect::<Vec<_>>());
        let for_all =
            |key: &RouteKey| key.methods.is_none() && key.path == PathPattern::everything();
        RouteTable {
            has_one_for_all: matches!(&*keys, [key] if for_all(key)),
            tree: Tree::pack(root),
            entries: places.concat().into(),
            segments_max: keys
                .iter()
                .map(|key| key.path.segments().count())
                .max()
                .unwrap_or(0),
            keys: keys.into(),
        }
    }

    /// The route with the highest rank that matches. The path has to be normalised (rule 10); `token` is the name of
    /// [`Method::Other`]. Never allocates, but for the working memory of regexes.
    ///
    /// Finds nothing if a path is longer than 65,535 bytes and ends there within a segment that a key may have.
    #[inline]
    #[must_use]
    pub fn find(&self, path: &str, method: Method, token: &str) -> Option<RouteMatch> {
        let decisive = self.decisive(path)?;
        let (entry, ranges) = if self.tree.has_regexes() {
            let accept = |place| self.accepted_with_regexes(place, path, method, token);
            self.tree.find_with_regexes(decisive, accept)?
        } else {
            let accept = |place: u32| self.accepted(place, method, token);
            self.tree.find_accepted(decisive, accept)?
        };
        let entry = &self.entries[entry as usize];
        Some(RouteMatch {
            route: entry.route as usize,
            ranges,
            params: usize::from(entry.params),
        })
    }

    /// Whether there is one key only, which matches all requests.
    #[inline]
    #[must_use]
    pub fn has_one_for_all(&self) -> bool {
        self.has_one_for_all
    }

    /// The same, only the position of its key.
    #[inline]
    #[must_use]
    pub fn position(&self, path: &str, method: Method, token: &str) -> Option<usize> {
        match self.has_one_for_all {
            true => Some(0),
            false if self.keys.is_empty() => None,
            false => self.find(path, method, token).map(|found| found.route),
        }
    }

    /// The path, or as many whole segments of it as the tree can search. More than the keys have are enough: then no
    /// key ends there, and none has a parameter for what follows.
    #[inline]
    fn decisive<'p>(&self, path: &'p str) -> Option<&'p str> {
        match path.len() <= PATH_BYTES_MAX {
            true => Some(path),
            false => self.decisive_start(path),
        }
    }

    #[cold]
    fn decisive_start<'p>(&self, path: &'p str) -> Option<&'p str> {
        let bytes = &path.as_bytes()[..PATH_BYTES_MAX];
        let slash = bytes.iter().rposition(|byte| *byte == b'/')?;
        let start = &path[..=slash];
        (start.matches('/').count() > self.segments_max).then_some(start)
    }

    /// The first entry of a place that takes this method, or [`NONE`].
    #[inline]
    fn accepted(&self, place: u32, method: Method, token: &str) -> u32 {
        let mut at = place as usize;
        loop {
            let entry = &self.entries[at];
            if self.takes(entry, method, token) {
                return at as u32;
            }
            if entry.is_last {
                return NONE;
            }
            at += 1;
        }
    }

    /// The same where an entry may be a regex, for the whole path.
    fn accepted_with_regexes(&self, place: u32, path: &str, method: Method, token: &str) -> u32 {
        let start = place as usize;
        for (at, entry) in self.entries.iter().enumerate().skip(start) {
            if self.takes(entry, method, token) && self.matches_regex(entry, path) {
                return at as u32;
            }
            if entry.is_last {
                break;
            }
        }
        NONE
    }

    /// Whether a path, which has led to this entry, matches its regex, if it has one.
    fn matches_regex(&self, entry: &Entry, path: &str) -> bool {
        let regex = self.keys[entry.route as usize].path.as_regex();
        regex.is_none_or(|regex| regex.matches(path))
    }

    #[inline]
    fn takes(&self, entry: &Entry, method: Method, token: &str) -> bool {
        entry.methods & bit(method) != 0
            && (method != Method::Other || !entry.has_names || self.names_other(entry, token))
    }

    #[cold]
    fn names_other(&self, entry: &Entry, token: &str) -> bool {
        let methods = self.keys[entry.route as usize].methods.as_ref();
        methods.is_some_and(|methods| methods.names_other(token))
    }

    /// All routes of a request by rank, those that match first; then the others, each with the reason.
    /// [`RouteTable::find`] returns the first one if that applies.
    #[must_use]
    pub fn explain(&self, path: &str, method: Method, token: &str) -> Vec<(usize, Verdict)> {
        let (mut matching, mut refusing) = (Vec::new(), Vec::new());
        // The search hands over all places of the path, because none is accepted.
        let collect = |place: u32| {
            let entries = &self.entries[place as usize..];
            let last = entries.iter().position(|entry| entry.is_last);
            let entries = entries[..=last.unwrap_or_default()].iter();
            for entry in entries.filter(|entry| self.matches_regex(entry, path)) {
                let takes = self.takes(entry, method, token);
                let list = if takes { &mut matching } else { &mut refusing };
                list.push(entry.route as usize);
            }
            NONE
        };
        let decisive = self.decisive(path).unwrap_or_default();
        let found = match self.tree.has_regexes() {
            true => self.tree.find_with_regexes(decisive, collect),
            false => self.tree.find_accepted(decisive, collect),
        };
        debug_assert!(found.is_none(), "no place was accepted");
        let others = self.ranked().into_iter();
        let others: Vec<usize> = others
            .filter(|route| !matching.contains(route) && !refusing.contains(route))
            .collect();
        let best = matching.first().copied();
        let with = |routes: Vec<usize>, verdict: Verdict| {
            routes.into_iter().map(move |route| (route, verdict))
        };
        let mut all: Vec<(usize, Verdict)> = with(matching, Verdict::Applies).collect();
        for (route, verdict) in all.iter_mut().skip(1) {
            *verdict = Verdict::Behind(best.unwrap_or(*route));
        }
        all.extend(with(refusing, Verdict::OtherMethods));
        all.extend(with(others, Verdict::OtherPaths));
        all
    }

    /// The key of a route.
    #[must_use]
    pub fn key(&self, route: usize) -> &RouteKey {
        &self.keys[route]
    }

    /// The keys in the order in which they were given.
    #[must_use]
    pub fn keys(&self) -> &[RouteKey] {
        &self.keys
    }

    /// The positions of all keys by rank.
    #[must_use]
    pub fn ranked(&self) -> Vec<usize> {
        ranked(&self.keys)
    }
}

/// Adds an entry to the place of a slot, which may be new.
fn add(slot: &mut Option<u32>, places: &mut Vec<Vec<Entry>>, entry: Entry) {
    let place = *slot.get_or_insert(places.len() as u32) as usize;
    if place == places.len() {
        places.push(Vec::new());
    }
    if let Some(before) = places[place].last_mut() {
        before.is_last = false;
    }
    places[place].push(entry);
}

impl RouteMatch {
    /// The value of a parameter in the path that was given to [`RouteTable::find`], still percent-encoded.
    #[must_use]
    pub fn param<'p>(&self, path: &'p str, index: usize) -> Option<&'p str> {
        let range = (index < self.params).then_some(index)?;
        self.ranges.get(path, range)
    }

    /// The rest of the path after that of the route: empty, or it begins with a slash; for `/a*` it follows the text; empty
    /// for a regex.
    #[must_use]
    pub fn rest<'p>(&self, path: &'p str) -> &'p str {
        let Some(start) = self.ranges.start(self.params) else {
            return "";
        };
        let has_slash = path[..start].ends_with('/');
        &path[start - usize::from(has_slash)..]
    }
}

/// The bits of the methods of each key; GET includes HEAD, unless a key of the same path has HEAD.
fn method_bits(keys: &[RouteKey], order: &[usize]) -> Vec<u16> {
    let own = |route: usize| keys[route].methods.as_ref().map_or(ALL, Methods::bits);
    let has_head = |route: &usize| own(*route) & bit(Method::Head) != 0;
    let mut bits: Vec<u16> = (0..keys.len()).map(own).collect();
    let same_path = |a: &usize, b: &usize| keys[*a].path.cmp_rank(&keys[*b].path).is_eq();
    for group in order.chunk_by(same_path) {
        let named = group.iter().filter(|route| keys[**route].methods.is_some());
        let with_head: Vec<&usize> = named.filter(|route| has_head(route)).collect();
        for &route in group {
            // Regexes with the same beginning match different paths.
            let is_same = |other: &&usize| keys[**other].path.has_regex_of(&keys[route].path);
            if bits[route] & bit(Method::Get) != 0 && !with_head.iter().any(is_same) {
                bits[route] |= bit(Method::Head);
            }
        }
    }
    bits
}
