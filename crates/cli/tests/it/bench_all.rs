//! `blitz bench all` continues where it was, and leaves no process behind.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{stderr, stdout};

const WITHIN: Duration = Duration::from_secs(20);

/// In the place of a benchmark: notes its start, and runs until its input ends if a file says so.
const STEP: &str = "#!/bin/sh
echo $$ > FOLDER/process
echo \"$3\" >> FOLDER/started
if [ \"$3\" = \"$(cat FOLDER/blocked 2>/dev/null)\" ]; then
  cat > /dev/null
  exit 9
fi
[ \"$3\" = h2 ] && exit 75
exit 0
";

/// A folder with a fake benchmark, removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let folder = std::env::temp_dir().join(format!("blitz-all-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let step = folder.join("step");
        let script = STEP.replace("FOLDER", folder.to_str().unwrap());
        let mut file = fs::File::create(&step).unwrap();
        file.write_all(script.as_bytes()).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o755))
            .unwrap();
        Place(folder)
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blitz"));
        command
            .args(["bench", "all", "--quick", "--only", "h1,h2,h3"])
            .arg("--out")
            .arg(self.0.join("out"))
            .arg("--step-program")
            .arg(self.0.join("step"))
            .args(more)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().unwrap()
    }

    /// Starts a run, and returns when this benchmark runs and blocks.
    fn run_until(&self, step: &str) -> Child {
        fs::write(self.0.join("blocked"), step).unwrap();
        let mut command = self.command(&[]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        wait_for(|| self.started().last().is_some_and(|last| last == step));
        child.unwrap()
    }

    fn started(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.join("started")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The process of the last benchmark.
    fn process(&self) -> PathBuf {
        wait_for(|| {
            fs::read_to_string(self.0.join("process")).is_ok_and(|text| text.ends_with('\n'))
        });
        let text = fs::read_to_string(self.0.join("process")).unwrap();
        Path::new("/proc").join(text.trim())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn wait_for(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < WITHIN, "it did not happen");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_killed_run_continues_after_the_last_benchmark_that_has_ended() {
    let place = Place::new("killed");
    let mut run = place.run_until("h2");
    let step = place.process();
    run.kill().unwrap();
    run.wait().unwrap();
    wait_for(|| !step.exists());
    fs::remove_file(place.0.join("blocked")).unwrap();
    let output = place.run(&[]);
    assert_eq!(place.started(), ["h1", "h2", "h2", "h3"]);
    assert_eq!(
        output.status.code(),
        Some(75),
        "h2 is void: {}",
        stderr(&output)
    );
    let text = stdout(&output);
    assert!(text.contains("VOID") && text.contains("total"), "{text}");
    assert!(stderr(&output).contains("1 of 3 benchmarks have ended"));
}

#[test]
fn a_signal_ends_the_benchmark_as_well_and_the_next_run_continues() {
    let place = Place::new("signal");
    let mut run = place.run_until("h3");
    let step = place.process();
    let status = Command::new("kill").arg(run.id().to_string()).status();
    assert!(status.unwrap().success());
    assert_eq!(run.wait().unwrap().code(), Some(143));
    wait_for(|| !step.exists());
    fs::remove_file(place.0.join("blocked")).unwrap();
    place.run(&[]);
    assert_eq!(place.started(), ["h1", "h2", "h3", "h3"]);
}

#[test]
fn a_choice_of_benchmarks_leaves_the_progress_of_others() {
    let place = Place::new("choice");
    let mut run = place.run_until("h2");
    run.kill().unwrap();
    run.wait().unwrap();
    fs::remove_file(place.0.join("blocked")).unwrap();
    let mut other = Command::new(env!("CARGO_BIN_EXE_blitz"));
    other
        .args(["bench", "all", "--quick", "--only", "h3", "--out"])
        .arg(place.0.join("out"))
        .arg("--step-program")
        .arg(place.0.join("step"));
    assert!(other.output().unwrap().status.success());
    place.run(&[]);
    assert_eq!(place.started(), ["h1", "h2", "h3", "h2", "h3"]);
}

#[test]
fn a_restart_and_a_run_after_the_end_begin_anew() {
    let place = Place::new("restart");
    let mut run = place.run_until("h2");
    run.kill().unwrap();
    run.wait().unwrap();
    fs::remove_file(place.0.join("blocked")).unwrap();
    place.run(&["--restart"]);
    assert_eq!(place.started(), ["h1", "h2", "h1", "h2", "h3"]);
    place.run(&[]);
    assert_eq!(place.started().len(), 8);
}

#[test]
fn an_unknown_benchmark_is_a_usage_error_that_lists_the_known_ones() {
    let place = Place::new("unknown");
    let output = place.run(&["--only", "h9"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("known: h1, h2"),
        "{}",
        stderr(&output)
    );
}
