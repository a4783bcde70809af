//! What the process may use: open files and processors.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use blitz_testing::IO_TIMEOUT;

/// A running `blitz` with a soft and hard limit of open files.
struct Limited {
    child: Child,
    address: String,
    log: Option<JoinHandle<String>>,
}

impl Limited {
    fn start(open_files: usize, flags: &[&str]) -> Limited {
        let limit = format!("ulimit -n {open_files} && exec \"$0\" \"$@\"");
        let mut child = Command::new("sh")
            .args(["-c", &limit, env!("CARGO_BIN_EXE_blitz")])
            .args(["run", "--listen", "127.0.0.1:0"])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut errors = child.stderr.take().expect("standard error is a pipe");
        let log = thread::spawn(move || {
            let mut log = String::new();
            errors.read_to_string(&mut log).expect("the log is text");
            log
        });
        let mut output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut address = String::new();
        while !address.contains("listening on") {
            address.clear();
            assert_ne!(output.read_line(&mut address).expect("text"), 0, "no start");
        }
        let address = address.trim().rsplit('/').next().expect("a URL").to_owned();
        Limited {
            child,
            address,
            log: Some(log),
        }
    }

    fn get(&self) -> TcpStream {
        let mut client = TcpStream::connect(&self.address).expect("connects");
        client.set_read_timeout(Some(IO_TIMEOUT)).expect("sets");
        client
            .write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sends");
        let mut begun = [0; 15];
        client.read_exact(&mut begun).expect("a response");
        assert_eq!(&begun, b"HTTP/1.1 200 OK");
        client
    }

    /// The processors that each core's thread may run on.
    fn processors(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let statuses = tasks.map(|task| {
            fs::read_to_string(task.expect("a thread").path().join("status")).unwrap_or_default()
        });
        statuses
            .filter(|status| status.contains("blitz-core-"))
            .map(|status| allowed(&status))
            .collect()
    }

    fn stop(mut self) -> String {
        self.child.kill().expect("it runs");
        self.log
            .take()
            .expect("it is taken once")
            .join()
            .expect("the log is read")
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn allowed(status: &str) -> String {
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.expect("the status has the list").trim().to_owned()
}

#[test]
fn at_a_low_limit_of_open_files_new_connections_replace_idle_ones() {
    for io in ["uring", "epoll"] {
        let server = Limited::start(80, &["--cores", "1", "--io", io]);
        let clients: Vec<TcpStream> = (0..200)
            .map(|_| {
                let start = Instant::now();
                let client = server.get();
                assert!(
                    start.elapsed() < Duration::from_secs(2),
                    "{:?}",
                    start.elapsed()
                );
                client
            })
            .collect();
        // The first ones are closed.
        let mut rest = Vec::new();
        (&clients[0]).read_to_end(&mut rest).expect("FIN");
        let log = server.stop();
        let warnings: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("LimitNOFILE"))
            .collect();
        assert_eq!(warnings.len(), 2, "{log}");
        assert!(warnings[0].contains("may have few open sockets"), "{log}");
        assert!(warnings[0].contains("limit=72"), "{log}");
        assert!(warnings[1].contains("idle longest"), "{log}");
    }
}

#[test]
fn threads_are_pinned_if_they_are_all_that_the_process_may_use() {
    let ours = allowed(&fs::read_to_string("/proc/self/status").expect("Linux has it"));
    let is_one = |list: &String| list.parse::<usize>().is_ok();
    let on = |flags: &[&str]| Limited::start(4096, flags).processors();
    let all = on(&[]);
    assert!(all.iter().all(is_one), "{all:?}");
    let count = all.len().to_string();
    assert_eq!(
        on(&["--cores", &count, "--pin", "off"]),
        vec![ours.clone(); all.len()]
    );
    assert!(on(&["--cores", "1", "--pin", "on"]).iter().all(is_one));
    if all.len() > 1 {
        assert_eq!(on(&["--cores", "1"]), [ours]);
    }
}
