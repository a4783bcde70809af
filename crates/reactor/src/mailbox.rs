//! What other threads say to a core: a bounded queue and a wake (rule 6).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossbeam_queue::ArrayQueue;

use crate::core::Core;
use crate::driver::{Notifier, RingHandle};
use crate::executor::{TaskId, wake_local};

/// Most reactors of one process, over its life at one time.
const REACTORS_MAX: usize = 1 << 12;

/// Most messages that wait for one core.
const MESSAGES_MAX: usize = 4_096;

/// Something for a core to do.
pub(crate) enum Message {
    Wake(TaskId),
    Run(Box<dyn FnOnce() + Send>),
}

/// The way into one core from outside.
pub(crate) struct Mailbox {
    messages: ArrayQueue<Message>,
    /// A wake is under way; the next post needs none.
    notified: AtomicBool,
    /// Wakes were lost for want of room; the core then wakes every task it has.
    overflowed: AtomicBool,
    notifier: Notifier,
    taken: AtomicBool,
}

static MAILBOXES: [OnceLock<Arc<Mailbox>>; REACTORS_MAX] =
    [const { OnceLock::new() }; REACTORS_MAX];

/// Slots are claimed one at a time; this is never on the way of a message.
static CLAIM: Mutex<()> = Mutex::new(());

impl Mailbox {
    /// Claims a free mailbox and its slot for a new core.
    pub(crate) fn claim() -> io::Result<(u16, Arc<Mailbox>)> {
        let _claim = CLAIM.lock().unwrap_or_else(PoisonError::into_inner);
        for (slot, place) in MAILBOXES.iter().enumerate() {
            let mailbox = place.get_or_init(|| Arc::new(Mailbox::new()));
            if !mailbox.taken.swap(true, Ordering::AcqRel) {
                while mailbox.messages.pop().is_some() {}
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
            notified: AtomicBool::new(false),
            overflowed: AtomicBool::new(false),
            notifier: Notifier::default(),
            taken: AtomicBool::new(false),
        }
    }

    /// Gives the slot up and drops what nobody reads any more.
    pub(crate) fn release(&self) {
        self.notifier.clear_ring();
        while self.messages.pop().is_some() {}
        self.taken.store(false, Ordering::Release);
    }

    /// Whether a core reads this mailbox.
    pub(crate) fn is_open(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    /// Whether the core was woken and has not looked yet.
    #[cfg(feature = "simulation")]
    pub(crate) fn is_notified(&self) -> bool {
        self.notified.load(Ordering::Acquire)
    }

    /// Wakes the core that reads this mailbox.
    pub(crate) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Leaves a message, or hands it back when the queue is full.
    pub(crate) fn post(&self, message: Message) -> Result<(), Message> {
        self.messages.push(message)?;
        self.notify();
        Ok(())
    }

    fn notify(&self) {
        if self.notified.swap(true, Ordering::AcqRel) {
            return;
        }
        self.notifier.notify();
    }
}

/// Wakes the core behind `ring` by its eventfd, after a message to the ring has failed.
pub(crate) fn notify_by_event(ring: RingHandle) {
    let claimed = MAILBOXES.iter().map_while(OnceLock::get);
    for mailbox in claimed.filter(|mailbox| mailbox.notifier.has_ring(ring)) {
        mailbox.notifier.notify_by_event();
    }
}

/// Wakes a task of another core.
pub(crate) fn post_wake(core: u16, id: TaskId) {
    let Some(mailbox) = MAILBOXES[usize::from(core)].get() else {
        return;
    };
    if mailbox.post(Message::Wake(id)).is_err() {
        mailbox.overflowed.store(true, Ordering::Release);
        mailbox.notify();
    }
}

/// Does what the messages say. Called by the core once it was woken.
pub(crate) fn drain(core: &Core) {
    let mailbox = &core.mailbox;
    mailbox.notifier.clear();
    // Cleared first: whoever posts after this line wakes us again.
    mailbox.notified.swap(false, Ordering::AcqRel);
    if mailbox.overflowed.swap(false, Ordering::AcqRel) {
        core.counters.mailbox_overflows.add(1);
        core.tasks.borrow_mut().wake_all(core.slot);
    }
    for _ in 0..MESSAGES_MAX {
        match mailbox.messages.pop() {
            Some(Message::Wake(id)) => wake_local(core, id),
            Some(Message::Run(job)) => {
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    core.counters.task_panics.add(1);
                }
            }
            None => return,
        }
    }
}
