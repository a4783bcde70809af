//! Each server is asked everything before it is measured, as the board's own validation does: results, also of numbers
//! that nobody could have prepared; media types; every byte of every file, compressed or not; a missing file.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use blitz_http::Protocol;
use flate2::read::GzDecoder;
use serde_json::Value;

use super::profiles::{Profile, ProfileLoad};
use crate::board;
use crate::load::{Answer, Ask, ask_all};
use crate::study::Version;

const WITHIN: Duration = Duration::from_secs(10);
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// A request and what its response must be.
struct Expected {
    ask: Ask,
    status: u16,
    media_type: Option<&'static str>,
    content: Content,
}

enum Content {
    Any,
    Bytes(Vec<u8>),
    /// With its keys in any order.
    Json(Value),
}

/// Verifies the responses of the server at `base`. One that computes is asked for other results too.
///
/// # Errors
/// The request, and what is wrong.
pub(super) fn verify(profile: &Profile, base: &str, computes: bool) -> Result<(), String> {
    let protocol = match profile.version {
        Version::Http1 => Protocol::Http1,
        Version::Http2 => Protocol::Http2,
        Version::Http3 => Protocol::Http3,
    };
    let expected = expected(profile.load, computes);
    let asks: Vec<Ask> = expected.iter().map(|it| it.ask.clone()).collect();
    let answers = ask_all(base, protocol, &asks)?;
    for (expected, answer) in expected.iter().zip(&answers) {
        check(expected, answer).map_err(|error| format!("{}: {error}", expected.ask.path))?;
    }
    match profile.load {
        ProfileLoad::Sums | ProfileLoad::Limited => chunked(base),
        ProfileLoad::Pipelined => pipelined(base, profile.streams as usize),
        _ => Ok(()),
    }
}

fn get(path: String, content: Content, media_type: &'static str) -> Expected {
    let ask = Ask {
        path,
        ..Ask::default()
    };
    Expected {
        ask,
        status: 200,
        media_type: Some(media_type),
        content,
    }
}

fn text(path: String, content: &str) -> Expected {
    get(path, Content::Bytes(content.into()), "text/plain")
}

fn expected(load: ProfileLoad, computes: bool) -> Vec<Expected> {
    match load {
        ProfileLoad::Sums | ProfileLoad::Limited => sums(computes),
        ProfileLoad::Pipelined => vec![text(board::PIPELINE.0.to_owned(), board::PIPELINE.1)],
        ProfileLoad::Query => {
            let (path, query, result) = board::SUM_STREAMS;
            let mut all = vec![text(format!("{path}?{query}"), result)];
            if computes {
                all.push(text(format!("{path}?a=417&b=-20"), "397"));
            }
            all
        }
        ProfileLoad::Pages => pages(computes),
        ProfileLoad::Files => files(),
    }
}

fn sums(computes: bool) -> Vec<Expected> {
    let (path, query) = board::SUM;
    let (without, content, with) = board::SUM_RESULTS;
    let post = |content: &str, result: &str| {
        let mut expected = text(format!("{path}?{query}"), result);
        expected.ask.content = Some(content.into());
        let kind = ("Content-Type".to_owned(), "text/plain".to_owned());
        expected.ask.fields.push(kind);
        expected
    };
    let mut all = vec![
        text(format!("{path}?{query}"), without),
        post(content, with),
    ];
    if computes {
        all.push(text(format!("{path}?a=731&b=259"), "990"));
        all.push(post("846", "901"));
        all.push(post("117", "172"));
    }
    all
}

fn pages(computes: bool) -> Vec<Expected> {
    let items = board::items();
    let mut requests = board::PAGE_REQUESTS.to_vec();
    if computes {
        requests.push((7, 9));
    }
    let page = |(count, by)| {
        let content = Content::Json(board::page(&items, count, by));
        let path = format!("{}?m={by}", board::page_path(count));
        get(path, content, "application/json")
    };
    requests.into_iter().map(page).collect()
}

/// Each file with the field that asks for its compressed form and without it, and one that does not exist.
fn files() -> Vec<Expected> {
    let mut all = Vec::new();
    for (name, length) in board::FILES {
        // The board checks these types; those of fonts differ from server to server.
        let (kind, is_text) = board::kind(name);
        for accepts in [false, true] {
            let content = Content::Bytes(board::content(name, length));
            let mut expected = get(format!("/{}/{name}", board::STATIC), content, kind);
            expected.media_type = expected.media_type.filter(|_| is_text);
            if accepts {
                let field = ("Accept-Encoding", board::ACCEPT_ENCODING);
                expected
                    .ask
                    .fields
                    .push((field.0.to_owned(), field.1.to_owned()));
            }
            all.push(expected);
        }
    }
    all.push(Expected {
        status: 404,
        media_type: None,
        ..get(
            format!("/{}/nonexistent.txt", board::STATIC),
            Content::Any,
            "",
        )
    });
    all
}

