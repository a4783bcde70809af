//! A benchmark that is ended, in whatever way, leaves no server, no generator and no file behind.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(60);

/// A running benchmark, and the folder for its temporary files and those of its processes.
struct Bench {
    folder: PathBuf,
    process: Child,
}

impl Bench {
    /// Returns when the benchmark, its server and a generator run.
    fn start(name: &str) -> Bench {
        let folder = format!("blitz-supervised-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_blitz"))
            .args(["bench", "protocols", "--only", "small"])
            .args(["--rounds", "6", "--seconds", "60", "--out"])
            .arg(&folder)
            .env("TMPDIR", &folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let bench = Bench { folder, process };
        bench.wait_for(|processes| processes.len() >= 4);
        bench
    }

    /// Waits until the processes of the benchmark are as expected.
    fn wait_for(&self, is_reached: impl Fn(&[PathBuf]) -> bool) {
        let begun = Instant::now();
        while !is_reached(&self.processes()) {
            let late = begun.elapsed() > WITHIN;
            assert!(!late, "{:?}", self.processes());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// All processes that have been given the folder.
    fn processes(&self) -> Vec<PathBuf> {
        let wanted = self.folder.to_str().unwrap();
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.map(|entry| entry.path())
            .filter(|process| {
                let environment = fs::read(process.join("environ")).unwrap_or_default();
                String::from_utf8_lossy(&environment).contains(wanted)
            })
            .collect()
    }

    fn signal(&mut self, signal: &str) -> Option<i32> {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
        self.process.wait().unwrap().code()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_signal_ends_all_processes_and_leaves_no_file() {
    let mut bench = Bench::start("signal");
    assert_eq!(bench.signal("-TERM"), Some(128 + 15));
    bench.wait_for(<[PathBuf]>::is_empty);
    assert_eq!(fs::read_dir(&bench.folder).unwrap().count(), 0);
}

#[test]
fn nothing_runs_on_after_a_kill() {
    let mut bench = Bench::start("kill");
    assert_eq!(bench.signal("-KILL"), None);
    bench.wait_for(<[PathBuf]>::is_empty);
}

/// As when the kernel is out of memory: what has started the servers is not there to end them.
#[test]
fn nothing_runs_on_after_the_measuring_process_was_killed() {
    let mut bench = Bench::start("measuring");
    let processes = bench.processes();
    let measuring = processes.iter().find(|process| {
        let words = fs::read(process.join("cmdline")).unwrap_or_default();
        words
            .split(|&byte| byte == 0)
            .any(|word| word == b"--supervised")
    });
    let pid = measuring.and_then(|process| process.file_name()).unwrap();
    let sent = Command::new("kill").arg("-KILL").arg(pid).status().unwrap();
    assert!(sent.success());
    assert_eq!(bench.process.wait().unwrap().code(), Some(128 + 9));
    bench.wait_for(<[PathBuf]>::is_empty);
    assert_eq!(fs::read_dir(&bench.folder).unwrap().count(), 0);
}
