//! The schema against the reader.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use blitz_config::{KEYS, Kind, Scope, Severity, Since, read, schema};
use regex::Regex;
use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use crate::files::ALL;
use crate::support::{document, environment};

/// Mistakes that the schema finds as well: names, types, and the syntax of values. It does not know hosts, URLs, networks,
/// placeholders, and what depends on several values.
const IN_SCHEMA: [&str; 14] = [
    "config-version",
    "duration",
    "field-name",
    "field-value",
    "foreign-key",
    "key-of-other-table",
    "method",
    "no-servers",
    "not-a-default",
    "site-key-in-route",
    "size",
    "type",
    "unit-missing",
    "unknown-key",
];

#[test]
fn the_schema_accepts_valid_files() {
    let schema = parsed();
    for text in ALL {
        assert_eq!(mistakes(text), BTreeSet::new(), "{text}");
        assert_eq!(checked(&schema, text), Ok(()), "{text}");
    }
}

/// Each value in turn is another type or another text, and each key is renamed.
#[test]
fn schema_and_reader_agree_on_mutants() {
    let schema = parsed();
    let mut counts = [0, 0, 0];
    for text in ALL {
        for mutant in mutants(text) {
            let found = mistakes(&mutant);
            let is_syntax = found.contains("syntax") || found.contains("defined-twice");
            if is_syntax || found.contains("two-forms") {
                continue;
            }
            let in_schema = checked(&schema, &mutant);
            match found.iter().any(|code| IN_SCHEMA.contains(code)) {
                true => assert!(
                    in_schema.is_err(),
                    "the schema accepts {found:?}:\n{mutant}"
                ),
                false if in_schema.is_err() => {
                    assert!(
                        !found.is_empty(),
                        "{in_schema:?}, and no mistake:\n{mutant}"
                    );
                    counts[1] += 1;
                }
                false => counts[2] += 1,
            }
            counts[0] += 1;
        }
    }
    // Enough mutants are invalid, and enough are valid.
    assert!(counts[0] > 1000 && counts[2] > 30, "{counts:?}");
}

/// Keys, and values of other types, lists and texts.
fn mutants(text: &str) -> Vec<String> {
    const VALUES: [&str; 18] = [
        "1",
        "1.5",
        "true",
        "false",
        "[]",
        "{}",
        "[1]",
        "[\"x\"]",
        "[\"GET\"]",
        "[\"http://h:1\"]",
        "{ x = 1 }",
        "\"30s\"",
        "\"30\"",
        "\"10m\"",
        "\"0\"",
        "\"404\"",
        "\"301 /x\"",
        "\"x\"",
    ];
    let value = Regex::new(r#"\[?"[^"=]*"(, "[^"=]*")*\]?|\btrue\b|\bfalse\b|\b[0-9]{3}\b"#)
        .expect("it is valid");
    let key = Regex::new(r"[a-zA-Z_-]{2,}\b").expect("it is valid");
    let mut mutants = Vec::new();
    for found in value.find_iter(text) {
        let replaced =
            |new: &&str| format!("{}{new}{}", &text[..found.start()], &text[found.end()..]);
        mutants.extend(VALUES.iter().map(replaced));
    }
    for found in key.find_iter(text) {
        let name = found.as_str();
        let renamed = [
            format!("{}x{}", &name[..1], &name[1..]),
            name.to_uppercase(),
            "acme".to_owned(),
        ];
        let replaced =
            |new: &String| format!("{}{new}{}", &text[..found.start()], &text[found.end()..]);
        mutants.extend(renamed.iter().map(replaced));
    }
    mutants
}

fn mistakes(text: &str) -> BTreeSet<&'static str> {
    let (_, diagnostics) = read(&document(text), &environment());
    let errors = diagnostics
        .iter()
        .filter(|one| one.severity == Severity::Error);
    errors.map(|one| one.code).collect()
}

fn parsed() -> Value {
    serde_json::from_str(&schema()).expect("the schema is JSON")
}

fn checked(schema: &Value, text: &str) -> Result<(), String> {
    let (table, _) = DeTable::parse_recoverable(text);
    check(schema, schema, &object(table.get_ref()))
}

fn object(table: &DeTable<'_>) -> Value {
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let key: &toml::de::DeString<'_> = key.get_ref();
        (key.to_string(), json(value.get_ref()))
    };
    Value::Object(table.iter().map(entry).collect())
}

fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => number
            .as_str()
            .parse::<i64>()
            .map_or(Value::Null, Value::from),
        DeValue::Float(number) => number
            .as_str()
            .parse::<f64>()
            .map_or(Value::Null, Value::from),
        DeValue::Boolean(is_on) => Value::Bool(*is_on),
        DeValue::Datetime(_) => Value::Null,
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => object(table),
    }
}

