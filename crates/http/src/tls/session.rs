//! The only file that drives rustls sessions. It uses the unbuffered interface, where the caller owns all
//! buffers.

use std::ops::Range;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, ReadTraffic, UnbufferedStatus, WriteTraffic,
};
use rustls::{ClientConfig, CommonState, Error};

use super::policies::{Hello, HelloReader, PolicyTable};
use super::server::ServerTls;

/// Length of a record's header: type, version, length.
pub(super) const HEADER_BYTES: usize = 5;
/// Maximum content of one record (RFC 8446, section 5.1).
pub(super) const CONTENT_BYTES_MAX: usize = 16 * 1024;
/// Maximum length of a record after its header (RFC 5246, section 6.2.3).
const PAYLOAD_BYTES_MAX: usize = CONTENT_BYTES_MAX + 2048;
/// Maximum overhead of an encrypted record: header, nonce, content type and tag, and a key update
/// before it.
const OVERHEAD_BYTES: usize = 96;
/// Length of the nonce at the start of AES-GCM records of TLS 1.2 (RFC 5288, section 3).
const EXPLICIT_NONCE_BYTES: usize = 8;

/// One end of a TLS connection.
pub(super) enum Session {
    Server(UnbufferedServerConnection),
    /// Of a server whose settings depend on the first message of the client.
    Hello(Box<HelloSession>),
    Client(UnbufferedClientConnection),
}

/// A session that waits for the server name of the client.
pub(super) struct HelloSession {
    hello: HelloReader,
    policies: Arc<PolicyTable>,
    /// Has no handshake yet.
    unused: UnbufferedServerConnection,
}

/// The result of processing received bytes.
#[derive(Default)]
pub(super) struct Processed {
    /// Processed bytes at the front. The rest belongs to an incomplete handshake message; the next
    /// call must pass it again, followed by new bytes.
    pub(super) consumed: usize,
    /// The position of the decrypted content.
    pub(super) content: Option<Range<usize>>,
    /// The peer has closed its direction.
    pub(super) closed: bool,
    /// The session has failed. An alert with the reason may have been written.
    pub(super) failed: Option<Error>,
}

/// The length of the record at the front; `None` if the header is incomplete. For an invalid
/// header it is the length of the header, so that rustls rejects the record at once.
pub(super) fn record_bytes(bytes: &[u8]) -> Option<usize> {
    let &[kind, major, _, high, low] = bytes.first_chunk::<HEADER_BYTES>()?;
    let payload = usize::from(u16::from_be_bytes([high, low]));
    let possible = (20..=23).contains(&kind) && major == 3 && payload <= PAYLOAD_BYTES_MAX;
    Some(match possible {
        true => HEADER_BYTES + payload,
        false => HEADER_BYTES,
    })
}

impl Session {
    pub(super) fn server(tls: &ServerTls) -> Result<Session, Error> {
        let session = UnbufferedServerConnection::new(Arc::clone(&tls.config))?;
        Ok(match &tls.policies {
            None => Session::Server(session),
            Some(policies) => Session::Hello(Box::new(HelloSession {
                hello: HelloReader::default(),
                policies: Arc::clone(policies),
                unused: session,
            })),
        })
    }

    pub(super) fn is_server(&self) -> bool {
        !matches!(self, Session::Client(_))
    }

