//! Connecting to servers, with the time that each part takes.

use std::rc::Rc;
use std::time::{Duration, Instant};

use blitz_proto::Limits;
use blitz_reactor::{Address, Socket, read_clock};

use super::proxy_header::ProxyHeader;
use crate::counters::count;
use crate::error::ClientError;
use crate::tls::{self, AlpnOffer, TlsConnector};
use crate::transport::Transport;

/// How long the parts of connecting took, by the driver's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectTimings {
    /// When connecting began.
    pub began: Instant,
    /// Time until the socket was connected; `None` with HTTP/3.
    pub connect: Option<Duration>,
    /// Time of the TLS handshake that followed, or of QUIC's handshake, which contains that of TLS; `None` in clear
    /// text.
    pub handshake: Option<Duration>,
    /// Whether the handshake resumed an earlier session.
    pub is_resumed: bool,
}

/// A new connection, after the TLS handshake if there is a connector. It begins with the header, if there is one.
pub(crate) async fn connect(
    address: &Address,
    header: Option<&ProxyHeader>,
    connector: Option<&Rc<TlsConnector>>,
    offer: AlpnOffer,
    limits: &Limits,
) -> Result<(Transport, ConnectTimings), ClientError> {
    let began = read_clock();
    let socket = connect_socket(address, limits.connect_timeout).await?;
    let connected = read_clock();
    let mut timings = ConnectTimings {
        began,
        connect: Some(connected - began),
        handshake: None,
        is_resumed: false,
    };
    socket.set_window(limits.stream_buffer_bytes_max);
    if let Some(header) = header {
        socket.send(header.encoded());
    }
    let Some(connector) = connector else {
        return Ok((Transport::Plain(socket), timings));
    };
    let secure = Box::pin(tls::connect(socket, connector, offer, limits)).await;
    let transport = secure.map_err(ClientError::TlsHandshake)?;
    timings.handshake = Some(read_clock() - connected);
    timings.is_resumed = transport.info().is_some_and(|info| info.is_resumed);
    Ok((transport, timings))
}

async fn connect_socket(address: &Address, limit: Duration) -> Result<Socket, ClientError> {
    let connected = Socket::connect_within(address, limit).await;
    let connected = connected.map_err(|error| ClientError::from_connect(&error, address));
    count(|counters| match connected {
        Ok(_) => counters.upstream_connects += 1,
        Err(_) => counters.upstream_connect_failures += 1,
    });
    connected
}
