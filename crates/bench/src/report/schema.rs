//! The published schemas of the JSON forms.

use schemars::JsonSchema;

use super::model::Report;
use crate::load_result::LoadResult;

/// The JSON Schema of [`Report`].
#[must_use]
pub fn report_schema() -> String {
    schema::<Report>()
}

/// The JSON Schema of [`LoadResult`].
#[must_use]
pub fn load_result_schema() -> String {
    schema::<LoadResult>()
}

fn schema<T: JsonSchema>() -> String {
    let schema = schemars::schema_for!(T);
    let text = serde_json::to_string_pretty(&schema).expect("a schema has no keys but strings");
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW_TO_UPDATE: &str = "run `cargo run -p blitz-bench --example report -- --schemas`";

    #[test]
    fn the_committed_schemas_are_those_of_the_code() {
        let committed = include_str!("../../../../benchmarks/schema/report.json");
        assert!(report_schema() == committed, "report.json: {HOW_TO_UPDATE}");
        let committed = include_str!("../../../../benchmarks/schema/load-result.json");
        assert!(
            load_result_schema() == committed,
            "load-result.json: {HOW_TO_UPDATE}"
        );
    }
}
