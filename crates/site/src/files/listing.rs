//! The listing of a folder: a page for people, JSON for programs.

use std::cmp::Ordering;
use std::fmt::{self, Display, Write};

use blitz_http::files::FolderEntry;
use serde_json::json;
use time::OffsetDateTime;

use super::request_path::FilePath;
use crate::error_page::Escaped;

/// The most entries of a listing.
pub(crate) const LISTED_MAX: usize = 10_000;

/// The most bytes of their names. The page has each twice, and may need three bytes for one.
pub(crate) const LISTED_BYTES_MAX: usize = 512 * 1024;

/// The order of a listing. Folders come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListingOrder {
    by: Column,
    is_descending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Column {
    #[default]
    Name,
    Size,
    Modified,
}

const COLUMNS: [(Column, &str, &str); 3] = [
    (Column::Name, "name", "Name"),
    (Column::Size, "size", "Size"),
    (Column::Modified, "modified", "Modified"),
];

impl ListingOrder {
    /// That of a query: `sort=name`, `size` or `modified`, and `order=asc` or `desc`. Others are ignored.
    #[must_use]
    pub(crate) fn of_query(query: &str) -> ListingOrder {
        let mut order = ListingOrder::default();
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("sort", name)) => {
                    let column = COLUMNS.iter().find(|(_, known, _)| *known == name);
                    order.by = column.map_or(order.by, |(column, ..)| *column);
                }
                Some(("order", "asc")) => order.is_descending = false,
                Some(("order", "desc")) => order.is_descending = true,
                _ => {}
            }
        }
        order
    }

    fn compare(self, a: &FolderEntry, b: &FolderEntry) -> Ordering {
        let by_name = || a.name.cmp(&b.name);
        let order = match self.by {
            Column::Name => by_name(),
            Column::Size => a.size.cmp(&b.size).then_with(by_name),
            Column::Modified => a.modified.cmp(&b.modified).then_with(by_name),
        };
        let order = match self.is_descending {
            true => order.reverse(),
            false => order,
        };
        b.is_folder.cmp(&a.is_folder).then(order)
    }
}

/// A folder and its entries.
pub struct Listing<'a> {
    /// The normalised path of the request, which ends with a slash.
    pub url: &'a str,
    /// The bytes of it that the folder of the configuration stands for.
    pub start: usize,
    /// The path in that folder.
    pub path: &'a FilePath,
    /// The entries, sorted when they are written.
    pub entries: Vec<FolderEntry>,
    /// Whether these are all.
    pub is_complete: bool,
    /// Their order.
    pub order: ListingOrder,
}

/// Whether a name of an entry has a path that is served.
#[must_use]
pub fn is_listed(url: &str, start: usize, hidden: bool, name: &[u8]) -> bool {
    let path = format!("{url}{}", Encoded(name));
    FilePath::new(&path, start, hidden).is_ok()
}

impl Listing<'_> {
    fn sort(&mut self) {
        let order = self.order;
        self.entries.sort_by(|a, b| order.compare(a, b));
    }

    /// As JSON.
    #[must_use]
    pub fn json(mut self) -> String {
        self.sort();
        let entries = self.entries.iter().map(|entry| {
            let slash = if entry.is_folder { "/" } else { "" };
            let mut value = json!({
                "name": String::from_utf8_lossy(&entry.name),
                "url": format!("{}{slash}", Encoded(&entry.name)),
                "type": if entry.is_folder { "folder" } else { "file" },
            });
            if let Some(time) = date(entry) {
                value["modified"] = json!(Timestamp(time).to_string());
            }
            if !entry.is_folder {
                value["size"] = json!(entry.size);
            }
            value
        });
        let entries: Vec<_> = entries.collect();
        let all = json!({ "path": self.url, "complete": self.is_complete, "entries": entries });
        format!("{all}\n")
    }

    /// As a page without scripts.
    #[must_use]
    pub fn html(mut self) -> String {
        self.sort();
        self.to_string()
    }

    /// The links to the folders around it: relative ones, which stay right behind proxies that change paths.
    fn breadcrumb(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.url.get(..self.start).unwrap_or_default();
        let before = before.strip_suffix('/').unwrap_or(before);
        let root = format!("{before}/");
        let segments = self.path.path.split(|byte| *byte == b'/');
        let segments = segments.filter(|segment| !segment.is_empty());
        let labels = std::iter::once(root).chain(segments.map(shown));
        let labels: Vec<String> = labels.collect();
        f.write_str("<nav aria-label=\"Breadcrumb\"><ol>")?;
        let last = labels.len() - 1;
        for (number, label) in labels.iter().enumerate() {
            let label = Escaped(label);
            match last - number {
                0 => write!(f, "<li><span aria-current=\"page\">{label}</span>")?,
                up => write!(f, "<li><a href=\"{}\">{label}</a>", "../".repeat(up))?,
            }
        }
        f.write_str("</ol></nav>\n")
    }

    fn head_of_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<thead><tr>")?;
        for (column, key, title) in COLUMNS {
            let is_this = column == self.order.by;
            let is_ascending = is_this && !self.order.is_descending;
            let next = if is_ascending { "desc" } else { "asc" };
            let sorted = match (is_this, self.order.is_descending) {
                (false, _) => "",
                (true, false) => " aria-sort=\"ascending\"",
                (true, true) => " aria-sort=\"descending\"",
            };
            write!(
                f,
                "<th scope=\"col\"{sorted}><a href=\"?sort={key}&amp;order={next}\">{title}</a>"
            )?;
        }
        f.write_str("<tbody>\n")
    }

    fn row(f: &mut fmt::Formatter<'_>, entry: &FolderEntry) -> fmt::Result {
        let slash = if entry.is_folder { "/" } else { "" };
        let (url, name) = (Encoded(&entry.name), shown(&entry.name));
        write!(
            f,
            "<tr><td><a href=\"{url}{slash}\">{}{slash}</a><td>",
            Escaped(&name)
        )?;
        if !entry.is_folder {
            write!(
                f,
                "<data value=\"{}\">{}</data>",
                entry.size,
                Size(entry.size)
            )?;
        }
        f.write_str("<td>")?;
        if let Some(time) = date(entry) {
            let stamp = Timestamp(time).to_string();
            let minutes = stamp.get(..16).unwrap_or(&stamp).replace('T', " ");
            write!(f, "<time datetime=\"{stamp}\">{minutes}</time>")?;
        }
        f.write_char('\n')
    }
}