    pub(super) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        alpn: Vec<Vec<u8>>,
    ) -> Result<Session, Error> {
        UnbufferedClientConnection::new_with_alpn(config, name, alpn).map(Session::Client)
    }

    /// The part of the session that servers and clients have in common.
    pub(super) fn common(&self) -> &CommonState {
        match self {
            Session::Server(server) => server,
            Session::Hello(waiting) => &waiting.unused,
            Session::Client(client) => client,
        }
    }

    /// Begins the session of the policy for the client's server name.
    fn choose_policy(&mut self, input: &[u8]) -> Result<(), Processed> {
        let Session::Hello(waiting) = self else {
            return Ok(());
        };
        let config = match waiting.hello.read_records(input) {
            Hello::Incomplete => return Err(Processed::default()),
            Hello::Complete(name) => waiting.policies.config(name.as_deref()),
            Hello::Invalid => waiting.policies.config(None),
        };
        let session = UnbufferedServerConnection::new(Arc::clone(config));
        *self = Session::Server(session.map_err(|error| Processed {
            failed: Some(error),
            ..Processed::default()
        })?);
        Ok(())
    }

    /// Processes `input`: the unconsumed bytes of the previous call, and one more record. Content is decrypted in
    /// place; TLS's own messages are appended to `out`.
    pub(super) fn process(&mut self, input: &mut [u8], out: &mut Vec<u8>) -> Processed {
        if let Err(done) = self.choose_policy(input) {
            return done;
        }
        let mut done = Processed::default();
        loop {
            let rest = &mut input[done.consumed..];
            let next = match self {
                Session::Server(server) => step(server.process_tls_records(rest), out),
                Session::Hello(_) => return done,
                Session::Client(client) => step(client.process_tls_records(rest), out),
            };
            if let Some(content) = &next.content {
                match content.find(rest) {
                    Some(range) => {
                        let from = done.consumed;
                        done.content = Some(range.start + from..range.end + from);
                    }
                    None => done.failed = Some(Error::General("content not in place".into())),
                }
            }
            done.consumed += next.discard;
            done.closed |= next.closed;
            done.failed = done.failed.or(next.failed);
            if done.failed.is_some() {
                self.write_alert(out);
                return done;
            }
            let is_all = done.content.is_some() && done.consumed == input.len();
            if !next.continues || (is_all && !self.common().wants_write()) {
                return done;
            }
        }
    }

    /// Writes the alerts after a failure. While an alert is pending, rustls ignores the input, so
    /// the input can be empty.
    fn write_alert(&mut self, out: &mut Vec<u8>) {
        while self.common().wants_write() {
            match self {
                Session::Server(server) => step(server.process_tls_records(&mut []), out),
                Session::Hello(_) => return,
                Session::Client(client) => step(client.process_tls_records(&mut []), out),
            };
        }
    }

    /// Appends a record with `content`, at most [`CONTENT_BYTES_MAX`] long, to `out`. `held` holds
    /// the bytes that [`Session::process`] did not consume.
    pub(super) fn encrypt(
        &mut self,
        content: &[u8],
        held: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.write(held, out, &mut ContentRecord(content))
    }

    /// Appends the close_notify alert to `out`.
    pub(super) fn close_notify(&mut self, held: &mut [u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.write(held, out, &mut CloseNotify)
    }

    fn write(
        &mut self,
        held: &mut [u8],
        out: &mut Vec<u8>,
        record: &mut impl TrafficRecord,
    ) -> Result<(), Error> {
        loop {
            let written = match self {
                Session::Server(server) => write(server.process_tls_records(held), out, record),
                // Nothing is sent before the handshake is complete.
                Session::Hello(_) => return Err(Error::HandshakeNotComplete),
                Session::Client(client) => write(client.process_tls_records(held), out, record),
            };
            if let Some(result) = written {
                return result;
            }
        }
    }
}

/// The result of one call of rustls.
#[derive(Default)]
struct StateOutcome {
    discard: usize,
    content: Option<Decrypted>,
    closed: bool,
    failed: Option<Error>,
    continues: bool,
}

/// The length, start and end of content that rustls has decrypted in place. rustls returns a copy
/// of the content but not its position.
struct Decrypted {
    bytes: usize,
    first: [u8; 16],
    last: [u8; 16],
}

impl Decrypted {
    fn new(content: &[u8]) -> Decrypted {
        let (mut first, mut last) = ([0; 16], [0; 16]);
        let n = content.len().min(16);
        first[..n].copy_from_slice(&content[..n]);
        last[..n].copy_from_slice(&content[content.len() - n..]);
        Decrypted {
            bytes: content.len(),
            first,
            last,
        }
    }

    /// The position in the record: after the header and, in some suites of TLS 1.2, a nonce. If
    /// another version of rustls puts the content elsewhere, the connection fails.
    fn find(&self, record: &[u8]) -> Option<Range<usize>> {
        let n = self.bytes.min(16);
        [HEADER_BYTES, HEADER_BYTES + EXPLICIT_NONCE_BYTES]
            .into_iter()
            .map(|start| start..start + self.bytes)
            .find(|range| {
                record.get(range.clone()).is_some_and(|content| {
                    content.starts_with(&self.first[..n]) && content.ends_with(&self.last[..n])
                })
            })
    }
}

