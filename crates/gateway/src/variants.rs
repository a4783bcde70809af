//! Variants of a route: which blocks `when` apply to a request.

use std::borrow::Cow;
use std::sync::Arc;

use blitz_config::{
    ClientMatch, Conditions, Match, Methods, Network, Placed, ValueMatch, combination, regex,
};
use blitz_http::{Fields, Method, Peer, RequestHead};
use blitz_site::{ClientAddress, cookies};
use regex::bytes::Regex;

use crate::grpc::Call;
use crate::route::Route;
use crate::routes::method_of;
use crate::rules::client_of;
use crate::trusted::TrustedProxies;
use crate::websocket::WebSocket;

/// The variants of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variants {
    /// The blocks of each level, the innermost first. Routes below one level share them.
    levels: Box<[Arc<[Block]>]>,
    /// The route for each combination of blocks but that without any, by their [numbers](combination).
    pub(crate) routes: Box<[Route]>,
}

/// The conditions of a block, all of which must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    headers: Box<[Condition]>,
    queries: Box<[Condition]>,
    cookies: Box<[Condition]>,
    client: Option<ClientMatch>,
    methods: Option<Methods>,
    grpc: Option<bool>,
    websocket: Option<bool>,
}

/// A condition on the values with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    name: Box<str>,
    is_negated: bool,
    value: Value,
}

