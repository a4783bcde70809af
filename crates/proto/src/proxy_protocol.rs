//! The PROXY protocol, versions 1 and 2: the header in front of a connection with which a proxy tells the addresses of its
//! client ([specification](https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt)).
//!
//! [`Receiver`] reads a header, [`encode`] writes one. The caller decides which peers may send a header.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest header of version 1, including the line break (section 2.1).
const LINE_BYTES_MAX: usize = 107;

/// The longest header of version 2, including its TLVs; a longer one is refused. TLVs may contain a chain of
/// certificates. They are skipped as they arrive, so a header never needs this much memory.
pub const BINARY_BYTES_MAX: usize = 16 * 1024;

/// The first bytes of a header of version 1.
const LINE_START: &[u8] = b"PROXY ";
/// The first bytes of a header of version 2 (section 2.2).
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, command, family, and the length of the rest.
const FIXED_BYTES: usize = 16;

const COMMAND_LOCAL: u8 = 0x20;
const COMMAND_PROXY: u8 = 0x21;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// The version of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// The two ends of the connection that a proxy has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProxiedAddresses {
    /// The client.
    pub source: SocketAddr,
    /// Where the client has connected to.
    pub destination: SocketAddr,
}

/// Reads the header of one connection, in pieces of any size.
///
/// Call [`handle_input`](Receiver::handle_input) with each piece until it returns [`Progress::Complete`]. It consumes
/// every byte of a header, and none behind it.
#[derive(Debug)]
pub struct Receiver(ReceiverState);

#[derive(Debug)]
enum ReceiverState {
    /// Bytes up to and including the addresses.
    Addresses {
        bytes: [u8; LINE_BYTES_MAX],
        len: usize,
    },
    /// The rest of a header of version 2.
    Skipping {
        left: usize,
        source: Option<SocketAddr>,
    },
}

/// How far a header has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The whole input belongs to the header, and more of it is missing.
    NeedMore,
    /// The header is complete.
    Complete {
        /// The client; `None` if the header does not tell its address, so that the peer's own address applies.
        source: Option<SocketAddr>,
        /// How many bytes of this input belong to the header.
        consumed: usize,
    },
}

/// Why a header is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyHeaderError {
    /// The connection begins with something else.
    Missing,
    /// The header violates the specification.
    Malformed,
    /// The header has more than 107 bytes in version 1, or more than [`BINARY_BYTES_MAX`].
    TooLong,
}

impl ProxyHeaderError {
    /// Stable name of the violated rule, for logs and as a counter's label.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            ProxyHeaderError::Missing => "proxy-header-missing",
            ProxyHeaderError::Malformed => "proxy-header-malformed",
            ProxyHeaderError::TooLong => "proxy-header-too-long",
        }
    }
}

impl fmt::Display for ProxyHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProxyHeaderError::Missing => "the connection begins without a PROXY header",
            ProxyHeaderError::Malformed => "the PROXY header is malformed",
            ProxyHeaderError::TooLong => "the PROXY header is too long",
        })
    }
}

impl std::error::Error for ProxyHeaderError {}

impl Default for Receiver {
    fn default() -> Receiver {
        Receiver(ReceiverState::Addresses {
            bytes: [0; LINE_BYTES_MAX],
            len: 0,
        })
    }
}

impl Receiver {
    /// Reads the next piece.
    ///
    /// # Errors
    /// The connection must be closed.
    pub fn handle_input(&mut self, input: &[u8]) -> Result<Progress, ProxyHeaderError> {
        let mut consumed = 0;
        while let ReceiverState::Addresses { bytes, len } = &mut self.0 {
            let Some(byte) = input.get(consumed) else {
                return Ok(Progress::NeedMore);
            };
            bytes[*len] = *byte;
            *len += 1;
            consumed += 1;
            if let Some((source, left)) = parse(&bytes[..*len])? {
                self.0 = ReceiverState::Skipping { left, source };
            }
        }
        Ok(self.skip(input, consumed))
    }

