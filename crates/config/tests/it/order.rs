//! The order of lines and tables changes nothing.

use blitz_config::{Document, read};
use proptest::prelude::*;
use regex::Regex;

use crate::files::ALL;
use crate::support::{document, environment};

/// The model as text without places, the sites by name. Nothing else may differ.
fn meaning(document: &Document) -> String {
    let (mut configuration, diagnostics) = read(document, &environment());
    assert_eq!(diagnostics, [], "{}", document.text);
    let certificates = &mut configuration.certificates;
    certificates.sort_by_key(|certificate| certificate.value.file.clone());
    configuration
        .sites
        .sort_by_key(|site| site.host.value.to_string());
    let spans = Regex::new(r"span: \d+\.\.\d+").expect("it is valid");
    spans
        .replace_all(&format!("{configuration:#?}"), "")
        .into_owned()
}

/// The tables of a file, each with its lines.
fn tables(text: &str) -> Vec<Vec<&str>> {
    let tables = text.split("\n\n");
    tables.map(|table| table.lines().collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn files_in_random_order_mean_the_same(keys in proptest::collection::vec(any::<u32>(), 80)) {
        for text in ALL {
            let mut keys = keys.iter().cycle();
            let mut key = || keys.next().copied().unwrap_or_default();
            let mut tables = tables(text);
            for lines in &mut tables {
                // The header stays where it is.
                let body = usize::from(lines[0].starts_with('['));
                lines[body..].sort_by_cached_key(|_| key());
            }
            // Keys of the top come before the first table.
            let first = usize::from(!tables[0][0].starts_with('['));
            tables[first..].sort_by_cached_key(|_| key());
            let shuffled: Vec<String> = tables.iter().map(|lines| lines.join("\n")).collect();
            let shuffled = document(&(shuffled.join("\n\n") + "\n"));
            prop_assert_eq!(meaning(&shuffled), meaning(&document(text)));
        }
    }

    /// Sites, upstreams and presets may stand in any file, each in one.
    #[test]
    fn tables_in_random_files_mean_the_same(keys in proptest::collection::vec(0..4_usize, 80)) {
        for text in ALL {
            let mut files = vec![String::new(); 4];
            let mut owners: Vec<&str> = Vec::new();
            for lines in tables(text) {
                let file = match owner(lines[0]) {
                    None => 0,
                    Some(owner) => {
                        let known = owners.iter().position(|known| *known == owner);
                        keys[known.unwrap_or_else(|| {
                            owners.push(owner);
                            owners.len() - 1
                        })]
                    }
                };
                files[file] += &(lines.join("\n") + "\n\n");
            }
            let mut scattered = document(&files[0]);
            for (number, file) in files.iter().enumerate().skip(1) {
                scattered.include(format!("{number}.toml"), "", file);
            }
            prop_assert_eq!(meaning(&scattered), meaning(&document(text)));
        }
    }
}

/// The site, upstream or preset of a header, with its kind; `None` for what belongs to the main file.
fn owner(header: &str) -> Option<&str> {
    let name = header.trim_start_matches('[');
    let kinds = ["site", "upstream", "preset"];
    if !header.starts_with('[') || !kinds.iter().any(|kind| name.starts_with(kind)) {
        return None;
    }
    // `site."a.example"."/x"` belongs to `site."a.example"`.
    let end = match name.match_indices('"').nth(1) {
        Some((quote, _)) => quote,
        None => name.find(']')?,
    };
    name.get(..end)
}
