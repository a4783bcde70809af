//! A response that goes on until one side ends it.

use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use super::{Connection, Place, connect_first, no_answer, no_socket, read_head, request_head};

/// A longer reason, a longer line before a piece or a larger piece is not from Blitz.
const REASON_BYTES_MAX: u64 = 64 * 1024;
const LINE_BYTES_MAX: u64 = 16 * 1024;
const PIECE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The content of such a response.
pub(crate) struct StreamedContent(BufReader<Box<dyn Connection>>);

/// Opens it at the first of these places where a process listens. `timeout` is for its head.
///
/// # Errors
/// There is no process, no response in time, or one with another status than 200: the problem with its remedy.
pub(crate) fn open(
    places: &[Place],
    target: &str,
    timeout: Duration,
) -> Result<StreamedContent, String> {
    let (mut stream, host) = connect_first(places, timeout).map_err(|late| match late {
        Some(error) => no_answer("GET", &error),
        None => no_socket(places),
    })?;
    let failed = |error| no_answer("GET", &error);
    let sent = stream.write_all(request_head("GET", target, &host).as_bytes());
    sent.map_err(failed)?;
    let mut stream = BufReader::new(stream);
    let head = read_head(&mut stream).map_err(failed)?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        let mut content = String::new();
        // Without its end it has the beginning of the reason.
        let _ = stream.take(REASON_BYTES_MAX).read_to_string(&mut content);
        return Err(match status {
            "404" => "blitz: the process cannot be followed\n  \
                 it is not Blitz, or another version: name its socket with --control"
                .to_owned(),
            _ => format!("blitz: {}", content.trim_end()),
        });
    }
    // From now on there may be nothing to tell for any time.
    let endless = stream.get_mut().set_timeout(None);
    endless.map_err(|error| format!("blitz: {error}"))?;
    Ok(StreamedContent(stream))
}

impl StreamedContent {
    /// Waits for the next piece; `None` at the end of the content.
    ///
    /// # Errors
    /// The connection has ended before the content.
    pub(crate) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = read_line(&mut self.0)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).ok();
        let size = size.filter(|size| *size <= PIECE_BYTES_MAX);
        let size = size.ok_or(io::ErrorKind::InvalidData)?;
        if size == 0 {
            return Ok(None);
        }
        let mut piece = Vec::new();
        if (&mut self.0).take(size).read_to_end(&mut piece)? as u64 != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read_line(&mut self.0)?;
        Ok(Some(piece))
    }
}

/// A line without its end.
fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.take(LINE_BYTES_MAX).read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(line.trim_end_matches('\r').to_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn content(bytes: &[u8]) -> StreamedContent {
        let (mut peer, stream) = UnixStream::pair().unwrap();
        io::Write::write_all(&mut peer, bytes).unwrap();
        StreamedContent(BufReader::new(Box::new(stream)))
    }

    #[test]
    fn pieces_come_one_after_another() {
        let mut whole = content(b"3\r\na\nb\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n");
        assert_eq!(whole.next().unwrap().as_deref(), Some(&b"a\nb"[..]));
        assert_eq!(whole.next().unwrap().as_deref(), Some(&b"0123456789"[..]));
        assert_eq!(whole.next().unwrap(), None);
    }

    #[test]
    fn an_early_end_is_no_end_of_the_content() {
        for bytes in [
            &b""[..],
            b"3",
            b"3\r\na",
            b"3\r\na\nb",
            b"x\r\n",
            b"fffffffff\r\n",
        ] {
            assert!(content(bytes).next().is_err(), "{bytes:?}");
        }
    }
}
