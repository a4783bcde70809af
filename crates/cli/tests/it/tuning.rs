//! Changed settings are restored, whatever happens to the process that has changed them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{blitz, stdout};

const SOMAXCONN: &str = "proc/sys/net/core/somaxconn";
const GOVERNOR: &str = "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor";
const RESTORED_WITHIN: Duration = Duration::from_secs(20);

/// A folder of plain files in the place of /proc and /sys, removed when dropped.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Machine {
        let folder = format!("blitz-tuning-{name}-{}", std::process::id());
        let machine = Machine(std::env::temp_dir().join(folder));
        machine.set(SOMAXCONN, "128\n");
        machine.set(GOVERNOR, "powersave\n");
        machine.set("proc/sys/net/ipv4/tcp_max_syn_backlog", "8192\n");
        machine
    }

    fn set(&self, file: &str, text: &str) {
        let file = self.0.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn get(&self, file: &str) -> String {
        let text = fs::read_to_string(self.0.join(file)).unwrap();
        text.trim().to_owned()
    }

    fn values(&self) -> [String; 2] {
        [self.get(SOMAXCONN), self.get(GOVERNOR)]
    }

    fn is_restored(&self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < RESTORED_WITHIN {
            if self.values() == ["128", "powersave"] {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts a process that has changed the settings when this returns; what it has said.
fn tune(root: &Path) -> (Child, BufReader<ChildStdout>, Vec<String>) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_blitz"))
        .args(["bench", "tuning", "--tune", "--root"])
        .arg(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let said = said_before_it_waits(&mut output);
    (process, output, said)
}

fn said_before_it_waits(output: &mut impl BufRead) -> Vec<String> {
    let mut said = Vec::new();
    loop {
        let mut line = String::new();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "{said:?}");
        if line.starts_with("until") {
            return said;
        }
        said.push(line);
    }
}

/// The guardian of a process: its only child.
fn guardian_of(process: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    children.trim().parse().unwrap()
}

fn signal(signal: &str, process: u32) {
    let words = [signal, &process.to_string()];
    let status = Command::new("kill").args(words).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_killed_benchmark_leaves_the_settings_as_they_were() {
    let machine = Machine::new("killed");
    let (mut process, _output, said) = tune(&machine.0);
    assert_eq!(machine.values(), ["4096", "performance"]);
    assert!(
        said[0].contains("netdev_max_backlog: this machine"),
        "{said:?}"
    );
    assert!(
        said[1].contains("net.core.somaxconn: 128 → 4096"),
        "{said:?}"
    );
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(machine.is_restored(), "{:?}", machine.values());
    assert_eq!(machine.get("proc/sys/net/ipv4/tcp_max_syn_backlog"), "8192");
}

#[test]
fn signals_do_not_end_the_guardian() {
    let machine = Machine::new("signals");
    let (mut process, _output, _) = tune(&machine.0);
    let guardian = guardian_of(process.id());
    for name in ["-INT", "-TERM", "-HUP", "-QUIT"] {
        signal(name, guardian);
    }
    thread::sleep(Duration::from_millis(100));
    assert_eq!(
        machine.values(),
        ["4096", "performance"],
        "nothing is restored early"
    );
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(machine.is_restored(), "{:?}", machine.values());
}

#[test]
fn a_killed_guardian_leaves_the_work_to_the_benchmark() {
    let machine = Machine::new("guardian");
    let (mut process, _output, _) = tune(&machine.0);
    signal("-KILL", guardian_of(process.id()));
    drop(process.stdin.take());
    assert!(process.wait().unwrap().success());
    assert_eq!(machine.values(), ["128", "powersave"]);
}

#[test]
fn a_value_that_another_program_has_set_stays() {
    let machine = Machine::new("another");
    let (mut process, _output, _) = tune(&machine.0);
    machine.set(SOMAXCONN, "65535\n");
    drop(process.stdin.take());
    assert_eq!(process.wait().unwrap().code(), Some(1));
    assert_eq!(machine.values(), ["65535", "powersave"]);
}

#[test]
fn a_benchmark_that_ends_has_restored_everything() {
    let machine = Machine::new("ends");
    let (mut process, _output, _) = tune(&machine.0);
    drop(process.stdin.take());
    assert!(process.wait().unwrap().success());
    assert_eq!(machine.values(), ["128", "powersave"]);
}

#[test]
fn values_that_cannot_be_restored_are_reported() {
    let machine = Machine::new("reported");
    let (mut process, _output, _) = tune(&machine.0);
    fs::remove_dir_all(machine.0.join("proc")).unwrap();
    drop(process.stdin.take());
    assert_eq!(process.wait().unwrap().code(), Some(1));
    assert_eq!(
        machine.get(GOVERNOR),
        "powersave",
        "the others are restored"
    );
}

#[test]
fn settings_that_cannot_be_set_are_notes() {
    let machine = Machine::new("notes");
    // A folder cannot be written, whoever asks, and cannot be read either.
    fs::remove_file(machine.0.join(SOMAXCONN)).unwrap();
    fs::create_dir(machine.0.join(SOMAXCONN)).unwrap();
    let (mut process, _output, said) = tune(&machine.0);
    assert!(
        said[0].starts_with("not set: net.core.somaxconn: "),
        "{said:?}"
    );
    drop(process.stdin.take());
    assert!(process.wait().unwrap().success());
}

#[test]
fn without_a_request_there_is_advice_and_no_change() {
    let machine = Machine::new("advice");
    let root = machine.0.to_str().unwrap();
    let text = stdout(&blitz(&["bench", "tuning", "--root", root]));
    assert!(text.contains("-> net.core.somaxconn is 128"), "{text}");
    assert!(text.contains("sysctl -w net.core.somaxconn=4096"), "{text}");
    assert_eq!(machine.values(), ["128", "powersave"]);
}
