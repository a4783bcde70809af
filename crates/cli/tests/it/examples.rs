//! The examples of `tests/examples.md`, among which are those of the documents: each boots, and its answers are those
//! that stand below it, over each version that its listeners speak.

mod ask;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use blitz_testing::Upstream;

use self::ask::{Answer, Place, ask, block_on};
use self::table::{Example, Row, examples};
use crate::https::{Folder, Running, config};
use crate::{blitz, stderr, stdout};

/// Pages that examples name, with their paths as contents.
const PAGES: [&str; 13] = [
    "errors/404.html",
    "errors/50x.html",
    "srv/errors/404.html",
    "srv/errors/50x.html",
    "srv/errors/closed.html",
    "srv/www/404.html",
    "srv/app/index.html",
    "srv/app/app.js",
    "srv/www/index.html",
    "srv/www/about.html",
    "srv/www/docs/index.html",
    "srv/www/assets/app.js",
    "srv/www/assets/app.js.br",
];

/// A key set with a secret, so that the examples have tokens.
const KEYS: &str = r#"{"keys":[{"kty":"oct","k":"YSBzZWNyZXQgb2YgZXhhY3RseSAzMiBieXRlcyAuLi4"}]}"#;

/// The users `anna` with the password `secrets`.
const USERS: &str = "anna:$2y$04$ZmGSbpkAlFMMb6NAs4dimek28x1apJj3gERV7qL6gzUiklxX/Mp.e\n";

/// The key `blitz_test_key_of_billing`.
const API_KEYS: &str =
    "billing:sha256:bf95bd465f7b0c114bfe309a4c115246cf041de451817caed7a0b8544b15dd84\n";

/// An authority of clients, whose key nobody has.
const STAFF: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBpjCCAU2gAwIBAgIUS59FyEarijMGc5Q7RpxwUddSOjgwCgYIKoZIzj0EAwIw\n\
IDEeMBwGA1UEAwwVQW4gYXV0aG9yaXR5IG9mIHN0YWZmMCAXDTI2MTEzMDEzNTUw\n\
MloYDzIxMjYxMTA2MTM1NTAyWjAgMR4wHAYDVQQDDBVBbiBhdXRob3JpdHkgb2Yg\n\
c3RhZmYwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARx5nZ5YwSTviHPXhypGTrd\n\
3rnsE+hIq6s9QEs1ZxGpHikFMKfXr2+bvu4fAG+Y13zTP9Wmp3MkbhSDHPRVoGrh\n\
o2MwYTAdBgNVHQ4EFgQUetx6c3NjbJIL3l7qN98q9j8CAtQwHwYDVR0jBBgwFoAU\n\
etx6c3NjbJIL3l7qN98q9j8CAtQwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8BAf8E\n\
BAMCAgQwCgYIKoZIzj0EAwIDRwAwRAIgN7flXbbZxjPD3amyyPm72qI+rk+hPMKr\n\
ZO2Go3rRgXwCIGWsf7NuLpoBvr7nuxjw6ZATiFJWC17KYOQWo2G4PE/x\n\
-----END CERTIFICATE-----\n";

#[test]
fn every_example_boots_and_answers() {
    let (mut booted, mut answers) = (0, 0);
    for example in examples()
        .iter()
        .filter(|example| example.planned.is_empty())
    {
        answers += boot(example);
        booted += 1;
    }
    assert!(
        booted >= 10 && answers >= 200,
        "{booted} examples, {answers} answers"
    );
}

