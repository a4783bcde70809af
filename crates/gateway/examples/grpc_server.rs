//! `grpc.testing.TestService` on 127.0.0.1 and the given port, for the smoke tests of gRPC.

#![allow(missing_docs, dead_code)] // it shares its modules with the tests

#[path = "../tests/it/interop/messages.rs"]
mod messages;
#[path = "../tests/it/interop/service.rs"]
mod service;

use std::net::Ipv4Addr;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).ok_or("usage: grpc_server PORT")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port.parse()?)).await?;
        Ok(service::serve(listener).await?)
    })
}
