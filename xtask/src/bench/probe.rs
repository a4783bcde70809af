//! One request whose answer is read byte by byte: is the server right at all?

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::group::{Front, Group, Load};
use super::tls_files::{HOST, TlsFiles};

/// What every system answers to `PATH`.
pub(crate) const PATH: &str = "/hello";
pub(crate) const BODY: &[u8] = b"Hello, World!";
const TIMEOUT: Duration = Duration::from_secs(5);
/// Far more than a head and the body need.
const RESPONSE_BYTES_MAX: usize = 16 * 1024;

/// Asks as the load tool of the group does. Returns how many bytes of a response that tool counts:
/// all of HTTP/1.1, the content of HTTP/2.
pub(crate) fn ask_as(
    group: &Group,
    address: SocketAddr,
    tls: Option<&TlsFiles>,
) -> Result<usize, String> {
    let curl = |flag| curl(flag, address, tls);
    match (group.load, group.front) {
        (Load::Wrk, Front::Tls) => length_of_whole(&curl("--http1.1")?),
        (Load::Wrk, Front::Http1 | Front::H2c) => Ok(ask(address)?.len()),
        (Load::Handshakes, _) => length_of_whole(&curl("--http1.0")?),
        (Load::H2load { .. }, Front::Tls) => length_of_content(&curl("--http2")?),
        (Load::H2load { .. }, _) => length_of_content(&curl("--http2-prior-knowledge")?),
    }
}

/// Head and body as they came, by curl in the version that the flag demands.
fn curl(version: &str, address: SocketAddr, tls: Option<&TlsFiles>) -> Result<Vec<u8>, String> {
    let port = address.port();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--include", "--max-time", "5"])
        .args([version, "--connect-to", &format!("{HOST}:{port}:{address}")]);
    if version == "--http1.0" {
        // Which curl would offer by its name, and nobody has heard of.
        curl.arg("--no-alpn");
    }
    let scheme = match tls.filter(|_| version != "--http2-prior-knowledge") {
        Some(tls) => {
            curl.arg("--cacert").arg(&tls.authority);
            "https"
        }
        None => "http",
    };
    curl.arg(format!("{scheme}://{HOST}:{port}{PATH}"));
    let output = curl.output().map_err(|e| format!("curl: {e}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

fn length_of_whole(response: &[u8]) -> Result<usize, String> {
    let wrong = || {
        Err(format!(
            "another answer: {}",
            String::from_utf8_lossy(response)
        ))
    };
    match is_complete(response) {
        Ok(true) => Ok(response.len()),
        Ok(false) => wrong(),
        Err(error) => Err(error),
    }
}

fn length_of_content(response: &[u8]) -> Result<usize, String> {
    if response.starts_with(b"HTTP/2 200") && response.ends_with(&[b"\r\n\r\n", BODY].concat()) {
        return Ok(BODY.len());
    }
    Err(format!(
        "another answer: {}",
        String::from_utf8_lossy(response)
    ))
}

/// Asks on a connection of its own and returns the whole response.
pub(crate) fn ask(address: SocketAddr) -> Result<Vec<u8>, String> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(|e| e.to_string())?;
    ask_on(&stream, address)
}

/// Asks on an open connection and returns the whole response, checked.
pub(crate) fn ask_on(mut stream: &TcpStream, address: SocketAddr) -> Result<Vec<u8>, String> {
    let request = format!("GET {PATH} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream
        .set_read_timeout(Some(TIMEOUT))
        .map_err(|e| e.to_string())?;
    stream
        .write_all(request.as_bytes())
        .map_err(|e| e.to_string())?;
    let mut response = Vec::new();
    let mut chunk = [0; 2048];
    while !is_complete(&response)? {
        match stream.read(&mut chunk) {
            Ok(0) => return Err("it closed the connection inside the response".to_owned()),
            Ok(bytes) => response.extend_from_slice(&chunk[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(response)
}

/// Whether head and body are there; an error as soon as something is wrong with them.
fn is_complete(response: &[u8]) -> Result<bool, String> {
    let wrong = |what: &str| Err(format!("{what}: {}", String::from_utf8_lossy(response)));
    if response.len() > RESPONSE_BYTES_MAX {
        return wrong("the response does not end");
    }
    let Some(end) = response.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(false);
    };
    let head = String::from_utf8_lossy(&response[..end]).to_ascii_lowercase();
    let mut lines = head.split("\r\n");
    if !lines
        .next()
        .is_some_and(|line| line.starts_with("http/1.1 200"))
    {
        return wrong("the status is not 200");
    }
    let length = lines.find_map(|line| line.strip_prefix("content-length:"));
    if length.map(str::trim) != Some(&BODY.len().to_string()) {
        return wrong("the content-length is not that of the body");
    }
    let body = &response[end + 4..];
    if !BODY.starts_with(&body[..body.len().min(BODY.len())]) || body.len() > BODY.len() {
        return wrong("the body is another");
    }
    Ok(body.len() == BODY.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n";

    #[test]
    fn a_response_is_complete_at_its_last_byte() {
        let response = format!("{HEAD}Hello, World!");
        for cut in 0..response.len() {
            assert_eq!(
                is_complete(&response.as_bytes()[..cut]),
                Ok(false),
                "cut at {cut}"
            );
        }
        assert_eq!(is_complete(response.as_bytes()), Ok(true));
    }

    #[test]
    fn a_wrong_status_length_or_body_is_said() {
        for wrong in [
            "HTTP/1.1 404 Not Found\r\nContent-Length: 13\r\n\r\nHello, World!".to_owned(),
            "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello, World".to_owned(),
            "HTTP/1.1 200 OK\r\n\r\nHello, World!".to_owned(),
            format!("{HEAD}Hello, Wurld!"),
            format!("{HEAD}Hello, World!!"),
        ] {
            assert!(is_complete(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
