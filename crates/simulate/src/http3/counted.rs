//! A client of HTTP/3 for counting: it opens connections and sends requests, without faults and moves.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use blitz_reactor::simulation::World;
use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use http::Request;

use super::quic::Quic;
use super::{FIRST_HOST, host};
use crate::tls;

/// An open connection. Clones send on the same one, which closes when the last of them is dropped.
#[derive(Clone)]
pub(crate) struct Counted(SendRequest<Quic, Bytes>);

impl Counted {
    /// Completes a handshake, which resumes no session. `None` if it fails.
    pub(crate) async fn connect(world: &World, gateway: SocketAddr, seed: u64) -> Option<Counted> {
        let (config, from) = (tls::quic_client(), host(FIRST_HOST));
        let pulse = Rc::new(Cell::new(Duration::ZERO));
        let quic = Quic::connect(world, pulse, config, gateway, from, seed).await;
        let mut builder = h3::client::builder();
        // Reserved types and settings come from a random source without a seed.
        let built = builder.send_grease(false).build(quic.ok()?).await;
        let (mut connection, sender) = built.ok()?;
        world.spawn(async move { drop(connection.wait_idle().await) });
        Some(Counted(sender))
    }

    /// Sends a request for a path. Returns the bytes of the response's content; `None` if the request fails.
    pub(crate) async fn get(&mut self, path: &str) -> Option<usize> {
        let request = Request::get(format!("https://gateway{path}")).body(());
        let mut stream = self.0.send_request(request.ok()?).await.ok()?;
        stream.finish().await.ok()?;
        stream.recv_response().await.ok()?;
        let mut received = 0;
        while let Some(bytes) = stream.recv_data().await.ok()? {
            received += bytes.remaining();
        }
        Some(received)
    }
}
