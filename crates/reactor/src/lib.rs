//! One reactor per core: sockets, timers, tasks and buffers, on io_uring or epoll.
//!
//! This is the only crate of Blitz with unsafe code, and the only one that calls the operating
//! system for sockets, time or randomness. A core is a thread that owns everything it uses: its
//! ring, listeners, connections, timers and buffers. None of these is `Send`; other threads reach
//! the core through its mailbox.
//!
//! A turn of the loop runs the ready tasks, starts the operations that they queued, makes one system
//! call that submits and waits, and handles the completions. The clock does not move within a turn.
//!
//! ```
//! use blitz_reactor::{Address, Config, Listener, Socket, block_on, spawn};
//!
//! let anywhere = Address::Tcp("127.0.0.1:0".parse()?);
//! let echoed = block_on(&Config::default(), async {
//!     let listener = Listener::bind(&anywhere)?;
//!     let address = listener.local().clone();
//!     spawn(async move {
//!         let socket = listener.accept().await;
//!         while let Ok(Some(bytes)) = socket.recv().await {
//!             socket.send(bytes);
//!         }
//!         socket.finish();
//!     });
//!     let socket = Socket::connect(&address).await?;
//!     socket.send("hello");
//!     socket.recv().await
//! })??;
//! assert_eq!(echoed.as_deref(), Some(&b"hello"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod buffer;
mod core;
mod counters;
mod driver;
mod executor;
mod file;
mod load;
mod mailbox;
mod memory;
mod messages;
mod per_core;
mod resources;
mod signal;
#[cfg(feature = "simulation")]
pub mod simulation;
mod socket;
mod socket_share;
mod timer;
mod trim;

/// Declares values of which each core has its own, as `thread_local!` does for threads.
#[cfg(not(feature = "simulation"))]
#[macro_export]
macro_rules! core_local {
    ($($(#[$meta:meta])* static $name:ident: RefCell<$type:ty> = const { $init:expr };)*) => {
        ::std::thread_local! {
            $($(#[$meta])* static $name: ::std::cell::RefCell<$type> = const { $init };)*
        }
    };
}

pub use buffer::{Buffer, Chunk, FAIR_SHARE_MAX, Slice};
pub use counters::Counters;
pub use driver::{
    DriverKind, EntryLimits, FileFacts, FolderEntry, IoChoice, LocalShortage, Share, Steering,
    SymbolicLinks, open_tun, prepare_descriptors, probe, set_idle_priority, set_real_time,
    trim_heap,
};
pub use executor::{
    PoolFuture, PooledFuture, TaskKey, TooManyWait, blocking, blocking_in, consume_admission,
    consume_resume, poll_admission, spawn, spawn_now, yield_now,
};
pub use file::{File, Folder, Found};
pub use memory::{charge, discharge, fair_share, is_memory_scarce, memory_available};
pub use per_core::{
    Config, Cores, CoresHandle, Pinning, block_on, core_count, core_index, counters, sockets_limit,
    sockets_open, start,
};
pub use signal::{Signal, Signals};
pub use socket::{
    Address, Cause, DatagramGroup, DatagramSocket, Datagrams, Ecn, Lingering, Listener,
    NoInterface, Parked, Reservation, Resume, Socket, Train, parse_zoned,
};
pub use socket_share::ReservedDescriptors;
pub use timer::{
    Elapsed, PreciseTimer, Timer, now, precise_sleep_until, random_u64, read_clock, sleep,
    sleep_until, timeout, wall_clock,
};
