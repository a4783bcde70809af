//! `App`: what a server is told before it runs.

use std::sync::Arc;
use std::time::Duration;

use blitz_http::{IoChoice, Limits, Method, Status};

use crate::certificates::Certificates;
use crate::error::{Error, Result};
use crate::extract::Setup;
use crate::handler::{DynHandler, Handler, erase};
use crate::middleware::{DynMiddleware, Next};
use crate::outcome::{IntoOutcome, Outcome};
use crate::problem::Problem;
use crate::request::Request;
use crate::response::IntoResponse;
use crate::run::{self, Settings};
use crate::service::Service;
use crate::site::States;

/// Most bytes of content that extractors read whole, unless the app says otherwise.
const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A server in the making: routes, state, middleware, and where to listen.
///
/// ```no_run
/// use blitz::App;
///
/// fn main() -> blitz::Result {
///     App::new().get("/", || "Hello, World!").run()
/// }
/// ```
///
/// Where the program says nothing, the environment may: `BLITZ_LISTEN` (addresses, separated by
/// commas), `BLITZ_CORES` (a number) and `BLITZ_IO` (`auto`, `uring` or `epoll`). Without either,
/// it listens on `127.0.0.1:8080` and uses all cores.
///
/// Mistakes, such as two routes for the same paths, are reported by [`run`](App::run) or
/// [`build`](App::build) before anything is served.
#[must_use]
pub struct App {
    pub(crate) drafts: Vec<Draft>,
    pub(crate) layers: Vec<DynMiddleware>,
    pub(crate) fallback: DynHandler,
    pub(crate) states: States,
    pub(crate) body_bytes_max: usize,
    pub(crate) settings: Settings,
}

/// A route as it was given.
pub(crate) struct Draft {
    /// `None` is every method that has no route of its own.
    pub(crate) method: Option<Method>,
    pub(crate) pattern: String,
    pub(crate) handler: DynHandler,
    pub(crate) check: fn(&Setup<'_>) -> std::result::Result<(), String>,
    /// Those of the app it was nested with.
    pub(crate) layers: Vec<DynMiddleware>,
}

impl Default for App {
    fn default() -> App {
        App::new()
    }
}

/// Declares the methods of `App` that add a route.
macro_rules! route_methods {
    ($($function:ident $method:ident $name:literal)*) => {
        $(#[doc = concat!("Adds a route for `", $name, "`; see [`route`](App::route).")]
        pub fn $function<M, H: Handler<M>>(self, pattern: &str, handler: H) -> App {
            self.route(Method::$method, pattern, handler)
        })*
    };
}

impl App {
    /// An app without routes.
    pub fn new() -> App {
        App {
            drafts: Vec::new(),
            layers: Vec::new(),
            fallback: Box::new(|_| Outcome::Ready(Problem::new(Status::NOT_FOUND).into_response())),
            states: States::default(),
            body_bytes_max: BODY_BYTES_MAX,
            settings: Settings::default(),
        }
    }

    route_methods! {
        get Get "GET"
        post Post "POST"
        put Put "PUT"
        patch Patch "PATCH"
        delete Delete "DELETE"
    }

    /// Adds a route: a method, a [pattern](crate::router) and a handler.
    ///
    /// `HEAD` is answered by the route of `GET`, `OPTIONS` with the methods that the path has, and
    /// any other method with 405, unless there is a route for it.
    pub fn route<M, H: Handler<M>>(self, method: Method, pattern: &str, handler: H) -> App {
        self.draft(Some(method), pattern, handler)
    }

    /// Adds a route for all methods that have none of their own on this path.
    pub fn any<M, H: Handler<M>>(self, pattern: &str, handler: H) -> App {
        self.draft(None, pattern, handler)
    }

    /// Answers paths that no route matches; otherwise they are 404.
    pub fn fallback<M, H: Handler<M>>(mut self, handler: H) -> App {
        self.fallback = erase(handler);
        self
    }

    /// Adds all routes of another app below `prefix`. Its middleware stays around its routes only;
    /// its states join this app's; its fallback, addresses and limits do not count.
    pub fn nest(mut self, prefix: &str, app: App) -> App {
        let prefix = prefix.trim_end_matches('/');
        self.drafts.extend(app.drafts.into_iter().map(|mut draft| {
            draft.pattern.insert_str(0, prefix);
            draft.layers.splice(0..0, app.layers.iter().cloned());
            draft
        }));
        self.states.join(app.states);
        self
    }

