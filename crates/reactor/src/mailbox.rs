//! What other threads say to a core: a bounded queue and a wake (rule 6).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossbeam_queue::ArrayQueue;

use crate::core::{self, Core};
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
    /// The core's ring, to wake it from another ring; -1 without.
    ring: AtomicI32,
    event: OwnedFd,
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
            let mailbox = match place.get() {
                Some(mailbox) => mailbox,
                None => {
                    let fresh = Arc::new(Mailbox::new()?);
                    place.get_or_init(|| fresh)
                }
            };
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

    fn new() -> io::Result<Mailbox> {
        // SAFETY: a plain system call; the descriptor it returns is ours alone.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Mailbox {
            messages: ArrayQueue::new(MESSAGES_MAX),
            notified: AtomicBool::new(false),
            overflowed: AtomicBool::new(false),
            ring: AtomicI32::new(-1),
            // SAFETY: just made, owned by nobody else.
            event: unsafe { OwnedFd::from_raw_fd(event) },
            taken: AtomicBool::new(false),
        })
    }

    /// Gives the slot up and drops what nobody reads any more.
    pub(crate) fn release(&self) {
        self.ring.store(-1, Ordering::Release);
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

    /// The descriptor that becomes readable with a wake.
    pub(crate) fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// From now on other rings wake this core through its ring.
    pub(crate) fn set_ring(&self, ring: RawFd) {
        self.ring.store(ring, Ordering::Release);
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
        let ring = self.ring.load(Ordering::Acquire);
        let through_ring =
            ring >= 0 && core::try_with(|core| core.message_ring(ring)).unwrap_or(false);
        if !through_ring {
            self.ring_bell();
        }
    }

    fn ring_bell(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes are written from a live array; a full counter already wakes.
        unsafe { libc::write(self.event(), one.as_ptr().cast(), one.len()) };
    }
}

/// Wakes the core behind `ring` by its event descriptor, after a message to the ring has failed.
pub(crate) fn ring_bell(ring: RawFd) {
    let known = MAILBOXES.iter().map_while(OnceLock::get);
    for mailbox in known.filter(|mailbox| mailbox.ring.load(Ordering::Acquire) == ring) {
        mailbox.ring_bell();
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
    let mut counter = [0u8; 8];
    // SAFETY: eight bytes are read into a live array; the descriptor does not block.
    unsafe { libc::read(mailbox.event(), counter.as_mut_ptr().cast(), counter.len()) };
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