    /// Skips what is left of the header behind the bytes that are consumed.
    fn skip(&mut self, input: &[u8], mut consumed: usize) -> Progress {
        let ReceiverState::Skipping { left, source } = &mut self.0 else {
            return Progress::NeedMore;
        };
        let skipped = (*left).min(input.len() - consumed);
        *left -= skipped;
        consumed += skipped;
        match *left {
            0 => Progress::Complete {
                source: *source,
                consumed,
            },
            _ => Progress::NeedMore,
        }
    }
}

/// The client, if the header tells it, and how many bytes of the header follow.
type Parsed = (Option<SocketAddr>, usize);

/// Parses the beginning of a header each time that a byte was added to it; `None` until the addresses are complete.
fn parse(bytes: &[u8]) -> Result<Option<Parsed>, ProxyHeaderError> {
    match bytes {
        _ if LINE_START.starts_with(bytes) || SIGNATURE.starts_with(bytes) => Ok(None),
        _ if bytes.starts_with(LINE_START) => parse_line(bytes),
        _ if bytes.starts_with(SIGNATURE) => parse_binary(bytes),
        _ => Err(ProxyHeaderError::Missing),
    }
}

fn parse_line(bytes: &[u8]) -> Result<Option<Parsed>, ProxyHeaderError> {
    let Some(line) = bytes.strip_suffix(b"\r\n") else {
        // Behind CR comes LF, and LF comes behind CR.
        return match bytes {
            [.., b'\r', _] | [.., b'\n'] => Err(ProxyHeaderError::Malformed),
            _ if bytes.len() == LINE_BYTES_MAX => Err(ProxyHeaderError::TooLong),
            _ => Ok(None),
        };
    };
    let line = std::str::from_utf8(&line[LINE_START.len()..]);
    let line = line.map_err(|_| ProxyHeaderError::Malformed)?;
    let source = source_of_line(line).ok_or(ProxyHeaderError::Malformed)?;
    Ok(Some((source, 0)))
}

/// The client of a line; `None` if it is malformed.
fn source_of_line(line: &str) -> Option<Option<SocketAddr>> {
    let mut words = line.split(' ');
    let family = words.next()?;
    if family == "UNKNOWN" {
        // "the receiver must ignore anything presented before the CRLF is found"
        return Some(None);
    }
    let mut word = || words.next();
    let (source, destination) = (word()?, word()?);
    let (source_port, _) = (port(word()?)?, port(word()?)?);
    if word().is_some() {
        return None;
    }
    let ip = |text: &str| -> Option<IpAddr> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let (source, _) = (ip(source)?, ip(destination)?);
    Some(Some(SocketAddr::new(source.to_canonical(), source_port)))
}

/// A decimal number without sign and leading zeros.
fn port(text: &str) -> Option<u16> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    match is_decimal && !has_leading_zero {
        true => text.parse().ok(),
        false => None,
    }
}

fn parse_binary(bytes: &[u8]) -> Result<Option<Parsed>, ProxyHeaderError> {
    let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else {
        return Ok(None);
    };
    let (command, family) = (fixed[12], fixed[13]);
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if !matches!(command, COMMAND_LOCAL | COMMAND_PROXY) || family >> 4 > 3 || family & 15 > 2 {
        return Err(ProxyHeaderError::Malformed);
    }
    if FIXED_BYTES + length > BINARY_BYTES_MAX {
        return Err(ProxyHeaderError::TooLong);
    }
    // How many bytes of addresses the family has, and how many of them are read.
    let (addresses, read) = match (command, family >> 4) {
        (COMMAND_LOCAL, _) | (_, 0) => (0, 0),
        (_, 1) => (12, 12),
        (_, 2) => (36, 36),
        (_, _) => (216, 0),
    };
    if length < addresses {
        return Err(ProxyHeaderError::Malformed);
    }
    if bytes.len() < FIXED_BYTES + read {
        return Ok(None);
    }
    let source = source_of_block(&bytes[FIXED_BYTES..]);
    Ok(Some((source, length - read)))
}

