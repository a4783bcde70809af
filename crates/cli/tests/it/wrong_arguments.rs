use crate::{blitz, stderr, stdout};

#[test]
fn an_unknown_flag_is_a_usage_error() {
    for args in [
        &["--speed", "9"][..],
        &["run", "--cores", "none"],
        &["run", "--io", "magic"],
    ] {
        let output = blitz(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            stderr(&output).contains(args[args.len() - 2]),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn no_cores_at_all_is_a_usage_error() {
    assert_eq!(blitz(&["run", "--cores", "0"]).status.code(), Some(2));
}

#[test]
fn a_wrong_address_is_a_failure_with_advice() {
    let output = blitz(&["run", "--listen", "8080"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("127.0.0.1:8080"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_wrong_target_is_a_failure_with_advice() {
    for value in ["127.0.0.1:3000", "ftp://example.com", "/api", "http://"] {
        let output = blitz(&["run", "--listen", "127.0.0.1:0", "--to", value]);
        assert_eq!(output.status.code(), Some(1), "{value}");
        let said = stderr(&output);
        assert!(said.contains(value), "{said}");
        assert!(
            said.lines().count() >= 2 || said.contains("http://"),
            "{said}"
        );
    }
}

#[test]
fn two_targets_for_the_same_paths_are_refused() {
    let to = [
        "--to",
        "/a=http://127.0.0.1:1",
        "--to",
        "/a=http://127.0.0.1:2",
    ];
    let output = blitz(&[&["run", "--listen", "127.0.0.1:0"], &to[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/a"), "{}", stderr(&output));
}

#[test]
fn help_shows_examples() {
    for args in [&["--help"][..], &["run", "--help"]] {
        let output = blitz(args);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("--to http://127.0.0.1:3000"));
    }
}
