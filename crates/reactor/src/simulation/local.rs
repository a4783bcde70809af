//! The values of each core, while several cores live on one thread.

use std::any::Any;
use std::cell::RefCell;

/// Swaps the value of a thread with the one that is given: `None` stands for a fresh one.
#[expect(unreachable_pub, reason = "`register` takes it")]
pub type Swap = fn(&mut Option<Box<dyn Any>>);

thread_local! {
    static REGISTERED: RefCell<Vec<Swap>> = const { RefCell::new(Vec::new()) };
}

/// Adds a value of this thread to those that belong to cores. Called by what
/// [`core_local`](crate::core_local) makes, when the value is first used.
pub fn register(swap: Swap) {
    REGISTERED.with_borrow_mut(|registered| registered.push(swap));
}

/// The values of one core while it does not run, and those of the thread while it does.
#[derive(Default)]
pub(super) struct Locals(Vec<Option<Box<dyn Any>>>);

impl Locals {
    /// Calls `f` with the core's values in the thread, and takes them out again, also after a panic.
    pub(super) fn within<R>(&mut self, f: impl FnOnce() -> R) -> R {
        self.swap();
        let leaving = Leaving(self);
        let value = f();
        drop(leaving);
        value
    }

    fn swap(&mut self) {
        REGISTERED.with_borrow(|registered| {
            self.0.resize_with(registered.len(), || None);
            for (swap, value) in registered.iter().zip(&mut self.0) {
                swap(value);
            }
        });
    }
}

struct Leaving<'a>(&'a mut Locals);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.swap();
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
                $crate::simulation::register(|slot| {
                    let other = slot.get_or_insert_with(|| {
                        let fresh: $type = ::std::cell::RefCell::into_inner($init);
                        ::std::boxed::Box::new(fresh)
                    });
                    let other = other.downcast_mut::<$type>().expect("it is of this type");
                    $name.with_borrow_mut(|value| ::std::mem::swap(value, other));
                });
                $init
            };
        }
    )*};
}