/// The keywords of JSON Schema that the schema has (draft-handrews-json-schema-validation-01).
fn check(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let Value::Object(keywords) = schema else {
        return Ok(());
    };
    for (keyword, rule) in keywords {
        let is_valid = match (keyword.as_str(), value) {
            ("$schema" | "title" | "description" | "definitions", _) => true,
            ("$ref", _) => {
                let path = rule.as_str().unwrap_or_default().trim_start_matches('#');
                check(
                    root,
                    root.pointer(path).expect("the definition exists"),
                    value,
                )?;
                true
            }
            ("type", _) => match rule {
                Value::Array(types) => types.iter().any(|one| is_type(one, value)),
                one => is_type(one, value),
            },
            ("const", _) => rule == value,
            ("anyOf", _) => list(rule).iter().any(|one| check(root, one, value).is_ok()),
            ("allOf", _) => list(rule).iter().all(|one| check(root, one, value).is_ok()),
            ("pattern", Value::String(text)) => is_match(rule.as_str().unwrap_or_default(), text),
            ("minimum", Value::Number(number)) => number.as_f64() >= rule.as_f64(),
            ("maximum", Value::Number(number)) => number.as_f64() <= rule.as_f64(),
            ("minItems", Value::Array(items)) => items.len() as u64 >= rule.as_u64().unwrap_or(0),
            ("maxItems", Value::Array(items)) => items.len() as u64 <= rule.as_u64().unwrap_or(0),
            ("items", Value::Array(items)) => {
                items.iter().all(|item| check(root, rule, item).is_ok())
            }
            ("minProperties", Value::Object(table)) => {
                table.len() as u64 >= rule.as_u64().unwrap_or(0)
            }
            ("maxProperties", Value::Object(table)) => {
                table.len() as u64 <= rule.as_u64().unwrap_or(0)
            }
            ("required", Value::Object(table)) => list(rule)
                .iter()
                .all(|name| name.as_str().is_some_and(|name| table.contains_key(name))),
            ("properties" | "patternProperties" | "additionalProperties", Value::Object(table)) => {
                table
                    .iter()
                    .try_for_each(|(key, value)| property(root, keywords, key, value))?;
                true
            }
            (
                "pattern" | "minimum" | "maximum" | "items" | "minItems" | "maxItems" | "required",
                _,
            ) => true,
            ("properties" | "patternProperties" | "additionalProperties", _) => true,
            ("minProperties" | "maxProperties", _) => true,
            _ => return Err(format!("the test does not know `{keyword}`")),
        };
        if !is_valid {
            return Err(format!("{keyword} {rule} of {value}"));
        }
    }
    Ok(())
}

fn property(
    root: &Value,
    keywords: &Map<String, Value>,
    key: &str,
    value: &Value,
) -> Result<(), String> {
    let named = keywords.get("properties").and_then(|all| all.get(key));
    let patterns = keywords.get("patternProperties").and_then(Value::as_object);
    let by_pattern = patterns.into_iter().flatten();
    let by_pattern = by_pattern.filter(|(pattern, _)| is_match(pattern, key));
    let mut found = named
        .into_iter()
        .chain(by_pattern.map(|(_, rule)| rule))
        .peekable();
    if found.peek().is_none() {
        return match keywords.get("additionalProperties") {
            Some(Value::Bool(false)) => Err(format!("unknown key {key}")),
            Some(rule) => check(root, rule, value),
            None => Ok(()),
        };
    }
    found.try_for_each(|rule| check(root, rule, value))
}

fn is_type(rule: &Value, value: &Value) -> bool {
    match rule.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64(),
        Some("number") => value.is_number(),
        _ => false,
    }
}

fn is_match(pattern: &str, text: &str) -> bool {
    thread_local! {
        static COMPILED: RefCell<HashMap<String, Regex>> = RefCell::default();
    }
    COMPILED.with_borrow_mut(|compiled| {
        let regex = compiled.entry(pattern.to_owned());
        let regex = regex.or_insert_with(|| Regex::new(pattern).expect("the pattern is valid"));
        regex.is_match(text)
    })
}

fn list(rule: &Value) -> &[Value] {
    rule.as_array().map_or(&[], Vec::as_slice)
}

/// Each key of this version is in the file that has all keys.
#[test]
fn the_files_have_all_keys() {
    for key in KEYS.iter().filter(|key| key.since != Since::NotYet) {
        let is_there = ALL.iter().any(|text| text.contains(key.name));
        assert!(is_there, "{}", key.name);
    }
}

/// The pages about the configuration name all keys of this version.
#[test]
fn the_documents_name_all_keys() {
    let documents = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let pages = [
        "configuration.md",
        "access.md",
        "client-certificates.md",
        "access-log.md",
        "forward-auth.md",
        "health.md",
        "compression.md",
        "cors.md",
        "networks.md",
        "security-headers.md",
        "rate-limits.md",
        "tracing.md",
        "files.md",
        "mirroring.md",
        "overload.md",
        "upstreams.md",
        "retries.md",
    ];
    let text: String = pages
        .iter()
        .filter_map(|page| std::fs::read_to_string(format!("{documents}/{page}")).ok())
        .collect();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    for key in KEYS.iter().filter(|key| key.since != Since::NotYet) {
        let is_named = |row: &&str| {
            let names = row.split('`').skip(1).step_by(2);
            let mut words = names.flat_map(|name| name.split(['.', '=', ' ', '"']));
            words.any(|word| word == key.name)
        };
        assert!(rows.iter().any(is_named), "{} of {:?}", key.name, key.scope);
        let is_table = matches!(
            key.kind,
            Kind::Table(_) | Kind::Sites | Kind::Upstreams | Kind::Presets
        );
        assert!(
            is_table || key.scope != Scope::Top || !key.default.is_empty(),
            "{}",
            key.name
        );
    }
}
