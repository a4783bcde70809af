//! One reactor per core: sockets, timers, tasks and buffers on io_uring or epoll.
#![allow(dead_code, unused_variables, clippy::todo, missing_docs)] // skeleton

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

// ---------------------------------------------------------------- per_core.rs

/// Which driver to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoChoice { #[default] Auto, Uring, Epoll }

/// The driver that is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverKind { Uring, Epoll }

#[derive(Debug, Clone)]
pub struct Config {
    pub io: IoChoice,
    /// Number of cores; 0 means all that the process may run on.
    pub cores: usize,
    /// Pin each thread to its core.
    pub pin: bool,
    /// Most open sockets per core (rule 20); 0 means 90 % of nofile divided by cores.
    pub sockets_max: usize,
    /// Seed of `random_u64`; None takes the operating system's.
    pub seed: Option<u64>,
}
impl Default for Config { fn default() -> Self { todo!() } }

/// The running cores. Dropping it does not stop them.
pub struct Cores(());
/// Starts one thread per core; each runs `main(core_index)` until it completes, then ends.
pub fn start<F, Fut>(config: &Config, main: F) -> io::Result<Cores>
where F: Fn(usize) -> Fut + Send + Sync + 'static, Fut: Future<Output = ()> + 'static { todo!() }
impl Cores {
    pub fn count(&self) -> usize { todo!() }
    pub fn driver(&self) -> DriverKind { todo!() }
    /// Why auto did not take io_uring, in words for a person.
    pub fn fallback_reason(&self) -> Option<&str> { todo!() }
    /// Runs `job` once on every core, soon, on that core's thread.
    pub fn post_all(&self, job: impl Fn(usize) + Send + Sync + 'static) { todo!() }
    /// Waits until every core has ended.
    pub fn join(self) -> io::Result<()> { todo!() }
    /// Sums over the cores.
    pub fn counters(&self) -> Counters { todo!() }
}
/// Runs one reactor on the calling thread until `future` completes (tests, tools).
pub fn block_on<F: Future>(config: &Config, future: F) -> io::Result<F::Output> { todo!() }
/// Index of the core the caller runs on.
pub fn core_index() -> usize { todo!() }

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub enters: u64, pub sqes: u64, pub cqes: u64, pub turns: u64,
    pub accepted: u64, pub accept_paused: u64, pub no_buffers: u64,
    pub received_bytes: u64, pub sent_bytes: u64, pub sockets: u64,
    pub shed: u64,
}
/// Counters of the calling core.
pub fn counters() -> Counters { todo!() }

// ---------------------------------------------------------------- executor.rs

