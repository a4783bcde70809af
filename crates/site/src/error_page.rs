//! The gateway's own failures as a page for people: a browser shows JSON as it is.

use std::fmt::{self, Display, Write};

use blitz_http::{Chunk, Fields, Name, ResponseHead, prefers_html};

/// The page, if the client prefers one. `head` gets its type.
#[cold]
pub fn page(
    request_fields: &Fields,
    head: &mut ResponseHead,
    detail: impl Display,
) -> Option<Chunk> {
    if !prefers_html(request_fields) {
        return None;
    }
    head.fields
        .append(Name::ContentType, "text/html; charset=utf-8");
    let id = head.fields.get_str(Name::XRequestId);
    let id = id.or_else(|| request_fields.get_str(Name::XRequestId));
    let text = Page {
        title: &format!("{} {}", head.status.code(), head.status.reason()),
        detail: &detail.to_string(),
        id: id.unwrap_or_default(),
    };
    Some(Chunk::from(text.to_string()))
}

struct Page<'a> {
    title: &'a str,
    detail: &'a str,
    id: &'a str,
}

impl Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (title, detail) = (Escaped(self.title), Escaped(self.detail));
        write!(
            f,
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
             <style>:root {{ color-scheme: light dark }} \
             body {{ font: 1.1rem/1.6 system-ui, sans-serif; max-width: 36rem; margin: 4rem auto; padding: 0 1rem }}\
             </style>\n<h1>{title}</h1>\n<p>{detail}</p>\n"
        )?;
        match self.id {
            "" => Ok(()),
            id => writeln!(f, "<p>Request <code>{}</code></p>", Escaped(id)),
        }
    }
}

/// Text without the characters that HTML knows.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            other => f.write_char(other),
        })
    }
}

#[cfg(test)]
mod tests {
    use blitz_http::Status;

    use super::*;

    #[test]
    fn everything_in_the_page_is_escaped() {
        let mut fields = Fields::new();
        fields.append(Name::Accept, "text/html");
        fields.append(Name::XRequestId, "<b>'\"&");
        let mut head = ResponseHead::new(Status::BAD_GATEWAY);
        let page = page(&fields, &mut head, "a <script> & more").unwrap();
        let page = String::from_utf8(page.to_vec()).unwrap();
        assert!(page.contains("<h1>502 Bad Gateway</h1>"), "{page}");
        assert!(
            page.contains("<p>a &lt;script&gt; &amp; more</p>"),
            "{page}"
        );
        assert!(
            page.contains("<code>&lt;b&gt;&#39;&quot;&amp;</code>"),
            "{page}"
        );
    }
}
