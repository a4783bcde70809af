//! Requests in columns, for people.

use serde_json::Value;

use crate::terminal::line::{Line, Tone, cut};
use crate::terminal::number::{bytes, duration};

/// Between two columns.
const GAP: usize = 2;

/// The request is cut to no less than this for the cause of its failure.
const REQUEST_MIN: usize = 20;

/// The columns before the request.
const COLUMNS: &[Column] = &[
    column("TIME, UTC", 12, 0, time),
    column("CODE", 4, 0, status),
    right("TOOK", 7, 0, took),
    right("SENT", 8, 100, sent),
    column("METHOD", 7, 0, method),
    column("CLIENT", 15, 120, client),
    column("UPSTREAM", 21, 160, upstream),
];

struct Column {
    title: &'static str,
    width: usize,
    is_right: bool,
    /// The columns of a terminal that has room for it.
    from: usize,
    cell: fn(&Value) -> (Tone, String),
}

const fn column(
    title: &'static str,
    width: usize,
    from: usize,
    cell: fn(&Value) -> (Tone, String),
) -> Column {
    Column {
        title,
        width,
        is_right: false,
        from,
        cell,
    }
}

const fn right(
    title: &'static str,
    width: usize,
    from: usize,
    cell: fn(&Value) -> (Tone, String),
) -> Column {
    Column {
        is_right: true,
        ..column(title, width, from, cell)
    }
}

/// The columns that fit.
pub(super) struct Layout {
    /// `None` if lines may have any length.
    columns: Option<usize>,
    has_colour: bool,
}

impl Layout {
    pub(super) fn new(columns: Option<usize>, has_colour: bool) -> Layout {
        Layout {
            columns,
            has_colour,
        }
    }

    pub(super) fn head(&self) -> String {
        let mut line = Line::default();
        for column in self.shown() {
            add(&mut line, column, (Tone::Dim, column.title.to_owned()));
        }
        line.add(Tone::Dim, "REQUEST");
        self.text(&line)
    }

    /// A request, from its line in JSON. A line that is none is shown as it is.
    pub(super) fn line(&self, json: &str) -> String {
        let Ok(request) = serde_json::from_str::<Value>(json) else {
            return self.text(&Line::of(Tone::Plain, json));
        };
        let mut line = Line::default();
        for column in self.shown() {
            add(&mut line, column, (column.cell)(&request));
        }
        let (target, cause) = (target(&request), cause(&request));
        if cause.is_empty() {
            line.add(Tone::Plain, &target);
            return self.text(&line);
        }
        let target = match self.columns {
            Some(columns) => {
                let room = columns.saturating_sub(line.width() + GAP + cause.chars().count());
                cut(&target, room.max(REQUEST_MIN))
            }
            None => target,
        };
        line.add(Tone::Plain, &target);
        line.add(Tone::Plain, &" ".repeat(GAP));
        line.add(tone(&request), &cause);
        self.text(&line)
    }

    fn shown(&self) -> impl Iterator<Item = &'static Column> {
        let columns = self.columns.unwrap_or(usize::MAX);
        COLUMNS.iter().filter(move |column| column.from <= columns)
    }

    fn text(&self, line: &Line) -> String {
        line.text(self.columns.unwrap_or(usize::MAX), self.has_colour)
    }
}

/// A cell that is wider than its column moves the rest of its line.
fn add(line: &mut Line, column: &Column, (tone, text): (Tone, String)) {
    let start = line.width();
    let indent = match column.is_right {
        true => column.width.saturating_sub(text.chars().count()),
        false => 0,
    };
    line.pad_to(start + indent);
    line.add(tone, &text);
    line.pad_to((start + column.width).max(line.width()) + GAP);
}

fn time(request: &Value) -> (Tone, String) {
    // `2026-11-29T18:55:00.123456Z`, to milliseconds.
    let text = text(request, "ts");
    (Tone::Dim, text.get(11..23).unwrap_or_default().to_owned())
}

fn status(request: &Value) -> (Tone, String) {
    let status = request["status"].as_u64();
    (
        tone(request),
        status.map_or("-".to_owned(), |status| status.to_string()),
    )
}

fn took(request: &Value) -> (Tone, String) {
    let seconds = request["duration"].as_f64();
    (Tone::Plain, seconds.map_or_else(String::new, duration))
}

fn sent(request: &Value) -> (Tone, String) {
    let count = request["bytes_out"].as_f64();
    (Tone::Dim, count.map_or_else(String::new, bytes))
}

fn method(request: &Value) -> (Tone, String) {
    (Tone::Plain, text(request, "method").to_owned())
}

fn client(request: &Value) -> (Tone, String) {
    (Tone::Dim, text(request, "client").to_owned())
}

fn upstream(request: &Value) -> (Tone, String) {
    (Tone::Dim, text(request, "upstream").to_owned())
}

