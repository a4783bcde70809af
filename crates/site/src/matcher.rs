//! The router: which value a host has, and which route a method and a path have.
//!
//! One radix tree serves both users. The framework gives it [patterns](Pattern) with typed parameters
//! ([`Router`]), the gateway the [keys](RouteKey) of a configuration, each of which stands for a path and, in
//! most forms, for all that lies below it ([`RouteTable`]). The [`HostTable`] comes first where sites have names.
//!
//! ```
//! use blitz_http::Method;
//! use blitz_site::matcher::{RouteKey, RouteTable};
//!
//! let keys = ["/", "/users", "=/users/me", "POST /users/{id}/posts", "/users/img*"];
//! let keys = keys.map(|key| RouteKey::parse(key).unwrap());
//! let table = RouteTable::new(keys.to_vec());
//!
//! let route = |path| table.find(path, Method::Get, "").map(|found| found.route);
//! assert_eq!(route("/users/me"), Some(2));
//! assert_eq!(route("/users/me/x"), Some(1));
//! assert_eq!(route("/users/images/1"), Some(1));
//! assert_eq!(route("/users/img1"), Some(4));
//! // The key with POST does not match, so the search goes on.
//! assert_eq!(route("/users/7/posts"), Some(1));
//! let found = table.find("/users/7/posts/8", Method::Post, "").unwrap();
//! assert_eq!((found.route, found.param("/users/7/posts/8", 0)), (3, Some("7")));
//! assert_eq!(found.rest("/users/7/posts/8"), "/8");
//! ```

mod cover;
mod explain;
mod host;
mod key;
mod methods;
mod path_regex;
mod pattern;
mod rank;
mod router;
mod table;
mod tree;

pub use explain::Verdict;
pub use host::{HostTable, host_of, without_brackets};
pub use key::{KeyError, PathPattern, RouteKey};
pub use methods::Methods;
pub use pattern::{Kind, PARAMS_MAX, Pattern, PatternError, Token};
pub use rank::{Clash, ClashKind};
pub use router::{Router, RouterBuilder};
pub use table::{RouteMatch, RouteTable};
pub use tree::Params;
