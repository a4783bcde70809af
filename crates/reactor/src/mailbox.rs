//! Messages from other threads to a core: a bounded queue and a notification (rule 6).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossbeam_queue::ArrayQueue;

use crate::driver::{Notifier, OwnedHandle, RingHandle};
use crate::executor::TaskId;
use crate::socket::{Address, Forwarded};

/// Most reactors of one process at a time.
const REACTORS_MAX: usize = 1 << 12;

/// Most queued messages of one core.
const MESSAGES_MAX: usize = 4_096;

/// Most batches of datagrams that wait for one core, and their bytes.
const TRAINS_MAX: usize = 256;
const TRAINS_BYTES_MAX: usize = 1024 * 1024;

/// A request to a core.
pub(crate) enum CoreMessage {
    Wake(TaskId),
    Run(Box<dyn FnOnce() + Send>),
    /// A connection that another core has accepted.
    Take(Box<Given>),
}

/// A connection that a busy core gives to another one, or that comes back because that one does not listen there.
pub(crate) struct Given {
    pub(crate) connection: OwnedHandle,
    /// The core that gives it.
    pub(crate) giver: usize,
    /// The address of the listener that accepted it.
    pub(crate) listener: Address,
}

/// The queue of messages to one core, and the means to wake it.
pub(crate) struct Mailbox {
    messages: ArrayQueue<CoreMessage>,
    /// Apart, so that a flood of datagrams loses no wake. Made for the first one.
    trains: OnceLock<ArrayQueue<Forwarded>>,
    /// Bytes of all batches in the queue.
    trains_bytes: AtomicUsize,
    /// The core was notified and has not read its messages yet; further messages need no notification.
    notified: AtomicBool,
    /// Wakes were lost because the queue was full; the core then wakes all of its tasks.
    overflowed: AtomicBool,
    notifier: Notifier,
    /// A core uses this mailbox.
    claimed: AtomicBool,
}

static MAILBOXES: [OnceLock<Arc<Mailbox>>; REACTORS_MAX] =
    [const { OnceLock::new() }; REACTORS_MAX];

/// Serialises claims; messages do not take it.
static CLAIM: Mutex<()> = Mutex::new(());

impl Mailbox {
    /// Claims a free mailbox for a new core; returns it with its index.
    pub(crate) fn claim() -> io::Result<(u16, Arc<Mailbox>)> {
        let _claim = CLAIM.lock().unwrap_or_else(PoisonError::into_inner);
        for (slot, cell) in MAILBOXES.iter().enumerate() {
            let mailbox = cell.get_or_init(|| Arc::new(Mailbox::new()));
            if !mailbox.claimed.swap(true, Ordering::AcqRel) {
                mailbox.clear();
                mailbox.overflowed.store(false, Ordering::Release);
                mailbox.notified.store(false, Ordering::Release);
                return Ok((slot as u16, Arc::clone(mailbox)));
            }
        }
        Err(io::Error::other(format!(
            "a process runs at most {REACTORS_MAX} reactors"
        )))
    }

    fn new() -> Mailbox {
        Mailbox {
            messages: ArrayQueue::new(MESSAGES_MAX),
            trains: OnceLock::new(),
            trains_bytes: AtomicUsize::new(0),
            notified: AtomicBool::new(false),
            overflowed: AtomicBool::new(false),
            notifier: Notifier::default(),
            claimed: AtomicBool::new(false),
        }
    }

    /// Releases the mailbox and drops its unread messages.
    pub(crate) fn release(&self) {
        self.notifier.clear_ring();
        self.clear();
        self.claimed.store(false, Ordering::Release);
    }

    fn clear(&self) {
        while self.messages.pop().is_some() {}
        self.take_trains().for_each(drop);
    }

    /// Whether a core reads this mailbox.
    pub(crate) fn is_open(&self) -> bool {
        self.claimed.load(Ordering::Acquire)
    }

    /// Whether the core was notified and has not read its messages yet.
    #[cfg(feature = "simulation")]
    pub(crate) fn is_notified(&self) -> bool {
        self.notified.load(Ordering::Acquire)
    }