impl Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.url.get(..self.start).unwrap_or_default();
        let before = before.strip_suffix('/').unwrap_or(before);
        let slash = if self.path.path.is_empty() { "" } else { "/" };
        let title = format!("{before}/{}{slash}", shown(&self.path.path));
        let title = Escaped(&title);
        write!(
            f,
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>Index of {title}</title>\n\
             <style>:root {{ color-scheme: light dark }} \
             body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }} \
             table {{ border-collapse: collapse; width: 100% }} \
             th, td {{ text-align: start; padding: .2rem .5rem; border-bottom: 1px solid #8884; overflow-wrap: anywhere }} \
             td + td, th + th {{ text-align: end; white-space: nowrap }} \
             nav ol {{ list-style: none; display: flex; flex-wrap: wrap; padding: 0 }} \
             nav li + li:not(:nth-child(2))::before {{ content: \"/\"; padding: 0 .3rem }}\
             </style>\n"
        )?;
        self.breadcrumb(f)?;
        writeln!(f, "<main><h1>Index of {title}</h1>")?;
        if !self.is_complete {
            let count = self.entries.len();
            writeln!(
                f,
                "<p>The folder has more entries than are listed here: these are {count} of them."
            )?;
        }
        if self.entries.is_empty() {
            return writeln!(f, "<p>The folder is empty.</main>");
        }
        f.write_str("<table>")?;
        self.head_of_table(f)?;
        self.entries
            .iter()
            .try_for_each(|entry| Self::row(f, entry))?;
        f.write_str("</table></main>\n")
    }
}

/// A name for people. Characters without a shape of their own could make it look like another one.
fn shown(name: &[u8]) -> String {
    let is_misleading = |char: char| {
        char.is_control()
            || matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    String::from_utf8_lossy(name).replace(is_misleading, "\u{fffd}")
}

/// A segment of a path, with all but unreserved characters encoded (RFC 3986, section 2.3).
struct Encoded<'a>(&'a [u8]);

impl Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                f.write_char(char::from(*byte))
            }
            byte => write!(f, "%{byte:02X}"),
        })
    }
}

/// A size in its largest unit.
struct Size(u64);

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut unit = None;
        let (mut whole, mut tenths) = (self.0, 0);
        for name in units {
            if whole < 1024 {
                break;
            }
            tenths = whole % 1024 * 10 / 1024;
            whole /= 1024;
            unit = Some(name);
        }
        match unit {
            None => write!(f, "{whole} B"),
            Some(unit) if whole < 10 => write!(f, "{whole}.{tenths} {unit}"),
            Some(unit) => write!(f, "{whole} {unit}"),
        }
    }
}

fn date(entry: &FolderEntry) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(entry.modified.0).ok()
}

/// A time in seconds (RFC 3339).
struct Timestamp(OffsetDateTime);

