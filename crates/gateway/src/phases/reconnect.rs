//! Phase `reconnect`: the waits of a request while no address of its upstream can be connected to.
//!
//! It is not sent by then, or may be sent again, so that waiting costs nothing but time.

use std::time::{Duration, Instant};

use crate::request::Request;
use crate::route::ForwardRoute;
use crate::service::GatewayService;
use crate::upstream::Tried;

/// The first and the longest pause between looks at a result that another thread makes; it doubles each time. Thousands
/// of requests may look.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(5);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(160);

/// The shortest and longest pause between attempts to connect, which grows with the time that has passed.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Waits until there is a reason to try again; `false` if there is none.
///
/// A name may have moved, so that the request waits once for the look-up that it has caused, at most for the
/// connect timeout. With [`connect_retry`](crate::Options::connect_retry) all addresses are tried again.
pub(super) async fn reconnect<E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'_>,
    request: &mut Request<'_>,
) -> bool {
    let Some(since) = request.reconnecting.since else {
        return false;
    };
    let has_looked_up = std::mem::replace(&mut request.reconnecting.has_looked_up, true);
    let is_worth_it = (!has_looked_up
        && finds_other_addresses(gateway, route, &request.tried).await)
        || wait_to_retry(gateway, since).await;
    if is_worth_it {
        request.tried = Tried::default();
        if let Some(choice) = &mut request.choice {
            choice.reset();
        }
    }
    is_worth_it
}

/// The same for a name without addresses, which is queried again and again.
pub(super) async fn reconnect_unresolved<E>(
    gateway: &GatewayService<E>,
    request: &Request<'_>,
) -> bool {
    wait_to_retry(gateway, request.record.started).await
}

async fn finds_other_addresses<E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'_>,
    tried: &Tried,
) -> bool {
    let end = blitz_http::now() + gateway.options.client.limits.connect_timeout;
    let mut pause = LOOK_PAUSE_MIN;
    while route.balancer().expects_look_up(tried) {
        let left = end.saturating_duration_since(blitz_http::now());
        if left.is_zero() {
            break;
        }
        blitz_http::sleep(pause.min(left)).await;
        pause = (pause * 2).min(LOOK_PAUSE_MAX);
    }
    route.balancer().has_changed_since(tried)
}

/// Waits for the next attempt; `false` if the time for attempts is over.
async fn wait_to_retry<E>(gateway: &GatewayService<E>, since: Instant) -> bool {
    let elapsed = blitz_http::now().saturating_duration_since(since);
    let left = gateway.options.connect_retry.saturating_sub(elapsed);
    if left.is_zero() {
        return false;
    }
    blitz_http::sleep(pause(elapsed, blitz_http::random_u64()).min(left)).await;
    true
}

/// A half of the time that has passed, and up to a quarter more, so that requests do not connect all at once.
fn pause(elapsed: Duration, random: u64) -> Duration {
    let pause = (elapsed / 2).clamp(RETRY_PAUSE_MIN, RETRY_PAUSE_MAX);
    pause + pause / 4 * (random % 256) as u32 / 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_have_bounds() {
        let millis = |elapsed, random| pause(Duration::from_millis(elapsed), random).as_millis();
        assert_eq!(
            [0, 400, 5000].map(|elapsed| millis(elapsed, 0)),
            [50, 200, 500]
        );
        assert!((62..63).contains(&millis(0, 255)));
    }
}