/// The client of a block of addresses; `None` for an empty one.
fn source_of_block(block: &[u8]) -> Option<SocketAddr> {
    let (ip, ports): (IpAddr, &[u8]) = match block.len() {
        12 => (IpAddr::from(*block.first_chunk::<4>()?), &block[8..]),
        36 => (IpAddr::from(*block.first_chunk::<16>()?), &block[32..]),
        _ => return None,
    };
    let port = u16::from_be_bytes(*ports.first_chunk::<2>()?);
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// Appends the header for a connection; without addresses, one that says that they are unknown.
pub fn encode(version: ProxyVersion, addresses: Option<ProxiedAddresses>, out: &mut Vec<u8>) {
    let addresses = addresses.map(ProxiedAddresses::of_one_family);
    match version {
        ProxyVersion::V1 => encode_line(addresses, out),
        ProxyVersion::V2 => encode_binary(addresses, out),
    }
}

impl ProxiedAddresses {
    /// A header has addresses of one family: where they differ, IPv4 becomes IPv6.
    fn of_one_family(self) -> ProxiedAddresses {
        let canonical =
            |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let (source, destination) = (canonical(self.source), canonical(self.destination));
        if source.is_ipv4() == destination.is_ipv4() {
            return ProxiedAddresses {
                source,
                destination,
            };
        }
        let mapped = |address: SocketAddr| match address.ip() {
            IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
            IpAddr::V6(_) => address,
        };
        ProxiedAddresses {
            source: mapped(source),
            destination: mapped(destination),
        }
    }
}

fn encode_line(addresses: Option<ProxiedAddresses>, out: &mut Vec<u8>) {
    let line = match addresses {
        None => "PROXY UNKNOWN\r\n".to_owned(),
        Some(ProxiedAddresses {
            source,
            destination,
        }) => format!(
            "PROXY {} {} {} {} {}\r\n",
            if source.is_ipv4() { "TCP4" } else { "TCP6" },
            source.ip(),
            destination.ip(),
            source.port(),
            destination.port()
        ),
    };
    out.extend_from_slice(line.as_bytes());
}

fn encode_binary(addresses: Option<ProxiedAddresses>, out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    let Some(ProxiedAddresses {
        source,
        destination,
    }) = addresses
    else {
        // "The receiver must accept this connection as valid and must use the real connection endpoints"
        return out.extend_from_slice(&[COMMAND_LOCAL, 0, 0, 0]);
    };
    let (family, length) = match source.is_ipv4() {
        true => (TCP_OVER_IPV4, 12),
        false => (TCP_OVER_IPV6, 36),
    };
    out.extend_from_slice(&[COMMAND_PROXY, family, 0, length]);
    for address in [source, destination] {
        match address.ip() {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }
    }
    for address in [source, destination] {
        out.extend_from_slice(&address.port().to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Outcome = Result<(Option<String>, usize), ProxyHeaderError>;

    /// The client and the length of a header that arrives in pieces; `None` if it is incomplete.
    fn read(bytes: &[u8], piece: usize) -> Option<Outcome> {
        let mut receiver = Receiver::default();
        let mut before = 0;
        for piece in bytes.chunks(piece) {
            match receiver.handle_input(piece) {
                Ok(Progress::NeedMore) => before += piece.len(),
                Ok(Progress::Complete { source, consumed }) => {
                    let source = source.map(|address| address.to_string());
                    return Some(Ok((source, before + consumed)));
                }
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }

    /// The same for every size of pieces.
    fn read_all(bytes: &[u8]) -> Option<Outcome> {
        let whole = read(bytes, bytes.len().max(1));
        for piece in 1..bytes.len() {
            assert_eq!(read(bytes, piece), whole, "in pieces of {piece}");
        }
        whole
    }

    fn binary(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend_from_slice(&[command, family]);
        bytes.extend_from_slice(&u16::try_from(block.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(block);
        bytes
    }

    const IPV4: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x34, 0, 80];

    #[test]
    fn lines_tell_the_client() {
        for (line, source) in [
            (
                "PROXY TCP4 192.0.2.7 10.0.0.1 4660 80\r\n",
                Some("192.0.2.7:4660"),
            ),
            (
                "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
                Some("255.255.255.255:65535"),
            ),
            ("PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n", Some("0.0.0.0:0")),
            (
                "PROXY TCP6 2001:db8::7 ::1 4660 80\r\n",
                Some("[2001:db8::7]:4660"),
            ),
            (
                "PROXY TCP6 ::ffff:192.0.2.7 ::1 4660 80\r\n",
                Some("192.0.2.7:4660"),
            ),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN ffff:: \t any-thing\r\n", None),
        ] {
            let mut bytes = line.as_bytes().to_vec();
            let outcome = Some(Ok((source.map(str::to_owned), line.len())));
            assert_eq!(read_all(&bytes), outcome, "{line}");
            bytes.extend_from_slice(b"GET / HTTP/1.1\r\n");
            assert_eq!(read_all(&bytes), outcome, "{line} and a request");
        }
    }

    #[test]
    fn every_truncation_of_a_header_needs_more() {
        let line = b"PROXY TCP6 2001:db8::7 2001:db8::1 4660 80\r\n";
        let with_tlvs = [&IPV4[..], b"\x04\0\x03abc"].concat();
        let ipv6 = binary(COMMAND_PROXY, TCP_OVER_IPV6, &[1; 36]);
        let with_tlvs = binary(COMMAND_PROXY, TCP_OVER_IPV4, &with_tlvs);
        for header in [&line[..], &with_tlvs, &ipv6] {
            assert!(read(header, header.len()).is_some());
            for end in 0..header.len() {
                assert_eq!(read_all(&header[..end]), None, "{end} bytes");
            }
        }
    }

    #[test]
    fn malformed_lines_are_refused() {
        for line in [
            "PROXY TCP4 192.0.2.7 10.0.0.1 4660\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 4660 80 1\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 4660 80 \r\n",
            "PROXY TCP4  192.0.2.7 10.0.0.1 4660 80\r\n",
            "PROXY TCP4 192.0.2.07 10.0.0.1 4660 80\r\n",
            "PROXY TCP4 192.0.2 10.0.0.1 4660 80\r\n",
            "PROXY TCP4 ::1 ::1 4660 80\r\n",
            "PROXY TCP6 192.0.2.7 10.0.0.1 4660 80\r\n",
            "PROXY TCP6 fe80::1%eth0 ::1 4660 80\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 65536 80\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 +466 80\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 0466 80\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 4660 \r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 4660 80\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 4660 80\rX",
            "PROXY UDP4 192.0.2.7 10.0.0.1 4660 80\r\n",
            "PROXY unknown\r\n",
            "PROXY \r\n",
            "PROXY TCP4 \u{e9} 10.0.0.1 4660 80\r\n",
        ] {
            let outcome = read_all(line.as_bytes());
            assert_eq!(outcome, Some(Err(ProxyHeaderError::Malformed)), "{line}");
        }
        let not_text = b"PROXY TCP4 \xff 10.0.0.1 4660 80\r\n";
        let outcome = read_all(not_text);
        assert_eq!(outcome, Some(Err(ProxyHeaderError::Malformed)));
    }

    #[test]
    fn a_line_has_at_most_107_bytes() {
        let line = |bytes: usize| format!("PROXY UNKNOWN {}\r\n", "x".repeat(bytes - 16));
        let longest = line(LINE_BYTES_MAX);
        assert_eq!(longest.len(), LINE_BYTES_MAX);
        assert_eq!(
            read_all(longest.as_bytes()),
            Some(Ok((None, LINE_BYTES_MAX)))
        );
        let longer = line(LINE_BYTES_MAX + 1);
        let outcome = read_all(longer.as_bytes());
        assert_eq!(outcome, Some(Err(ProxyHeaderError::TooLong)));
    }

    #[test]
    fn other_beginnings_are_no_header() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"PROXY\tTCP4",
            b"PROPFIND / HTTP/1.1\r\n",
            b"\x16\x03\x01\x02",
            b"\r\n\r\nGET / HTTP/1.1",
            b"\r\n\r\n\0\r\nQUIT\r",
            b"proxy TCP4 ",
        ] {
            let outcome = read_all(bytes);
            assert_eq!(outcome, Some(Err(ProxyHeaderError::Missing)), "{bytes:?}");
        }
    }

    #[test]
    fn binary_headers_tell_the_client() {
        let mut ipv6 = [0; 36];
        ipv6[..2].copy_from_slice(&[0x20, 0x01]);
        ipv6[15] = 7;
        ipv6[32..].copy_from_slice(&[0x12, 0x34, 0, 80]);
        let with_tlvs = [&IPV4[..], &[0xee; 300]].concat();
        let mapped = [&[0; 10][..], &[0xff, 0xff, 192, 0, 2, 7], &[0; 20]].concat();
        let own = None;
        for (command, family, block, source) in [
            (COMMAND_PROXY, 0x11, &IPV4[..], Some("192.0.2.7:4660")),
            (COMMAND_PROXY, 0x12, &IPV4, Some("192.0.2.7:4660")),
            (COMMAND_PROXY, 0x11, &with_tlvs, Some("192.0.2.7:4660")),
            (COMMAND_PROXY, 0x21, &ipv6, Some("[2001::7]:4660")),
            (COMMAND_PROXY, 0x21, &mapped, Some("192.0.2.7:0")),
            (COMMAND_PROXY, 0x31, &[1; 216], own),
            (COMMAND_PROXY, 0x00, &[], own),
            (COMMAND_PROXY, 0x00, &[1; 40], own),
            (COMMAND_LOCAL, 0x00, &[], own),
            (COMMAND_LOCAL, 0x11, &IPV4, own),
            (COMMAND_LOCAL, 0x11, &[1, 2], own),
        ] {
            let mut bytes = binary(command, family, block);
            let outcome = Some(Ok((source.map(str::to_owned), bytes.len())));
            assert_eq!(read_all(&bytes), outcome, "{command} {family} {block:?}");
            bytes.extend_from_slice(b"\x16\x03\x01");
            assert_eq!(read_all(&bytes), outcome, "and a ClientHello");
        }
    }

    #[test]
    fn malformed_binary_headers_are_refused() {
        for (command, family, block) in [
            (0x11, 0x11, &IPV4[..]),
            (0x31, 0x11, &IPV4),
            (0x22, 0x11, &IPV4),
            (COMMAND_PROXY, 0x41, &IPV4),
            (COMMAND_PROXY, 0x13, &IPV4),
            (COMMAND_PROXY, 0x11, &IPV4[..11]),
            (COMMAND_PROXY, 0x21, &[0; 35]),
            (COMMAND_PROXY, 0x31, &[0; 215]),
            (COMMAND_LOCAL, 0x41, &[]),
        ] {
            let outcome = read_all(&binary(command, family, block));
            let refused = Some(Err(ProxyHeaderError::Malformed));
            assert_eq!(outcome, refused, "{command} {family} {block:?}");
        }
    }

    #[test]
    fn a_binary_header_has_at_most_16_kib() {
        let header = |bytes: usize| {
            let tlvs = vec![0xee; bytes - FIXED_BYTES - IPV4.len()];
            binary(
                COMMAND_PROXY,
                TCP_OVER_IPV4,
                &[&IPV4[..], &tlvs[..]].concat(),
            )
        };
        let longest = header(BINARY_BYTES_MAX);
        for piece in [1, 1000, BINARY_BYTES_MAX] {
            let outcome = read(&longest, piece);
            let source = Some("192.0.2.7:4660".to_owned());
            assert_eq!(outcome, Some(Ok((source, BINARY_BYTES_MAX))));
        }
        // It is refused before its rest has arrived.
        let longer = &header(BINARY_BYTES_MAX + 1)[..FIXED_BYTES];
        assert_eq!(read(longer, 5), Some(Err(ProxyHeaderError::TooLong)));
    }

    #[test]
    fn headers_are_written_in_both_versions() {
        let line = |source: &str, destination: &str| {
            let mut out = Vec::new();
            let addresses = ProxiedAddresses {
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
            };
            encode(ProxyVersion::V1, Some(addresses), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            line("192.0.2.7:4660", "10.0.0.1:80"),
            "PROXY TCP4 192.0.2.7 10.0.0.1 4660 80\r\n"
        );
        assert_eq!(
            line("192.0.2.7:4660", "[2001:db8::1]:80"),
            "PROXY TCP6 ::ffff:192.0.2.7 2001:db8::1 4660 80\r\n"
        );
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            let mut out = Vec::new();
            encode(version, None, &mut out);
            assert_eq!(read_all(&out), Some(Ok((None, out.len()))));
        }
    }
}
