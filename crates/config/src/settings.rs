//! Settings of a route: its action, the allowed clients and methods, and the changes of messages.
//!
//! Each value has the place where it is written, which may be that of an enclosing route, of the site or of
//! `defaults`. Inherited values are shared.

use std::sync::Arc;

use crate::balance::TargetGroup;
use crate::compress::Compress;
use crate::method::Methods;
use crate::mirror::Mirror;
use crate::network_list::NetworkList;
use crate::policy::Policies;
use crate::shed::Importance;
use crate::span::Placed;
use crate::template::Template;
use crate::units::{StatusPattern, TimeLimit};
use crate::upgrade::Upgrades;

/// The settings of a route, including the inherited ones. `None` and empty lists are the defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The action. Its place is the value of `to`, `redirect`, `respond` or `files`.
    pub action: Placed<Action>,
    /// The only clients that are served; others get 403.
    pub allow: Option<Arc<Placed<NetworkList>>>,
    /// Clients that get 403.
    pub deny: Option<Arc<Placed<NetworkList>>>,
    /// The only methods; requests with others get 405. HEAD is among them where GET is.
    pub methods: Option<Placed<Methods>>,
    /// The most content of a request, in bytes.
    pub body_max: Option<Placed<u64>>,
    /// The most content of a request after its decompression, in bytes; by default none is decompressed.
    pub decompress: Option<Placed<u64>>,
    /// How long an upstream may take.
    pub timeouts: Timeouts,
    /// Changes of the fields of responses.
    pub headers: FieldRules,
    /// Changes of the fields of forwarded requests.
    pub request_headers: FieldRules,
    /// Pages for errors. An exact status is before its class.
    pub errors: Arc<[Arc<ErrorPage>]>,
    /// Whether the pages are for errors of the upstream, too; by default not.
    pub replace_errors: Option<Placed<bool>>,
    /// Whether its requests have lines in the access log; by default they have.
    pub access_log: Option<Placed<bool>>,
    /// Whether trailers of requests are forwarded; by default not.
    pub request_trailers: Option<Placed<bool>>,
    /// Which responses are compressed; by default those of files.
    pub compress: Option<Arc<Placed<Compress>>>,
    /// Protocols that clients may switch to; by default WebSockets.
    pub upgrade: Option<Arc<Placed<Upgrades>>>,
    /// The rank of its requests where an upstream sheds load.
    pub importance: Option<Placed<Importance>>,
    /// Another upstream that gets copies of its requests.
    pub mirror: Option<Arc<Placed<Mirror>>>,
    /// Decisions on requests before the action.
    pub policies: Policies,
}

/// Settings of a site for responses that are not of a route: to paths without a route, and redirects to its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrouted {
    /// Changes of their fields.
    pub headers: FieldRules,
    /// Pages for errors. An exact status is before its class.
    pub errors: Arc<[Arc<ErrorPage>]>,
    /// Those of their policies that say something about responses to paths without a route: `cors` and `security_headers`.
    pub policies: Policies,
}

/// The action of a route: it answers a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `to`: an upstream.
    Proxy(Arc<Proxy>),
    /// `redirect`: another URL.
    Redirect(Arc<Redirect>),
    /// `respond`: a fixed response.
    Respond(Arc<Respond>),
    /// `files` without `to`: the files of a folder.
    Files(Arc<Files>),
}

/// A folder whose files are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The folder. The place is that of `files`.
    pub folder: Placed<String>,
    /// The number of segments of a path that it stands for.
    pub segments: usize,
    /// Bytes of the normalised path behind them that it stands for as well, the slash included.
    pub bytes: usize,
    /// Files that stand for their folder; `None` is `index.html`.
    pub index: Option<Arc<Placed<Vec<String>>>>,
    /// Endings that files may have which a path lacks, each with its dot.
    pub extensions: Option<Arc<Placed<Vec<String>>>>,
    /// The file for pages that there are none of: a path beneath the folder, without a slash at its beginning.
    pub fallback: Option<Placed<String>>,
    /// Whether files are sent whose names begin with a dot; by default not.
    pub hidden: Option<Placed<bool>>,
    /// Whether folders without an index are listed; by default not.
    pub list: Option<Placed<bool>>,
    /// Which symbolic links are followed; by default those inside.
    pub symlinks: Option<Placed<SymbolicLinks>>,
}

/// Which symbolic links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SymbolicLinks {
    /// Relative ones that stay in the folder.
    #[default]
    Inside,
    /// All.
    Follow,
    /// None.
    Deny,
}

