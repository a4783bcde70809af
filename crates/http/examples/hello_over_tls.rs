//! Says hello over TLS: `hello_over_tls ADDRESS CERTIFICATE KEY` with files in PEM.
//! `BLITZ_IO` chooses the driver, as elsewhere; one core serves.

use std::error::Error;
use std::rc::Rc;

use blitz_http::{
    Address, Certificate, Config, Exchange, IoChoice, Listener, Pooled, ServeOptions, ServerTls,
    Status, TlsSlot, block_on, serve, service_fn,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut next = || words.next().ok_or("hello_over_tls ADDRESS CERTIFICATE KEY");
    let address = Address::Tcp(next()?.parse()?);
    let certificate = Certificate::load(next()?, next()?)?;
    let tls = ServerTls::builder().certificate(certificate).build()?;
    let io = match std::env::var("BLITZ_IO").as_deref() {
        Ok("epoll") => IoChoice::Epoll,
        Ok("uring") => IoChoice::Uring,
        _ => IoChoice::Auto,
    };
    let config = Config {
        io,
        ..Config::default()
    };
    block_on(&config, async {
        let options = ServeOptions {
            tls: Some(TlsSlot::new(tls)),
            ..ServeOptions::default()
        };
        let listener = Listener::bind(&address)?;
        serve(listener, Rc::new(service_fn(hello)), Rc::new(options)).await;
        Ok::<(), std::io::Error>(())
    })??;
    Ok(())
}

async fn hello(exchange: Exchange) {
    let mut head = Pooled::response(Status::OK);
    exchange.responder.send(&mut head, "Hello, World!");
}
