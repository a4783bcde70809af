//! The JSON Schema of the file, for editors. It is made of the table of keys, so it knows names, types and the syntax of
//! values, and nothing of what depends on several values.

use serde_json::{Map, Value, json};

use crate::balance::WEIGHT_MAX;
use crate::keys::{self, Key, Kind, Scope, Since};
use crate::method::Method;

/// A variable anywhere in a text: its value is not known.
const VARIABLE: &str = r"\$\{";

/// The name of a field or a cookie (RFC 9110, section 5.6.2).
const TOKEN: &str = "[-A-Za-z0-9!#$%&'*+.^_`|~]+";

/// Tables without a key that must be there, and without another form.
const TABLES: &[Scope] = &[
    Scope::AccessLogWhen,
    Scope::Compress,
    Scope::Control,
    Scope::Decompress,
    Scope::Defaults,
    Scope::Health,
    Scope::Jwt,
    Scope::Limits,
    Scope::Log,
    Scope::Metrics,
    Scope::Networks,
    Scope::Outlier,
    Scope::Preset,
    Scope::Queue,
    Scope::Retry,
    Scope::SecurityHeaders,
    Scope::Server,
    Scope::Shed,
    Scope::SiteLimits,
    Scope::Timeout,
    Scope::Tls,
    Scope::UpstreamLimits,
    Scope::When,
];

/// The JSON Schema of the file (draft 7, which all language servers for TOML read), as text.
#[must_use]
pub fn schema() -> String {
    let mut top = table(Scope::Top);
    let mut definitions = json!({
        "access_log": required(table(Scope::AccessLog), "to"),
        "api_keys": required(table(Scope::ApiKeys), "file"),
        "basic_auth": required(table(Scope::BasicAuth), "users_file"),
        "buffer_request": required(table(Scope::Buffer), "memory"),
        "certificate": required(text_or(table(Scope::Certificate)), "cert"),
        "cors": required(table(Scope::Cors), "origins"),
        "fields": fields(),
        "forward_auth": required(table(Scope::ForwardAuth), "url"),
        "forward_auth_cache": required(table(Scope::ForwardAuthCache), "by"),
        "listener": required(text_or(table(Scope::Listener)), "address"),
        "mirror": required(table(Scope::Mirror), "to"),
        "rate_limit": required(table(Scope::RateLimit), "rate"),
        "redis": required(table(Scope::Redis), "url"),
        "respond": required(table(Scope::Respond), "status"),
        "route": text_or(table(Scope::Route)),
        "site": text_or(site()),
        "tracing": required(table(Scope::Tracing), "otlp"),
        "upstream": required(table(Scope::Upstream), "servers"),
    });
    for scope in TABLES {
        definitions[keys::table_name(*scope)] = table(*scope);
    }
    let header = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Configuration of Blitz",
        "definitions": definitions,
    });
    if let (Value::Object(top), Value::Object(header)) = (&mut top, header) {
        top.extend(header);
    }
    format!("{top:#}\n")
}

