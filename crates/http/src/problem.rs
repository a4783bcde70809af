//! Content negotiation for errors: problem+json (RFC 9457) or plain text.

use blitz_proto::{Fields, Name};

/// Whether a request accepts `application/problem+json`, also by a wildcard; `None` if the fields
/// have no `Accept`.
#[must_use]
pub fn accepts_problem(fields: &Fields) -> Option<bool> {
    let mut accepted = None;
    for value in fields.get_all(Name::Accept) {
        // The value of most clients other than browsers.
        if value == b"*/*" {
            accepted = Some(true);
        } else if let Some(accepts) = accepts_by(value) {
            if !accepts {
                return Some(false);
            }
            accepted = Some(true);
        }
        accepted = accepted.or(Some(false));
    }
    accepted
}

/// Whether the client is a browser that shows a page: its `Accept` names `text/html`, and not JSON.
#[must_use]
pub fn prefers_html(fields: &Fields) -> bool {
    let mut names_html = false;
    for range in fields
        .get_all(Name::Accept)
        .flat_map(|value| value.split(|&byte| byte == b','))
    {
        let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let range = parts.next().unwrap_or_default();
        if parts.any(is_weight_of_zero) {
            continue;
        }
        if range.eq_ignore_ascii_case(b"application/problem+json")
            || range.eq_ignore_ascii_case(b"application/json")
        {
            return false;
        }
        names_html |= range.eq_ignore_ascii_case(b"text/html");
    }
    names_html
}

/// Whether this value of `Accept` accepts or refuses problem+json; `None` if no range covers it.
fn accepts_by(value: &[u8]) -> Option<bool> {
    let mut accepted = None;
    for range in value.split(|&byte| byte == b',') {
        let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        if !parts.next().is_some_and(covers_problem) {
            continue;
        }
        if parts.any(is_weight_of_zero) {
            return Some(false);
        }
        accepted = Some(true);
    }
    accepted
}

/// Whether the range covers problem+json. `application/json` does, since clients can read both.
fn covers_problem(range: &[u8]) -> bool {
    const RANGES: [&[u8]; 4] = [
        b"*/*",
        b"application/*",
        b"application/json",
        b"application/problem+json",
    ];
    RANGES.iter().any(|known| range.eq_ignore_ascii_case(known))
}

/// Whether the parameter is `q=0`, which means "not acceptable" (RFC 9110, section 12.4.2).
fn is_weight_of_zero(parameter: &[u8]) -> bool {
    match parameter {
        [b'q' | b'Q', b'=', b'0', rest @ ..] => rest.iter().all(|byte| matches!(byte, b'.' | b'0')),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_that_name_html_and_no_json_get_a_page() {
        for (value, is_page) in [
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                true,
            ),
            ("TEXT/HTML ; q=0.5", true),
            ("*/*", false),
            ("text/*", false),
            ("", false),
            ("text/html;q=0, */*", false),
            ("text/html, application/json", false),
            ("application/problem+json, text/html", false),
            ("text/html, application/json;q=0", true),
        ] {
            let mut fields = Fields::new();
            fields.append(Name::Accept, value);
            assert_eq!(prefers_html(&fields), is_page, "{value}");
        }
        assert!(!prefers_html(&Fields::new()));
    }

    #[test]
    fn only_clients_that_accept_problem_json_get_it() {
        let accepts = |values: &[&str]| {
            let mut fields = Fields::new();
            values
                .iter()
                .for_each(|value| fields.append(Name::Accept, value));
            accepts_problem(&fields)
        };
        assert_eq!(accepts(&[]), None);
        for taken in [
            &["*/*"][..],
            &["text/html, Application/JSON;q=0.5"],
            &["text/html", "application/problem+json"],
            &["application/json;q=0.001"],
            &["*/*", "text/html"],
        ] {
            assert_eq!(accepts(taken), Some(true), "{taken:?}");
        }
        for refused in [
            &["text/html"][..],
            &[""],
            &["image/*, text/plain;q=0.5"],
            &["application/json; q=0, */*;q=0.000"],
            &["*/*", "application/problem+json;Q=0"],
        ] {
            assert_eq!(accepts(refused), Some(false), "{refused:?}");
        }
    }
}
