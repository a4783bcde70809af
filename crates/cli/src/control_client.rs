//! Requests to the control socket of a running process.

use std::env;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest wait for the response to a question, which changes nothing.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The response of a process.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content: String,
}

/// Sends a request to the socket that is chosen, or to the first of the usual ones that a process listens at.
///
/// # Errors
/// There is no process, or no response in time: the problem with its remedy.
pub(crate) fn ask(
    chosen: Option<&Path>,
    method: &str,
    target: &str,
    timeout: Duration,
) -> Result<Answer, String> {
    let paths = chosen.map_or_else(usual_paths, |path| vec![path.to_owned()]);
    let Some(mut stream) = paths.iter().find_map(|path| UnixStream::connect(path).ok()) else {
        let paths: Vec<_> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return Err(format!(
            "blitz: no process listens at {}, or not for this user\n  \
             start one with `blitz run --config FILE`, or name its socket with --control PATH",
            paths.join(" or ")
        ));
    };
    let response = exchange(&mut stream, method, target, timeout);
    let response = response.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => match method {
            "GET" => "blitz: the process has not answered in time".to_owned(),
            _ => "blitz: the process has not answered within --timeout; it may still read the file\n  \
                  its log has the outcome; write a longer --timeout for a slow file system"
                .to_owned(),
        },
        _ => format!("blitz: {error}"),
    })?;
    let (head, content) = response.split_once("\r\n\r\n").unwrap_or_default();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| {
        "blitz: the process has ended without an answer; its log has the reason".to_owned()
    })?;
    Ok(Answer {
        status,
        content: content.to_owned(),
    })
}

/// The response as it is: the process sends texts with their length.
fn exchange(
    stream: &mut UnixStream,
    method: &str,
    target: &str,
    timeout: Duration,
) -> io::Result<String> {
    stream.set_write_timeout(Some(timeout))?;
    stream.set_read_timeout(Some(timeout))?;
    let length = match method {
        "POST" => "Content-Length: 0\r\n",
        _ => "",
    };
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{length}Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
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