#[test]
fn examples_of_later_versions_have_only_errors_that_say_so() {
    let folder = folder_with_pages();
    let file = folder.file("blitz.toml");
    let mut count = 0;
    for example in examples() {
        if example.planned.is_empty() {
            continue;
        }
        fs::write(&file, in_folder(&example.text, &folder)).unwrap();
        let output = blitz(&["check", "--format", "json", &file]);
        let text = stdout(&output);
        let found = text.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let word = |name: &str| line[name].as_str().unwrap().to_owned();
            format!(
                "{} {}: {}",
                line["start"]["line"],
                word("code"),
                word("message")
            )
        });
        let expected = example.planned.iter().map(|line| {
            let (line, what) = line.split_once(' ').unwrap();
            format!("{line} not-yet: {what} is not in this version")
        });
        let (found, expected): (Vec<_>, Vec<_>) = (found.collect(), expected.collect());
        assert_eq!(found, expected, "{}", example.title);
        count += 1;
    }
    assert_eq!(count, 0, "each example that is built moves to the others");
}

/// So that a document cannot show what does not work.
#[test]
fn the_documents_show_these_examples() {
    let known = examples();
    let mut count = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let document = document.display();
        for block in table::blocks(&text) {
            if block.kind != "toml" {
                assert!(
                    !block.text.lines().any(is_of_a_configuration),
                    "{document} has a configuration file that is not marked as toml:\n{}",
                    block.text
                );
                continue;
            }
            if block.text.starts_with("[dependencies]") {
                continue;
            }
            assert!(
                known.iter().any(|example| example.text == block.text),
                "{document} has an example that is not in crates/cli/tests/examples.md; \
                 write it there too, with its requests:\n{}",
                block.text
            );
            count += 1;
        }
    }
    assert!(count >= 10, "{count}");
}

fn is_of_a_configuration(line: &str) -> bool {
    let beginnings = ["[site", "[[site", "[upstream", "[defaults", "to = \""];
    beginnings
        .iter()
        .any(|beginning| line.starts_with(beginning))
}

/// The documents for users: `README.md` and the pages of `docs`.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "md") {
            documents.push(path);
        }
    }
    documents
}

fn folder_with_pages() -> Folder {
    let folder = Folder::new();
    for page in PAGES {
        let path = folder.file(page);
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::write(path, format!("page {page}")).unwrap();
    }
    fs::create_dir_all(folder.file("var")).unwrap();
    fs::write(folder.file("jwks.json"), KEYS).unwrap();
    let blocked = "203.0.113.0/24\n2001:db8:bad::/48 # a botnet\n";
    fs::write(folder.file("blocked.txt"), blocked).unwrap();
    fs::write(folder.file("office.txt"), "198.51.100.0/24\n").unwrap();
    fs::create_dir_all(folder.file("etc")).unwrap();
    for (file, content) in [
        ("admin.htpasswd", USERS),
        ("etc/admin.htpasswd", USERS),
        ("api-keys", API_KEYS),
        ("etc/staff.pem", STAFF),
    ] {
        fs::write(folder.file(file), content).unwrap();
    }
    folder
}

/// The text with the folders of this test in place of those of a machine.
fn in_folder(text: &str, folder: &Folder) -> String {
    let etc = format!("\"{}", folder.file("etc/"));
    let srv = format!("\"{}", folder.file("srv/"));
    let log = format!("\"{}", folder.file("var/"));
    text.replace("\"/etc/blitz/", &etc)
        .replace("\"/srv/", &srv)
        .replace("\"/var/log/blitz/", &log)
}

