//! Outputs: buffers, the limit, several threads, and the end.

use std::env;
use std::fs;
use std::process::Command;
use std::thread;

use blitz_host::log::{Destination, LogOutput};

#[test]
fn the_reader_of_an_output_in_memory_takes_its_lines() {
    let (output, reader) = LogOutput::in_memory();
    assert!(reader.take().is_empty());
    let _ = output.write(b"one\ntwo\n".to_vec());
    let _ = output.clone().write(b"three\n".to_vec());
    assert_eq!(reader.take(), b"one\ntwo\nthree\n");
    let _ = output.write(Vec::new());
    assert!(reader.take().is_empty());
    let _ = output.write(b"last\n".to_vec());
    // Without a thread nothing happens.
    output.reopen();
    drop(output);
    assert_eq!(reader.take(), b"last\n");
}

#[test]
fn buffers_come_back_empty() {
    let (output, reader) = LogOutput::in_memory();
    let mut buffer = Vec::with_capacity(100);
    for _ in 0..10 {
        buffer.extend_from_slice(&[b'\n'; 100]);
        buffer = output.write(buffer);
        assert!(buffer.is_empty());
        assert_eq!(reader.take().len(), 100);
    }
    assert!(buffer.capacity() >= 100);
}

#[test]
fn lines_beyond_8_mib_are_dropped_whole() {
    const LINE_BYTES: usize = 1000;
    let (output, reader) = LogOutput::in_memory();
    let line = |number: usize| format!("{number:0>999}\n").into_bytes();
    let lines = 9000;
    for number in 0..lines {
        let batch: Vec<u8> = (0..3).flat_map(|part| line(3 * number + part)).collect();
        let _ = output.write(batch);
    }
    let batches = 8 * 1024 * 1024 / (3 * LINE_BYTES);
    assert_eq!(output.dropped(), 3 * (lines - batches) as u64);
    let expected: Vec<u8> = (0..3 * batches).flat_map(line).collect();
    assert!(reader.take() == expected, "the first lines are whole");
    let _ = output.write(line(7));
    assert_eq!(reader.take(), line(7));
}

#[test]
fn the_end_of_the_last_handle_writes_all_lines_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let output = LogOutput::open(&Destination::File(path.clone())).unwrap();
    let other = output.clone();
    let lines: Vec<String> = (0..2000)
        .map(|number| format!("{number:0>1000}\n"))
        .collect();
    for line in &lines {
        let _ = output.write(line.clone().into_bytes());
    }
    drop(output);
    let _ = other.write(b"last\n".to_vec());
    assert_eq!(other.dropped(), 0);
    drop(other);
    let expected = lines.concat() + "last\n";
    assert!(fs::read_to_string(path).unwrap() == expected);
}

#[test]
fn the_thread_ends_with_the_last_handle() {
    if !blitz_testing::is_alone() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = LogOutput::open(&Destination::File(folder.path().join("log"))).unwrap();
    let other = output.clone();
    drop(output);
    // It gives itself its name.
    crate::eventually("the thread runs", || log_threads() == 1);
    drop(other);
    crate::eventually("the thread ends", || log_threads() == 0);
    let output = LogOutput::open(&Destination::File(folder.path().join("log"))).unwrap();
    thread::spawn(move || drop(output)).join().unwrap();
    crate::eventually("the thread ends", || log_threads() == 0);
}

fn log_threads() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let names =
        threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|name| name == "blitz-log\n").count()
}

#[test]
fn standard_output_gets_lines() {
    const CHILD: &str = "BLITZ_TEST_STANDARD_OUTPUT";
    if env::var_os(CHILD).is_some() {
        let output = LogOutput::open(&Destination::Stdout).unwrap();
        let _ = output.write(b"\nthe line\n".to_vec());
        return;
    }
    let test = thread::current();
    let ran = Command::new(env::current_exe().unwrap())
        .args([test.name().unwrap(), "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(text.lines().any(|line| line == "the line"), "{text}");
}