fn check(expected: &Expected, answer: &Answer) -> Result<(), String> {
    if answer.status != expected.status {
        return Err(format!("status {}", answer.status));
    }
    let media_type = answer.content_type.split(';').next().unwrap_or_default();
    // RFC 9239 has made the older name of scripts an alias.
    let media_type = media_type
        .trim()
        .replace("text/javascript", "application/javascript");
    if let Some(wanted) = expected.media_type
        && media_type != wanted
    {
        return Err(format!("the media type is {media_type} and not {wanted}"));
    }
    let accepts = expected
        .ask
        .fields
        .iter()
        .any(|(name, _)| name == "Accept-Encoding");
    let content = match answer.content_encoding.as_str() {
        "" => answer.content.clone(),
        "gzip" if accepts => {
            let mut content = Vec::new();
            let read = GzDecoder::new(&answer.content[..]).read_to_end(&mut content);
            read.map_err(|error| format!("no gzip: {error}"))?;
            content
        }
        coding => return Err(format!("the coding {coding}, which was not accepted")),
    };
    let is_right = match &expected.content {
        Content::Any => true,
        Content::Bytes(wanted) => content == *wanted,
        Content::Json(wanted) => {
            serde_json::from_slice::<Value>(&content).ok().as_ref() == Some(wanted)
        }
    };
    match is_right {
        true => Ok(()),
        false => Err(format!(
            "wrong content: {}",
            String::from_utf8_lossy(&content[..content.len().min(80)])
        )),
    }
}

/// A POST in chunks, whose head and content come in pieces.
fn chunked(base: &str) -> Result<(), String> {
    let (path, query) = board::SUM;
    let (_, content, with) = board::SUM_RESULTS;
    let (first, second) = content.split_at(1);
    let host = host(base);
    let head = format!(
        "POST {path}?{query} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
    let pieces = [
        &head[..9],
        &head[9..60],
        &head[60..],
        &format!("1\r\n{first}\r\n"),
        &format!("1\r\n{second}\r\n0\r\n\r\n"),
    ];
    let response = raw(base, &pieces, |_| false)?;
    let is_right = response.starts_with("HTTP/1.1 200")
        && response.contains(&format!("\r\n\r\n{with}"))
        || response.contains(&format!("\r\n{with}\r\n0\r\n"));
    match is_right {
        true => Ok(()),
        false => Err(format!("{path} in chunks: {response}")),
    }
}

/// As many responses as requests that are sent at once.
fn pipelined(base: &str, count: usize) -> Result<(), String> {
    let (path, text) = board::PIPELINE;
    let host = host(base);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let is_whole = |response: &str| {
        response.matches("HTTP/1.1 200").count() == count && response.ends_with(text)
    };
    let response = raw(base, &[&request.repeat(count)], is_whole)?;
    match is_whole(&response) {
        true => Ok(()),
        false => Err(format!("{count} requests at once: {response}")),
    }
}

fn host(base: &str) -> &str {
    base.strip_prefix("http://").unwrap_or(base)
}

/// Sends pieces with pauses on a connection of its own, and reads until the end or until the response is whole.
fn raw(base: &str, pieces: &[&str], is_whole: impl Fn(&str) -> bool) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{base}: {error}");
    let mut stream = TcpStream::connect(host(base)).map_err(failed)?;
    stream.set_read_timeout(Some(WITHIN)).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    for (index, piece) in pieces.iter().enumerate() {
        if index > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        stream.write_all(piece.as_bytes()).map_err(failed)?;
    }
    let mut response = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = stream.read(&mut chunk).map_err(failed)?;
        response.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&response);
        if read == 0 || response.len() > RESPONSE_BYTES_MAX || is_whole(&text) {
            return Ok(text.into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(content: &[u8]) -> Answer {
        Answer {
            status: 200,
            content_type: "text/plain; charset=utf-8".to_owned(),
            content_encoding: String::new(),
            content: content.to_owned(),
        }
    }

    #[test]
    fn wrong_responses_are_found() {
        let expected = text("/pipeline".to_owned(), "ok");
        assert_eq!(check(&expected, &answer(b"ok")), Ok(()));
        let problem = |answer: Answer| check(&expected, &answer).unwrap_err();
        assert!(problem(answer(b"no")).contains("wrong content: no"));
        let other = |change: fn(&mut Answer)| {
            let mut other = answer(b"ok");
            change(&mut other);
            problem(other)
        };
        assert!(other(|it| it.status = 404).contains("404"));
        assert!(other(|it| it.content_type = "text/html".to_owned()).contains("text/html"));
        assert!(other(|it| it.content_encoding = "gzip".to_owned()).contains("not accepted"));
    }

    #[test]
    fn pages_are_compared_whatever_the_order_of_their_keys() {
        let expected = &pages(true)[7];
        let Content::Json(page) = &expected.content else {
            panic!("no JSON")
        };
        let items = page["items"].to_string();
        let mut right = answer(format!("{{\"items\":{items},\"count\":7}}").as_bytes());
        right.content_type = "application/json".to_owned();
        assert_eq!(check(expected, &right), Ok(()));
        right.content = format!("{{\"items\":{items},\"count\":8}}").into_bytes();
        assert!(check(expected, &right).is_err());
    }
}
