//! Requests to the control socket or the control address of a running process.

mod streamed;

use std::convert::Infallible;
use std::env;
use std::fmt::{self, Write as _};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use blitz_config::Socket;

use crate::config;

pub(crate) use self::streamed::{StreamedContent, open};

/// The longest wait for the response to a question, which changes nothing.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A longer head, or content, is not from Blitz. The metrics of 10,000 sites may be that large.
const HEAD_BYTES_MAX: u64 = 64 * 1024;
const CONTENT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The response of a process.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content: String,
}

/// Where a process answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Its control socket.
    Socket(PathBuf),
    /// Its control address, which changes nothing.
    Address(SocketAddr),
}

/// The control address of a process that is told none.
pub(crate) const USUAL_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9180);

impl Place {
    fn connect(&self, timeout: Duration) -> io::Result<Box<dyn Connection>> {
        let stream: Box<dyn Connection> = match self {
            Place::Socket(path) => Box::new(UnixStream::connect(path)?),
            Place::Address(address) => Box::new(TcpStream::connect_timeout(address, timeout)?),
        };
        stream.set_timeout(Some(timeout))?;
        Ok(stream)
    }

    /// The host of its requests.
    fn host(&self) -> String {
        match self {
            Place::Socket(_) => "localhost".to_owned(),
            Place::Address(address) => address.to_string(),
        }
    }
}

trait Connection: Read + Write {
    /// For each read and write.
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
}

impl Connection for UnixStream {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_write_timeout(timeout)?;
        self.set_read_timeout(timeout)
    }
}

impl Connection for TcpStream {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_write_timeout(timeout)?;
        self.set_read_timeout(timeout)
    }
}

impl FromStr for Place {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Place, Infallible> {
        Ok(match text.parse() {
            Ok(address) => Place::Address(address),
            Err(_) => Place::Socket(text.into()),
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Socket(path) => write!(f, "{}", path.display()),
            Place::Address(address) => write!(f, "{address}"),
        }
    }
}

/// The process that is asked, as people choose it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Chosen<'a> {
    /// Its socket.
    pub(crate) socket: Option<&'a Path>,
    /// The file that names its socket.
    pub(crate) config: Option<&'a Path>,
}

impl Chosen<'_> {
    /// The sockets at which it may listen: the one that is chosen, or that of the file that `blitz run` would use, or
    /// the usual ones.
    ///
    /// # Errors
    /// The file says that it has none, or the file that is chosen cannot be read.
    fn sockets(self) -> Result<Vec<PathBuf>, String> {
        if let Some(socket) = self.socket {
            return Ok(vec![socket.to_owned()]);
        }
        match config::control_socket(self.config) {
            Ok(None) => Ok(usual_paths()),
            Ok(Some((_, Socket::Path(path)))) => Ok(vec![path.into()]),
            Ok(Some((file, Socket::Off))) => Err(format!(
                "blitz: {} has `control.socket = false`, so its process has no socket\n  \
                 name that of another process with --control PATH",
                file.display()
            )),
            Err(problem) => Err(format!("blitz: {problem}")),
        }
    }
}

/// Sends a request to the first of the sockets of a process at which one listens.
///
/// # Errors
/// There is no process, or no response in time: the problem with its remedy.
pub(crate) fn ask(
    chosen: Chosen<'_>,
    method: &str,
    target: &str,
    timeout: Duration,
) -> Result<Answer, String> {
    let sockets = chosen.sockets()?;
    let places: Vec<_> = sockets.into_iter().map(Place::Socket).collect();
    ask_first(&places, method, target, timeout).map_err(|problem| match problem {
        Problem::NoProcess => no_socket(&places),
        Problem::NoAnswer(problem) => problem,
    })
}

/// Why a process cannot be read: the problem with its remedy.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// There is no process, or it is not one of Blitz.
    NoProcess(String),
    /// It has not answered in time, and may later.
    NoAnswer(String),
}

impl ReadError {
    pub(crate) fn into_text(self) -> String {
        match self {
            ReadError::NoProcess(text) | ReadError::NoAnswer(text) => text,
        }
    }
}

/// The content of the response of the first of these places where a process listens.
///
/// # Errors
/// There is no process, no response in time, or one with another status than 200.
pub(crate) fn read(places: &[Place], target: &str, timeout: Duration) -> Result<String, ReadError> {
    let answer = ask_first(places, "GET", target, timeout).map_err(|problem| match problem {
        Problem::NoProcess => ReadError::NoProcess(no_process(places)),
        Problem::NoAnswer(problem) => ReadError::NoAnswer(problem),
    })?;
    match answer.status {
        200 => Ok(answer.content),
        404 => Err(ReadError::NoProcess(format!(
            "blitz: the process has no {target}\n  \
             it is not Blitz, or another version: name its socket or its address with --control"
        ))),
        status => Err(ReadError::NoProcess(format!(
            "blitz: the process answers {target} with {status}\n  {}",
            answer.content.lines().next().unwrap_or_default()
        ))),
    }
}

/// The id of the process that listens at the first of these sockets; an address does not tell it.
pub(crate) fn process_id(places: &[Place]) -> Option<i32> {
    places.iter().find_map(|place| match place {
        Place::Socket(path) => {
            let stream = UnixStream::connect(path).ok()?;
            let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
            Some(peer.pid.as_raw_nonzero().get())
        }
        Place::Address(_) => None,
    })
}