    /// Puts a [middleware](crate::middleware) around everything this app answers, 404 and 405
    /// included. The first one added is the outermost.
    pub fn wrap<F, R, K>(mut self, middleware: F) -> App
    where
        F: Fn(Request, Next) -> R + Send + Sync + 'static,
        R: IntoOutcome<K>,
    {
        self.layers.push(Arc::new(move |request, next| {
            middleware(request, next).into_outcome()
        }));
        self
    }

    /// Sets a value that all cores share, for [`State<T>`](crate::extract::State).
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> App {
        let value = Arc::new(value);
        self.states.set(move || Arc::clone(&value));
        self
    }

    /// Gives each core a value of its own, for [`Local<T>`](crate::extract::Local).
    pub fn local<T: 'static>(mut self, make: impl Fn() -> T + Send + Sync + 'static) -> App {
        self.states.set(make);
        self
    }

    /// Most bytes of content that extractors such as `Json` read; beyond: 413. Default: 2 MiB.
    pub fn body_bytes_max(mut self, bytes: usize) -> App {
        self.body_bytes_max = bytes;
        self
    }

    /// Adds an address to listen on: `127.0.0.1:8080`, `[::1]:8080`, `:8080` for all interfaces,
    /// or `unix:/path`. With `h2c://` in front, HTTP/2 is all that is spoken there.
    pub fn listen(mut self, address: impl Into<String>) -> App {
        self.settings.listen.push(address.into());
        self
    }

    /// Adds an address to listen on for HTTPS, over HTTP/2 and HTTP/1.1 as the client likes. Each may
    /// have certificates of its own.
    pub fn listen_tls(mut self, address: impl Into<String>, certificates: Certificates) -> App {
        self.settings
            .listen_tls
            .push((address.into(), certificates));
        self
    }

    /// Number of cores to serve on; by default all that the process may use.
    pub fn cores(mut self, cores: usize) -> App {
        self.settings.cores = Some(cores);
        self
    }

    /// How to talk to the kernel; by default io_uring, or epoll where that is not allowed.
    pub fn io(mut self, choice: IoChoice) -> App {
        self.settings.io = Some(choice);
        self
    }

    /// Bounds and deadlines, in place of the defaults.
    pub fn limits(mut self, limits: Limits) -> App {
        self.settings.limits = limits;
        self
    }

    /// Value of the `Server` field; by default there is none.
    pub fn server_name(mut self, name: impl Into<String>) -> App {
        self.settings.server_name = Some(name.into());
        self
    }

    /// Lets clients in clear text switch to HTTP/2 with `Upgrade: h2c` (RFC 7540, section 3.2). By
    /// default they do not, because RFC 9113 removed it, and behind a proxy that forwards `Upgrade`
    /// the later requests of a switched connection pass the proxy's access rules. Clients of unix
    /// sockets and forwarded requests never switch.
    pub fn h2c_upgrade(mut self, is_allowed: bool) -> App {
        self.settings.h2c_upgrade = is_allowed;
        self
    }

    /// How long requests may go on after the signal to stop. Default: 30 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> App {
        self.settings.drain_timeout = timeout;
        self
    }

    /// Checks and packs everything, for whoever serves it.
    ///
    /// # Errors
    /// A pattern that cannot be used, two routes for the same paths, a state that is missing.
    pub fn build(self) -> Result<Service> {
        crate::build::site(self).map(|site| Service(Arc::new(site)))
    }

    /// As [`build`](App::build).
    ///
    /// # Errors
    /// As [`build`](App::build).
    pub fn into_service(self) -> Result<Service> {
        self.build()
    }

    /// Serves until a signal ends it: TERM and QUIT let running requests finish, INT does not. HUP
    /// reads [`Certificates`] again.
    ///
    /// # Errors
    /// What [`build`](App::build) finds, an address or a certificate that cannot be used, or a
    /// failing reactor.
    pub fn run(mut self) -> Result<(), Error> {
        let settings = std::mem::take(&mut self.settings);
        run::run(self.build()?, settings)
    }

    fn draft<M, H: Handler<M>>(mut self, method: Option<Method>, pattern: &str, handler: H) -> App {
        let (check, layers) = (H::check as fn(&Setup<'_>) -> _, Vec::new());
        let (pattern, handler) = (pattern.to_owned(), erase(handler));
        self.drafts.push(Draft {
            method,
            pattern,
            handler,
            check,
            layers,
        });
        self
    }
}