/// Starts a task on the calling core. The key can abort it; dropping the key does nothing.
pub fn spawn(future: impl Future<Output = ()> + 'static) -> TaskKey { todo!() }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskKey(u64);
impl TaskKey { /** Drops the task if it still runs. */ pub fn abort(self) { todo!() } }
/// Lets every other ready task and socket have a turn.
pub async fn yield_now() { todo!() }
/// Runs `job` on the blocking pool and resumes here with its value.
pub async fn blocking<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T { todo!() }
/// A boxed local future whose memory comes from, and returns to, the core's pool.
pub struct PoolFuture<T>(std::marker::PhantomData<T>);
impl<T> PoolFuture<T> { pub fn new(future: impl Future<Output = T> + 'static) -> Self { todo!() } }
impl<T> Future for PoolFuture<T> { type Output = T; fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> { todo!() } }

// ---------------------------------------------------------------- timer.rs

/// Time of this turn of the loop (constant within a turn).
pub fn now() -> Instant { todo!() }
/// Wall clock of this turn.
pub fn wall_clock() -> SystemTime { todo!() }
/// From the driver: the operating system's generator, or the seed.
pub fn random_u64() -> u64 { todo!() }
pub fn sleep(duration: Duration) -> Timer { todo!() }
pub fn sleep_until(at: Instant) -> Timer { todo!() }
/// Ready at its deadline; moving the deadline later costs a store.
pub struct Timer(());
impl Timer { pub fn reset(&mut self, at: Instant) { todo!() } pub fn deadline(&self) -> Instant { todo!() } }
impl Future for Timer { type Output = (); fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> { todo!() } }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> { todo!() }

// ---------------------------------------------------------------- buffer.rs

/// Received bytes: a range of a pool buffer, counted without atomics, `!Send`. Cloning is cheap.
pub struct Slice(Rc<()>);
impl Slice {
    pub fn len(&self) -> usize { todo!() }
    pub fn is_empty(&self) -> bool { todo!() }
    /// Drops the first `n` bytes from view.
    pub fn advance(&mut self, n: usize) { todo!() }
    /// Cuts the view to the first `n` bytes.
    pub fn truncate(&mut self, n: usize) { todo!() }
    /// The first `n` bytes; `self` keeps the rest.
    pub fn split_to(&mut self, n: usize) -> Slice { todo!() }
    /// A second view of `range`.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Slice { todo!() }
}
impl Clone for Slice { fn clone(&self) -> Self { todo!() } }
impl Deref for Slice { type Target = [u8]; fn deref(&self) -> &[u8] { todo!() } }

/// A growable byte buffer whose memory returns to the core's pool when dropped.
pub struct Buffer(Vec<u8>);
impl Buffer { /** An empty buffer from the pool. */ pub fn take() -> Buffer { todo!() } }
impl Deref for Buffer { type Target = Vec<u8>; fn deref(&self) -> &Vec<u8> { &self.0 } }
impl DerefMut for Buffer { fn deref_mut(&mut self) -> &mut Vec<u8> { &mut self.0 } }

/// Bytes to send; owned by the send operation until its last completion.
pub enum Chunk {
    Slice(Slice), Buffer(Buffer), Static(&'static [u8]), Owned(Vec<u8>), Shared(bytes::Bytes),
}
impl Deref for Chunk { type Target = [u8]; fn deref(&self) -> &[u8] { todo!() } }
impl Chunk { pub fn advance(&mut self, n: usize) { todo!() } }
// and From<> of each variant's content, String, &'static str

// ---------------------------------------------------------------- net.rs

/// Where to listen or connect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address { Tcp(SocketAddr), Unix(Arc<PathBuf>) }

/// A listening socket; each core binds its own (`SO_REUSEPORT`); a unix listener is shared.
pub struct Listener(());
impl Listener {
    pub fn bind(address: &Address) -> io::Result<Listener> { todo!() }
    pub fn local(&self) -> io::Result<Address> { todo!() }
    /// The next connection. Pauses, counted, at `sockets_max` and when descriptors run out; recovers by itself.
    pub async fn accept(&self) -> io::Result<Socket> { todo!() }
}

/// One stream socket of this core. Dropping it cancels what runs and closes at once.
pub struct Socket(());
impl Socket {
    pub async fn connect(address: &Address) -> io::Result<Socket> { todo!() }
    pub fn peer(&self) -> Option<SocketAddr> { todo!() }
    pub fn local(&self) -> Option<SocketAddr> { todo!() }
    /// Most bytes that may be received and not yet taken by `recv` (rule 1; the default is 16 KiB; 0 stops receiving).
    /// Taking bytes reopens the window by as much.
    pub fn set_window(&self, bytes: usize) { todo!() }
    /// The next received bytes; `None` after FIN (stays None). Errors stay too.
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Slice>>> { todo!() }
    pub async fn recv(&self) -> io::Result<Option<Slice>> { todo!() }
    /// As poll_recv but never waits nor registers.
    pub fn try_recv(&self) -> Option<io::Result<Option<Slice>>> { todo!() }
    /// Puts bytes back to the front: the next recv returns them first.
    pub fn unread(&self, slice: Slice) { todo!() }
    /// Received bytes not yet taken.
    pub fn unread_bytes(&self) -> usize { todo!() }
    /// Queues bytes; everything queued in a turn leaves together at the end of the turn, in order.
    pub fn send(&self, chunk: impl Into<Chunk>) { todo!() }
    /// Bytes queued and not yet taken by the kernel.
    pub fn queued(&self) -> usize { todo!() }
    /// Ready when at most `below` bytes are queued; a failed send is reported here, and stays.
    pub fn poll_send_room(&self, cx: &mut Context<'_>, below: usize) -> Poll<io::Result<()>> { todo!() }
    pub async fn send_room(&self, below: usize) -> io::Result<()> { todo!() }
    /// When the last byte was taken by the kernel, for send-stall deadlines.
    pub fn send_progress(&self) -> Instant { todo!() }
    /// FIN after what is queued.
    pub fn shutdown_write(&self) { todo!() }
    /// Rule 16: send what is queued, FIN, discard at most 64 KiB or 2 s of input, close. Needs no task.
    pub fn finish(self) { todo!() }
    /// RST.
    pub fn abort(self) { todo!() }
    /// Rule 5: gives up the task; keeps the socket with an armed receive until bytes, FIN or an error
    /// arrive or `deadline` passes; then `resume` is called on this core, once.
    pub fn park(self, resume: Rc<dyn Resume>, tag: u64, deadline: Instant) -> Parked { todo!() }
}

/// Woken when a parked socket has something to say.
pub trait Resume { fn resume(&self, socket: Socket, tag: u64, cause: Cause); }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause { /** bytes, FIN or an error wait in recv */ Readable, Expired }

/// Names a parked socket; dropping it does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parked(u64);
impl Parked {
    /// Takes the socket back if it is still parked and nothing has arrived.
    pub fn unpark(self) -> Option<Socket> { todo!() }
}

// ---------------------------------------------------------------- signal.rs

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal { Hangup, Terminate, Quit, Interrupt, User1, User2 }
/// Blocks the signals in this thread and those started later; call before `start`.
pub struct Signals(());
impl Signals {
    pub fn block() -> io::Result<Signals> { todo!() }
    /// Waits for the next signal, at most `timeout`.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<Signal>> { todo!() }
}