fn target(request: &Value) -> String {
    format!("{}{}", text(request, "host"), text(request, "path"))
}

/// How it ended, unless that is with a complete response.
fn cause(request: &Value) -> String {
    let ended = text(request, "ended");
    let mut parts = vec![match (ended, text(request, "cause")) {
        ("complete", _) => String::new(),
        (ended, "") => ended.to_owned(),
        // The status tells how it ended.
        ("failed" | "rejected" | "refused", cause) => cause.to_owned(),
        (ended, cause) => format!("{ended}: {cause}"),
    }];
    if let Some(rule) = request["rule"].as_str() {
        parts[0] += &format!(": {rule}");
    }
    if let Some(status) = request["grpc_status"].as_u64() {
        parts.push(format!("grpc status {status}"));
    }
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

fn tone(request: &Value) -> Tone {
    let is_complete = text(request, "ended") == "complete";
    match request["status"].as_u64() {
        Some(500..) | None => Tone::Bad,
        Some(400..) => Tone::Warning,
        // A part of the response is missing, or a call has failed.
        Some(_) if !is_complete => Tone::Bad,
        Some(_) => Tone::Plain,
    }
}

fn text<'a>(request: &'a Value, field: &str) -> &'a str {
    request[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;

    const FAILED: &str = r#"{"ts":"2026-11-29T18:55:00.123456Z","client":"192.0.2.7","method":"GET","host":"app.example","path":"/a/path/that/is/rather/long?x=***","status":502,"bytes_in":0,"bytes_out":2048,"duration":0.012,"upstream":"10.0.0.1:8080","ended":"failed","cause":"connection_refused"}"#;
    const COMPLETE: &str = r#"{"ts":"2026-11-29T18:55:01.000000Z","client":"2001:db8::1","method":"OPTIONS","host":"app.example","path":"/","status":204,"bytes_out":0,"duration":1.5,"ended":"complete"}"#;
    const LEFT: &str = r#"{"ts":"2026-11-29T18:55:01.000000Z","method":"GET","host":"a","path":"/","duration":0.00005,"ended":"client-gone"}"#;

    fn lines(columns: Option<usize>) -> Vec<String> {
        let layout = Layout::new(columns, false);
        let mut lines = vec![layout.head()];
        lines.extend([FAILED, COMPLETE, LEFT].map(|json| layout.line(json)));
        lines
    }

    #[test]
    fn a_small_terminal_has_the_request_and_the_cause() {
        let expected = [
            "TIME, UTC     CODE     TOOK  METHOD   REQUEST",
            "18:55:00.123  502     12 ms  GET      app.example/a/path/th…  connection_refused",
            "18:55:01.000  204     1.5 s  OPTIONS  app.example/",
            "18:55:01.000  -       50 µs  GET      a/  client-gone",
        ];
        assert_eq!(lines(Some(80)), expected);
    }

    #[test]
    fn details_of_the_cause_stand_behind_it() {
        let json = r#"{"status":503,"ended":"failed","cause":"connection_limit_reached","rule":"no-free-sockets"}"#;
        let line = Layout::new(None, false).line(json);
        assert!(
            line.ends_with("connection_limit_reached: no-free-sockets"),
            "{line:?}"
        );
    }

    #[test]
    fn a_wide_terminal_has_all_columns() {
        let lines = lines(Some(200));
        assert_eq!(
            lines[1],
            "18:55:00.123  502     12 ms   2.0 KiB  GET      192.0.2.7        10.0.0.1:8080          \
             app.example/a/path/that/is/rather/long?x=***  connection_refused"
        );
        let at = lines[0].find("REQUEST");
        assert_eq!(at, lines[2].find("app.example/"));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for columns in [1, 10, 40, 79, 99, 120, 160] {
            assert!(
                lines(Some(columns))
                    .iter()
                    .all(|line| line.width() <= columns)
            );
        }
        assert_eq!(lines(None)[1..], lines(Some(1000))[1..]);
    }

    #[test]
    fn a_client_controls_no_terminal() {
        let json = r#"{"status":200,"ended":"complete","path":"/\u001b[2J\u202e\n"}"#;
        let line = Layout::new(Some(80), false).line(json);
        assert!(!line.contains(['\x1b', '\u{202e}', '\n']), "{line:?}");
        assert!(line.ends_with("/\u{fffd}[2J\u{fffd}\u{fffd}"), "{line:?}");
    }

    #[test]
    fn failures_have_colours() {
        let layout = Layout::new(Some(200), true);
        assert!(layout.line(FAILED).contains("\x1b[31m502\x1b[0m"));
        assert!(layout.line(LEFT).contains("\x1b[31m-\x1b[0m"));
        assert!(!layout.line(COMPLETE).contains("\x1b[31m"));
    }
}
