#![forbid(unsafe_code)]
//! The flags of both peers: `--listen ADDR --threads N`.

use std::env;
use std::net::SocketAddr;

/// The content of `/hello`, the same as that of the example `hello_world`.
pub const CONTENT: &str = "Hello, World!";

/// Where to listen, and with how many threads.
pub struct Flags {
    /// An IP address and a port.
    pub listen: SocketAddr,
    /// At least 1.
    pub threads: usize,
}

impl Flags {
    /// The flags of this process; by default one thread on port 8080.
    ///
    /// # Errors
    /// A value is missing or malformed.
    pub fn of_process() -> Result<Flags, String> {
        let value = |name: &str, default: &str| {
            let mut words = env::args().skip_while(|word| word != name);
            match words.next() {
                Some(_) => words.next().ok_or(format!("{name} needs a value")),
                None => Ok(default.to_owned()),
            }
        };
        let (listen, threads) = (
            value("--listen", "127.0.0.1:8080")?,
            value("--threads", "1")?,
        );
        let malformed = |text: &str| format!("malformed value: {text}");
        Ok(Flags {
            listen: listen.parse().map_err(|_| malformed(&listen))?,
            threads: match threads.parse() {
                Ok(threads @ 1..=1024) => threads,
                _ => return Err(malformed(&threads)),
            },
        })
    }
}
