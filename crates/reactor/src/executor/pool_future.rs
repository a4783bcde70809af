//! Boxed futures in memory from a free list.

use std::alloc::Layout;
use std::cell::RefCell;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The difference in size between two classes of blocks.
const CLASS_BYTES: usize = 128;

/// Futures larger than `CLASSES * CLASS_BYTES` (16 KiB) use the allocator directly.
const CLASSES: usize = 128;

/// Most free bytes of one class that a core keeps: a thousand futures of 4 KiB.
const BYTES_KEPT_MAX: usize = 4 * 1024 * 1024;

const BLOCK_ALIGN: usize = 64;

/// A boxed local future whose memory comes from the core's pool and returns to it (rule 5). It may borrow for `'a`.
pub struct PooledFuture<'a, T: 'static> {
    future: NonNull<u8>,
    table: &'static VTable<T>,
    /// It owns such a future, which is not sent to another thread.
    owns: PhantomData<Rc<dyn Future<Output = T> + 'a>>,
}

/// One that borrows nothing.
pub type PoolFuture<T> = PooledFuture<'static, T>;

/// The virtual functions of a future's type.
struct VTable<T> {
    layout: Layout,
    poll: unsafe fn(NonNull<u8>, &mut Context<'_>) -> Poll<T>,
    drop: unsafe fn(NonNull<u8>),
}

impl<'a, T: 'static> PooledFuture<'a, T> {
    /// Moves `future` into pooled memory.
    pub fn new<F: Future<Output = T> + 'a>(future: F) -> PooledFuture<'a, T> {
        PooledFuture::with(|| future)
    }

    /// Makes a future in pooled memory. A future of some KiB is not moved there, because nothing that could
    /// panic comes between.
    #[inline]
    pub fn with<F: Future<Output = T> + 'a>(make: impl FnOnce() -> F) -> PooledFuture<'a, T> {
        struct Of<F>(PhantomData<F>);
        impl<F: Future<Output: 'static>> Of<F> {
            const TABLE: &'static VTable<F::Output> = &VTable {
                layout: Layout::new::<F>(),
                poll: poll_as::<F>,
                drop: drop_as::<F>,
            };
        }
        let memory = take(Layout::new::<F>());
        // SAFETY: `take` returned memory of this layout that nothing else uses.
        unsafe { memory.cast::<F>().write(make()) };
        PooledFuture {
            future: memory,
            table: Of::<F>::TABLE,
            owns: PhantomData,
        }
    }
}

/// # Safety
/// `future` points to a live `F` that is never moved.
unsafe fn poll_as<F: Future>(future: NonNull<u8>, cx: &mut Context<'_>) -> Poll<F::Output> {
    // SAFETY: the caller guarantees the type; the block is not moved until it is dropped.
    unsafe { Pin::new_unchecked(future.cast::<F>().as_mut()) }.poll(cx)
}

/// # Safety
/// `future` points to a live `F` that is not used again.
unsafe fn drop_as<F>(future: NonNull<u8>) {
    // SAFETY: the caller guarantees it.
    unsafe { future.cast::<F>().drop_in_place() };
}

impl<T: 'static> Future for PooledFuture<'_, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // SAFETY: the table is that of the type that `new` wrote.
        unsafe { (self.table.poll)(self.future, cx) }
    }
}

impl<T: 'static> Unpin for PooledFuture<'_, T> {}

impl<T: 'static> Drop for PooledFuture<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the last use of the future; its memory is freed with its own layout.
        unsafe { (self.table.drop)(self.future) };
        give_back(self.future, self.table.layout);
    }
}

/// The core's free blocks by class.
struct Blocks([Vec<NonNull<u8>>; CLASSES]);

thread_local! {
    static BLOCKS: RefCell<Blocks> = const { RefCell::new(Blocks([const { Vec::new() }; CLASSES])) };
}

/// Returns the free blocks to the allocator.
pub(crate) fn free_unused_blocks() {
    let none = Blocks([const { Vec::new() }; CLASSES]);
    let kept = BLOCKS.try_with(|blocks| blocks.replace(none));
    drop(kept);
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for (class, blocks) in self.0.iter_mut().enumerate() {
            for block in blocks.drain(..) {
                // SAFETY: the block was allocated with the layout of its class and is not in use.
                unsafe { std::alloc::dealloc(block.as_ptr(), layout_of(class)) };
            }
        }
    }
}

/// The class of blocks for a layout; `None` if the allocator serves it.
fn class_of(layout: Layout) -> Option<usize> {
    let class = layout.size().div_ceil(CLASS_BYTES).max(1) - 1;
    (class < CLASSES && layout.align() <= BLOCK_ALIGN).then_some(class)
}

fn layout_of(class: usize) -> Layout {
    Layout::from_size_align((class + 1) * CLASS_BYTES, BLOCK_ALIGN).expect("a small block")
}

fn take(layout: Layout) -> NonNull<u8> {
    let Some(class) = class_of(layout) else {
        return allocate(layout);
    };
    let kept = BLOCKS.try_with(|blocks| blocks.borrow_mut().0[class].pop());
    kept.ok()
        .flatten()
        .unwrap_or_else(|| allocate(layout_of(class)))
}

fn give_back(block: NonNull<u8>, layout: Layout) {
    let Some(class) = class_of(layout) else {
        // SAFETY: `take` allocated it with this very layout.
        return unsafe { std::alloc::dealloc(block.as_ptr(), layout) };
    };
    let kept = BLOCKS.try_with(|blocks| {
        let blocks = &mut blocks.borrow_mut().0[class];
        let room = blocks.len() < BYTES_KEPT_MAX / layout_of(class).size();
        if room {
            blocks.push(block);
        }
        room
    });
    if !kept.unwrap_or(false) {
        // SAFETY: `take` allocated it with the layout of its class.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout_of(class)) };
    }
}

fn allocate(layout: Layout) -> NonNull<u8> {
    let layout = if layout.size() == 0 {
        layout_of(0)
    } else {
        layout
    };
    // SAFETY: the layout is not empty.
    let block = unsafe { std::alloc::alloc(layout) };
    NonNull::new(block).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn the_memory_of_a_completed_future_is_reused() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = PoolFuture::new(async { [7u8; 300] });
        let block = first.future;
        assert_eq!(Pin::new(&mut first).poll(&mut cx), Poll::Ready([7u8; 300]));
        drop(first);
        let second = PoolFuture::new(async { [1u8; 290] });
        assert_eq!(second.future, block);
    }

    #[test]
    fn large_and_zero_sized_futures_work() {
        let mut cx = Context::from_waker(Waker::noop());
        let large = [3u8; 64 * 1024];
        let mut large = PoolFuture::new(async move { large.iter().map(|&b| u32::from(b)).sum() });
        assert_eq!(
            Pin::new(&mut large).poll(&mut cx),
            Poll::Ready(3 * 64 * 1024)
        );
        let mut empty = PoolFuture::new(std::future::ready(()));
        assert!(Pin::new(&mut empty).poll(&mut cx).is_ready());
    }

    #[test]
    fn dropping_a_future_drops_its_values() {
        let owned = Rc::new(());
        let kept = Rc::clone(&owned);
        let future = PoolFuture::new(async move {
            std::future::pending::<()>().await;
            drop(kept);
        });
        assert_eq!(Rc::strong_count(&owned), 2);
        drop(future);
        assert_eq!(Rc::strong_count(&owned), 1);
    }
}
