//! Memory that lives as long as one request.

use std::cell::RefCell;
use std::ops::Deref;

use bumpalo::Bump;

use crate::extract::FromRequest;
use crate::request::Request;
use crate::response::Response;

/// Most arenas a core keeps for later requests.
const KEPT_MAX: usize = 64;
/// An arena that has grown larger than this is given back to the system.
const KEPT_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    static SHELF: RefCell<Vec<Bump>> = const { RefCell::new(Vec::new()) };
}

/// A bump allocator for one request; everything in it is freed at once when it is dropped.
///
/// Its memory goes back to the core and serves the next request, so steady traffic asks the
/// system for nothing.
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
    /// Empty only while it is dropped.
    bump: Option<Bump>,
}

impl Arena {
    /// An empty arena, from the core's shelf if there is one.
    pub fn take() -> Arena {
        let kept = SHELF
            .try_with(|shelf| shelf.borrow_mut().pop())
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
        self.bump.as_ref().expect("only drop empties it")
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
        // While the thread ends the shelf may be gone already; then the memory simply is freed.
        let _ = SHELF.try_with(|shelf| {
            let mut shelf = shelf.borrow_mut();
            if shelf.len() < KEPT_MAX {
                shelf.push(bump);
            }
        });
    }
}

impl FromRequest for Arena {
    fn from_request(_: &mut Request) -> Result<Self, Response> {
        Ok(Arena::take())
    }
}
