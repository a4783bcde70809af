//! How servers may read a path otherwise than rule 10 does.

use blitz_http::path as request_path;

/// Whether servers read the path in several ways.
pub(crate) fn is_ambiguous(path: &str) -> bool {
    let ends_with_slash = path.len() > 1 && path.ends_with('/');
    ends_with_slash || path.contains([';', '\\', '%']) || path.contains("//")
}

/// What servers may make of a path. They differ in what they do, and in which order: decode escapes, drop the parameters
/// of segments, take a backslash for a slash and several slashes for one, take what begins with two slashes for a
/// reference with a host, and ignore a slash at the end.
pub(crate) fn readings(path: &str) -> Vec<String> {
    const CHANGES: [fn(&str) -> String; 6] = [
        without_parameters,
        decoded,
        without_parameters,
        with_slashes,
        without_host,
        without_empty_segments,
    ];
    let mut all = vec![path.to_owned()];
    for change in CHANGES {
        for at in 0..all.len() {
            let changed = change(&all[at]);
            if !all.contains(&changed) {
                all.push(changed);
            }
        }
    }
    let mut resolved = Vec::with_capacity(2 * all.len());
    for reading in all {
        let mut out = String::new();
        // What leads above the root is read as the root.
        if request_path::remove_dot_segments(&reading, &mut out).is_err() {
            "/".clone_into(&mut out);
        }
        // A dot segment at the end leaves a slash.
        let without = without_last_slash(&out);
        for reading in [out, without] {
            if !resolved.contains(&reading) {
                resolved.push(reading);
            }
        }
    }
    resolved
}

fn without_parameters(path: &str) -> String {
    let segments = path.split('/');
    let segments = segments.map(|segment| segment.split(';').next().unwrap_or_default());
    segments.collect::<Vec<_>>().join("/")
}

/// With the characters for which the escapes of ASCII stand. Others are in no key of a route.
fn decoded(path: &str) -> String {
    let mut decoded = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let digits = after.get(..2);
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(u8::is_ascii_graphic) {
            Some(byte) => {
                decoded.push(char::from(byte));
                rest = &after[2..];
            }
            None => {
                decoded.push('%');
                rest = after;
            }
        }
    }
    decoded + rest
}

fn with_slashes(path: &str) -> String {
    path.replace('\\', "/")
}

/// RFC 3986, section 4.2: what begins with two slashes is a reference with an authority.
fn without_host(path: &str) -> String {
    if !path.starts_with("//") {
        return path.to_owned();
    }
    let behind = path.trim_start_matches('/');
    behind.find('/').map_or("/", |at| &behind[at..]).to_owned()
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

fn without_last_slash(path: &str) -> String {
    match path.strip_suffix('/') {
        Some(shorter) if !shorter.is_empty() => shorter.to_owned(),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_read_a_protected_path_in_these() {
        for path in [
            "/admin;x",
            "/admin/",
            "/admin;x/",
            "//admin",
            "//x/admin",
            "///x/admin",
            "/%61dmin",
            "/admin%2F",
            "/;%2Fadmin",
            "/x/%2F/../../admin",
            "/admin%3Bx",
            "/\\admin",
            "/%5Cadmin",
            "/x//../../admin",
        ] {
            let found = readings(path);
            let is_admin = |reading: &String| reading == "/admin";
            assert!(is_ambiguous(path), "{path}");
            assert!(found.iter().any(is_admin), "{path}: {found:?}");
        }
        assert!(readings("/%40x").contains(&"/@x".to_owned()));
        assert!(!is_ambiguous("/admin/x") && !is_ambiguous("/"));
        // The most that one path may cost.
        assert!(readings("//a;b%2F;c\\;%3Bd//e").len() <= 64);
    }
}
