//! One exchange whose content is checked byte by byte, with curl.

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::backend::Checked;
use super::content::ContentPattern;
use super::size::ContentSize;
use crate::group::{ClientProtocol, Group, LoadTool};
use crate::probe::curl_command;
use crate::tls_files::TlsFiles;

/// Longest time of one exchange.
const TIMEOUT_S: &str = "30";
const READ_BYTES: usize = 256 * 1024;

/// A server and the way to reach it.
#[derive(Clone, Copy)]
pub(crate) struct Destination<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) group: &'a Group,
    pub(crate) tls: Option<&'a TlsFiles>,
}

/// Downloads content and compares it with the pattern. Returns the bytes of the response's head.
pub(crate) fn download(
    server: Destination<'_>,
    path: &str,
    size: ContentSize,
    pattern: &ContentPattern,
) -> Result<u64, String> {
    let mut child = spawn(&mut command(server, path))?;
    let mut received = 0;
    let mut wrong_at = None;
    if let Some(mut pipe) = child.stdout.take() {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let bytes = pipe.read(&mut buffer).map_err(|e| format!("curl: {e}"))?;
            if bytes == 0 {
                break;
            }
            if wrong_at.is_none() && !pattern.matches(received, &buffer[..bytes]) {
                wrong_at = Some(received);
            }
            received += bytes as u64;
        }
    }
    let (head_bytes, _) = finish(child, server)?;
    if received != size.bytes() {
        return Err(format!(
            "the response has {received} bytes instead of {}",
            size.bytes()
        ));
    }
    match wrong_at {
        Some(offset) => Err(format!("the response differs after byte {offset}")),
        None => Ok(head_bytes),
    }
}

/// Uploads a file. The backend compares it with its pattern.
pub(crate) fn upload(
    server: Destination<'_>,
    file: &Path,
    size: ContentSize,
) -> Result<(), String> {
    let mut curl = command(server, "/check");
    // Without Expect, which would wait for a 100.
    curl.args(["--request", "POST", "--header", "Expect:", "--upload-file"])
        .arg(file);
    let (_, content) = finish(spawn(&mut curl)?, server)?;
    let right = Checked {
        bytes: size.bytes(),
        wrong: 0,
    };
    let checked: Result<Checked, _> = serde_json::from_slice(&content);
    match checked {
        Ok(checked) if checked == right => Ok(()),
        _ => Err(format!(
            "the backend should have read {} bytes: {}",
            size.bytes(),
            String::from_utf8_lossy(&content)
        )),
    }
}

/// curl with the protocol of the group; its last line on standard error has status, version and bytes of
/// the head.
fn command(server: Destination<'_>, path: &str) -> Command {
    let flag = match (server.group.load_tool, server.group.protocol) {
        (LoadTool::H2load { .. }, ClientProtocol::Tls) => "--http2",
        (LoadTool::H2load { .. }, _) => "--http2-prior-knowledge",
        _ => "--http1.1",
    };
    let mut curl = curl_command(flag, server.address, path, server.tls);
    curl.args(["--max-time", TIMEOUT_S, "--write-out"])
        .arg("%{stderr}\n%{http_code} %{http_version} %{size_header}\n");
    curl
}

fn spawn(curl: &mut Command) -> Result<Child, String> {
    curl.stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("curl: {e}"))
}

/// The bytes of the head, and the rest of the content.
fn finish(child: Child, server: Destination<'_>) -> Result<(u64, Vec<u8>), String> {
    let output = child.wait_with_output().map_err(|e| format!("curl: {e}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let version = match server.group.load_tool {
        LoadTool::H2load { .. } => "2",
        _ => "1.1",
    };
    let head_bytes = parse(&text, version).filter(|_| output.status.success());
    let head_bytes = head_bytes.ok_or_else(|| format!("unexpected response: {}", text.trim()))?;
    Ok((head_bytes, output.stdout))
}

/// The bytes of the head, if the response has status 200 and the right version.
fn parse(text: &str, version: &str) -> Option<u64> {
    let mut words = text.lines().last()?.split_whitespace();
    let is_right = words.next()? == "200" && words.next()? == version;
    words.next()?.parse().ok().filter(|_| is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_curl_has_status_version_and_head() {
        assert_eq!(parse("\n200 1.1 152\n", "1.1"), Some(152));
        for wrong in ["", "200 2 152", "502 1.1 152", "curl: (7) refused\n000 0 0"] {
            assert_eq!(parse(wrong, "1.1"), None, "{wrong}");
        }
    }
}