/// The keys of a scope that this version has.
fn table(scope: Scope) -> Value {
    let is_built = |key: &&Key| matches!(key.since, Since::Version(_));
    let mut properties: Map<String, Value> = keys::of(scope)
        .filter(is_built)
        .map(|key| (key.name.to_owned(), property(key)))
        .collect();
    for renamed in keys::RENAMED {
        let mut keys = keys::of(scope).filter(|key| key.scope == renamed.scope);
        if let Some(key) = keys.find(|key| key.name == renamed.new) {
            let mut schema = property(key);
            schema["deprecated"] = json!(true);
            properties.insert(renamed.old.to_owned(), schema);
        }
    }
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn required(mut table: Value, name: &str) -> Value {
    if let Value::Object(table) = &mut table {
        table.insert("required".to_owned(), json!([name]));
    }
    table
}

fn property(key: &Key) -> Value {
    let default = match key.default {
        "" => String::new(),
        default => format!(" Default: {default}."),
    };
    let text = format!(
        "{}{}.{default}",
        key.text[..1].to_uppercase(),
        &key.text[1..]
    );
    let mut schema = match (value(key.kind), key.is_removable()) {
        (schema, false) => schema,
        (schema, true) => any_of([schema, json!({ "const": false })]),
    };
    if let Value::Object(schema) = &mut schema {
        // Words beside a reference are ignored in draft 7.
        if let Some(reference) = schema.remove("$ref") {
            schema.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
        }
        schema.insert("description".to_owned(), json!(text));
    }
    schema
}

fn value(kind: Kind) -> Value {
    let text = json!({ "type": "string" });
    match kind {
        Kind::Boolean => any_of([json!({ "type": "boolean" }), pattern("^\\$\\{")]),
        Kind::Version => any_of([json!({ "const": 1 }), pattern("^\\$\\{")]),
        Kind::Text | Kind::Folder => text,
        Kind::Texts | Kind::Networks => json!({ "type": "array", "items": text }),
        Kind::ClientNetworks => list_or("networks"),
        Kind::Methods => json!({ "type": "array", "items": method() }),
        Kind::Duration => pattern(&format!("^(forever|0*[1-9][0-9]*(ms|s|m|h|d))$|{VARIABLE}")),
        Kind::Time => pattern(&format!("^(0+|[0-9]+(ms|s|m|h|d))$|{VARIABLE}")),
        Kind::Seconds => pattern(&format!("^(0+|[0-9]+(s|m|h|d|[0-9]*000ms))$|{VARIABLE}")),
        Kind::TimeLimit => pattern(&format!("^(forever|0+|[0-9]+(ms|s|m|h|d))$|{VARIABLE}")),
        Kind::NumberTo(last) | Kind::CountTo(last) => number_from(1, last),
        Kind::ZeroTo(last) => number_from(0, last),
        Kind::OneOf(texts) => pattern(&format!("^({})$|{VARIABLE}", texts.join("|"))),
        Kind::Listeners => json!({ "type": "array", "items": reference("listener") }),
        Kind::Certificates => json!({ "type": "array", "items": reference("certificate") }),
        Kind::Tls => tls(),
        Kind::Socket | Kind::ControlAddress => any_of([text, json!({ "const": false })]),
        Kind::AccessLog => any_of([text, json!({ "const": false }), reference("access_log")]),
        Kind::Share => share(),
        Kind::Percent => percent(),
        Kind::Statuses => statuses(),
        Kind::StatusOrStatuses => any_of([logged_status(), statuses()]),
        Kind::Health => health(),
        // About a MiB: a pattern does not count.
        Kind::SizeTo(_) => pattern(&format!(
            "^0*([1-9][0-9]{{0,6}}|[1-9][0-9]{{0,3}}[kK]([iI][bB])?|1[mM]([iI][bB])?)$|{VARIABLE}"
        )),
        Kind::Size => size(),
        Kind::Cors => list_or("cors"),
        Kind::SecurityHeaders => boolean_or("security_headers"),
        Kind::Switch(scope) => boolean_or(keys::table_name(scope)),
        Kind::Compress => compress(),
        Kind::Decompress => boolean_or("decompress"),
        Kind::FieldNames => one_or_list(&pattern(&format!("^{TOKEN}$|{VARIABLE}"))),
        Kind::BasicAuth => any_of([text, reference("basic_auth")]),
        Kind::RateLimit => any_of([rate(), reference("rate_limit")]),
        Kind::Rate => rate(),
        Kind::RateKeys => rate_keys(),
        Kind::RequestBuffer => any_of([size(), reference("buffer_request")]),
        Kind::Status => any_of([status(), pattern(&format!("^[2-5][0-9][0-9]$|{VARIABLE}"))]),
        Kind::Servers => servers(),
        Kind::Target => any_of([text, servers()]),
        Kind::Sticky => sticky(),
        Kind::ServerKey => server_key(),
        Kind::Redirect => pattern(&format!("^30[12378] .|{VARIABLE}")),
        Kind::Respond => respond(),
        Kind::Fields => reference("fields"),
        Kind::ErrorPages => error_pages(&text),
        Kind::Table(Scope::Control) => any_of([
            json!({ "const": false }),
            reference(keys::table_name(Scope::Control)),
        ]),
        Kind::Table(Scope::Redis) => any_of([text, reference(keys::table_name(Scope::Redis))]),
        Kind::Table(scope) => reference(keys::table_name(scope)),
        Kind::Sites => by_name(&reference("site")),
        Kind::Upstreams => by_name(&reference("upstream")),
        Kind::Presets => by_name(&reference("preset")),
        Kind::FieldTexts => field_texts(&text),
        Kind::Names | Kind::Clients | Kind::OneOrMore => one_or_list(&text),
        Kind::ClaimFields => json!({ "type": "object", "additionalProperties": text }),
        Kind::ClaimDemands => claim_demands(&text),
        Kind::Blocks => json!({ "type": "array", "items": reference("when") }),
        Kind::Matches => by_name(&any_of([text, json!({ "type": "boolean" })])),
        Kind::MethodOrMethods => one_or_list(&method()),
    }
}

fn claim_demands(text: &Value) -> Value {
    json!({
        "type": "object",
        "additionalProperties": any_of([json!({ "const": true }), one_or_list(text)]),
    })
}

fn number_from(first: u64, last: u64) -> Value {
    any_of([
        json!({ "type": "integer", "minimum": first, "maximum": last }),
        pattern("^\\$\\{"),
    ])
}

fn boolean_or(table: &str) -> Value {
    any_of([json!({ "type": "boolean" }), reference(table)])
}

fn error_pages(text: &Value) -> Value {
    let file = any_of([text.clone(), json!({ "const": false })]);
    json!({
        "type": "object",
        "patternProperties": { "^[45]([0-9][0-9]|xx)$": file },
        "additionalProperties": false,
    })
}

/// How clients stay with a server.
fn sticky() -> Value {
    pattern(&format!(
        "^(client|(cookie|header):{TOKEN}|cookie|jwt:.+)$|{VARIABLE}"
    ))
}

fn server_key() -> Value {
    pattern(&format!(
        "^(client|(cookie|header):{TOKEN}|jwt:.+)$|{VARIABLE}"
    ))
}

/// A list of texts, or a table.
fn list_or(table: &str) -> Value {
    let list = json!({ "type": "array", "items": { "type": "string" } });
    any_of([list, reference(table)])
}

fn field_texts(text: &Value) -> Value {
    json!({
        "type": "object",
        "patternProperties": { (format!("^{TOKEN}$")): text },
        "additionalProperties": false,
    })
}

/// A site has routes beside its keys.
fn site() -> Value {
    let names = Method::names().collect::<Vec<_>>().join("|");
    let path = format!("^(({names})(,({names}))* )?(=?/[^ ?#]*|~[^ ]+)$");
    let route = reference("route");
    let mut site = table(Scope::Site);
    if let Value::Object(site) = &mut site {
        site.insert("patternProperties".to_owned(), json!({ path: route }));
    }
    site
}

fn fields() -> Value {
    let text = json!({ "type": "string" });
    let change = json!({
        "type": "object",
        "properties": { "default": text, "add": text },
        "additionalProperties": false,
        "minProperties": 1,
        "maxProperties": 1,
    });
    let several = json!({ "type": "array", "items": text, "minItems": 1 });
    json!({
        "type": "object",
        "patternProperties": {
            (format!("^{TOKEN}$")):
                any_of([text, several, change, json!({ "const": false })]),
        },
        "additionalProperties": false,
    })
}

fn respond() -> Value {
    any_of([
        status(),
        pattern(&format!("^[2-5][0-9][0-9]( |$)|{VARIABLE}")),
        reference("respond"),
    ])
}

fn health() -> Value {
    any_of([pattern(&format!("^/|{VARIABLE}")), reference("health")])
}

fn size() -> Value {
    pattern(&format!("^0*[1-9][0-9]*([kKmMgG]([iI][bB])?)?$|{VARIABLE}"))
}

fn tls() -> Value {
    any_of([
        json!({ "type": "boolean" }),
        pattern("^\\$\\{"),
        reference("tls"),
    ])
}

fn compress() -> Value {
    any_of([
        json!({ "type": "boolean" }),
        pattern("^files$|^\\$\\{"),
        reference("compress"),
    ])
}

fn servers() -> Value {
    let text = json!({ "type": "string" });
    let weight = any_of([
        json!({ "type": "integer", "minimum": 0, "maximum": WEIGHT_MAX }),
        pattern("^\\$\\{"),
    ]);
    any_of([
        json!({ "type": "array", "items": text, "minItems": 1 }),
        json!({ "type": "object", "additionalProperties": weight, "minProperties": 1 }),
    ])
}

fn method() -> Value {
    let names = Method::names().collect::<Vec<_>>().join("|");
    pattern(&format!("^({names})$|{VARIABLE}"))
}

fn one_or_list(item: &Value) -> Value {
    any_of([item.clone(), json!({ "type": "array", "items": item })])
}

fn status() -> Value {
    json!({ "type": "integer", "minimum": 200, "maximum": 599 })
}

fn statuses() -> Value {
    json!({ "type": "array", "items": logged_status() })
}

fn logged_status() -> Value {
    any_of([
        json!({ "type": "integer", "minimum": 100, "maximum": 599 }),
        pattern(&format!("^[1-5]([0-9][0-9]|xx)$|{VARIABLE}")),
    ])
}

fn rate() -> Value {
    pattern(&format!("^0*[1-9][0-9]*/(s|min|h|d)$|{VARIABLE}"))
}

fn rate_keys() -> Value {
    let key = pattern(&format!(
        "^(client|user|route|(header|cookie|jwt):.+)$|{VARIABLE}"
    ));
    let several = json!({ "type": "array", "items": key, "minItems": 1 });
    any_of([key, several])
}

fn share() -> Value {
    any_of([
        json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        pattern("^\\$\\{"),
    ])
}

fn percent() -> Value {
    any_of([
        json!({ "type": "number", "minimum": 0.0001, "maximum": 100 }),
        pattern("^\\$\\{"),
    ])
}

fn by_name(value: &Value) -> Value {
    json!({ "type": "object", "additionalProperties": value })
}

fn pattern(regex: &str) -> Value {
    json!({ "type": "string", "pattern": regex })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/definitions/{name}") })
}

/// A text, or else this table. Keywords of tables do not apply to texts, so that a language server marks the exact key;
/// with two alternatives it would mark every key of the table.
fn text_or(mut table: Value) -> Value {
    if let Value::Object(table) = &mut table {
        table.insert("type".to_owned(), json!(["string", "object"]));
    }
    table
}

fn any_of<const N: usize>(schemas: [Value; N]) -> Value {
    let schemas = Value::Array(schemas.into());
    json!({ "anyOf": schemas })
}
