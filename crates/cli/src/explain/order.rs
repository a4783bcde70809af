//! The order in which the rules of a route decide, for people: that of `Policy` and of the phase `route`.

use blitz_config::{Settings, Span};

/// The key of a limit by a claim, which comes after the token is verified.
const BY_CLAIM: &str = "rate_limit by claim";

/// Keys of rules in the order in which they apply to a request. The table in `docs/configuration.md` is the same.
const ORDER: &[&str] = &[
    "security_headers",
    "deny",
    "allow",
    "cors",
    "rate_limit",
    "client_cert",
    "basic_auth",
    "api_keys",
    "satisfy",
    "jwt",
    BY_CLAIM,
    "forward_auth",
    "concurrency",
    "methods",
    "body_max",
    "early_hints",
    "decompress",
];

/// The values of rules in the order in which they apply. Those that change what is sent come last, as they are written.
pub(super) fn sorted<'s>(
    settings: &'s Settings,
    mut values: Vec<(String, &'s Span)>,
) -> Vec<(String, &'s Span)> {
    values.sort_by_key(|(key, span)| place(key, span, settings));
    values
}

fn place(key: &str, span: &Span, settings: &Settings) -> usize {
    let policies = &settings.policies;
    let is_alternative = policies.alternatives().any(|one| one == (key, span));
    let counts_by_claim = || {
        let limit = policies.rate_limit.as_ref();
        limit.is_some_and(|limit| limit.value.is_of_identity())
    };
    let key = match key {
        _ if is_alternative => "satisfy",
        "rate_limit" if counts_by_claim() => BY_CLAIM,
        key => key,
    };
    let place = ORDER.iter().position(|other| *other == key);
    place.unwrap_or(ORDER.len())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_table_of_the_documents_has_this_order() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let text = fs::read_to_string(file).expect("the file exists");
        let (_, table) = text
            .split_once("## The order of policies\n")
            .expect("the section exists");
        let table = table.split("\n## ").next().unwrap_or_default();
        let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        let keys = cells.flat_map(|cell| {
            let cell = cell.replace("` by a claim", " by claim`");
            let parts = cell.split('`').skip(1).step_by(2);
            parts.map(str::to_owned).collect::<Vec<_>>()
        });
        let keys: Vec<_> = keys.filter(|key| ORDER.contains(&key.as_str())).collect();
        assert_eq!(keys, ORDER);
    }
}
