//! Memory that lives as long as one request.

use std::cell::RefCell;
use std::ops::Deref;

use bumpalo::Bump;

use crate::extract::FromRequest;
use crate::request::Request;
use crate::response::Response;

/// Most arenas a core keeps for later requests.
const KEPT_MAX: usize = 64;
/// A larger arena is freed instead of kept.
const KEPT_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    static FREE_LIST: RefCell<Vec<Bump>> = const { RefCell::new(Vec::new()) };
}

/// A bump allocator for one request; dropping it frees all of its allocations at once.
///
/// Its memory returns to the core and is reused by later requests, so steady traffic allocates nothing
/// from the system.
///
/// ```
/// use blitz::{App, extract::{Arena, Path}};
///
/// let shout = |Path(word): Path<String>, arena: Arena| {
///     let upper = arena.alloc_str(&word);
///     upper.make_ascii_uppercase();
///     format!("{upper}!")
/// };
/// # App::new().get("/shout/{word}", shout).build().unwrap();
/// ```
pub struct Arena {
    /// `None` only while it is dropped.
    bump: Option<Bump>,
}

impl Arena {
    /// An empty arena, from the core's free list if that has one.
    pub fn take() -> Arena {
        let kept = FREE_LIST
            .try_with(|list| list.borrow_mut().pop())
            .ok()
            .flatten();
        Arena {
            bump: Some(kept.unwrap_or_default()),
        }
    }
}

impl Deref for Arena {
    type Target = Bump;

    fn deref(&self) -> &Bump {
        self.bump.as_ref().expect("only drop takes it")
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let Some(mut bump) = self.bump.take() else {
            return;
        };
        bump.reset();
        if bump.allocated_bytes() > KEPT_BYTES_MAX {
            return;
        }
        // While the thread ends, the free list may be gone already; then the arena is freed.
        let _ = FREE_LIST.try_with(|list| {
            let mut list = list.borrow_mut();
            if list.len() < KEPT_MAX {
                list.push(bump);
            }
        });
    }
}

impl FromRequest for Arena {
    fn from_request(_: &mut Request) -> Result<Self, Response> {
        Ok(Arena::take())
    }
}