    /// The notifier of the core that reads this mailbox.
    pub(crate) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Queues a message and wakes the core by its eventfd: for callers that have borrowed the driver of their core.
    /// Others use [`post`](crate::messages::post).
    ///
    /// # Errors
    /// The message, if the queue is full.
    pub(crate) fn post_by_event(&self, message: CoreMessage) -> Result<(), CoreMessage> {
        let wake = self.push(message)?;
        if wake == Wake::Needed {
            self.notifier.notify_by_event();
        }
        Ok(())
    }

    /// Queues a message. The caller wakes the core if that is needed.
    ///
    /// # Errors
    /// The message, if the queue is full.
    pub(crate) fn push(&self, message: CoreMessage) -> Result<Wake, CoreMessage> {
        self.messages.push(message)?;
        Ok(self.note_message())
    }

    /// Queues a batch of this size for a socket of the core; `None` if that has ended, or too many wait. The caller
    /// wakes the core if that is needed.
    pub(crate) fn push_train(
        &self,
        bytes: usize,
        make: impl FnOnce() -> Forwarded,
    ) -> Option<Wake> {
        let before = self.trains_bytes.fetch_add(bytes, Ordering::AcqRel);
        let has_room = self.is_open() && before + bytes <= TRAINS_BYTES_MAX;
        let trains = self.trains.get_or_init(|| ArrayQueue::new(TRAINS_MAX));
        let is_queued = has_room && !trains.is_full() && trains.push(make()).is_ok();
        if !is_queued {
            self.trains_bytes.fetch_sub(bytes, Ordering::AcqRel);
            return None;
        }
        Some(self.note_message())
    }

    /// Notes that a wake was lost because the queue was full: the core wakes all its tasks. The caller wakes the core
    /// if that is needed.
    pub(crate) fn note_lost_wake(&self) -> Wake {
        self.overflowed.store(true, Ordering::Release);
        self.note_message()
    }

    /// The batches that other cores have forwarded, at most as many as the queue holds.
    pub(crate) fn take_trains(&self) -> impl Iterator<Item = Forwarded> {
        (0..TRAINS_MAX).map_while(|_| {
            let forwarded = self.trains.get()?.pop()?;
            self.trains_bytes
                .fetch_sub(forwarded.bytes(), Ordering::AcqRel);
            Some(forwarded)
        })
    }

    /// Takes the notification back before the messages are read. True if wakes were lost.
    pub(crate) fn begin_to_read(&self) -> bool {
        self.notifier.clear();
        // Cleared before reading: a message that is posted after this line notifies the core again.
        self.notified.swap(false, Ordering::AcqRel);
        self.overflowed.swap(false, Ordering::AcqRel)
    }

    /// The queued messages, at most as many as the queue holds.
    pub(crate) fn take_messages(&self) -> impl Iterator<Item = CoreMessage> {
        (0..MESSAGES_MAX).map_while(|_| self.messages.pop())
    }

    /// Notes that there is something to read.
    fn note_message(&self) -> Wake {
        match self.notified.swap(true, Ordering::AcqRel) {
            true => Wake::UnderWay,
            false => Wake::Needed,
        }
    }
}

/// Whether a core has to be woken for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Wake {
    /// The core waits, perhaps.
    Needed,
    /// It was woken for an earlier message, and has not read its mailbox since.
    UnderWay,
}

/// The mailbox of the core with this index, if one has ever been claimed.
pub(crate) fn of_core(slot: u16) -> Option<&'static Arc<Mailbox>> {
    MAILBOXES[usize::from(slot)].get()
}

/// Wakes the core of `ring` by its eventfd, after a message to the ring has failed.
pub(crate) fn notify_by_event(ring: RingHandle) {
    let claimed = MAILBOXES.iter().map_while(OnceLock::get);
    for mailbox in claimed.filter(|mailbox| mailbox.notifier.has_ring(ring)) {
        mailbox.notifier.notify_by_event();
    }
}
