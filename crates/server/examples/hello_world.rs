//! A greeting on http://localhost:8080/ and `/hello`. `BLITZ_LISTEN`, `BLITZ_CORES` and `BLITZ_IO` change the
//! address, the number of cores and the driver.

use blitz::App;

fn main() -> blitz::Result {
    App::new()
        .get("/", || "Hello, World!")
        .get("/hello", || "Hello, World!")
        .run()
}
