//! The page for browsers, which shows the state of the process. It reads `/metrics`, `/upstreams`,
//! `/certificates` and `/failures`.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use blitz::Response;

const PAGE: &str = include_str!("page.html");

/// The page runs its own script only, and asks this process only.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let (script, style) = (hash("script"), hash("style"));
    format!(
        "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

pub(super) fn response() -> Response {
    Response::html(PAGE)
        .header("Content-Security-Policy", POLICY.as_str())
        .header("Cache-Control", "no-cache")
        .header("Referrer-Policy", "no-referrer")
}

/// The source expression for the only element of a name (Content Security Policy, level 3).
fn hash(element: &str) -> String {
    let content = content(element).unwrap_or_default();
    let digest = digest(&SHA256, content.as_bytes());
    format!("'sha256-{}'", STANDARD.encode(digest))
}

/// The text between its tags.
fn content(element: &str) -> Option<&'static str> {
    let (_, rest) = PAGE.split_once(&format!("<{element}>"))?;
    let (content, _) = rest.split_once(&format!("</{element}>"))?;
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_allows_the_script_and_the_style() {
        for element in ["script", "style"] {
            assert_eq!(
                PAGE.matches(&format!("<{element}")).count(),
                1,
                "one {element}"
            );
            assert!(content(element).is_some_and(|content| content.len() > 1000));
            assert!(POLICY.contains(&format!("{element}-src 'sha256-")));
        }
        assert!(!PAGE.contains(" style=") && !PAGE.contains(" onclick="));
    }

    #[test]
    fn the_page_needs_no_other_origin() {
        let rest = PAGE.replace("http://www.w3.org/2000/svg", "");
        assert!(!rest.contains("http://") && !rest.contains("https://") && !rest.contains("//www"));
    }

    #[test]
    fn texts_of_the_process_never_become_html() {
        for name in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ] {
            assert!(!PAGE.contains(name), "{name}");
        }
    }
}
