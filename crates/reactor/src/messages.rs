//! Messages to other cores, with the wake of their receiver: through the rings of both cores, or by its eventfd.

use std::net::SocketAddr;
use std::ops::Range;

use crate::core;
use crate::executor::TaskId;
use crate::mailbox::{self, CoreMessage, Mailbox, Wake};
use crate::socket::{Forwarded, Train};

/// Queues a message and wakes the core that reads this mailbox.
///
/// # Errors
/// The message, if the queue is full.
pub(crate) fn post(mailbox: &Mailbox, message: CoreMessage) -> Result<(), CoreMessage> {
    let wake = mailbox.push(message)?;
    wake_core(mailbox, wake);
    Ok(())
}

/// Wakes a task of another core.
pub(crate) fn post_wake(core: u16, id: TaskId) {
    let Some(mailbox) = mailbox::of_core(core) else {
        return;
    };
    if post(mailbox, CoreMessage::Wake(id)).is_err() {
        wake_core(mailbox, mailbox.note_lost_wake());
    }
}

/// See [`DatagramSocket::forward`](crate::DatagramSocket::forward).
pub(crate) fn forward(
    core: usize,
    local: SocketAddr,
    train: &Train,
    datagrams: Range<usize>,
) -> bool {
    core::with(|this| {
        let count = datagrams.len() as u64;
        let content = train.part(datagrams);
        let forwarded = || Forwarded::new(local, train, content);
        let mailbox = this.resources.load.mailbox(core);
        let queued = mailbox
            .and_then(|mailbox| Some((mailbox, mailbox.push_train(content.len(), forwarded)?)));
        let counters = &this.resources.counters;
        match queued {
            Some((mailbox, wake)) => {
                wake_core(mailbox, wake);
                counters.datagrams_forwarded.add(count);
            }
            None => counters.datagrams_not_forwarded.add(count),
        }
        queued.is_some()
    })
}

/// Ends the wait of the core that reads this mailbox, if that is needed.
fn wake_core(mailbox: &Mailbox, wake: Wake) {
    if wake == Wake::UnderWay {
        return;
    }
    let notifier = mailbox.notifier();
    let through_ring = notifier
        .ring()
        .is_some_and(|ring| core::try_with(|core| core.message_ring(ring)).unwrap_or(false));
    if !through_ring {
        notifier.notify_by_event();
    }
}
