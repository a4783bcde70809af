//! How servers may read a path otherwise than rule 10 does.

use std::collections::HashSet;

/// Readings cost time, which nobody who is refused elsewhere may demand at will: of a longer path, or of one with more
/// readings or more bytes of readings before dot segments are removed, nothing is known.
const BYTES_MAX: usize = 1024;
const READINGS_MAX: usize = 32;
const ALL_BYTES_MAX: usize = 8 * 1024;

/// Whether servers read the path in several ways.
pub(crate) fn is_ambiguous(path: &str) -> bool {
    let ends_oddly = path.len() > 1 && path.ends_with(['/', '.']);
    ends_oddly
        || path.contains("//")
        || path.contains("./")
        || path.contains(|char| char == ';' || !is_of_keys(char))
}

/// The paths as which servers may read a path, or `None` if there are too many. Servers differ in the changes, and
/// in their order: decode escapes, also twice; remove tabs and line breaks; end the path at a decoded `?`, `#` or NUL;
/// drop the parameters of segments; read a backslash as a slash and several slashes as one; drop dots and spaces at the
/// end of a segment; read two slashes at the beginning as a reference with a host; ignore a slash at the end.
pub(crate) fn readings(path: &str) -> Option<Vec<String>> {
    const CHANGES: [fn(&str) -> String; 10] = [
        without_parameters,
        decoded,
        decoded,
        without_line_breaks,
        until_end,
        without_parameters,
        with_slashes,
        without_last_dots,
        without_host,
        without_empty_segments,
    ];
    if path.len() > BYTES_MAX {
        return None;
    }
    let mut all = vec![path.to_owned()];
    for change in CHANGES {
        for at in 0..all.len() {
            let changed = change(&all[at]);
            if !all.contains(&changed) {
                all.push(changed);
            }
        }
        if all.len() > READINGS_MAX || all.iter().map(String::len).sum::<usize>() > ALL_BYTES_MAX {
            return None;
        }
    }
    let mut known = HashSet::new();
    let mut different = Vec::new();
    for reading in all {
        // Not all servers remove dot segments, and some do not see those in escapes.
        let resolved = [
            without_dots(&reading, true),
            without_dots(&reading, false),
            reading,
        ];
        for reading in resolved {
            let reading = as_in_keys(&reading);
            // A dot segment at the end leaves a slash.
            let without = without_last_slash(&reading);
            let new = [reading, without].into_iter();
            different.extend(new.filter(|reading| known.insert(reading.clone())));
        }
    }
    Some(different)
}

