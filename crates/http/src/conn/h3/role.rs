//! The differences between a server and a client.

use std::rc::Rc;
use std::time::Instant;

use blitz_proto::h3::{Code, Event, Received, StreamId};
use blitz_proto::{BodyLength, Error, Limits};
use blitz_quic::Connection;
use blitz_quic::quinn_proto::ConnectionError;

use super::driver::{Conn, Driver, RequestStream, Shared};
use super::protocol::Http3;
use crate::conn::streams::stream::ResetReason;
use crate::exchange::Side;

/// One end of connections: [`ServerRole`](super::server::ServerRole) or [`ClientRole`](super::client::ClientRole).
pub(crate) trait Role: Sized + 'static {
    type Options: 'static;
    /// State that the connections of a listener share, or those to servers.
    type Shared: 'static;
    type Side: Side<Driver<Self>>;

    fn limits(options: &Self::Options) -> &Limits;

    /// A handshake is complete.
    fn connected(shared: &Rc<Shared<Self>>, quic: &Rc<Connection<Http3<Self>>>) -> Rc<Conn<Self>>;

    /// A handshake has failed.
    fn handshake_failed(
        shared: &Shared<Self>,
        quic: &Rc<Connection<Http3<Self>>>,
        reason: &ConnectionError,
    );

    /// The address of the peer has changed.
    fn migrated(_: &Conn<Self>, _: &Connection<Http3<Self>>) {}

    /// Closes the most dispensable connection. False if there is none.
    fn evict(_: &Shared<Self>) -> bool {
        false
    }

    /// Starts the exchanges of the requests that have arrived.
    fn start_arrived(_: &Rc<Conn<Self>>) {}

    /// The peer has opened a stream in both directions.
    fn opened(driver: &mut Driver<Self>, id: StreamId) -> Result<(), Error>;

    /// The peer has opened streams.
    fn all_opened(_: &mut Driver<Self>) {}

    /// All received input was handled.
    fn before_sending(_: &mut Driver<Self>) {}

    /// The peer allows more streams.
    fn streams_available(_: &mut Driver<Self>) {}

    /// The machine has a head; nothing follows it if it `has_ended`.
    fn head_arrived(
        driver: &mut Driver<Self>,
        id: StreamId,
        received: &mut Received,
        length: BodyLength,
        has_ended: bool,
    );

    /// The machine has refused a request; `received` has the fields before the fault.
    fn refused(_: &mut Driver<Self>, _: StreamId, _: Error, _: &Received) {}

    /// The rest of a refused request is read.
    fn discard_refused(_: &mut Driver<Self>, _: StreamId) {}

    /// A part of a head has arrived.
    fn head_incomplete(_: &mut Driver<Self>) {}

    /// Input beside the requests was read.
    fn beside_read(_: &mut Driver<Self>) {}

    /// The peer accepts no requests from this stream on.
    fn go_away(_: &mut Driver<Self>, _: StreamId) {}

    /// The peer stops our direction of a stream; `event` is the meaning of that to the machine.
    fn stopped(driver: &mut Driver<Self>, id: StreamId, code: Code, event: Option<Event>);

    /// Whether the exchange of a stream has handles. They end a stream that has failed.
    fn has_handles(stream: &RequestStream) -> bool;

    /// The reason why a stream was lost, and the code that ends the rest of it. The peer has reset it with `code`, or
    /// has violated a rule that has this code.
    fn loss(driver: &Driver<Self>, id: StreamId, error: Error, code: Code) -> (ResetReason, Code);

    /// Bytes that each stream may have queued; `None` if the connection has enough.
    fn room(driver: &Driver<Self>) -> Option<usize>;

    /// The peer has all of a message.
    fn message_acknowledged(_: &mut Driver<Self>) {}

    /// A part of the queued bytes of a stream was sent.
    fn queued_sent(_: &mut Driver<Self>, _: StreamId) {}

    /// Whether a connection gives back memory and its window while it has no requests.
    const SHRINKS_WHEN_IDLE: bool;

    fn shrink_to(&mut self, _streams: usize) {}

    /// Whether a connection without requests is to be closed.
    fn is_over(driver: &mut Driver<Self>) -> bool;

    /// The next deadline beside those of both ends.
    fn next_deadline(_: &mut Driver<Self>) -> Option<Instant> {
        None
    }

    /// One of these deadlines has passed.
    fn deadline(_: &mut Driver<Self>, _now: Instant) {}

    /// A connection without requests takes memory that others need: it is drained.
    fn retire_idle(driver: &mut Driver<Self>);

    /// Notes that the connection is ended because the peer violates a rule.
    fn note_end(driver: &Driver<Self>, rule: &'static str);

    /// The reason why streams end after the peer has violated a rule of the connection.
    fn reason_of(error: Error) -> ResetReason;

    /// The connection is no longer open.
    fn left(driver: &mut Driver<Self>);
}
