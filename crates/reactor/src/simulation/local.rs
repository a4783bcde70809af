//! The values of each core, while several cores live on one thread.

use std::any::Any;
use std::cell::RefCell;

/// Exchanges the value of a thread for the one that is given: `None` stands for a fresh one.
#[expect(unreachable_pub, reason = "`register` takes it")]
pub type Exchange = fn(Option<Box<dyn Any>>) -> Box<dyn Any>;

thread_local! {
    static REGISTERED: RefCell<Vec<Exchange>> = const { RefCell::new(Vec::new()) };
}

/// Adds a value of this thread to those that belong to cores. Called by what
/// [`core_local`](crate::core_local) makes, when the value is first used.
pub fn register(exchange: Exchange) {
    REGISTERED.with_borrow_mut(|registered| registered.push(exchange));
}

/// The values of one core while it does not run.
#[derive(Default)]
pub(super) struct Locals(Vec<Box<dyn Any>>);

impl Locals {
    /// Calls `f` with the core's values in the thread, and takes them out again, also after a panic.
    pub(super) fn within<R>(&mut self, f: impl FnOnce() -> R) -> R {
        self.enter();
        let leaving = Leaving(self);
        let value = f();
        drop(leaving);
        value
    }

    fn enter(&mut self) {
        let values = std::mem::take(&mut self.0);
        REGISTERED.with_borrow(|registered| {
            for (exchange, value) in registered.iter().zip(values) {
                drop(exchange(Some(value)));
            }
        });
    }

    fn leave(&mut self) {
        self.0 = REGISTERED
            .with_borrow(|registered| registered.iter().map(|exchange| exchange(None)).collect());
    }
}

struct Leaving<'a>(&'a mut Locals);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Declares values that every core has for itself, as `thread_local!` does for threads: where one
/// thread runs several cores, each finds its own.
///
/// ```
/// use std::cell::RefCell;
///
/// blitz_reactor::core_local! {
///     static COUNT: RefCell<u64> = const { RefCell::new(0) };
/// }
/// COUNT.with_borrow_mut(|count| *count += 1);
/// assert_eq!(COUNT.take(), 1);
/// ```
#[macro_export]
macro_rules! core_local {
    ($($(#[$meta:meta])* static $name:ident: RefCell<$type:ty> = const { $init:expr };)*) => {$(
        ::std::thread_local! {
            $(#[$meta])*
            static $name: ::std::cell::RefCell<$type> = {
                $crate::simulation::register(|value| {
                    let value = value.map(|value| *value.downcast().expect("it is of this type"));
                    let fresh = || ::std::cell::RefCell::into_inner($init);
                    let other: $type = value.unwrap_or_else(fresh);
                    ::std::boxed::Box::new($name.replace(other))
                });
                $init
            };
        }
    )*};
}
