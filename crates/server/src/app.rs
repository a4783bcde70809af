//! `App`: the routes and settings of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use blitz_host::certificates::Certificates;
use blitz_http::{IoChoice, Limits, Method, Status};

use crate::app_data::States;
use crate::error::{Error, Result};
use crate::extract::Setup;
use crate::files::{self, Files};
use crate::handler::{Handler, erase};
use crate::outcome::{IntoOutcome, Outcome};
use crate::policy::{AppPolicy, Kind};
use crate::problem::Problem;
use crate::request::Request;
use crate::response::IntoResponse;
use crate::run::{self, AppSettings};
use crate::service::Service;
use crate::site::{DynHandler, DynMiddleware, Next};

/// Counts the policies of a process, so that each has counts of its own.
static POLICIES: AtomicU64 = AtomicU64::new(0);

/// Default for the most bytes of content that extractors buffer.
const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The builder of a server: routes, states, middleware, and addresses to listen on.
///
/// ```no_run
/// use blitz::App;
///
/// fn main() -> blitz::Result {
///     App::new().get("/", || "Hello, World!").run()
/// }
/// ```
///
/// Settings that the program does not set are taken from environment variables: `BLITZ_LISTEN`
/// (addresses, separated by commas), `BLITZ_CORES` (a number) and `BLITZ_IO` (`auto`, `uring` or
/// `epoll`). Without either, the server listens on `127.0.0.1:8080` and uses all cores.
///
/// [`run`](App::run) and [`build`](App::build) report mistakes, such as two routes for the same paths,
/// before the server accepts connections.
#[must_use]
pub struct App {
    pub(crate) drafts: Vec<RouteDraft>,
    pub(crate) layers: Vec<DynMiddleware>,
    pub(crate) policies: Vec<Kind>,
    /// The first mistake in a policy or in files.
    pub(crate) mistake: Option<Error>,
    pub(crate) fallback: DynHandler,
    pub(crate) states: States,
    pub(crate) body_bytes_max: usize,
    pub(crate) settings: AppSettings,
}

/// A route before the app is built.
pub(crate) struct RouteDraft {
    /// `None` means every method without a route of its own.
    pub(crate) method: Option<Method>,
    pub(crate) pattern: String,
    /// The prefix without a slash, for the route `/` of a nested app.
    pub(crate) nested_root: Option<String>,
    pub(crate) handler: DynHandler,
    pub(crate) check: fn(&Setup<'_>) -> std::result::Result<(), String>,
    /// The middleware of the nested app that it comes from.
    pub(crate) layers: Vec<DynMiddleware>,
    /// The policies of that app.
    pub(crate) policies: Vec<Kind>,
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
            policies: Vec::new(),
            mistake: None,
            fallback: Box::new(|_| Outcome::Ready(Problem::new(Status::NOT_FOUND).into_response())),
            states: States::default(),
            body_bytes_max: BODY_BYTES_MAX,
            settings: AppSettings::default(),
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
    /// For methods without a route, the route of `GET` serves `HEAD`, the response to `OPTIONS` lists the allowed
    /// methods, and any other method is a 405.
    pub fn route<M, H: Handler<M>>(self, method: Method, pattern: &str, handler: H) -> App {
        self.draft(Some(method), pattern, handler)
    }

    /// Adds a route for all methods without a route of their own on this path.
    pub fn any<M, H: Handler<M>>(self, pattern: &str, handler: H) -> App {
        self.draft(None, pattern, handler)
    }

    /// Sends the files of a folder for paths below `prefix`, by the code of the [gateway](Files). Other routes come first: they
    /// are more specific. A prefix without a slash is redirected to that with one.
    ///
    /// ```no_run
    /// use blitz::{App, Files};
    ///
    /// # fn main() -> blitz::Result {
    /// App::new().files("/docs", Files::new("target/doc")).run()
    /// # }
    /// ```
    pub fn files(mut self, prefix: &str, files: Files) -> App {
        let prefix = prefix.trim_end_matches('/');
        match files.folder() {
            Ok(folder) => self.drafts.push(RouteDraft {
                method: Some(Method::Get),
                pattern: format!("{prefix}/{}", files::PARAMETER),
                nested_root: Some(prefix.to_owned()),
                handler: files::handler(Arc::new(folder)),
                check: |_| Ok(()),
                layers: Vec::new(),
                policies: Vec::new(),
            }),
            Err(error) => {
                self.mistake.get_or_insert(error);
            }
        }
        self
    }

    /// Sets the handler for paths that no route matches; the default response is 404.
    pub fn fallback<M, H: Handler<M>>(mut self, handler: H) -> App {
        self.fallback = erase(handler);
        self
    }

    /// Adds all routes of another app below `prefix`. The other app's middleware applies to its routes
    /// only, and so do its [policies](App::policy); its states are added to this app's; its fallback, addresses and limits are ignored.
    ///
    /// Its route `/` also matches the prefix without a slash, unless there is a route for that path:
    ///
    /// ```
    /// use blitz::App;
    ///
    /// let admin = App::new().get("/", || "matches /admin and /admin/");
    /// # App::new().nest("/admin", admin).build().unwrap();
    /// ```
    pub fn nest(mut self, prefix: &str, app: App) -> App {
        let prefix = prefix.trim_end_matches('/');
        self.drafts.extend(app.drafts.into_iter().map(|mut draft| {
            match &mut draft.nested_root {
                Some(path) => path.insert_str(0, prefix),
                None if draft.pattern == "/" && !prefix.is_empty() => {
                    draft.nested_root = Some(prefix.to_owned());
                }
                None => {}
            }
            draft.pattern.insert_str(0, prefix);
            draft.layers.splice(0..0, app.layers.iter().cloned());
            draft.policies.splice(0..0, app.policies.iter().cloned());
            draft
        }));
        if self.mistake.is_none() {
            self.mistake = app.mistake;
        }
        self.states.join(app.states);
        self
    }

    /// Adds a [policy](crate::policy) to all routes of this app, including 404 and 405. Policies decide in a fixed order,
    /// before any middleware. A second one of the same kind replaces the first, and one of a nested app that of the outer
    /// app. A mistake in it is an error of [`build`](App::build).
    pub fn policy(mut self, policy: impl Into<AppPolicy>) -> App {
        match policy.into().0 {
            Ok(kind) => {
                let place = POLICIES.fetch_add(1, Ordering::Relaxed);
                self.policies.push(kind.placed(&format!("app {place}")));
            }
            Err(error) => {
                self.mistake.get_or_insert(error);
            }
        }
        self
    }

    /// Adds a [middleware](crate::middleware) to all routes of this app, including 404 and 405. The first
    /// one added is the outermost.
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

    /// Sets a state that all cores share, for [`State<T>`](crate::extract::State).
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> App {
        let value = Arc::new(value);
        self.states.set(move || Arc::clone(&value));
        self
    }

    /// Sets a state of which each core has its own, for [`Local<T>`](crate::extract::Local).
    pub fn local<T: 'static>(mut self, make: impl Fn() -> T + Send + Sync + 'static) -> App {
        self.states.set(make);
        self
    }

