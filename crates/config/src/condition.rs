//! Conditions of a variant: the properties that a request needs for a block `when` to apply.

use crate::method::Methods;
use crate::network::Network;

/// The conditions of a block `when`. All of them must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Conditions {
    /// Fields of the request, by their names in lower case.
    pub headers: Vec<(String, Match)>,
    /// Parameters of the query, by their decoded names.
    pub queries: Vec<(String, Match)>,
    /// Cookies by their names.
    pub cookies: Vec<(String, Match)>,
    /// The address of the client.
    pub client: Option<ClientMatch>,
    /// The only methods. HEAD is among them where GET is.
    pub methods: Option<Methods>,
    /// Whether the request is a call of gRPC or gRPC-Web.
    pub grpc: Option<bool>,
    /// Whether the request opens a WebSocket.
    pub websocket: Option<bool>,
}

/// A condition on a field, a query parameter or a cookie. If the name occurs several times, one value must match.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Match {
    /// Whether the opposite is demanded: then a request without any matches too.
    pub is_negated: bool,
    /// The values that match.
    pub value: ValueMatch,
}

/// The values that match.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ValueMatch {
    /// Every value: `true`, or negated `false`.
    Any,
    /// This text.
    Exact(String),
    /// Every value that begins with this text: `"text*"`.
    Prefix(String),
    /// Every value in which the regular expression finds a match: `"~regex"`.
    Regex(String),
}

/// The clients of a condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ClientMatch {
    /// The client is in one of these; all clients are if there is none.
    pub inside: Vec<Network>,
    /// The client is in none of these: `"!10.0.0.0/8"`.
    pub outside: Vec<Network>,
}

impl Conditions {
    /// Whether the address of the client is the only condition.
    pub(crate) fn is_client_only(&self) -> bool {
        let without_client = Conditions {
            client: None,
            ..self.clone()
        };
        self.client.is_some() && without_client == Conditions::default()
    }
}

/// The size of a compiled regular expression, in bytes.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// Compiles a regular expression for values, which need not be UTF-8.
///
/// # Errors
/// The text is no regular expression, or takes more than a MiB.
pub fn regex(text: &str) -> Result<regex::bytes::Regex, regex::Error> {
    let mut builder = regex::bytes::RegexBuilder::new(text);
    builder.size_limit(REGEX_BYTES_MAX).build()
}
