//! The file of a unix socket is removed only by its owner, or when no process listens on it.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Lines, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_reactor::{Address, IoChoice, Listener, block_on, yield_now};

use crate::{config, on_both_drivers};

/// A folder of one test.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("blitz-unix-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn a_socket_that_has_replaced_ours_is_not_removed() {
    on_both_drivers(|| async {
        let folder = folder("replaced");
        let path = folder.join("a.sock");
        let listener = Listener::bind(&Address::unix(&path)).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(listener);
        yield_now().await;
        UnixStream::connect(&path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

#[test]
fn a_socket_in_use_is_not_replaced() {
    on_both_drivers(|| async {
        let folder = folder("live");
        let path = folder.join("a.sock");
        let other = UnixListener::bind(&path).unwrap();
        let error = Listener::bind(&Address::unix(&path)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        UnixStream::connect(&path).unwrap();
        drop(other);
        let listener = Listener::bind(&Address::unix(&path)).unwrap();
        drop(listener);
        yield_now().await;
        assert!(!path.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

#[test]
fn a_private_socket_is_private_before_it_is_served() {
    let folder = folder("private");
    let path = Arc::new(folder.join("a.sock"));
    let reservation = Listener::try_reserve_private(&path).unwrap();
    let mode = std::fs::metadata(&*path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    UnixStream::connect(&*path).unwrap();
    drop(reservation);
    assert!(!path.exists());
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A lock that stays held, as by a process that was stopped, is an error and not a wait for ever.
#[test]
fn a_stale_socket_whose_lock_is_held_is_an_error() {
    let folder = folder("held");
    let path = folder.join("a.sock");
    drop(UnixListener::bind(&path).unwrap());
    let held = File::create(folder.join("a.sock.lock")).unwrap();
    held.lock().unwrap();
    let begun = Instant::now();
    let error = Listener::try_reserve(&Address::unix(&path)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(begun.elapsed() < Duration::from_secs(4));
    drop(held);
    assert!(Listener::try_reserve(&Address::unix(&path)).is_ok());
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A socket whose server does not accept at the moment is in use, and connecting to it would block.
#[test]
fn a_socket_with_a_full_backlog_is_not_replaced() {
    on_both_drivers(|| async {
        let folder = folder("full");
        let path = folder.join("a.sock");
        let other = UnixListener::bind(&path).unwrap();
        // SAFETY: a plain system call; once more, it only changes the length of the queue.
        assert_eq!(unsafe { libc::listen(other.as_raw_fd(), 0) }, 0);
        let _waiting = UnixStream::connect(&path).unwrap();
        let start = Instant::now();
        let error = Listener::bind(&Address::unix(&path)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(start.elapsed() < Duration::from_secs(1));
        assert!(path.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

/// A process that binds each path of its standard input and prints the result. It closes the socket when the
/// next line arrives.
#[test]
#[ignore = "it is the process that the next test starts"]
fn a_process_that_binds() {
    let io = match std::env::var("BLITZ_TEST_IO").as_deref() {
        Ok("epoll") => IoChoice::Epoll,
        _ => IoChoice::Uring,
    };
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    block_on(&config(io), async {
        while let Some(path) = lines.next() {
            let listener = Listener::bind(&Address::unix(path));
            println!("\noutcome {}", listener.is_ok());
            lines.next();
            drop(listener);
            yield_now().await;
            println!("\noutcome closed");
        }
    })
    .unwrap();
}

struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(io: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "unix::a_process_that_binds",
                "--ignored",
                "--nocapture",
            ])
            .env("BLITZ_TEST_IO", io)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Process { child, lines }
    }

    fn tell(&mut self, line: &str) {
        let mut stdin = self.child.stdin.as_ref().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn outcome(&mut self) -> String {
        let line = self.lines.by_ref().map(Result::unwrap);
        let mut outcomes = line.filter_map(|line| Some(line.strip_prefix("outcome ")?.to_owned()));
        outcomes.next().expect("the process prints the result")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn one_of_several_servers_replaces_a_stale_socket() {
    const SERVERS: usize = 4;
    const ROUNDS: usize = 200;
    for io in ["uring", "epoll"] {
        let folder = folder("race");
        let path = folder.join("a.sock");
        let mut servers: Vec<_> = (0..SERVERS).map(|_| Process::start(io)).collect();
        for round in 0..ROUNDS {
            drop(UnixListener::bind(&path).unwrap());
            for server in &mut servers {
                server.tell(path.to_str().unwrap());
            }
            let outcomes: Vec<_> = servers.iter_mut().map(Process::outcome).collect();
            let winners = outcomes.iter().filter(|outcome| *outcome == "true").count();
            assert_eq!(winners, 1, "{io}, round {round}");
            UnixStream::connect(&path).expect("the socket belongs to the listening server");
            for server in &mut servers {
                server.tell("close");
                assert_eq!(server.outcome(), "closed");
            }
            assert!(!path.exists(), "{io}, round {round}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
