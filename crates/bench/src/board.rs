//! The requests of HttpArena's infrastructure league and what their responses are: fixed texts, a data set as JSON, and 20
//! files. The names, kinds and sizes of the files are about those of the board; their content is our own.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::random::Random;

/// The folder of the files, in the folder of the run.
pub(crate) const FOLDER: &str = "board";
/// In that folder: the files, the pages of JSON for servers that make none, and the data set for those that do, whose name
/// is not that of a configuration file.
pub(crate) const STATIC: &str = "static";
pub(crate) const PAGES: &str = "json";
pub(crate) const DATA: &str = "dataset";

/// The response of the pipelined requests.
pub(crate) const PIPELINE: (&str, &str) = ("/pipeline", "ok");
/// The sum of two numbers of the query, over HTTP/1.1.
pub(crate) const SUM: (&str, &str) = ("/baseline11", "a=13&b=42");
/// Its result for a GET, the content of a POST, and the result with it.
pub(crate) const SUM_RESULTS: (&str, &str, &str) = ("55", "20", "75");
/// The same over HTTP/2 and HTTP/3, with its result.
pub(crate) const SUM_STREAMS: (&str, &str, &str) = ("/baseline2", "a=1&b=1", "2");

/// The numbers of items and the multipliers of the requests for JSON.
pub(crate) const PAGE_REQUESTS: [(usize, i64); 7] =
    [(1, 3), (5, 7), (10, 2), (15, 5), (25, 4), (40, 8), (50, 6)];

/// The codings that clients accept when they request files.
pub(crate) const ACCEPT_ENCODING: &str = "br;q=1, gzip;q=0.8";

const ITEMS: usize = 50;

/// Media types, by ending. Texts have a compressed file beside them.
pub(crate) const TYPES: [(&str, &str, bool); 7] = [
    ("css", "text/css", true),
    ("js", "application/javascript", true),
    ("html", "text/html", true),
    ("svg", "image/svg+xml", true),
    ("json", "application/json", true),
    ("woff2", "font/woff2", false),
    ("webp", "image/webp", false),
];

/// Names and sizes of the files, in the order of the requests.
pub(crate) const FILES: [(&str, usize); 20] = [
    ("reset.css", 8_000),
    ("layout.css", 25_000),
    ("theme.css", 18_000),
    ("components.css", 200_000),
    ("utilities.css", 60_000),
    ("analytics.js", 12_000),
    ("helpers.js", 22_000),
    ("app.js", 200_000),
    ("vendor.js", 300_000),
    ("router.js", 35_000),
    ("header.html", 120_000),
    ("footer.html", 55_000),
    ("regular.woff2", 18_000),
    ("bold.woff2", 22_000),
    ("logo.svg", 15_000),
    ("icon-sprite.svg", 70_000),
    ("hero.webp", 45_000),
    ("thumb1.webp", 8_000),
    ("thumb2.webp", 6_000),
    ("manifest.json", 3_000),
];

/// Words of the texts.
const WORDS: [&str; 16] = [
    "margin", "padding", "display", "return", "function", "const", "export", "section", "article",
    "width", "height", "colour", "border", "value", "index", "length",
];

/// Text or bytes of so many bytes, the same in each run.
pub(crate) fn content(name: &str, length: usize) -> Vec<u8> {
    let seed = name.bytes().fold(7, |seed: u64, byte| {
        seed.wrapping_mul(31).wrapping_add(byte.into())
    });
    let mut random = Random::new(seed);
    let mut content = Vec::with_capacity(length + 24);
    while content.len() < length {
        match is_text(name) {
            true => {
                let line = format!("{}: {};\n", WORDS[random.index(16)], random.index(64));
                content.extend_from_slice(line.as_bytes());
            }
            false => content.extend_from_slice(&random.bits().to_le_bytes()),
        }
    }
    content.truncate(length);
    content
}

/// The media type of a file, and whether it is text.
pub(crate) fn kind(name: &str) -> (&'static str, bool) {
    let ending = name.rsplit('.').next().unwrap_or_default();
    let known = TYPES.iter().find(|(known, ..)| *known == ending);
    known.map_or(("application/octet-stream", false), |(_, kind, text)| {
        (kind, *text)
    })
}

