//! A greeting on https://localhost:8443/ with a certificate and its key, for example of `blitz cert`:
//! `cargo run --example https -- localhost.pem localhost.key`.
//!
//! A third argument is the address to listen on; a fourth one, `tcp`, leaves HTTP/3 out. HUP reads the files again.

use std::env::args;

use blitz::{App, Certificates};

fn main() -> blitz::Result {
    let mut words = args().skip(1);
    let (Some(certificate), Some(key)) = (words.next(), words.next()) else {
        let problem = blitz::Error::new("which certificate shall be shown?");
        return Err(problem.with_remedy("Name two files in PEM: https CERTIFICATE KEY [ADDRESS]"));
    };
    let address = words.next().unwrap_or("127.0.0.1:8443".to_owned());
    let is_tcp_only = words.next().is_some_and(|word| word == "tcp");
    App::new()
        .http3(!is_tcp_only)
        .get("/", || "Hello, World!")
        .listen_tls(address, Certificates::from_files(certificate, key))
        .run()
}
