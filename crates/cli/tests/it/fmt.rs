//! `blitz fmt`: files are rewritten as a whole or not at all.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use crate::https::Folder;
use crate::{blitz, stderr, stdout};

const UNTIDY: &str =
    "[site.\"a.example\"]\nto='http://127.0.0.1:1' # one\n\n[log]\nlevel = \"warn\"\n";
const TIDY: &str =
    "[log]\nlevel = \"warn\"\n\n[site.\"a.example\"]\nto = \"http://127.0.0.1:1\"  # one\n";

#[test]
fn a_file_is_replaced_with_its_mode() {
    let folder = Folder::new();
    let file = folder.file("blitz.toml");
    fs::write(&file, UNTIDY).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let link = folder.file("link.toml");
    symlink(&file, &link).unwrap();

    let checked = blitz(&["fmt", "--check", &link]);
    assert_eq!(checked.status.code(), Some(1));
    assert_eq!(stdout(&checked), format!("{link}\n"));
    assert_eq!(fs::read_to_string(&file).unwrap(), UNTIDY);

    let done = blitz(&["fmt", &link]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(stdout(&done), format!("formatted  {link}\n"));
    assert_eq!(fs::read_to_string(&file).unwrap(), TIDY);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o640
    );

    // The folder stands for its blitz.toml, which does not change any more.
    for arguments in [&["fmt"][..], &["fmt", "--check"]] {
        let done = blitz(&[arguments, &[&folder.file("")]].concat());
        assert!(done.status.success(), "{}", stderr(&done));
        assert_eq!(stdout(&done), "");
    }
    let names = fs::read_dir(folder.file("")).unwrap();
    assert_eq!(names.count(), 2, "a temporary file is left");
}

#[test]
fn a_file_that_is_not_toml_stays() {
    let folder = Folder::new();
    let (wrong, right) = (folder.file("wrong.toml"), folder.file("right.toml"));
    let text = "[site.\"a.example\"]\nto=\"http://127.0.0.1:1\"\nto=\"http://127.0.0.1:2\"\n";
    fs::write(&wrong, text).unwrap();
    fs::write(&right, UNTIDY).unwrap();
    let done = blitz(&["fmt", &wrong, &right]);
    assert_eq!(done.status.code(), Some(1));
    assert!(
        stderr(&done).contains("error[defined-twice]"),
        "{}",
        stderr(&done)
    );
    assert_eq!(fs::read_to_string(&wrong).unwrap(), text);
    // One mistake does not keep the others from their form.
    assert_eq!(fs::read_to_string(&right).unwrap(), TIDY);
    let missing = blitz(&["fmt", &folder.file("missing.toml")]);
    assert_eq!(missing.status.code(), Some(1));
}

#[test]
fn fix_repairs_what_is_certain() {
    let folder = Folder::new();
    let file = folder.file("blitz.toml");
    let text = "[site.a.example]\ntoo = \"localhost:3000\"\n/api = \"http://127.0.0.1:1\"\n";
    fs::write(&file, text).unwrap();
    assert_eq!(
        blitz(&["fmt", "--fix", "--check", &file]).status.code(),
        Some(1)
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let done = blitz(&["fmt", "--fix", &file]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(
        stderr(&done).contains(&format!("repaired  {file}:2:1 unknown-key: ")),
        "{}",
        stderr(&done)
    );
    let expected =
        "[site.\"a.example\"]\nto = \"http://localhost:3000\"\n\"/api\" = \"http://127.0.0.1:1\"\n";
    assert_eq!(fs::read_to_string(&file).unwrap(), expected);
}

/// Editors send a text, and replace it by the answer.
#[test]
fn standard_input_goes_to_standard_output() {
    for (text, code, expected) in [(UNTIDY, 0, TIDY), ("[site\n", 1, "")] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_blitz"))
            .args(["fmt", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert_eq!(stdout(&output), expected);
        assert_eq!(stderr(&output).is_empty(), code == 0);
    }
}
