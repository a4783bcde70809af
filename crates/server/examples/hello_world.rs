//! Says hello on http://localhost:8080/ and `/hello`; `BLITZ_LISTEN`, `BLITZ_CORES` and `BLITZ_IO`
//! change where and how.

use blitz::App;

fn main() -> blitz::Result {
    App::new()
        .get("/", || "Hello, World!")
        .get("/hello", || "Hello, World!")
        .run()
}
