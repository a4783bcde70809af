//! Accepting connections and running their exchanges.

use std::io;
use std::rc::Rc;

use blitz_proto::{Limits, ResponseHead};
use blitz_reactor::{Chunk, Listener};

use crate::drain::Drain;
use crate::error::Refusal;
use crate::exchange::{Scheme, Service};

/// How connections are served.
pub struct ServeOptions {
    /// Bounds and deadlines.
    pub limits: Limits,
    /// Value of the `Server` field for answers that have none.
    pub server: Option<String>,
    /// Whether answers without `Date` get one; for servers with a clock RFC 9110, section 6.6.1,
    /// demands it.
    pub date: bool,
    /// How clients reach this listener.
    pub scheme: Scheme,
    /// Makes the content of answers that the core gives on its own, for example to malformed
    /// requests; may add fields such as `Content-Type`. By default one line of plain text.
    pub refusal: Option<Rc<RefusalContent>>,
    /// Stops serving gracefully; by default the core's own handle.
    pub drain: Drain,
}

/// See [`ServeOptions::refusal`].
pub type RefusalContent = dyn Fn(Refusal, &mut ResponseHead) -> Chunk;

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            limits: Limits::default(),
            server: None,
            date: true,
            scheme: Scheme::Http,
            refusal: None,
            drain: Drain::of_core(),
        }
    }
}

/// Serves all connections of `listener` until the options' [`Drain`] is triggered and the running
/// exchanges have ended or its deadline has passed.
///
/// # Errors
/// When the listener fails for good; running out of descriptors is no such case.
pub async fn serve<S: Service>(
    listener: Listener,
    service: Rc<S>,
    options: Rc<ServeOptions>,
) -> io::Result<()> {
    todo!()
}
