//! One request whose response is checked byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::fixed_response::{BODY, PATH};
use crate::group::{ClientProtocol, Group, LoadTool};
use crate::load_tool::{LoadRun, LoadTools};
use crate::sites;
use crate::tls_files::{HOST, TlsFiles};

const TIMEOUT: Duration = Duration::from_secs(5);
/// Far more than the head and the body have.
const RESPONSE_BYTES_MAX: usize = 16 * 1024;

/// Sends a request like the group's load tool. Returns the bytes of a response that this tool counts: head
/// and content for HTTP/1.1, content only for HTTP/2.
pub(crate) fn request_as(
    group: &Group,
    address: SocketAddr,
    tls: Option<&TlsFiles>,
    tools: &LoadTools<'_>,
) -> Result<usize, String> {
    let curl = |flag| curl(flag, address, tls);
    match (group.load_tool, group.protocol) {
        (LoadTool::Wrk, ClientProtocol::Tls) => length_of_whole(&curl("--http1.1")?),
        (LoadTool::Wrk, ClientProtocol::Http1 | ClientProtocol::H2c) => Ok(request(address)?.len()),
        (LoadTool::WrkToSites, _) => Ok(request_for(&sites::host(0), address)?.len()),
        (LoadTool::Handshakes, _) => length_of_whole(&curl("--http1.0")?),
        (LoadTool::H2load { .. }, ClientProtocol::Tls) => length_of_content(&curl("--http2")?),
        (LoadTool::Http3(_), _) => http3(address, tls, tools),
        (LoadTool::H2load { .. }, _) => length_of_content(&curl("--http2-prior-knowledge")?),
    }
}

/// A request of the load tool for HTTP/3, which checks the status.
fn http3(
    address: SocketAddr,
    tls: Option<&TlsFiles>,
    tools: &LoadTools<'_>,
) -> Result<usize, String> {
    let content = tools.http3_content(&LoadRun::single(address, PATH, tls))?;
    if content.as_bytes() == BODY {
        return Ok(BODY.len());
    }
    Err(format!("unexpected content: {content}"))
}

/// Head and body from curl, in the version of the flag.
fn curl(version: &str, address: SocketAddr, tls: Option<&TlsFiles>) -> Result<Vec<u8>, String> {
    let mut curl = curl_command(version, address, PATH, tls);
    let output = curl
        .args(["--include", "--max-time", "5"])
        .output()
        .map_err(|e| format!("curl: {e}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// curl with one request in the version of the flag.
pub(crate) fn curl_command(
    version: &str,
    address: SocketAddr,
    path: &str,
    tls: Option<&TlsFiles>,
) -> Command {
    let port = address.port();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", version])
        .args(["--connect-to", &format!("{HOST}:{port}:{address}")]);
    if version == "--http1.0" {
        // curl would offer http/1.0, which no server knows.
        curl.arg("--no-alpn");
    }
    let scheme = match tls.filter(|_| version != "--http2-prior-knowledge") {
        Some(tls) => {
            curl.arg("--cacert").arg(&tls.authority);
            "https"
        }
        None => "http",
    };
    curl.arg(format!("{scheme}://{HOST}:{port}{path}"));
    curl
}

fn length_of_whole(response: &[u8]) -> Result<usize, String> {
    let wrong = || {
        Err(format!(
            "unexpected response: {}",
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
        "unexpected response: {}",
        String::from_utf8_lossy(response)
    ))
}

/// Sends a request on a new connection and returns the whole response.
pub(crate) fn request(address: SocketAddr) -> Result<Vec<u8>, String> {
    request_for(&address.to_string(), address)
}

/// The same with this host.
fn request_for(host: &str, address: SocketAddr) -> Result<Vec<u8>, String> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(|e| e.to_string())?;
    exchange(&stream, host)
}

/// Sends a request on an open connection and returns the whole response, checked.
pub(crate) fn request_on(stream: &TcpStream, address: SocketAddr) -> Result<Vec<u8>, String> {
    exchange(stream, &address.to_string())
}

fn exchange(mut stream: &TcpStream, host: &str) -> Result<Vec<u8>, String> {
    let request = format!("GET {PATH} HTTP/1.1\r\nHost: {host}\r\n\r\n");
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
            Ok(0) => return Err("the server closed the connection inside the response".to_owned()),
            Ok(bytes) => response.extend_from_slice(&chunk[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(response)
}

/// Whether head and body are complete; an error as soon as one of them is wrong.
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
        return wrong("the content-length does not match the body");
    }
    let body = &response[end + 4..];
    if !BODY.starts_with(&body[..body.len().min(BODY.len())]) || body.len() > BODY.len() {
        return wrong("the body differs");
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
    fn a_wrong_status_length_or_body_is_an_error() {
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
