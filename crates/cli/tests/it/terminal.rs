//! The program on a terminal of script(1).

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::IO_TIMEOUT;

/// Starts the program with these arguments on a terminal of this size, such as `rows 24 cols 80`.
pub(crate) fn start(size: &str, arguments: &str) -> Child {
    let command = format!(
        "stty {size}; exec {} {arguments}",
        env!("CARGO_BIN_EXE_blitz")
    );
    Command::new("script")
        .args([
            "--quiet",
            "--return",
            "--flush",
            "--command",
            &command,
            "/dev/null",
        ])
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script(1) of util-linux")
}

/// Waits for the end of the program, which is a success.
pub(crate) fn wait(mut script: Child) {
    let deadline = Instant::now() + IO_TIMEOUT;
    while script.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it goes on");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(script.wait().unwrap().code(), Some(0));
}
