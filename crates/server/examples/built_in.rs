//! A server with the built-in endpoints. To see it drain, request `/delay?ms=800` and send TERM: the response
//! still arrives.

use std::time::Duration;

fn main() -> blitz::Result {
    blitz::builtin::app()
        .drain_timeout(Duration::from_secs(1))
        .run()
}
