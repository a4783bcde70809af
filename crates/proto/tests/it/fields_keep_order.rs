//! The container of header fields.

use blitz_proto::{Fields, InvalidField, Name};

fn lines(fields: &Fields) -> Vec<String> {
    let line = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    fields
        .iter()
        .map(|(name, value)| format!("{}={}", name.as_str(), line(value)))
        .collect()
}

fn sample() -> Fields {
    let mut fields = Fields::new();
    fields.append(Name::Accept, "a");
    fields.append("X-One", "1");
    fields.append(Name::SetCookie, "b");
    fields.append("set-cookie", "c");
    fields.append("x-one", "2");
    fields
}

#[test]
fn fields_stay_in_order_and_are_found_in_any_case() {
    let fields = sample();
    let expected = [
        "Accept=a",
        "X-One=1",
        "Set-Cookie=b",
        "Set-Cookie=c",
        "x-one=2",
    ];
    assert_eq!(lines(&fields), expected);
    assert_eq!(fields.len(), 5);
    assert_eq!(fields.get("x-ONE"), Some(&b"1"[..]));
    assert_eq!(fields.get_str(Name::SetCookie), Some("b"));
    assert_eq!(
        fields.get_all("SET-COOKIE").collect::<Vec<_>>(),
        [b"b", b"c"]
    );
    assert_eq!(fields.get("x-two"), None);
    assert!(fields.contains("accept") && !fields.contains(Name::Host));
}

#[test]
fn set_replaces_in_place_and_removes_the_rest() {
    let mut fields = sample();
    fields.set("X-One", "3");
    assert_eq!(
        lines(&fields),
        ["Accept=a", "X-One=3", "Set-Cookie=b", "Set-Cookie=c"]
    );
    fields.set(Name::Via, "1.1 x");
    assert_eq!(fields.get(Name::Via), Some(&b"1.1 x"[..]));
    assert_eq!(fields.len(), 5);
}

#[test]
fn remove_and_retain_take_all_occurrences() {
    let mut fields = sample();
    assert!(fields.remove("x-one"));
    assert!(!fields.remove("x-one"));
    fields.retain(|name, value| name.known() != Name::SetCookie || value == b"c");
    assert_eq!(lines(&fields), ["Accept=a", "Set-Cookie=c"]);
    fields.clear();
    assert!(fields.is_empty());
}

#[test]
fn text_that_could_split_a_head_is_refused() {
    let mut fields = Fields::new();
    for (name, value) in [
        ("X", "a\r\nb"),
        ("X", "a\nb"),
        ("X", "a\rb"),
        ("X", "a\0b"),
        ("X", "\x7f"),
        ("", "a"),
        ("X Y", "a"),
        ("X:", "a"),
        ("X\r\nY", "a"),
        ("é", "a"),
    ] {
        assert_eq!(
            fields.try_append(name, value),
            Err(InvalidField),
            "{name:?}: {value:?}"
        );
    }
    assert!(fields.is_empty());
    assert_eq!(
        fields.try_append("x-é".trim_end_matches('é'), "tab\tand é"),
        Ok(())
    );
}
