//! How servers may read a path otherwise than rule 10 does.

use blitz_http::path as request_path;

/// Whether servers read the path in several ways.
pub(crate) fn is_ambiguous(path: &str) -> bool {
    path.contains([';', '\\'])
        || path.contains("//")
        || path.contains("%2F")
        || path.contains("%5C")
}

/// What servers may make of a path: with or without parameters of segments, encoded slashes, and empty segments.
pub(crate) fn readings(path: &str) -> Vec<String> {
    let mut all = vec![path.to_owned()];
    for change in [without_parameters, with_slashes, without_empty_segments] {
        let changed: Vec<String> = all.iter().map(|reading| change(reading)).collect();
        all.extend(changed);
    }
    // What leads above the root is read as the root.
    let resolved = all.iter().map(|reading| {
        let mut out = String::new();
        match request_path::remove_dot_segments(reading, &mut out) {
            Ok(()) => out,
            Err(_) => "/".to_owned(),
        }
    });
    resolved.collect()
}

fn without_parameters(path: &str) -> String {
    let segments = path.split('/');
    let segments = segments.map(|segment| segment.split(';').next().unwrap_or_default());
    segments.collect::<Vec<_>>().join("/")
}

fn with_slashes(path: &str) -> String {
    path.replace("%2F", "/")
        .replace("%5C", "/")
        .replace('\\', "/")
}

fn without_empty_segments(path: &str) -> String {
    let mut shorter = String::new();
    for char in path.chars() {
        if char != '/' || !shorter.ends_with('/') {
            shorter.push(char);
        }
    }
    shorter
}
