//! A request that passes through takes all its memory from what earlier ones left behind.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::support::{Proxy, Upstream, ok};

/// The system's allocator, counting per thread, so that tests beside each other do not mix.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on as it is; counting touches no memory but a constant-initialised
// cell of the calling thread, which has no destructor and so needs no allocation of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of this very function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Allocations of the calling thread so far.
fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Requests per look. What each of them allocates shows at least as often.
const REQUESTS: usize = 200;

/// The fewest allocations of the gateway's core in some rounds of [`REQUESTS`]: tables grow once
/// in a while, and what is left beside that is the price of a request.
fn fewest_allocations(proxy: &Proxy, request: &str) -> u64 {
    let mut client = proxy.client();
    let mut round = || {
        let before = proxy.on_core(allocations);
        for _ in 0..REQUESTS {
            client.send(request);
            assert_eq!(client.response().text(), "fixed");
        }
        proxy.on_core(allocations) - before
    };
    (0..8).map(|_| round()).min().unwrap()
}

scenarios! {
    fn a_proxied_request_allocates_nothing_in_steady_state(io) {
        let upstream = Upstream::answering(ok("fixed"));
        let chunked = Upstream::answering(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfixed\r\n0\r\n\r\n",
        );
        let targets = [
            upstream.url(),
            format!("/localhost=http://localhost:{}/", upstream.port()),
            format!("/chunked={}", chunked.url()),
        ];
        let proxy = Proxy::to(io, &targets.each_ref().map(String::as_str));
        for request in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /localhost/a?q=1 HTTP/1.1\r\nHost: a\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n",
            "GET /chunked HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n",
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        ] {
            assert_eq!(fewest_allocations(&proxy, request), 0, "{request:?}");
        }
    }
}
