//! The order of lines and tables changes nothing.

use blitz_config::read;
use proptest::prelude::*;
use regex::Regex;

use crate::files::ALL;
use crate::support::{document, environment};

/// The model as text without places, the sites by name. Nothing else may differ.
fn meaning(text: &str) -> String {
    let (mut configuration, diagnostics) = read(&document(text), &environment());
    assert_eq!(diagnostics, [], "{text}");
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
            prop_assert_eq!(meaning(&(shuffled.join("\n\n") + "\n")), meaning(text));
        }
    }
}