enum Problem {
    NoProcess,
    /// With its text.
    NoAnswer(String),
}

/// The same if it has to be a socket, which only a process with a file has by default.
fn no_socket(places: &[Place]) -> String {
    format!(
        "blitz: no process listens at {}, or not for this user\n  \
         start one with `blitz run --config FILE`, or name its socket with --control PATH",
        list(places)
    )
}

fn no_process(places: &[Place]) -> String {
    format!(
        "blitz: no process listens at {}, or not for this user\n  \
         start one with `blitz run`, or name its socket or its address with --control",
        list(places)
    )
}

fn list(places: &[Place]) -> String {
    let places: Vec<_> = places.iter().map(Place::to_string).collect();
    places.join(" or ")
}

fn ask_first(
    places: &[Place],
    method: &str,
    target: &str,
    timeout: Duration,
) -> Result<Answer, Problem> {
    let (mut stream, host) = connect_first(places, timeout).map_err(|error| match error {
        Some(error) => Problem::NoAnswer(no_answer(method, &error)),
        None => Problem::NoProcess,
    })?;
    let response = exchange(&mut *stream, method, target, &host);
    let response = response.map_err(|error| Problem::NoAnswer(no_answer(method, &error)))?;
    let (head, content) = response;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| {
        let text = "blitz: the process has ended without an answer; its log has the reason";
        Problem::NoAnswer(text.to_owned())
    })?;
    Ok(Answer { status, content })
}

/// A connection to the first of these places where a process listens, and the host of its requests.
///
/// # Errors
/// The error of a process that listens and accepts nothing in time; `None` if there is no process.
fn connect_first(
    places: &[Place],
    timeout: Duration,
) -> Result<(Box<dyn Connection>, String), Option<io::Error>> {
    let mut late = None;
    for place in places {
        match place.connect(timeout) {
            Ok(stream) => return Ok((stream, place.host())),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => late = Some(error),
            Err(_) => {}
        }
    }
    Err(late)
}

/// Why there is no response, for people.
fn no_answer(method: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => match method {
            "GET" => "blitz: the process has not answered in time".to_owned(),
            _ => "blitz: the process has not answered within --timeout; it may still read the file\n  \
                  its log has the outcome; write a longer --timeout for a slow file system"
                .to_owned(),
        },
        io::ErrorKind::UnexpectedEof => {
            "blitz: the process has ended without an answer; its log has the reason".to_owned()
        }
        _ => format!("blitz: {error}"),
    }
}

/// The head and the content as they are: the process sends texts with their length. Both are empty if the connection
/// ends before the head.
fn exchange(
    stream: &mut dyn Connection,
    method: &str,
    target: &str,
    host: &str,
) -> io::Result<(String, String)> {
    stream.write_all(request_head(method, target, host).as_bytes())?;
    let mut stream = BufReader::new(stream);
    match read_head(&mut stream) {
        Ok(head) => Ok((head, read_content(&mut stream, target)?)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Default::default()),
        Err(error) => Err(error),
    }
}

/// The head with its last, empty line.
fn read_head(stream: &mut impl BufRead) -> io::Result<String> {
    let mut head = String::new();
    let mut stream = stream.take(HEAD_BYTES_MAX);
    loop {
        let before = head.len();
        stream.read_line(&mut head)?;
        match &head[before..] {
            "\r\n" | "\n" => return Ok(head),
            line if line.ends_with('\n') => {}
            _ if stream.limit() == 0 => return Err(too_large("in its head", HEAD_BYTES_MAX)),
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// The content up to the end of the connection.
fn read_content(stream: &mut impl BufRead, target: &str) -> io::Result<String> {
    let mut content = String::new();
    let mut stream = stream.take(CONTENT_BYTES_MAX + 1);
    stream.read_to_string(&mut content)?;
    match stream.limit() {
        0 => Err(too_large(&format!("for {target}"), CONTENT_BYTES_MAX)),
        _ => Ok(content),
    }
}

fn too_large(part: &str, bytes_max: u64) -> io::Error {
    io::Error::other(format!(
        "the answer of the process has more than {} KiB {part}\n  \
         it is not Blitz: name its socket or its address with --control",
        bytes_max / 1024
    ))
}

fn request_head(method: &str, target: &str, host: &str) -> String {
    let length = match method {
        "POST" => "Content-Length: 0\r\n",
        _ => "",
    };
    format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{length}Connection: close\r\n\r\n")
}

/// The usual places: the sockets, and the address.
pub(crate) fn usual_places() -> Vec<Place> {
    let sockets = usual_paths().into_iter().map(Place::Socket);
    sockets.chain([Place::Address(USUAL_ADDRESS)]).collect()
}

/// The usual sockets, of which the first that can be made is used.
pub(crate) fn usual_paths() -> Vec<PathBuf> {
    let of_user = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folders = [Some(PathBuf::from("/run")), of_user];
    let paths = folders.into_iter().flatten();
    paths
        .map(|folder| folder.join("blitz/control.sock"))
        .collect()
}

/// A target with a query of these pairs.
pub(crate) fn target(path: &str, pairs: &[(&str, String)]) -> String {
    let mut target = path.to_owned();
    for (at, (name, value)) in pairs.iter().enumerate() {
        target.push(if at == 0 { '?' } else { '&' });
        target += name;
        target.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                    target.push(char::from(byte));
                }
                // Writing to a text does not fail.
                _ => drop(write!(target, "%{byte:02X}")),
            }
        }
    }
    target
}