/// Without dot segments (RFC 3986, section 5.2.4), also those with `%2e`. A path that leads above the root leads to it.
fn without_dots(reading: &str, may_be_escapes: bool) -> String {
    let mut kept = Vec::new();
    let mut ends_with_dots = false;
    for segment in reading.split('/').skip(1) {
        let dots = count_dots(segment, may_be_escapes);
        ends_with_dots = matches!(dots, 1 | 2);
        match dots {
            1 => {}
            2 => {
                kept.pop();
            }
            _ => kept.push(segment),
        }
    }
    if ends_with_dots {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

/// The number of dots of a segment, 0 if it has anything else.
fn count_dots(segment: &str, may_be_escapes: bool) -> usize {
    let (mut rest, mut count) = (segment.as_bytes(), 0);
    loop {
        rest = match rest {
            [] => return count,
            [b'.', rest @ ..] => rest,
            [b'%', b'2', b'e' | b'E', rest @ ..] if may_be_escapes => rest,
            _ => return 0,
        };
        count += 1;
    }
}

/// Parsers of URLs remove them wherever they are (WHATWG URL Standard, section 4.4).
fn without_line_breaks(path: &str) -> String {
    path.replace(['\t', '\n', '\r'], "")
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
        match byte.filter(u8::is_ascii) {
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

fn until_end(path: &str) -> String {
    let end = path.find(['?', '#', '\0']).unwrap_or(path.len());
    path[..end].to_owned()
}

/// File systems of Windows drop dots and spaces at the end of a name, other servers what their languages call space.
fn without_last_dots(path: &str) -> String {
    let is_space = |c: char| c == ' ' || c.is_ascii_control();
    let shorter = |segment| {
        let without_spaces = str::trim_end_matches(segment, is_space);
        let name = without_spaces.trim_end_matches(|c: char| c == '.' || is_space(c));
        match name {
            "" => without_spaces,
            name => name,
        }
    };
    path.split('/').map(shorter).collect::<Vec<_>>().join("/")
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

/// With escapes, in upper case, for the characters that a path has in escapes only (RFC 3986, section 3.3).
fn as_in_keys(reading: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut path = String::with_capacity(reading.len() + 16);
    let mut rest = reading;
    while let Some(char) = rest.chars().next() {
        let behind = &rest[char.len_utf8()..];
        let digits = behind.get(..2);
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        rest = behind;
        match (char, digits) {
            ('%', Some(digits)) => {
                path.push('%');
                path.extend(digits.chars().map(|digit| digit.to_ascii_uppercase()));
                rest = &behind[2..];
            }
            _ if is_of_keys(char) => path.push(char),
            // All others are ASCII.
            _ => {
                let byte = char as usize;
                let digit = |value: usize| char::from(DIGITS[value & 15]);
                path.extend(['%', digit(byte >> 4), digit(byte)]);
            }
        }
    }
    path
}

/// Whether a path of a key may have this character as it is.
fn is_of_keys(char: char) -> bool {
    char.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/".contains(char) || !char.is_ascii()
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
            "/admin%3Fx",
            "/admin%23/../y",
            "/admin%3F%2F..%2Fy",
            "/admin%20",
            "/admin%09",
            "/admin%20%3Bx",
            "/admin.",
            "/admin.%20.",
            "/admin%5C",
            "/admin\\",
            "/x/..%20/admin",
            "/admin%252F",
            "/admin%253Fx",
            "/admin%2500x",
            "/%2561dmin",
            "/x%252F..%252Fadmin",
            "/x%2F..%2Fadmin%2F%252e%252e",
            "/a/%252e%252e/admin/z%252F%252e%252e%252F%252e%252e",
            "/ad%09min",
            "/%0Aadm%0Din",
            "/ad%2509min",
        ] {
            let found = readings(path).unwrap();
            let is_admin = |reading: &String| {
                let below = reading.strip_prefix("/admin");
                below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
            };
            assert!(is_ambiguous(path), "{path}");
            assert!(found.iter().any(is_admin), "{path}: {found:?}");
        }
        let has =
            |path: &str, reading: &str| readings(path).unwrap().iter().any(|one| one == reading);
        assert!(has("/%40x", "/@x") && has("/a%20b;x", "/a%20b") && has("/a%3Fb%3Bx", "/a%3Fb"));
        assert!(has("/a%2525;x", "/a%2525") && has("/a%2525%3Bx", "/a%25"));
        // Servers that keep dot segments, or do not see them in escapes.
        assert!(has("/admin/../x", "/admin/../x") && has("/admin%2F%252e%252e", "/admin/%2E%2E"));
        assert!(has("/x[1]", "/x%5B1%5D") && has("/caf%25c3%25a9", "/caf%C3%A9"));
        assert!(is_ambiguous("/x[1]"));
        assert!(
            !is_ambiguous("/admin/x") && !is_ambiguous("/") && !is_ambiguous("/.well-known/x.y")
        );
    }

    #[test]
    fn readings_are_few() {
        let readings_of = |path: &str| readings(path).map(|all| all.len());
        for path in [
            "//a;b%2F;c\\;%3Bd//e",
            "//a;b%252F;c\\;%253Bd. /%3F%20/e//%5C;",
        ] {
            let few = |count| count <= 6 * READINGS_MAX;
            assert!(readings_of(path).is_none_or(few), "{path}");
        }
        assert_eq!(readings_of(&"/y".repeat(BYTES_MAX)), None);
    }
}
