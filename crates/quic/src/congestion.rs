//! Congestion control (CUBIC), which does not hold back a close.
//!
//! The state machine holds a close back until the congestion window has room for it, and processes no acknowledgements
//! once it is closed. With a window that is used up, the peer would therefore never receive the close.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, Cubic, CubicConfig};

/// A window that is never used up, and that the pacing leaves alone.
const OPEN: u64 = 1 << 40;

thread_local! {
    /// The connection that sends is closed.
    static IS_CLOSED: Cell<bool> = const { Cell::new(false) };
}

/// Lets a connection send, which may be closed.
pub(crate) fn while_sending<T>(is_closed: bool, send: impl FnOnce() -> T) -> T {
    IS_CLOSED.set(is_closed);
    let sent = send();
    IS_CLOSED.set(false);
    sent
}

/// Makes the controllers of connections.
#[derive(Default)]
pub(crate) struct Congestion(Arc<CubicConfig>);

impl ControllerFactory for Congestion {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(OpenForClose(Cubic::new(Arc::clone(&self.0), now, mtu)))
    }
}

#[derive(Clone)]
struct OpenForClose(Cubic);

impl Controller for OpenForClose {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.0.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.0.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.0
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.0
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.0.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        match IS_CLOSED.get() {
            true => OPEN,
            false => self.0.window(),
        }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.0.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