#[derive(Debug, Clone)]
enum Value {
    Any,
    Exact(Box<[u8]>),
    Prefix(Box<[u8]>),
    Regex(Box<Regex>),
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Any, Value::Any) => true,
            (Value::Exact(a), Value::Exact(b)) | (Value::Prefix(a), Value::Prefix(b)) => a == b,
            (Value::Regex(a), Value::Regex(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

impl Eq for Value {}

/// The request that conditions are about.
pub(crate) struct Subject<'a> {
    pub(crate) head: &'a RequestHead,
    /// As [`method_of`] gives it, or as a server may take it.
    pub(crate) method: (Method, &'a str),
    pub(crate) client: ClientAddress,
}

impl<'a> Subject<'a> {
    pub(crate) fn of(head: &'a RequestHead, peer: &Peer, trusted: &TrustedProxies) -> Subject<'a> {
        Subject {
            head,
            method: method_of(head),
            client: client_of(&head.fields, peer, trusted),
        }
    }
}

impl Variants {
    pub(crate) fn new(levels: Vec<Arc<[Block]>>, routes: Vec<Route>) -> Variants {
        Variants {
            levels: levels.into(),
            routes: routes.into(),
        }
    }

    /// The number of the combination of blocks that apply: 0 if none does.
    pub(crate) fn combination(&self, subject: &Subject<'_>) -> usize {
        combination(self.levels.iter().map(|level| {
            let block = level.iter().position(|block| block.applies(subject));
            (block, level.len())
        }))
    }
}

impl Route {
    /// The variant of the route for a request: itself, if no block applies.
    pub(crate) fn variant(&self, subject: &Subject<'_>) -> &Route {
        match &self.variants {
            None => self,
            Some(variants) => match variants.combination(subject).checked_sub(1) {
                None => self,
                Some(at) => &variants.routes[at],
            },
        }
    }

    /// Gives an app the variants of the route that encloses it: the app answers where the route itself would.
    pub(crate) fn inherit_variants(&mut self, outer: &Route) {
        self.variants = outer.variants.clone();
        let (name, action) = (self.name.clone(), self.action.clone());
        for variant in self.variants_mut() {
            variant.name = name.clone();
            if variant.action == outer.action {
                variant.action = action.clone();
                variant.written = None;
            }
        }
    }

    /// Its variants, in the order of the settings of [`blitz_config::Variants`].
    pub fn variants_mut(&mut self) -> impl Iterator<Item = &mut Route> {
        self.variants
            .iter_mut()
            .flat_map(|variants| &mut variants.routes)
    }

    /// The route and its variants.
    pub(crate) fn with_variants(&self) -> impl Iterator<Item = &Route> {
        let variants = self.variants.iter();
        std::iter::once(self).chain(variants.flat_map(|variants| &variants.routes))
    }
}

impl Block {
    /// # Errors
    /// A text is no regular expression. The reader of the configuration reports it first.
    pub(crate) fn new(conditions: &Placed<Conditions>) -> Result<Block, regex::Error> {
        let conditions = &conditions.value;
        let all =
            |list: &[(String, Match)]| list.iter().map(Condition::new).collect::<Result<_, _>>();
        Ok(Block {
            headers: all(&conditions.headers)?,
            queries: all(&conditions.queries)?,
            cookies: all(&conditions.cookies)?,
            client: conditions.client.clone(),
            methods: conditions.methods,
            grpc: conditions.grpc,
            websocket: conditions.websocket,
        })
    }

    fn applies(&self, subject: &Subject<'_>) -> bool {
        let head = subject.head;
        let client = self.client.as_ref();
        client.is_none_or(|wanted| is_client(subject.client, wanted))
            && self
                .methods
                .is_none_or(|methods| takes(methods, subject.method))
            && self
                .grpc
                .is_none_or(|is_call| Call::may_be(head) == is_call)
            && self
                .websocket
                .is_none_or(|is_websocket| WebSocket::is_requested(head) == is_websocket)
            && self
                .headers
                .iter()
                .all(|condition| condition.holds(fields(&head.fields, &condition.name)))
            && self
                .queries
                .iter()
                .all(|condition| condition.holds(parameters(head, &condition.name)))
            && self.cookies.iter().all(|condition| {
                let cookies = cookies(&head.fields, &condition.name);
                condition.holds(cookies.map(Cow::Borrowed))
            })
    }
}

/// A client that is unknown is in no network.
fn is_client(client: ClientAddress, wanted: &ClientMatch) -> bool {
    let is_in = |networks: &[Network]| match client {
        ClientAddress::Address(address) => networks
            .iter()
            .any(|network| network.contains(Some(address))),
        ClientAddress::Unix => networks.iter().any(|network| network.contains(None)),
        ClientAddress::Unknown => false,
    };
    (wanted.inside.is_empty() || is_in(&wanted.inside)) && !is_in(&wanted.outside)
}

fn takes(methods: Methods, (method, token): (Method, &str)) -> bool {
    let name = match token {
        "" => method.as_str(),
        token => token,
    };
    methods.iter().any(|method| method.name() == name)
}

fn fields<'a>(fields: &'a Fields, name: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    fields.get_all(name).map(Cow::Borrowed)
}

/// The decoded values of a parameter of the query (URL Standard, section 5.1).
fn parameters<'a>(head: &'a RequestHead, name: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let query = head.query().unwrap_or_default();
    let pairs = form_urlencoded::parse(query.as_bytes());
    pairs
        .filter(move |(key, _)| key == name)
        .map(|(_, value)| match value {
            Cow::Borrowed(value) => Cow::Borrowed(value.as_bytes()),
            Cow::Owned(value) => Cow::Owned(value.into_bytes()),
        })
}

impl Condition {
    fn new((name, wanted): &(String, Match)) -> Result<Condition, regex::Error> {
        Ok(Condition {
            name: name.as_str().into(),
            is_negated: wanted.is_negated,
            value: match &wanted.value {
                ValueMatch::Any => Value::Any,
                ValueMatch::Exact(text) => Value::Exact(text.as_bytes().into()),
                ValueMatch::Prefix(text) => Value::Prefix(text.as_bytes().into()),
                ValueMatch::Regex(text) => Value::Regex(Box::new(regex(text)?)),
            },
        })
    }

    fn holds<'a>(&self, mut values: impl Iterator<Item = Cow<'a, [u8]>>) -> bool {
        let is_found = values.any(|value| match &self.value {
            Value::Any => true,
            Value::Exact(text) => **text == *value,
            Value::Prefix(text) => value.starts_with(text),
            Value::Regex(regex) => regex.is_match(&value),
        });
        is_found != self.is_negated
    }
}
