//! Files with requests: lists of requests, and HTTP archives (HAR).

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::request::{RequestContent, RequestSpec};

/// Reads the requests of a file. Paths without a host belong to `base`.
///
/// # Errors
/// The file, the line and what is wrong.
pub(super) fn read(file: &Path, base: &str) -> Result<Vec<RequestSpec>, String> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let requests = match text.trim_start().starts_with('{') {
        true => parse_archive(&text, base).map_err(|error| format!("{name}: {error}"))?,
        false => parse_list(&text, base, folder).map_err(|error| format!("{name}:{error}"))?,
    };
    match requests.is_empty() {
        true => Err(format!("{name}: there is no request for {base}")),
        false => Ok(requests),
    }
}

/// A request a line, `[METHOD] URL [weight=N]`, followed by its fields and `@FILE` with its content.
fn parse_list(text: &str, base: &str, folder: &Path) -> Result<Vec<RequestSpec>, String> {
    let mut requests: Vec<RequestSpec> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let at = |error: String| format!("{}: {error}", index + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(request) = request_line(line, base).map_err(at)? {
            requests.push(request);
            continue;
        }
        let Some(request) = requests.last_mut() else {
            return Err(at(format!("`{line}` is no request; write GET /path")));
        };
        if let Some(file) = line.strip_prefix('@') {
            let content = fs::read(folder.join(file));
            let content = content.map_err(|error| at(format!("{file}: {error}")))?;
            request.content = RequestContent::Bytes(content);
        } else if let Some((name, value)) = line.split_once(':') {
            let field = (name.trim().to_owned(), value.trim().to_owned());
            request.fields.push(field);
        } else {
            return Err(at(format!(
                "`{line}` is neither a request, a header field nor @FILE"
            )));
        }
    }
    Ok(requests)
}

/// `None` if the line is no request.
fn request_line(line: &str, base: &str) -> Result<Option<RequestSpec>, String> {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    let is_url = |word: &str| word.starts_with('/') || word.contains("://");
    let (method, target) = match is_url(first) {
        true => ("GET", first),
        false => match words.next() {
            Some(target) if is_url(target) && !first.contains(':') => (first, target),
            _ => return Ok(None),
        },
    };
    let mut request = RequestSpec {
        method: method.to_owned(),
        ..RequestSpec::get(&absolute(target, base)?)
    };
    for word in words {
        let weight = word.strip_prefix("weight=").map(str::parse);
        let Some(Ok(weight @ 1..)) = weight else {
            return Err(format!("`{word}` is unknown; write weight=N after the URL"));
        };
        request.weight = weight;
    }
    Ok(Some(request))
}

/// The URL of a path, or a URL of the same server.
fn absolute(target: &str, base: &str) -> Result<String, String> {
    if target.starts_with('/') {
        return Ok(format!("{base}{target}"));
    }
    match belongs_to(target, base) {
        true => Ok(target.to_owned()),
        false => Err(format!(
            "`{target}` is not on {base}: a run has one server; list it in a file of its own"
        )),
    }
}

fn belongs_to(url: &str, base: &str) -> bool {
    let rest = url.strip_prefix(base);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
}

#[derive(Deserialize)]
struct Archive {
    log: ArchiveLog,
}

#[derive(Deserialize)]
struct ArchiveLog {
    entries: Vec<ArchiveEntry>,
}

