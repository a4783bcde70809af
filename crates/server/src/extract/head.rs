//! Extractors of the head: query, header fields, method, peer.

use std::ops::Deref;

use blitz_http::{Fields, Method, Peer};
use serde::de::DeserializeOwned;

use super::FromRequest;
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse, Response};

/// The query, decoded into a struct, a map or a list of pairs; repeated keys can fill a list.
///
/// The response is 400 if the query does not match the type. A missing query counts as an empty one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Query<T> {
    fn from_request(request: &mut Request) -> Result<Self, Response> {
        let query = request.query().unwrap_or_default();
        serde_html_form::from_str(query)
            .map(Query)
            .map_err(|error| {
                Problem::bad_request(format!("the query does not match: {error}")).into_response()
            })
    }
}

/// A copy of the header section; [`Request::fields`] does not copy.
#[derive(Debug, Clone)]
pub struct Headers(pub Fields);

impl Deref for Headers {
    type Target = Fields;

    fn deref(&self) -> &Fields {
        &self.0
    }
}

impl FromRequest for Headers {
    fn from_request(request: &mut Request) -> Result<Self, Response> {
        Ok(Headers(request.fields().clone()))
    }
}

impl FromRequest for Method {
    fn from_request(request: &mut Request) -> Result<Self, Response> {
        Ok(request.method())
    }
}

impl FromRequest for Peer {
    fn from_request(request: &mut Request) -> Result<Self, Response> {
        Ok(Peer::clone(request.peer()))
    }
}