    /// Sets the most bytes of content that extractors such as `Json` read; larger content is a 413.
    /// Default: 2 MiB.
    pub fn body_bytes_max(mut self, bytes: usize) -> App {
        self.body_bytes_max = bytes;
        self
    }

    /// Adds an address to listen on: `127.0.0.1:8080`, `[::1]:8080`, `:8080` for all interfaces,
    /// or `unix:/path`. With the prefix `h2c://` the listener accepts only HTTP/2.
    pub fn listen(mut self, address: impl Into<String>) -> App {
        self.settings.listen.push(address.into());
        self
    }

    /// Adds an address to listen on for HTTPS; ALPN negotiates HTTP/2 or HTTP/1.1, and HTTP/3 is served at the same
    /// port over UDP. Each address may have its own certificates.
    ///
    /// ```no_run
    /// use blitz::{App, Certificates};
    ///
    /// fn main() -> blitz::Result {
    ///     let certificates = Certificates::from_files("site.pem", "site.key");
    ///     App::new()
    ///         .get("/", || "Hello, World!")
    ///         .listen_tls(":443", certificates)
    ///         .run()
    /// }
    /// ```
    pub fn listen_tls(mut self, address: impl Into<String>, certificates: Certificates) -> App {
        self.settings
            .listen_tls
            .push((address.into(), certificates));
        self
    }

    /// Sets whether addresses for HTTPS also serve HTTP/3, which they do by default.
    pub fn http3(mut self, is_served: bool) -> App {
        self.settings.http3 = is_served;
        self
    }

    /// Sets the number of cores; the default is all that the process may use.
    pub fn cores(mut self, cores: usize) -> App {
        self.settings.cores = Some(cores);
        self
    }

    /// Sets the I/O driver; the default is io_uring, or epoll if the kernel does not allow io_uring.
    pub fn io(mut self, choice: IoChoice) -> App {
        self.settings.io = Some(choice);
        self
    }

    /// Replaces the default limits and timeouts.
    pub fn limits(mut self, limits: Limits) -> App {
        self.settings.limits = limits;
        self
    }

    /// Sets the value of the `Server` field; by default responses have none.
    pub fn server_name(mut self, name: impl Into<String>) -> App {
        self.settings.server_name = Some(name.into());
        self
    }

    /// Allows clear-text clients to switch to HTTP/2 with `Upgrade: h2c` (RFC 7540, section 3.2). Off by
    /// default, because RFC 9113 removed it, and because behind a proxy that forwards `Upgrade` the later
    /// requests of a switched connection bypass the proxy's access rules. It never applies to unix
    /// sockets and forwarded requests.
    pub fn h2c_upgrade(mut self, is_allowed: bool) -> App {
        self.settings.h2c_upgrade = is_allowed;
        self
    }

    /// Sets how long requests may continue after the signal to stop. Default: 30 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> App {
        self.settings.drain_timeout = timeout;
        self
    }

    /// Checks the app and builds its service.
    ///
    /// # Errors
    /// An invalid pattern, two routes for the same paths, a missing state, or a mistake in a policy or in files.
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

    /// Serves until a signal ends the server: TERM and QUIT let running requests finish, INT and a second
    /// TERM do not. HUP reads the files of [`Certificates`] again.
    ///
    /// If the program has set no `tracing` subscriber, warnings and errors are written to standard error.
    ///
    /// # Errors
    /// Those of [`build`](App::build), an address or a certificate that cannot be used, or a failure of
    /// the reactor.
    pub fn run(mut self) -> Result<(), Error> {
        let settings = std::mem::take(&mut self.settings);
        run::run(self.build()?, settings)
    }

    fn draft<M, H: Handler<M>>(mut self, method: Option<Method>, pattern: &str, handler: H) -> App {
        let (check, layers) = (H::check as fn(&Setup<'_>) -> _, Vec::new());
        let (pattern, handler) = (pattern.to_owned(), erase(handler));
        self.drafts.push(RouteDraft {
            method,
            pattern,
            nested_root: None,
            handler,
            check,
            layers,
            policies: Vec::new(),
        });
        self
    }
}