impl Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.0;
        let (hour, minute, second) = time.to_hms();
        write!(
            f,
            "{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z",
            time.year(),
            u8::from(time.month()),
            time.day()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, is_folder: bool, size: u64, seconds: i64) -> FolderEntry {
        FolderEntry {
            name: name.as_bytes().to_vec(),
            is_folder,
            size,
            modified: (seconds, 0),
        }
    }

    fn listing<'a>(path: &'a FilePath, query: &str) -> Listing<'a> {
        Listing {
            url: "/s/a%20b/c/",
            start: 2,
            path,
            entries: vec![
                entry("b<&>\".txt", false, 1536, 1_700_000_000),
                entry("z", true, 0, 1),
                entry("a:1", false, 3, 1_800_000_000),
                entry("A\u{202e}gpj.exe", false, 20 << 20, 0),
            ],
            is_complete: true,
            order: ListingOrder::of_query(query),
        }
    }

    fn path() -> FilePath {
        FilePath::new("/s/a%20b/c/", 2, false).expect("it is served")
    }

    #[test]
    fn the_page_has_escaped_names_and_encoded_links() {
        let path = path();
        let page = listing(&path, "").html();
        for part in [
            "<a href=\"b%3C%26%3E%22.txt\">b&lt;&amp;&gt;&quot;.txt</a>",
            "<a href=\"z/\">z/</a>",
            "<a href=\"a%3A1\">a:1</a>",
            "<a href=\"A%E2%80%AEgpj.exe\">A\u{fffd}gpj.exe</a>",
            "<data value=\"1536\">1.5 KiB</data>",
            "<data value=\"20971520\">20 MiB</data>",
            "<time datetime=\"2023-11-14T22:13:20Z\">2023-11-14 22:13</time>",
            "<li><a href=\"../../\">/s/</a><li><a href=\"../\">a b</a><li><span aria-current=\"page\">c</span>",
            "<h1>Index of /s/a b/c/</h1>",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(!page.contains("<script"), "{page}");
        let part = Listing {
            is_complete: false,
            entries: Vec::new(),
            ..listing(&path, "")
        };
        let page = part.html();
        assert!(
            page.contains("these are 0 of them") && page.contains("is empty"),
            "{page}"
        );
    }

    #[test]
    fn folders_come_first_in_each_order() {
        let path = path();
        for (query, expected) in [
            ("", "z A\u{202e}gpj.exe a:1 b<&>\".txt"),
            ("sort=name&order=desc", "z b<&>\".txt a:1 A\u{202e}gpj.exe"),
            ("sort=size", "z a:1 b<&>\".txt A\u{202e}gpj.exe"),
            (
                "x&order=desc&sort=modified",
                "z a:1 b<&>\".txt A\u{202e}gpj.exe",
            ),
            ("sort=other&order=up", "z A\u{202e}gpj.exe a:1 b<&>\".txt"),
        ] {
            let json: serde_json::Value =
                serde_json::from_str(&listing(&path, query).json()).expect("it is JSON");
            let names = json["entries"].as_array().expect("a list").iter();
            let names = names.map(|entry| entry["name"].as_str().expect("a name"));
            assert_eq!(names.collect::<Vec<_>>().join(" "), expected, "{query}");
        }
        let page = listing(&path, "sort=size&order=desc").html();
        assert!(page.contains("<th scope=\"col\" aria-sort=\"descending\"><a href=\"?sort=size&amp;order=asc\">Size</a>"));
        assert!(page.contains("<th scope=\"col\"><a href=\"?sort=name&amp;order=asc\">Name</a>"));
    }

    #[test]
    fn json_has_sizes_and_times() {
        let path = path();
        let json: serde_json::Value =
            serde_json::from_str(&listing(&path, "sort=size").json()).expect("it is JSON");
        assert_eq!(
            (&json["path"], &json["complete"]),
            (&json!("/s/a%20b/c/"), &json!(true))
        );
        let folder = json!({ "name": "z", "url": "z/", "type": "folder", "modified": "1970-01-01T00:00:01Z" });
        assert_eq!(json["entries"][0], folder);
        let file = json!({
            "name": "a:1", "url": "a%3A1", "type": "file", "size": 3, "modified": "2027-01-15T08:00:00Z",
        });
        assert_eq!(json["entries"][1], file);
    }

    #[test]
    fn names_are_listed_that_are_served() {
        for (name, hidden, expected) in [
            (&b"a b"[..], false, true),
            (b"\xff", false, true),
            (b".git", false, false),
            (b".git", true, true),
            (b"a\\b", false, false),
            (b".well-known", false, false),
        ] {
            assert_eq!(is_listed("/s/", 2, hidden, name), expected, "{name:?}");
        }
        assert!(is_listed("/", 0, false, b".well-known"));
    }
}
