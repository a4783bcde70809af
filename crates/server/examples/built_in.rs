//! The built-in endpoints as a server of their own. Stopping it shows a drain: ask for
//! `/delay?ms=800`, send TERM, and the answer still comes.

use std::time::Duration;

fn main() -> blitz::Result {
    blitz::builtin::app()
        .drain_timeout(Duration::from_secs(1))
        .run()
}
