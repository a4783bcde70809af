//! Literal secrets of a file, which nobody is shown: values of fields and keys that hold secrets, and userinfo of URLs.
//! Values with variables are shown as they are written.

/// How a variable begins.
const VARIABLE: &str = "${";

/// Stands for a secret.
const HIDDEN: &str = "***";

/// Parts of the names of fields and keys that hold secrets.
const SECRETS: [&str; 8] = [
    "authorization",
    "cookie",
    "token",
    "secret",
    "password",
    "passwd",
    "api-key",
    "api_key",
];

/// The values of these fields are credentials, whatever their names are.
const TRACING_HEADERS: &str = "tracing.headers";

/// Keys of routes whose names sound like a secret, and whose values are names of files, fields and cookies.
const NAMES_ONLY: [&str; 2] = ["api_keys", "cookies"];

/// The key of a `jwt` whose values are names of claims.
const CLAIMS: &str = "forward";

/// Whether a field or a key of this name holds a secret. One for a file holds its path.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    !name.ends_with("_file") && SECRETS.iter().any(|secret| name.contains(secret))
}

/// The value of a key as it is written in TOML, without secrets.
pub(crate) fn shown(key: &str, written: &str) -> String {
    let name = key.rsplit('.').next().unwrap_or_default();
    let is_hidden = (is_secret(name) && !NAMES_ONLY.contains(&key)) || key == TRACING_HEADERS;
    let mut writer = Writer {
        out: String::with_capacity(written.len()),
        enclosing: vec![is_hidden],
        is_hidden,
        claims: (key == "jwt").then_some(CLAIMS),
        plain_from: None,
    };
    writer.write(written);
    without_userinfo(&writer.out)
}

/// A text whose URLs have no userinfo.
pub(crate) fn without_userinfo(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (before, after) = rest.split_at(start + 3);
        let is_end = |c: char| "/?#\"' ,)]}".contains(c) || c.is_control();
        let (authority, after) = after.split_at(after.find(is_end).unwrap_or(after.len()));
        out += before;
        match authority.rsplit_once('@') {
            Some((userinfo, host)) if !userinfo.contains(VARIABLE) => {
                out += &format!("{HIDDEN}@{host}");
            }
            _ => out += authority,
        }
        rest = after;
    }
    out + rest
}

/// Writes a value of TOML, with strings hidden where they belong to a name that holds a secret.
struct Writer {
    out: String,
    /// Whether the values of each enclosing table or list are hidden.
    enclosing: Vec<bool>,
    is_hidden: bool,
    /// The name whose values are names of claims, whatever the names of their fields are.
    claims: Option<&'static str>,
    /// How many tables and lists are around its value, within which nothing is hidden.
    plain_from: Option<usize>,
}

impl Writer {
    fn write(&mut self, text: &str) {
        let (mut rest, mut name) = (text, "");
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '"' | '\'' => string_length(rest, first),
                c if is_bare(c) => rest.find(|c| !is_bare(c)).unwrap_or(rest.len()),
                c => c.len_utf8(),
            };
            let (token, after) = rest.split_at(length);
            let is_text = matches!(first, '"' | '\'');
            match first {
                '=' => {
                    let is_plain = self.plain_from.is_some();
                    self.is_hidden = self.enclosing() || (is_secret(name) && !is_plain);
                }
                ',' => self.is_hidden = self.enclosing(),
                '{' | '[' => {
                    if self.claims == Some(name) && self.plain_from.is_none() {
                        self.plain_from = Some(self.enclosing.len());
                    }
                    self.enclosing.push(self.is_hidden);
                }
                '}' | ']' => {
                    self.enclosing.pop();
                    self.plain_from = self.plain_from.filter(|from| self.enclosing.len() > *from);
                    self.is_hidden = self.enclosing();
                }
                _ if is_text || is_bare(first) => name = token,
                _ => {}
            }
            let is_key = after.trim_start().starts_with(['=', '.']);
            match is_text && !is_key && self.is_hidden && !token.contains(VARIABLE) {
                true => self.out += &format!("\"{HIDDEN}\""),
                false => self.out += token,
            }
            rest = after;
        }
    }

    fn enclosing(&self) -> bool {
        self.enclosing.last().is_some_and(|is_hidden| *is_hidden)
    }
}

fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// The bytes of the string at the start of a text, with its quotes.
fn string_length(text: &str, quote: char) -> usize {
    let triple: String = std::iter::repeat_n(quote, 3).collect();
    let end = match text.starts_with(&triple) {
        true => triple,
        false => quote.to_string(),
    };
    let mut at = end.len();
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with(&end) {
            return at + end.len();
        }
        let mut chars = rest.chars();
        let first = chars.next().map_or(1, char::len_utf8);
        let is_escape = quote == '"' && rest.starts_with('\\');
        let second = chars.next().filter(|_| is_escape);
        at += first + second.map_or(0, char::len_utf8);
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys, their values, and what is shown of them.
    const CASES: [(&str, &str, &str); 22] = [
        ("to", r#""http://h:1""#, r#""http://h:1""#),
        (
            "request_headers.Authorization",
            r#""Basic abc""#,
            r#""***""#,
        ),
        (
            "request_headers.Authorization",
            r#"{ add = "Basic abc" }"#,
            r#"{ add = "***" }"#,
        ),
        ("headers.Set-Cookie", r#"["a=b", 'c']"#, r#"["***", "***"]"#),
        ("request_headers.X-Api-Key", r#""${KEY}""#, r#""${KEY}""#),
        ("request_headers.X-Token", r#""a\"b""#, r#""***""#),
        (
            "jwt",
            r#"{ secret = "s", issuer = "i" }"#,
            r#"{ secret = "***", issuer = "i" }"#,
        ),
        (
            "jwt",
            r#"{ secret_file = "s" }"#,
            r#"{ secret_file = "s" }"#,
        ),
        (
            "api_keys",
            r#"{ file = "keys", forward = ["X-Client"], from = ["header:X-Key", 'cookie:c'] }"#,
            r#"{ file = "keys", forward = ["X-Client"], from = ["header:X-Key", 'cookie:c'] }"#,
        ),
        (
            "api_keys",
            r#"{ file = "keys", secret = "s" }"#,
            r#"{ file = "keys", secret = "***" }"#,
        ),
        (
            "jwt",
            r#"{ forward = { X-Token = "sub", X-A = "a" }, secret = "s" }"#,
            r#"{ forward = { X-Token = "sub", X-A = "a" }, secret = "***" }"#,
        ),
        ("headers.X-Api-Keys", r#""a""#, r#""***""#),
        (
            "respond",
            r#"{ status = 401, headers = { "Set-Cookie" = { add = "x" }, A = "b" } }"#,
            r#"{ status = 401, headers = { "Set-Cookie" = { add = "***" }, A = "b" } }"#,
        ),
        (
            "when",
            r#"header.Authorization = "x""#,
            r#"header.Authorization = "***""#,
        ),
        ("limits.cookies_max", "1000", "1000"),
        ("respond", "\"200 ä\"", "\"200 ä\""),
        ("body", r#"""" token = "a" """"#, r#"""" token = "a" """"#),
        (
            "redirect",
            r#""301 http://u:p@h:1""#,
            r#""301 http://***@h:1""#,
        ),
        (
            "to",
            r#"["http://u:p@h:1", "http://h"]"#,
            r#"["http://***@h:1", "http://h"]"#,
        ),
        (
            "redirect",
            r#""301 https://u@h/a@b""#,
            r#""301 https://***@h/a@b""#,
        ),
        ("to", r#""http://${H}/""#, r#""http://${H}/""#),
        ("to", r#""http://${U}:${P}@h""#, r#""http://${U}:${P}@h""#),
    ];

    #[test]
    fn literal_secrets_are_hidden_and_variables_are_not() {
        for (key, written, expected) in CASES {
            assert_eq!(shown(key, written), expected, "{key}");
        }
    }

    #[test]
    fn any_text_is_written_to_its_end() {
        for text in [
            "\"", "'''", "\"\\", "= {", "]}", "ä\"ä", "://", "://@", "${", "://${@",
        ] {
            let _ = shown("secret", text);
        }
    }
}
