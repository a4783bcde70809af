//! `blitz completions`: what a shell proposes.

use std::fs;
use std::process::Command;

use crate::https::Folder;
use crate::{blitz, stderr, stdout};

/// The completions of bash for the last of these words.
fn proposed(script: &str, words: &[&str]) -> Vec<String> {
    let last = words.len() - 1;
    let (word, before) = (words[last], words[last - 1]);
    let ask = format!(
        "source {script}; COMP_WORDS=({}); COMP_CWORD={last}; _blitz blitz '{word}' '{before}'; echo \"${{COMPREPLY[@]}}\"",
        words.join(" ")
    );
    let output = Command::new("bash").args(["--norc", "-c", &ask]).output();
    let output = output.expect("bash is there");
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[test]
fn bash_completes_commands_and_flags() {
    let folder = Folder::new();
    let script = folder.file("blitz.bash");
    fs::write(&script, stdout(&blitz(&["completions", "bash"]))).unwrap();
    assert_eq!(proposed(&script, &["blitz", "expl"]), ["explain"]);
    assert_eq!(proposed(&script, &["blitz", "config", "d"]), ["diff"]);
    assert_eq!(proposed(&script, &["blitz", "fmt", "--ch"]), ["--check"]);
    assert_eq!(
        proposed(&script, &["blitz", "check", "--format", "j"]),
        ["json"]
    );
}

#[test]
fn other_shells_have_all_commands() {
    for shell in ["zsh", "fish"] {
        let script = stdout(&blitz(&["completions", shell]));
        for command in ["run", "check", "fmt", "explain", "reload", "completions"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    assert_eq!(blitz(&["completions", "sh"]).status.code(), Some(2));
}
