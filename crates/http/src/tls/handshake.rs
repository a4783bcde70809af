//! The handshake. A server advances it as bytes arrive; a client awaits it.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use blitz_proto::Limits;
use blitz_reactor::Socket;

use super::client::{AlpnOffer, TlsConnector};
use super::error::TlsError;
use super::info::{TlsInfo, TlsVersion};
use super::server::{Choice, ServerTls, take_choice};
use super::session::Session;
use super::stream::TlsStream;
use crate::counters::count;
use crate::transport::Transport;

impl TlsStream {
    /// A new session on the server side.
    pub(crate) fn server(tls: &ServerTls, limits: &Limits) -> Result<TlsStream, TlsError> {
        let session = Session::server(tls).map_err(|error| TlsError::new(&error))?;
        Ok(TlsStream::new(session, limits.tls_handshake_bytes_max))
    }

    /// Whether the handshake is complete.
    pub(crate) fn is_established(&self) -> bool {
        self.info.is_some()
    }

    /// Counts a completed handshake and stores its result.
    pub(super) fn note_handshake(&mut self) {
        if self.info.is_some() || self.session.common().is_handshaking() {
            return;
        }
        let is_server = self.session.is_server();
        let info = TlsInfo::new(self.session.common(), is_server, self.choice.take());
        count(|counters| match is_server {
            true => {
                let tls = &mut counters.tls;
                tls.handshakes += 1;
                tls.resumed += u64::from(info.is_resumed);
                match info.version {
                    TlsVersion::V1_2 => tls.version_1_2 += 1,
                    TlsVersion::V1_3 => tls.version_1_3 += 1,
                }
            }
            false => {
                counters.tls.upstream_handshakes += 1;
                counters.tls.upstream_resumed += u64::from(info.is_resumed);
            }
        });
        self.info = Some(Rc::new(info));
    }

    /// Stores the certificate that was chosen while the session processed the ClientHello.
    pub(super) fn keep_choice(&mut self) {
        if self.info.is_none()
            && let Some(choice) = take_choice()
        {
            self.choice = Some(choice);
        }
    }
}

/// Runs a client's handshake on a new connection.
pub(crate) async fn connect(
    socket: Socket,
    connector: &Rc<TlsConnector>,
    offer: AlpnOffer,
    limits: &Limits,
) -> Result<Transport, TlsError> {
    let (config, name) = (Arc::clone(&connector.config), connector.name.clone());
    let session =
        Session::client(config, name, offer.alpn()).map_err(|error| TlsError::new(&error))?;
    let mut tls = TlsStream::new(session, limits.tls_handshake_bytes_max);
    tls.choice = Some(Choice {
        server_name: connector.sent_name.clone(),
        ..Choice::default()
    });
    tls.start(&socket);
    let mut transport = Transport::secure(socket, tls);
    let limit: Duration = limits.tls_handshake_timeout;
    let done = blitz_reactor::timeout(limit, poll_fn(|cx| poll_established(&mut transport, cx)));
    match done.await {
        Ok(Ok(())) => Ok(transport),
        Ok(Err(error)) => {
            // Sends the queued alert, which names the reason.
            transport.finish();
            Err(error)
        }
        Err(_) => {
            if let Some((tls, socket)) = transport.secure_parts() {
                tls.fail_with(TlsError::TimedOut, socket);
            }
            Err(TlsError::TimedOut)
        }
    }
}

fn poll_established(transport: &mut Transport, cx: &mut Context<'_>) -> Poll<Result<(), TlsError>> {
    let Some((tls, socket)) = transport.secure_parts() else {
        return Poll::Ready(Err(TlsError::Internal));
    };
    loop {
        if tls.is_established() {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = tls.failure() {
            return Poll::Ready(Err(error));
        }
        match socket.poll_recv(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(Some(slice))) => tls.receive(slice, socket),
            Poll::Ready(Ok(None) | Err(_)) => {
                tls.fail_with(TlsError::Ended, socket);
                return Poll::Ready(Err(TlsError::Ended));
            }
        }
    }
}
