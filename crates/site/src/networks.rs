//! Networks as texts, and files of them: one a line, with comments behind `#`.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::net::{IpAddr, Ipv6Addr};

use crate::network_set::{NETWORKS_MAX, NetworkSet, NetworkSetBuilder};

/// The longest line.
const LINE_BYTES_MAX: u64 = 4096;

/// The byte order mark that some editors write at the beginning.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The first and the last address as IPv6, which maps IPv4; `None` is clients of unix sockets.
type Bounds = Option<(Ipv6Addr, Ipv6Addr)>;

/// Why the networks of a file cannot be used.
#[derive(Debug)]
pub enum NetworksError {
    /// The file cannot be read.
    Io(io::Error),
    /// A line is no network.
    Line {
        /// The first such line, from 1.
        number: usize,
        /// The problem.
        problem: String,
        /// The remedy.
        remedy: String,
        /// Further such lines.
        further: usize,
    },
    /// There are more than [`NETWORKS_MAX`].
    TooMany,
}

impl fmt::Display for NetworksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworksError::Io(error) => write!(f, "it cannot be read: {error}"),
            NetworksError::Line {
                number,
                problem,
                further,
                ..
            } => {
                write!(f, "line {number}: {problem}")?;
                match further {
                    0 => Ok(()),
                    1 => f.write_str("; another line is wrong as well"),
                    further => write!(f, "; {further} more lines are wrong"),
                }
            }
            NetworksError::TooMany => write!(f, "it has more than {NETWORKS_MAX} networks"),
        }
    }
}

impl std::error::Error for NetworksError {}

impl NetworksError {
    /// The remedy.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            NetworksError::Io(_) => "name another file".to_owned(),
            NetworksError::Line { remedy, .. } => remedy.clone(),
            NetworksError::TooMany => "join networks that touch each other".to_owned(),
        }
    }
}

/// The networks of a text, whose length its caller bounds.
///
/// # Errors
/// It cannot be read, has too many networks, or a line that is none.
pub fn read_networks(text: impl BufRead) -> Result<NetworkSet, NetworksError> {
    let mut builder = NetworkSetBuilder::default();
    add_networks(text, &mut builder)?;
    Ok(builder.build())
}

/// Adds the networks of a text, whose length its caller bounds.
///
/// # Errors
/// As for [`read_networks`].
pub fn add_networks(
    mut text: impl BufRead,
    builder: &mut NetworkSetBuilder,
) -> Result<(), NetworksError> {
    let mut first_problem = None;
    let mut further = 0;
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut limited = text.by_ref().take(LINE_BYTES_MAX);
        let length = limited.read_until(b'\n', &mut line);
        let length = length.map_err(NetworksError::Io)?;
        if length == 0 {
            break;
        }
        let is_cut = length as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n");
        if is_cut {
            text.skip_until(b'\n').map_err(NetworksError::Io)?;
        }
        match network(&line, number == 1, is_cut) {
            Ok(None) => {}
            Ok(Some(bounds)) => {
                if !builder.add(bounds) {
                    return Err(NetworksError::TooMany);
                }
            }
            Err(_) if first_problem.is_some() => further += 1,
            Err((problem, remedy)) => first_problem = Some((number, problem, remedy)),
        }
    }
    match first_problem {
        None => Ok(()),
        Some((number, problem, remedy)) => Err(NetworksError::Line {
            number,
            problem,
            remedy,
            further,
        }),
    }
}

/// The network of a line, if it has one. An error is a problem and its remedy, without the text of the line: another file
/// than meant may have secrets.
fn network(line: &[u8], is_first: bool, is_cut: bool) -> Result<Option<Bounds>, (String, String)> {
    let line = match line.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) if is_first => rest,
        _ => line,
    };
    let text = line.split(|byte| *byte == b'#').next().unwrap_or_default();
    let is_comment = text.len() < line.len();
    let text = text.trim_ascii();
    if is_cut && !is_comment {
        let problem = format!("it has more than {LINE_BYTES_MAX} bytes");
        return Err((problem, "write one network a line".to_owned()));
    }
    if text.is_empty() {
        return Ok(None);
    }
    // Bytes that are no text are no network either.
    let text = str::from_utf8(text).unwrap_or_default();
    parse_network(text).map(Some)
}

/// The first and the last address of a network (`10.0.0.0/8`), of an address alone, or of `unix`, which has none. The
/// language of the configuration reads the same.
///
/// # Errors
/// It is none of them, or an address with bits behind the length: the problem and its remedy.
pub fn parse_network(text: &str) -> Result<Bounds, (String, String)> {
    if text == "unix" {
        return Ok(None);
    }
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let Ok(ip) = address.parse::<IpAddr>() else {
        return Err((
            "this is neither an address nor a network".to_owned(),
            "write for example 10.0.0.0/8, fd00::/8, 192.0.2.1 or unix".to_owned(),
        ));
    };
    let (width, bits) = match ip {
        IpAddr::V4(v4) => (32, v4.to_ipv6_mapped().to_bits()),
        IpAddr::V6(v6) => (128, v6.to_bits()),
    };
    let length = match length {
        None => Some(width),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
        Some(_) => None,
    };
    let Some(length) = length.filter(|length| *length <= width) else {
        return Err((
            "the length after the slash is invalid".to_owned(),
            format!("write a number from 0 to {width}"),
        ));
    };
    let mask = u128::MAX.checked_shl(width - length).unwrap_or(0);
    let (first, last) = (
        Ipv6Addr::from_bits(bits & mask),
        Ipv6Addr::from_bits(bits | !mask),
    );
    if bits & mask != bits {
        let network = IpAddr::V6(first).to_canonical();
        return Err((
            format!("bits after the first {length} are set"),
            format!("write {network}/{length} for the network, or {ip} for the address"),
        ));
    }
    Ok(Some((first, last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> Result<usize, String> {
        match read_networks(text.as_bytes()) {
            Ok(set) => Ok(set.count()),
            Err(NetworksError::Line { ref remedy, .. }) if remedy.is_empty() => panic!("{text}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn lines_have_networks_and_comments() {
        let long_comment = format!("# {}\n10.0.0.0/8\n", "x".repeat(10_000));
        for (text, expected) in [
            ("", 0),
            ("\n\n# nothing\n", 0),
            ("10.0.0.0/8\nfd00::/8\n192.0.2.1\nunix", 4),
            ("\u{feff}10.0.0.0/8\r\n  192.0.2.1\t# the office\r\n", 2),
            (&long_comment, 1),
        ] {
            assert_eq!(count(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_wrong_line_has_its_number_and_is_not_shown() {
        let long = format!("10.0.0.0/8\n{}\n", "1".repeat(10_000));
        for (text, expected) in [
            (
                "10.0.0.0/8\n\nsecret\n",
                "line 3: this is neither an address nor a network",
            ),
            (
                "10.0.0.1/8\nb\nc\n",
                "line 1: bits after the first 8 are set; 2 more lines are wrong",
            ),
            (
                "10.0.0.0/8 10.0.0.0/9\nb",
                "line 1: the length after the slash is invalid; another line is wrong as well",
            ),
            (
                "10.0.0.0/8\n\u{feff}10.0.0.0/8",
                "line 2: this is neither an address nor a network",
            ),
            (&long, "line 2: it has more than 4096 bytes"),
        ] {
            assert_eq!(count(text), Err(expected.to_owned()), "{text}");
        }
    }
}
