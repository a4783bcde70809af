use crate::{blitz, stdout};

#[test]
fn version_names_revision_and_driver() {
    let output = blitz(&["version"]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    assert!(
        text.starts_with(concat!("blitz ", env!("CARGO_PKG_VERSION"), " (")),
        "{text}"
    );
    assert!(text.contains("I/O"), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn the_flag_prints_the_same_version() {
    let output = blitz(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).starts_with(concat!("blitz ", env!("CARGO_PKG_VERSION"))));
}