fn is_text(name: &str) -> bool {
    kind(name).1
}

/// The data set.
pub(crate) fn items() -> Vec<Value> {
    let mut random = Random::new(50);
    let item = |id: usize| {
        let tags: Vec<&str> = (0..=random.index(4))
            .map(|_| WORDS[random.index(16)])
            .collect();
        json!({
            "id": id,
            "name": format!("{} {}", WORDS[random.index(16)], WORDS[random.index(16)]),
            "category": WORDS[random.index(16)],
            "price": random.index(500) + 1,
            "quantity": random.index(100) + 1,
            "active": random.index(2) == 1,
            "tags": tags,
            "rating": { "score": random.index(50), "count": random.index(300) },
        })
    };
    (1..=ITEMS).map(item).collect()
}

/// The first items with their totals.
pub(crate) fn page(items: &[Value], count: usize, multiplier: i64) -> Value {
    let number = |item: &Value, name: &str| item[name].as_i64().unwrap_or_default();
    let counted = items.iter().take(count).map(|item| {
        let mut item = item.clone();
        let total = number(&item, "price") * number(&item, "quantity") * multiplier;
        item["total"] = total.into();
        item
    });
    let counted: Vec<Value> = counted.collect();
    json!({ "count": counted.len(), "items": counted })
}

/// The path of a page.
pub(crate) fn page_path(count: usize) -> String {
    format!("/json/{count}")
}

/// Writes all files below a folder of a run.
pub(crate) fn write_all(folder: &Path) -> Result<(), String> {
    let root = folder.join(FOLDER);
    for folder in [STATIC, PAGES] {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let items = items();
    write_old(&root.join(DATA), json!(items).to_string().as_bytes())?;
    for (count, multiplier) in PAGE_REQUESTS {
        let text = page(&items, count, multiplier).to_string();
        let file = root.join(PAGES).join(format!("{count}.json"));
        write_old(&file, text.as_bytes())?;
    }
    for (name, length) in FILES {
        let file = root.join(STATIC).join(name);
        let content = content(name, length);
        write_old(&file, &content)?;
        if is_text(name) {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            let compressed = encoder.write_all(&content).and_then(|()| encoder.finish());
            let compressed = compressed.map_err(|error| format!("{name}: {error}"))?;
            write_old(&root.join(STATIC).join(format!("{name}.gz")), &compressed)?;
        }
    }
    Ok(())
}

/// Writes a file whose time is an hour ago: servers remember no file that has just been changed.
pub(crate) fn write_old(file: &Path, content: &[u8]) -> Result<(), String> {
    let then = SystemTime::now() - Duration::from_secs(3600);
    let written = File::create(file).and_then(|mut open| {
        open.write_all(content)?;
        open.set_modified(then)
    });
    written.map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::TestFolder;

    #[test]
    fn files_have_their_sizes_and_texts_are_compressed() {
        let folder = TestFolder::create();
        write_all(folder.path()).unwrap();
        for (name, length) in FILES {
            let file = folder.path().join(FOLDER).join(STATIC).join(name);
            let whole = fs::metadata(&file).unwrap();
            assert_eq!(whole.len(), length as u64, "{name}");
            assert!(whole.modified().unwrap().elapsed().unwrap() > Duration::from_secs(60));
            let compressed = fs::metadata(file.with_file_name(format!("{name}.gz")));
            match is_text(name) {
                true => assert!(compressed.unwrap().len() * 2 < whole.len(), "{name}"),
                false => assert!(compressed.is_err(), "{name}"),
            }
        }
    }

    #[test]
    fn totals_are_price_times_quantity_times_multiplier() {
        let items = items();
        assert_eq!(items.len(), ITEMS);
        let page = page(&items, 5, 7);
        assert_eq!(page["count"], 5);
        let item = &page["items"][4];
        let product = item["price"].as_i64().unwrap() * item["quantity"].as_i64().unwrap() * 7;
        assert_eq!(item["total"], product);
    }
}