fn step<D>(status: UnbufferedStatus<'_, '_, D>, out: &mut Vec<u8>) -> StateOutcome {
    let UnbufferedStatus { discard, state } = status;
    let mut step = StateOutcome {
        discard,
        continues: true,
        ..StateOutcome::default()
    };
    match state {
        Ok(ConnectionState::ReadTraffic(traffic)) => read(traffic, &mut step),
        Ok(ConnectionState::EncodeTlsData(mut message)) => {
            if let Err(error) = append(out, 0, |room| {
                message.encode(room).map_err(|error| encode_size(&error))
            }) {
                step.failed = Some(error);
            }
        }
        Ok(ConnectionState::TransmitTlsData(flight)) => flight.done(),
        Ok(ConnectionState::PeerClosed) => step.closed = true,
        Ok(ConnectionState::Closed) => {
            step.closed = true;
            step.continues = false;
        }
        Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => {
            step.continues = false;
        }
        // Early data is not enabled, and there are no other states.
        Ok(_) => step.failed = Some(Error::General("unexpected state".into())),
        Err(error) => step.failed = Some(error),
    }
    step
}

/// Reads the content of a call. There is at most one record, since the input holds only one.
fn read<D>(mut traffic: ReadTraffic<'_, '_, D>, step: &mut StateOutcome) {
    while let Some(record) = traffic.next_record() {
        match record {
            Ok(record) if step.content.is_none() => {
                step.discard += record.discard;
                step.content = Some(Decrypted::new(record.payload));
            }
            Ok(_) => step.failed = Some(Error::General("two records out of one".into())),
            Err(error) => step.failed = Some(error),
        }
    }
}

/// A record that can be written after the handshake.
trait TrafficRecord {
    fn bytes(&self) -> usize;
    fn write<D>(
        &self,
        traffic: &mut WriteTraffic<'_, D>,
        room: &mut [u8],
    ) -> Result<usize, EncryptError>;
}

struct ContentRecord<'a>(&'a [u8]);
struct CloseNotify;

impl TrafficRecord for ContentRecord<'_> {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn write<D>(
        &self,
        traffic: &mut WriteTraffic<'_, D>,
        room: &mut [u8],
    ) -> Result<usize, EncryptError> {
        traffic.encrypt(self.0, room)
    }
}

impl TrafficRecord for CloseNotify {
    fn bytes(&self) -> usize {
        2
    }

    fn write<D>(
        &self,
        traffic: &mut WriteTraffic<'_, D>,
        room: &mut [u8],
    ) -> Result<usize, EncryptError> {
        traffic.queue_close_notify(room)
    }
}

/// Writes the record; `None` if rustls has to send or process something else first.
fn write<D>(
    status: UnbufferedStatus<'_, '_, D>,
    out: &mut Vec<u8>,
    record: &mut impl TrafficRecord,
) -> Option<Result<(), Error>> {
    match status.state {
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let bytes = record.bytes() + OVERHEAD_BYTES;
            let written = append(out, bytes, |room| {
                record
                    .write(&mut traffic, room)
                    .map_err(|error| encrypt_size(&error))
            });
            Some(written)
        }
        Ok(ConnectionState::EncodeTlsData(mut message)) => {
            let encoded = append(out, 0, |room| {
                message.encode(room).map_err(|error| encode_size(&error))
            });
            encoded.err().map(Err)
        }
        Ok(ConnectionState::TransmitTlsData(flight)) => {
            flight.done();
            None
        }
        Ok(ConnectionState::PeerClosed) => None,
        Ok(_) => Some(Err(Error::HandshakeNotComplete)),
        Err(error) => Some(Err(error)),
    }
}

/// Calls `write` with `bytes` of room at the end of `out`. If `write` returns a larger size, calls
/// it once more with that size.
fn append(
    out: &mut Vec<u8>,
    mut bytes: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Result<usize, Error>>,
) -> Result<(), Error> {
    let start = out.len();
    for _ in 0..2 {
        out.resize(start + bytes, 0);
        match write(&mut out[start..]) {
            Ok(written) => {
                out.truncate(start + written);
                return Ok(());
            }
            Err(Ok(required)) => bytes = required,
            Err(Err(error)) => {
                out.truncate(start);
                return Err(error);
            }
        }
    }
    out.truncate(start);
    Err(Error::EncryptError)
}

fn encrypt_size(error: &EncryptError) -> Result<usize, Error> {
    match error {
        EncryptError::InsufficientSize(size) => Ok(size.required_size),
        EncryptError::EncryptExhausted => Err(Error::EncryptError),
    }
}

fn encode_size(error: &EncodeError) -> Result<usize, Error> {
    match error {
        EncodeError::InsufficientSize(size) => Ok(size.required_size),
        EncodeError::AlreadyEncoded => Err(Error::EncryptError),
    }
}
