use crate::{blitz, stderr};

#[test]
fn an_unknown_flag_is_a_usage_error() {
    let output = blitz(&["--speed", "9"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--speed"));
}
