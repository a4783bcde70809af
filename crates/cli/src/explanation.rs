//! The lines of `blitz explain`, as text and as JSON.

use serde_json::{Map, Value, json};

/// Columns of a label, and of a value.
const LABEL: usize = 9;
const VALUE: usize = 36;

/// The subject of a line: its label, and its key in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    Site,
    Route,
    /// A group of its regex, and what it matches.
    Group,
    /// The condition of a block that applies.
    When,
    Rule,
    Action,
    Outcome,
    /// A server with its weight, or how one is chosen.
    Server,
    /// A field that the upstream receives.
    Field,
    /// As which path servers may read that of the request.
    Reading,
    /// Why the token is refused.
    Reason,
    /// A route that does not apply.
    Other,
    /// How many more there are.
    More,
}

/// A value, the place where it is written, and a remark.
#[derive(Debug)]
pub(crate) struct ExplanationLine {
    pub(crate) about: About,
    pub(crate) value: String,
    pub(crate) place: String,
    pub(crate) remark: String,
}

/// Lines for people.
pub(crate) fn text(lines: &[ExplanationLine]) -> String {
    let mut text = String::new();
    let (mut others, mut servers) = (0, 0);
    for line in lines {
        let label = match line.about {
            About::Server if servers == 0 => "servers",
            About::Site => "site",
            About::Route => "route",
            About::Group => "group",
            About::When => "when",
            About::Rule => "rule",
            About::Action => "action",
            About::Outcome => "outcome",
            About::Other if others == 0 => "not",
            About::Server
            | About::Field
            | About::Reading
            | About::Reason
            | About::Other
            | About::More => "",
        };
        servers += usize::from(line.about == About::Server);
        others += usize::from(line.about == About::Other);
        let value = match line.about {
            About::Reading => format!("servers may read {}", line.value),
            About::More => format!("and {} more routes", line.value),
            _ => line.value.clone(),
        };
        let place = match line.place.is_empty() || line.remark.is_empty() {
            true => line.place.clone(),
            false => format!("{}  ", line.place),
        };
        let shown = format!("{label:LABEL$} {value:VALUE$}  {place}{}", line.remark);
        text += shown.trim_end();
        text.push('\n');
    }
    text
}

/// One object.
pub(crate) fn json(lines: &[ExplanationLine]) -> String {
    let mut object = Map::new();
    for list in ["groups", "when", "rules", "servers", "fields", "not"] {
        object.insert(list.to_owned(), json!([]));
    }
    for line in lines {
        let placed = || json!({ "value": line.value, "place": line.place });
        let (name, value) = match line.about {
            About::Site => ("site", placed()),
            About::Route => ("route", placed()),
            About::Action => ("action", placed()),
            About::Outcome => (
                "outcome",
                json!({ "value": line.value, "detail": line.remark }),
            ),
            About::Reading => ("reading", json!(line.value)),
            About::Reason => ("reason", json!(line.value)),
            About::More => continue,
            About::When => {
                push(&mut object, "when", placed());
                continue;
            }
            About::Server => {
                push(&mut object, "servers", json!(line.value));
                continue;
            }
            About::Rule => {
                let (key, value) = line.value.split_once(" = ").unwrap_or_default();
                let rule = json!({ "key": key, "value": value, "place": line.place });
                push(&mut object, "rules", rule);
                continue;
            }
            About::Group => {
                let (name, value) = line.value.split_once(" = ").unwrap_or_default();
                push(
                    &mut object,
                    "groups",
                    json!({ "name": name, "value": value }),
                );
                continue;
            }
            About::Field => {
                let (name, value) = line.value.split_once(": ").unwrap_or_default();
                push(
                    &mut object,
                    "fields",
                    json!({ "name": name, "value": value }),
                );
                continue;
            }
            About::Other => {
                let other = json!({ "route": line.value, "reason": line.remark });
                push(&mut object, "not", other);
                continue;
            }
        };
        object.insert(name.to_owned(), value);
    }
    Value::Object(object).to_string() + "\n"
}

fn push(object: &mut Map<String, Value>, list: &str, value: Value) {
    if let Some(Value::Array(values)) = object.get_mut(list) {
        values.push(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_text_and_json() {
        let line = |about, value: &str, place: &str, remark: &str| ExplanationLine {
            about,
            value: value.to_owned(),
            place: place.to_owned(),
            remark: remark.to_owned(),
        };
        let lines = [
            line(About::Site, "a.example", "b.toml:1", ""),
            line(About::Group, "id = 7", "", ""),
            line(About::Rule, "allow = [\"unix\"]", "b.toml:2", ""),
            line(About::Rule, "deny = {}", "b.toml:3", "n.txt: 1 network"),
            line(About::Outcome, "403 allow", "", "refused"),
            line(About::Other, "/x", "", "another path"),
            line(About::Other, "/y", "", "another path"),
        ];
        let expected = "\
site      a.example                             b.toml:1
group     id = 7
rule      allow = [\"unix\"]                      b.toml:2
rule      deny = {}                             b.toml:3  n.txt: 1 network
outcome   403 allow                             refused
not       /x                                    another path
          /y                                    another path
";
        assert_eq!(text(&lines), expected);
        let expected = r#"{"fields":[],"groups":[{"name":"id","value":"7"}],"not":[{"reason":"another path","route":"/x"},{"reason":"another path","route":"/y"}],"outcome":{"detail":"refused","value":"403 allow"},"rules":[{"key":"allow","place":"b.toml:2","value":"[\"unix\"]"},{"key":"deny","place":"b.toml:3","value":"{}"}],"servers":[],"site":{"place":"b.toml:1","value":"a.example"},"when":[]}"#;
        assert_eq!(json(&lines), format!("{expected}\n"));
    }
}
