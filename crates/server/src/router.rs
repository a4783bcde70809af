//! The router: a radix tree with typed parameters.
//!
//! Literals have precedence over parameters, and parameters over a catch-all. The search backtracks if a
//! more specific route does not match the rest of the path:
//!
//! ```
//! use blitz::router::{Pattern, RouterBuilder};
//!
//! let mut builder = RouterBuilder::<&str>::default();
//! for text in ["/users/me", "/users/{id:u64}", "/users/{name}", "/files/{rest...}"] {
//!     *builder.entry(&Pattern::parse(text)?) = text;
//! }
//! let router = builder.build();
//!
//! let (route, params) = router.find("/users/42").unwrap();
//! assert_eq!((*route, params.get("/users/42", 0)), ("/users/{id:u64}", Some("42")));
//! assert_eq!(*router.find("/users/me").unwrap().0, "/users/me");
//! assert_eq!(*router.find("/users/bob").unwrap().0, "/users/{name}");
//! assert!(router.find("/groups").is_none());
//! # Ok::<(), blitz::router::PatternError>(())
//! ```

pub use blitz_site::matcher::{
    Kind, PARAMS_MAX, Params, Pattern, PatternError, Router, RouterBuilder, Token,
};
