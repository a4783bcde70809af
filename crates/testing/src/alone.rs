//! Tests that need a process of their own.

use std::env;
use std::process::Command;
use std::thread;

/// Set for the process in which a test runs alone.
const ALONE: &str = "BLITZ_TEST_ALONE";

/// Whether the calling test is the only one in its process, which tests that measure the whole process
/// need. If not, runs the test again in a separate process, and returns if that has passed.
///
/// ```no_run
/// # fn allocations() -> usize { 0 }
/// fn nothing_is_allocated() {
///     if !blitz_testing::is_alone() {
///         return;
///     }
///     assert_eq!(allocations(), 0);
/// }
/// ```
#[must_use]
pub fn is_alone() -> bool {
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let test = thread::current();
    let name = test.name().expect("the thread of a test has its name");
    let ran = Command::new(env::current_exe().expect("the test binary has a path"))
        .args([name, "--exact", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .expect("the test binary starts");
    let output = String::from_utf8_lossy(&ran.stdout);
    // The process also succeeds if the name matches no test.
    assert!(
        ran.status.success() && output.contains("1 passed"),
        "{output}"
    );
    false
}
