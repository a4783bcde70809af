//! Tests that need a process of their own.

use std::env;
use std::process::Command;
use std::thread;

/// Set for the process in which a test runs alone.
const ALONE: &str = "BLITZ_TEST_ALONE";

/// Whether the calling test has its process for itself, as one must that counts what the whole
/// process does. If not, it is run once more in a process of its own, and has passed when this
/// returns.
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
    let name = test.name().expect("a test's thread has its name");
    let ran = Command::new(env::current_exe().expect("the test binary has a path"))
        .args([name, "--exact", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .expect("the test binary starts");
    let said = String::from_utf8_lossy(&ran.stdout);
    // A name that matches no test would pass as well, with nothing run.
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    false
}
