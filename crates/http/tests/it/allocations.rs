use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::support::{Server, on_each_driver, options};
use blitz_http::ServeOptions;

/// The system's allocator, counting per thread, so that tests beside each other do not mix.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every call is passed on as it is, and counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of this very function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

const REQUESTS: usize = 1000;

/// Allocations of the core in a round of requests, over the price of asking for the number.
fn allocations_of(server: &Server, round: impl FnOnce()) -> u64 {
    let allocations = || server.ask(|| ALLOCATIONS.get());
    let price = {
        let before = allocations();
        allocations() - before
    };
    let before = allocations();
    round();
    allocations() - before - price
}

#[test]
fn requests_on_a_warm_connection_allocate_nothing() {
    on_each_driver(|io| {
        let server = Server::with(io, || ServeOptions {
            server: Some("test".into()),
            ..options()
        });
        let mut client = server.connect();
        let request = "GET /hello HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nUser-Agent: test\r\n\r\n";
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: test\r\n\r\nhello";
        let mut round = || {
            for _ in 0..REQUESTS {
                client.send(request).expect(answer);
            }
        };
        // A table grows once in a while; what a request costs shows in every round.
        let rounds = [(); 4].map(|()| allocations_of(&server, &mut round));
        assert!(rounds.contains(&0), "{rounds:?}");
    });
}
