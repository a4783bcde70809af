//! Phase `shed`: an upstream that sheds load gets a request only with a permit.

use blitz_http::PoolFuture;
use blitz_site::{Ended, Failure, count};

use crate::request::Request;
use crate::route::ForwardRoute;
use crate::upstream::{Admission, Permit};

/// The name of the details in `Proxy-Status` and in the log.
const RULE: &str = "load-shed";

/// Takes a permit for an attempt, if the upstream demands one and the request has none. Returns the wait for one, if there
/// is none now.
///
/// # Errors
/// The request is shed.
#[inline(always)]
pub(super) fn want_permit(
    route: &ForwardRoute<'_>,
    request: &mut Request<'_>,
) -> Result<Option<PoolFuture<Option<Permit>>>, Ended> {
    match request.choice {
        None => Ok(None),
        Some(_) => want_permit_of_group(route, request),
    }
}

#[inline(never)]
fn want_permit_of_group(
    route: &ForwardRoute<'_>,
    request: &mut Request<'_>,
) -> Result<Option<PoolFuture<Option<Permit>>>, Ended> {
    let Some(choice) = &mut request.choice else {
        return Ok(None);
    };
    let Some(shed) = choice.wanted_permit() else {
        return Ok(None);
    };
    match shed.admit(route.forward.importance, blitz_http::now()) {
        Admission::Admitted(permit) => {
            choice.set_permit(permit);
            Ok(None)
        }
        Admission::Waits(wait) => Ok(Some(wait)),
        Admission::Shed => Err(shed_request(route, request)),
    }
}

/// Keeps the permit that a request has waited for.
///
/// # Errors
/// It got none, and is shed.
pub(super) fn keep_permit(
    route: &ForwardRoute<'_>,
    request: &mut Request<'_>,
    permit: Option<Permit>,
) -> Result<(), Ended> {
    match (permit, &mut request.choice) {
        (Some(permit), Some(choice)) => {
            choice.set_permit(permit);
            Ok(())
        }
        _ => Err(shed_request(route, request)),
    }
}

#[cold]
fn shed_request(route: &ForwardRoute<'_>, request: &mut Request<'_>) -> Ended {
    count(|counters| counters.shed[route.forward.importance as usize] += 1);
    if let Some(upstream) = &request.record.upstream {
        // It may have been the one that finds out whether the address works again.
        route.balancer().undecided(upstream, blitz_http::now());
    }
    request.record.rule = Some(RULE);
    Ended::Failed(Failure::LoadShed)
}
