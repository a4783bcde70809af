//! A peer that sends and expects exact bytes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use crate::IO_TIMEOUT;

/// One end of a connection that sends and expects exact bytes. It reads no byte ahead.
#[derive(Debug)]
pub struct Raw(pub TcpStream);

impl Raw {
    /// Connects.
    ///
    /// # Panics
    /// When nobody listens.
    pub fn connect(address: SocketAddr) -> Raw {
        Raw::over(TcpStream::connect(address).expect("a server listens"))
    }

    /// Accepts the next connection.
    ///
    /// # Panics
    /// When the listener fails.
    pub fn accept(listener: &TcpListener) -> Raw {
        Raw::over(listener.accept().expect("a connection comes").0)
    }

    /// The end of an open connection, with timeouts.
    ///
    /// # Panics
    /// When the socket takes no options.
    pub fn over(stream: TcpStream) -> Raw {
        set_timeouts(&stream);
        Raw(stream)
    }

    /// Sends `bytes` unchanged.
    ///
    /// # Panics
    /// When they cannot be sent.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Raw {
        self.0.write_all(bytes.as_ref()).expect("it sends");
        self
    }

    /// Reads exactly these bytes.
    ///
    /// # Panics
    /// When others come, or fewer.
    #[track_caller]
    pub fn expect(&mut self, wanted: impl AsRef<[u8]>) -> &mut Raw {
        let wanted = wanted.as_ref();
        let mut got = vec![0; wanted.len()];
        let mut len = 0;
        while len < got.len() {
            match read(&mut self.0, &mut got[len..]) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(error) => panic!("{error} after {:?}", excerpt(&got[..len])),
            }
        }
        let same = got.iter().zip(wanted).take_while(|(a, b)| a == b).count();
        let (got, wanted) = (&got[..len], excerpt(&wanted[same..]));
        assert_eq!(
            excerpt(&got[same.min(len)..]),
            wanted,
            "after {same} equal bytes"
        );
        self
    }

    /// Reads to the end of a head and returns it.
    ///
    /// # Panics
    /// When the connection ends before.
    #[track_caller]
    pub fn head(&mut self) -> String {
        read_head(&mut self.0)
    }

    /// Expects FIN without bytes before it.
    ///
    /// # Panics
    /// When something else comes.
    #[track_caller]
    pub fn expect_end(&mut self) {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).expect("it ends with FIN");
        assert_eq!(rest.escape_ascii().to_string(), "");
    }

    /// Expects a reset, whatever arrives before it.
    ///
    /// # Panics
    /// When FIN comes, or nothing.
    #[track_caller]
    pub fn expect_reset(&mut self) {
        let mut rest = Vec::new();
        let error = self.0.read_to_end(&mut rest).expect_err("no FIN");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    /// Expects FIN or a reset without bytes before it.
    ///
    /// # Panics
    /// When bytes come.
    #[track_caller]
    pub fn expect_end_or_reset(&mut self) {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        assert_eq!(rest.escape_ascii().to_string(), "");
    }

    /// Sends FIN; reading continues.
    ///
    /// # Panics
    /// When the connection is closed already.
    pub fn fin(&mut self) -> &mut Raw {
        let closed = self.0.shutdown(Shutdown::Write);
        closed.expect("the connection is open");
        self
    }

    /// Closes with RST, because some input is unread.
    pub fn reset(self) {
        drop(self);
    }
}

/// Limits each read and write, and sends small pieces at once.
pub(crate) fn set_timeouts(stream: &TcpStream) {
    let timeout = Some(IO_TIMEOUT);
    stream.set_read_timeout(timeout).expect("it has a timeout");
    stream.set_write_timeout(timeout).expect("it has a timeout");
    stream.set_nodelay(true).expect("it sends at once");
}

/// Reads to the end of a head, byte by byte, and returns it.
///
/// # Panics
/// When the input ends before, or the head is not text.
#[track_caller]
pub fn read_head(input: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match read(input, &mut byte) {
            Ok(1) => head.push(byte[0]),
            other => panic!("{other:?} after {:?}", excerpt(&head)),
        }
    }
    String::from_utf8(head).expect("a head is text")
}

/// Reads once. The end of an io_uring on the same thread interrupts reads that have a timeout.
///
/// # Errors
/// Those of the input but an interruption.
pub fn read(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn excerpt(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(200)].escape_ascii().to_string()
}