/// An upstream, and the changes of a request for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Its URL, which has no path; of several servers that of the first. The place is that of `to`, or of the server in
    /// `upstream`.
    pub to: Placed<String>,
    /// The name of the upstream, if it has one and is the only target.
    pub name: Option<Arc<str>>,
    /// Files that are looked for first: the upstream gets requests without one.
    pub files: Option<Arc<Files>>,
    /// All servers, if there are several.
    pub group: Option<Arc<TargetGroup>>,
    /// The path that it receives; `None` is the client's.
    pub path: Option<Arc<Placed<Template>>>,
    /// The host that it receives; `None` is the client's.
    pub host: Option<Placed<ForwardedHost>>,
    /// Whether the path is forwarded byte for byte; by default not.
    pub raw_path: Option<Placed<bool>>,
    /// How much content of a request is received before the upstream is connected to; by default it flows.
    pub buffer_request: Option<Placed<RequestBuffer>>,
    /// How often a request is sent again that it may have processed; `None` is once.
    pub retries: Option<Placed<u8>>,
    /// The version of the PROXY header that its connections begin with. The place is in `upstream`.
    pub proxy_protocol: Option<Placed<ProxyProtocol>>,
    /// Limits of its responses. The place is in `upstream`.
    pub limits: Option<Placed<ResponseLimits>>,
}

/// How much content of a request is received before it is sent on, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestBuffer {
    /// In memory.
    pub memory: u64,
    /// Altogether, what is beyond `memory` in a temporary file; `None` is without a file.
    pub file: Option<u64>,
}

impl RequestBuffer {
    /// The most content that a request may have.
    #[must_use]
    pub fn bytes_max(self) -> u64 {
        self.file.unwrap_or(self.memory)
    }
}

/// Limits of the responses of an upstream; `None` are those of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct ResponseLimits {
    /// Bytes of the fields.
    pub head_max: Option<u64>,
    /// The number of fields.
    pub fields_max: Option<u64>,
}

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// The host of forwarded requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForwardedHost {
    /// The client's.
    Keep,
    /// That of the upstream's URL.
    Upstream,
    /// This one, perhaps with a port.
    Name(String),
}

/// A redirect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// Scheme and host; `None` where the target is a path.
    pub origin: Option<RedirectOrigin>,
    /// Path, query and fragment. The path may lack its slash, and the whole may be empty.
    pub target: Template,
    /// Whether the target has a query of its own: otherwise the client's is kept.
    pub has_query: bool,
}

/// Scheme, host and port of a redirect's target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedirectOrigin {
    /// This text, such as `https://new.example:8443`.
    Text(String),
    /// The host of the request between these texts: `https://` and, for example, `:8443`.
    RequestHost {
        /// The scheme with `://`.
        before: String,
        /// Empty, or a colon and a port.
        after: String,
    },
}

/// A fixed response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Respond {
    /// 200 to 599.
    pub status: u16,
    /// The content.
    pub body: RespondBody,
    /// Its fields, before the route's `headers`.
    pub headers: FieldRules,
}

/// The content of a fixed response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RespondBody {
    /// None.
    Empty,
    /// A text.
    Text(Template),
    /// The content of a file.
    File(Placed<String>),
}

/// How long an upstream may take. `None` is the default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timeouts {
    /// To connect.
    pub connect: Option<Placed<TimeLimit>>,
    /// From the request to the head of the response, of all attempts together.
    pub request: Option<Placed<TimeLimit>>,
    /// From the request to the head of the response, of one attempt.
    pub response: Option<Placed<TimeLimit>>,
    /// Silence within the content of the response.
    pub idle: Option<Placed<TimeLimit>>,
}

/// Changes of fields, each name once, sorted by name.
pub type FieldRules = Arc<[Arc<FieldRule>]>;

/// The change of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldRule {
    /// The name in lower case.
    pub name: String,
    /// The change.
    pub change: Placed<FieldChange>,
}

/// A change of a field. If a placeholder of the new value has no value, the field is removed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FieldChange {
    /// These lines replace those that there are.
    Set(Vec<Template>),
    /// This line, if the message has none.
    Default(Template),
    /// A further line.
    Add(Template),
    /// No line.
    Remove,
}

/// The page for errors of a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorPage {
    /// The statuses.
    pub status: StatusPattern,
    /// The file; `None` is the page that is built in.
    pub file: Option<Placed<String>>,
}
