//! Extractor of the identity of the client.

use super::{FromRequest, Setup};
use crate::identity::Identity;
use crate::request::Request;
use crate::response::Response;

impl FromRequest for Identity {
    fn from_request(request: &mut Request) -> Result<Self, Response> {
        Ok(request.identity().clone())
    }

    fn check(setup: &Setup<'_>) -> Result<(), String> {
        match setup.has_identity {
            true => Ok(()),
            false => Err(
                "its handler takes `Identity`, but no policy of the app demands a proof of who the client is"
                    .to_owned(),
            ),
        }
    }
}
