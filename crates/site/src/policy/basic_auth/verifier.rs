//! Passwords are checked by the pool of blocking threads, a few at a time. Others wait in a queue, and beyond it they are
//! turned down at once: a flood of wrong passwords neither occupies the pool, which files need, too, nor memory.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use blitz_http::{blocking, core_local, sleep, spawn, trim_heap};

use super::hash::PasswordHash;
use super::remembered::{self, Digest};
use crate::client::ClientNetwork;
use crate::client_shares::ClientShares;
use crate::rejection::Rejection;

/// The most passwords that a core has checked at a time.
const RUNNING_MAX: usize = 2;

/// The most that all cores have checked at a time: half of the pool's threads.
const RUNNING_OF_ALL_MAX: usize = 8;

/// The most passwords of a core that wait. A client has a share of them.
const QUEUE_MAX: usize = 32;

/// After this time a core tries again if others have as many checked as all may.
const PAUSE: Duration = Duration::from_millis(5);

/// Passwords that are being checked, of all cores.
static RUNNING_OF_ALL: AtomicUsize = AtomicUsize::new(0);

/// A password to check.
pub(super) struct Question {
    /// That of the user first, if there is one.
    pub(super) hashes: Box<[Arc<PasswordHash>]>,
    pub(super) password: Arc<[u8]>,
    pub(super) digest: Digest,
    /// Whether there is such a user.
    pub(super) is_known: bool,
    /// The first that asks it.
    pub(super) client: ClientNetwork,
}

/// A question, and those who wait for the answer. Several requests with the same password share it: a browser that opens
/// a page sends six at a time.
struct Check {
    question: Question,
    answer: Cell<Option<bool>>,
    waiting: RefCell<Vec<Waker>>,
}

struct Verifier {
    running: Vec<Rc<Check>>,
    queue: VecDeque<Rc<Check>>,
    /// The places in the queue.
    places: ClientShares,
    /// Tasks that take from the queue.
    tasks: usize,
}

impl Verifier {
    const NEW: Verifier = Verifier {
        running: Vec::new(),
        queue: VecDeque::new(),
        places: ClientShares::new(QUEUE_MAX),
        tasks: 0,
    };

    /// Takes a place in the queue; `false` if it is full, or the client has its share.
    fn take_place(&mut self, client: ClientNetwork) -> bool {
        if self.places.change(client, 0, 1) {
            return true;
        }
        // Clients that have left make room.
        let Verifier { queue, places, .. } = self;
        queue.retain(|check| {
            let is_awaited = Rc::strong_count(check) > 1;
            if !is_awaited {
                places.change(check.question.client, 1, 0);
            }
            is_awaited
        });
        let has_place = places.change(client, 1, 1);
        if !has_place {
            places.change(client, 1, 0);
        }
        has_place
    }

    /// The first of the queue, and its place for others.
    fn leave_queue(&mut self) -> Option<Rc<Check>> {
        let check = self.queue.pop_front()?;
        self.places.change(check.question.client, 1, 0);
        Some(check)
    }
}

core_local! {
    static VERIFIER: RefCell<Verifier> = const { RefCell::new(Verifier::NEW) };
}

/// # Errors
/// It is not the password of the user, or too many others wait.
pub(super) async fn verify(question: Question) -> Result<(), Rejection> {
    let check = enter(question).ok_or(Rejection::AuthenticationBusy)?;
    let is_right = poll_fn(|cx| match check.answer.get() {
        Some(answer) => Poll::Ready(answer),
        None => {
            let mut waiting = check.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        }
    })
    .await;
    match is_right {
        true => Ok(()),
        false => Err(Rejection::InvalidCredentials),
    }
}

/// `None` if the queue is full, or the client has its share of it.
fn enter(question: Question) -> Option<Rc<Check>> {
    VERIFIER.with_borrow_mut(|verifier| {
        let mut all = verifier.running.iter().chain(&verifier.queue);
        let is_same = |check: &&Rc<Check>| check.question.digest.is(&question.digest);
        if let Some(known) = all.find(is_same) {
            return Some(Rc::clone(known));
        }
        if !verifier.take_place(question.client) {
            return None;
        }
        let check = Rc::new(Check {
            question,
            answer: Cell::new(None),
            waiting: RefCell::default(),
        });
        verifier.queue.push_back(Rc::clone(&check));
        if verifier.tasks < RUNNING_MAX {
            verifier.tasks += 1;
            spawn(work(Task));
        }
        Some(check)
    })
}

/// Counts as a task until it is dropped.
struct Task;

impl Drop for Task {
    fn drop(&mut self) {
        // At the end of a thread its tasks may be dropped later.
        let _ = VERIFIER.try_with(|verifier| verifier.borrow_mut().tasks -= 1);
    }
}

/// Answers one question after the other, until there is none.
async fn work(_task: Task) {
    let mut holds_memory = false;
    loop {
        let Some(running) = Running::begin() else {
            sleep(PAUSE).await;
            continue;
        };
        let Some(next) = next() else {
            drop(running);
            if !holds_memory {
                return;
            }
            // The allocator keeps the memory of threads that have checked passwords.
            blocking(trim_heap).await;
            holds_memory = false;
            continue;
        };
        let under_way = UnderWay(next);
        let question = &under_way.0.question;
        let (hashes, password) = (question.hashes.clone(), Arc::clone(&question.password));
        let is_known = question.is_known;
        holds_memory |= hashes.iter().any(|hash| hash.needs_memory());
        // It counts until it ends, also if nobody waits for it any longer.
        let checked = move || {
            (
                is_right(&hashes, is_known, |hash| hash.is_of(&password)),
                running,
            )
        };
        let (is_right, _running) = blocking(checked).await;
        if is_right {
            remembered::add(under_way.0.question.digest, blitz_http::now());
        }
        under_way.0.answer.set(Some(is_right));
    }
}

/// Checks the hash of the user first. A password that is not right is checked by all.
pub(super) fn is_right(
    hashes: &[Arc<PasswordHash>],
    is_known: bool,
    mut is_of: impl FnMut(&PasswordHash) -> bool,
) -> bool {
    let mut all = hashes.iter();
    let is_right = is_known && all.next().is_some_and(|own| is_of(own));
    if !is_right {
        for hash in all {
            black_box(is_of(hash));
        }
    }
    is_right
}

/// The next question for which somebody waits.
fn next() -> Option<Rc<Check>> {
    VERIFIER.with_borrow_mut(|verifier| {
        loop {
            let check = verifier.leave_queue()?;
            if Rc::strong_count(&check) > 1 {
                verifier.running.push(Rc::clone(&check));
                return Some(check);
            }
        }
    })
}

/// A check under way. At its end those who wait go on; without an answer the password counts as wrong.
struct UnderWay(Rc<Check>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let is_other = |other: &Rc<Check>| !Rc::ptr_eq(other, &self.0);
        let _ = VERIFIER.try_with(|verifier| verifier.borrow_mut().running.retain(is_other));
        if self.0.answer.get().is_none() {
            self.0.answer.set(Some(false));
        }
        self.0.waiting.take().into_iter().for_each(Waker::wake);
    }
}

/// One of those that all cores have checked.
struct Running;

impl Running {
    /// `None` if there are as many as there may be.
    fn begin() -> Option<Running> {
        let before = RUNNING_OF_ALL.fetch_add(1, Ordering::Relaxed);
        let running = Running;
        (before < RUNNING_OF_ALL_MAX).then_some(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING_OF_ALL.fetch_sub(1, Ordering::Relaxed);
    }
}