#[derive(Deserialize)]
struct ArchiveEntry {
    request: ArchiveRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchiveRequest {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<ArchiveField>,
    post_data: Option<ArchiveContent>,
}

#[derive(Deserialize)]
struct ArchiveField {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct ArchiveContent {
    #[serde(default)]
    text: String,
}

/// Fields that the connection decides.
const NOT_REPEATED: &[&str] = &[
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
];

/// The requests of an HTTP archive (HAR 1.2) that belong to `base`, in their order.
fn parse_archive(text: &str, base: &str) -> Result<Vec<RequestSpec>, String> {
    let archive: Archive = serde_json::from_str(text)
        .map_err(|error| format!("{error}; a HAR file has log.entries[].request"))?;
    let requests = archive.log.entries.into_iter().map(|entry| entry.request);
    let ours = requests.filter(|request| belongs_to(&request.url, base));
    Ok(ours
        .map(|request| RequestSpec {
            literal_fields: fields(&request.headers),
            has_placeholders: false,
            content: match request.post_data {
                Some(content) => RequestContent::Bytes(content.text.into_bytes()),
                None => RequestContent::None,
            },
            method: request.method,
            ..RequestSpec::get(&request.url)
        })
        .collect())
}

fn fields(headers: &[ArchiveField]) -> Vec<(String, String)> {
    let repeated = headers.iter().filter(|field| {
        let name = field.name.to_ascii_lowercase();
        !name.starts_with(':') && !NOT_REPEATED.contains(&name.as_str())
    });
    repeated
        .map(|field| (field.name.clone(), field.value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::template::Values;
    use super::*;

    const BASE: &str = "http://a.example:8080";

    fn list(text: &str) -> Result<Vec<RequestSpec>, String> {
        parse_list(text, BASE, Path::new("."))
    }

    #[test]
    fn a_list_has_requests_with_fields_and_weights() {
        let text = "# a mix\n/ping\n\nPOST /items weight=3\nContent-Type: text/plain\n\
                    http://a.example:8080/x?y\n";
        let requests = list(text).unwrap();
        assert_eq!(requests.len(), 3);
        assert_eq!(requests[0], RequestSpec::get("http://a.example:8080/ping"));
        assert_eq!(
            (requests[1].method.as_str(), requests[1].weight),
            ("POST", 3)
        );
        assert_eq!(
            requests[1].fields,
            [("Content-Type".to_owned(), "text/plain".to_owned())]
        );
        assert_eq!(requests[2].url, "http://a.example:8080/x?y");
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, part) in [
            ("Accept: */*\n", "1: `Accept"),
            ("/a\nwhat\n", "2: `what`"),
            ("/a weight=0\n", "weight=N"),
            ("/a\n@/nowhere/at/all\n", "2: /nowhere"),
            ("http://b.example/\n", "one server"),
        ] {
            let error = list(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn an_archive_keeps_the_requests_of_the_server() {
        let text = r#"{"log":{"entries":[
            {"request":{"method":"GET","url":"http://a.example:8080/1","headers":[
                {"name":":authority","value":"a"},{"name":"Accept","value":"*/*"},
                {"name":"Host","value":"a"}]}},
            {"request":{"method":"GET","url":"http://a.example:80801/2","headers":[]}},
            {"request":{"method":"POST","url":"http://a.example:8080/3","headers":[],
                "postData":{"mimeType":"text/plain","text":"hi"}}}]}}"#;
        let requests = parse_archive(text, BASE).unwrap();
        assert_eq!(requests.len(), 2);
        assert_eq!(
            requests[0].literal_fields,
            [("Accept".to_owned(), "*/*".to_owned())]
        );
        assert_eq!(requests[1].content, RequestContent::Bytes(b"hi".to_vec()));
        assert!(parse_archive("{}", BASE).unwrap_err().contains("log"));
    }

    #[test]
    fn an_archive_has_no_placeholders_and_fields_of_the_command_line_have() {
        let text = r#"{"log":{"entries":[{"request":{"method":"GET","url":"http://a.example:8080/?a={{n}}",
            "headers":[{"name":"X-A","value":"{{handlebars}}"}]}}]}}"#;
        let mut requests = parse_archive(text, BASE).unwrap();
        let field = ("X-N".to_owned(), "{{n}}".to_owned());
        requests[0].fields.push(field);
        let mut prepared = requests[0].prepare().unwrap();
        let (head, _) = prepared.next(&Values {
            number: 7,
            random: 0,
        });
        assert_eq!(head.path_and_query(), "/?a=%7B%7Bn%7D%7D");
        assert_eq!(head.fields.get("x-a"), Some(&b"{{handlebars}}"[..]));
        assert_eq!(head.fields.get("x-n"), Some(&b"7"[..]));
    }
}
