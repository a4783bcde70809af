//! Outputs to files and named pipes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use blitz_host::log::{Destination, LogOutput};
use blitz_testing::{IO_TIMEOUT, keep_log_lines};
use tempfile::TempDir;

use crate::{eventually, warnings};

fn open(path: &Path) -> LogOutput {
    LogOutput::open(&Destination::File(path.to_owned())).unwrap()
}

fn write(output: &LogOutput, lines: &str) {
    let _ = output.write(lines.as_bytes().to_vec());
}

fn wait_for(path: &Path, expected: &str) {
    eventually(&format!("{} has {expected:?}", path.display()), || {
        fs::read_to_string(path).is_ok_and(|text| text == expected)
    });
}

#[test]
fn files_are_private_and_get_lines_at_their_end() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("access.log");
    for lines in ["one\n", "two\nthree\n"] {
        write(&open(&path), lines);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\nthree\n");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    // The umask may take the group's permission.
    assert_eq!(mode & 0o737, 0o600, "{mode:o}");
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("missing/access.log");
    let error = LogOutput::open(&Destination::File(path.clone())).unwrap_err();
    assert!(
        error.to_string().starts_with(path.to_str().unwrap()),
        "{error}"
    );
    let error = LogOutput::open(&Destination::File(folder.path().to_owned())).unwrap_err();
    assert!(error.to_string().contains("directory"), "{error}");
}

/// Several threads write while the file is moved and opened anew.
#[test]
fn no_line_is_lost_or_torn_while_files_are_moved() {
    const THREADS: usize = 4;
    const BATCHES: usize = 400;
    const LINES: usize = 25;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("access.log");
    let output = open(&path);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let output = output.clone();
            thread::spawn(move || {
                let mut buffer = Vec::new();
                for batch in 0..BATCHES {
                    for line in 0..LINES {
                        let number = batch * LINES + line;
                        buffer.extend_from_slice(format!("{thread} {number}\n").as_bytes());
                    }
                    buffer = output.write(buffer);
                    thread::sleep(Duration::from_micros(200));
                }
            })
        })
        .collect();
    let mut moved = Vec::new();
    while moved.len() < 5 {
        thread::sleep(Duration::from_millis(10));
        let name = folder.path().join(format!("access.log.{}", moved.len()));
        fs::rename(&path, &name).unwrap();
        moved.push(name);
        output.reopen();
        eventually("there is a new file", || path.exists());
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(output.dropped(), 0);
    drop(output);
    moved.push(path);
    let texts = moved.iter().map(|path| fs::read_to_string(path).unwrap());
    let text: String = texts.collect();
    let mut next = [0; THREADS];
    for line in text.lines() {
        let (thread, number) = line.split_once(' ').unwrap();
        let next = &mut next[thread.parse::<usize>().unwrap()];
        assert_eq!(number.parse::<usize>().unwrap(), *next, "{line}");
        *next += 1;
    }
    assert_eq!(next, [BATCHES * LINES; THREADS]);
}

#[test]
fn a_file_that_cannot_be_opened_anew_stays_in_use() {
    keep_log_lines(&["blitz_host"]);
    let folder = TempDir::new().unwrap();
    let (logs, moved) = (folder.path().join("logs"), folder.path().join("moved"));
    fs::create_dir(&logs).unwrap();
    let path = logs.join("access.log");
    let output = open(&path);
    write(&output, "one\n");
    wait_for(&path, "one\n");
    fs::rename(&logs, &moved).unwrap();
    output.reopen();
    eventually("there is a warning", || {
        !warnings(path.to_str().unwrap()).is_empty()
    });
    let warnings = warnings(path.to_str().unwrap());
    assert!(warnings[0].contains("stays in use"), "{warnings:?}");
    write(&output, "two\n");
    wait_for(&moved.join("access.log"), "one\ntwo\n");
    fs::create_dir(&logs).unwrap();
    output.reopen();
    write(&output, "three\n");
    wait_for(&path, "three\n");
}

#[test]
fn a_full_disk_drops_lines_until_it_has_room() {
    keep_log_lines(&["blitz_host"]);
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("access.log");
    symlink("/dev/full", &path).unwrap();
    let output = open(&path);
    for dropped in [2, 4, 6] {
        write(&output, "one\ntwo\n");
        eventually("lines are counted", || output.dropped() == dropped);
    }
    let name = path.to_str().unwrap();
    let failed = warnings(name);
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(
        failed[0].contains("cannot be written: No space left on device"),
        "{failed:?}"
    );
    fs::remove_file(&path).unwrap();
    output.reopen();
    write(&output, "three\n");
    wait_for(&path, "three\n");
    eventually("dropped lines are told", || warnings(name).len() == 2);
    let told = &warnings(name)[1];
    assert!(
        told.contains("were dropped: No space left on device"),
        "{told}"
    );
    assert!(told.contains("lines=6"), "{told}");
    write(&output, "four\n");
    drop(output);
    assert_eq!(fs::read_to_string(&path).unwrap(), "three\nfour\n");
    assert_eq!(warnings(name).len(), 2);
}

fn make_pipe(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    path
}

/// Writes numbered lines until some are dropped. Gives their number.
fn fill(output: &LogOutput) -> u64 {
    let mut sent = 0;
    while output.dropped() == 0 {
        let lines: String = (sent..sent + 60)
            .map(|number| format!("{number:0>999}\n"))
            .collect();
        write(output, &lines);
        sent += 60;
    }
    sent
}

#[test]
fn a_pipe_that_nobody_reads_drops_lines_and_holds_nothing_up() {
    keep_log_lines(&["blitz_host"]);
    let folder = TempDir::new().unwrap();
    let path = make_pipe(&folder);
    let output = open(&path);
    let other_path = folder.path().join("access.log");
    let other = open(&other_path);
    let before = Instant::now();
    let sent = fill(&output);
    let waited = before.elapsed();
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    // Other outputs go on.
    write(&other, "one\n");
    wait_for(&other_path, "one\n");
    let name = path.to_str().unwrap();
    assert!(warnings(name).is_empty());
    let dropped = output.dropped();
    let mut lines = BufReader::new(File::open(&path).unwrap()).lines();
    for number in 0..sent - dropped {
        assert_eq!(lines.next().unwrap().unwrap(), format!("{number:0>999}"));
    }
    write(&output, "later\n");
    assert_eq!(lines.next().unwrap().unwrap(), "later");
    assert_eq!(output.dropped(), dropped);
    eventually("dropped lines are told", || !warnings(name).is_empty());
    let told = warnings(name);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(&format!("lines={dropped}")), "{told:?}");
}

#[test]
fn the_end_waits_a_second_for_a_pipe_that_nobody_reads_and_cores_wait_never() {
    let folder = TempDir::new().unwrap();
    let output = open(&make_pipe(&folder));
    fill(&output);
    let before = Instant::now();
    drop(output);
    let waited = before.elapsed();
    assert!((900..8000).contains(&waited.as_millis()), "{waited:?}");
    let folder = TempDir::new().unwrap();
    let output = open(&make_pipe(&folder));
    fill(&output);
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let before = Instant::now();
        drop(output);
        sender.send(before.elapsed()).unwrap();
    });
    let waited = receiver.recv_timeout(IO_TIMEOUT).unwrap();
    assert!(waited < Duration::from_millis(500), "{waited:?}");
}