/// Starts an example and compares its answers. Returns their number.
fn boot(example: &Example) -> usize {
    let folder = folder_with_pages();
    if !example.certificate.is_empty() {
        let (names, out) = (example.certificate.iter(), folder.file("etc/certs"));
        let mut arguments = vec!["cert", "--out", &out];
        arguments.extend(names.map(String::as_str));
        let made = blitz(&arguments);
        assert!(made.status.success(), "{}", stderr(&made));
    }
    let is_secure = !example.certificate.is_empty();
    let upstreams: Vec<(String, Upstream)> = example
        .upstreams()
        .into_iter()
        .map(|url| {
            (
                url.clone(),
                Upstream::start(move |request| echo(&url, request)),
            )
        })
        .collect();
    let file = folder.file("blitz.toml");
    fs::write(&file, installed(example, &folder, &upstreams)).unwrap();
    let checked = blitz(&["check", "--deny-warnings", &file]);
    assert!(
        checked.status.success(),
        "{}: {}",
        example.title,
        stderr(&checked)
    );
    let scheme = if is_secure { "https://" } else { "http://" };
    let running = Running::announcing(&folder, &["--config", &file], scheme);
    let place = Place {
        plain: running.address("http://"),
        is_proxied: example.text.contains("proxy_protocol = true"),
        secure: is_secure.then(|| {
            let authority = config(Path::new(&folder.file("etc/certs/ca.pem")), None);
            (running.address("https://"), authority)
        }),
    };
    let (mut answers, mut wrong) = (0, String::new());
    for row in &example.rows {
        for version in row.versions() {
            let mut answer = block_on(ask(&place, version, row));
            for (url, upstream) in &upstreams {
                answer.text = answer
                    .text
                    .replace(&upstream.url()["http://".len()..], &url["http://".len()..]);
            }
            answers += 1;
            let found = differences(row, &answer, &place);
            if !found.is_empty() {
                wrong += &format!("{} over {version:?}\n  {}\n", row.line, found.join("\n  "));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{wrong}", example.title);
    answers
}

/// The text of an example with the upstreams, ports and folders of this test.
fn installed(example: &Example, folder: &Folder, upstreams: &[(String, Upstream)]) -> String {
    let mut text = in_folder(&example.text, folder);
    for (url, upstream) in upstreams {
        text = text.replace(&format!("\"{url}\""), &format!("\"{}\"", upstream.url()));
    }
    let mut top = String::new();
    for (key, value) in [
        ("listen", "127.0.0.1:0"),
        ("listen_tls", "127.0.0.1:0"),
        // The rows tell the addresses of their clients.
        ("trusted_proxies", "127.0.0.1"),
    ] {
        let is_needed = key != "listen_tls" || !example.certificate.is_empty();
        if let Some(written) = written(&text, key) {
            // In place of the first text in its line.
            let own = written.split('"').nth(1).expect("a text");
            let installed = written.replacen(own, value, 1);
            text = text.replacen(&written, &installed, 1);
        } else if is_needed {
            top += &format!("{key} = [\"{value}\"]\n");
        }
    }
    top + &text
}

/// The line of a key at the top of an example.
fn written(text: &str, key: &str) -> Option<String> {
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with(&format!("{key} = ")));
    line.map(str::to_owned)
}

/// The upstream's answer: its URL, the request line and the fields that it received, a line each.
fn echo(url: &str, request: &blitz_testing::Request) -> Vec<u8> {
    let mut text = format!("{url} {}\n", request.line);
    for (name, value) in &request.fields {
        text += &format!("{name}: {value}\n");
    }
    let length = text.len();
    if request.line.starts_with("HEAD ") {
        text.clear();
    }
    format!(
        "HTTP/1.1 200 OK\r\nX-Powered-By: upstream\r\nCache-Control: no-store\r\nContent-Length: {length}\r\n\r\n{text}"
    )
    .into_bytes()
}

/// The differences from the row.
fn differences(row: &Row, answer: &Answer, place: &Place) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |name: &str, is: Option<&str>, expected: &str| {
        let expected = (expected != "none").then_some(expected);
        if is != expected {
            found.push(format!("{name} is {is:?}, not {expected:?}"));
        }
    };
    compare(
        "status",
        Some(&answer.status.to_string()),
        &row.status.to_string(),
    );
    let received = answer.received();
    for (name, value) in &row.expected {
        let value = &*place.with_port(value);
        let of_upstream = |name: &str| received.as_ref().and_then(|received| received.field(name));
        let is = match name.as_str() {
            "to" => received.as_ref().map(|received| received.to.clone()),
            "text" => match answer.text.contains(value) {
                true => Some(value.to_owned()),
                false => Some(answer.text.clone()),
            },
            name => match name.strip_prefix("sent.") {
                Some(name) => of_upstream(name),
                None => answer.field(name),
            },
        };
        compare(name, is.as_deref(), value);
    }
    found
}
