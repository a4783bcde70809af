//! The control thread: it does what no request waits for, on one runtime of tokio for the whole process.

use std::future::{Future, pending};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;

use tokio::runtime::{Builder, Handle};

/// `None` until something is spawned.
static RUNTIME: Mutex<Option<Handle>> = Mutex::new(None);

/// Runs a future on the control thread until it ends; if it panics, the others go on.
///
/// # Errors
/// The thread or its runtime could not be started.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let handle = match &*runtime {
        Some(handle) => handle,
        None => runtime.insert(start()?),
    };
    drop(handle.spawn(task));
    Ok(())
}

/// Starts the thread, which ends with the process.
fn start() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name(String::from("blitz-control"))
        .spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}
