//! The limits of the process: open files and processors.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use blitz_testing::IO_TIMEOUT;

/// How long the control interface may take.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(1);

/// A script that runs its arguments with this soft and hard limit of open files, beyond those that it inherits from the
/// environment of the test.
fn limited(open_files: usize) -> String {
    // The shell lists the folder itself, with one more descriptor.
    format!(
        "set -- \"$0\" \"$@\"; inherited=-1; for fd in /proc/$$/fd/*; do inherited=$((inherited + 1)); done; \
         ulimit -n $((inherited + {open_files})) && exec \"$@\""
    )
}

/// A running `blitz` with a limit of open files.
struct Limited {
    child: Child,
    address: String,
    log: Option<JoinHandle<String>>,
}

impl Limited {
    fn start(open_files: usize, flags: &[&str]) -> Limited {
        let mut child = Command::new("sh")
            .args(["-c", &limited(open_files), env!("CARGO_BIN_EXE_blitz")])
            .args(["run", "--listen", "127.0.0.1:0"])
            .args(flags)
            .args((!flags.contains(&"--control-listen")).then_some("--control-listen=off"))
            .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
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
            if output.read_line(&mut address).expect("text") == 0 {
                panic!("no start: {}", log.join().expect("the log is read"));
            }
        }
        let address = address.trim().rsplit('/').next().expect("a URL").to_owned();
        Limited {
            child,
            address,
            log: Some(log),
        }
    }

    fn get(&self) -> TcpStream {
        let client = self.request("/hello");
        assert_eq!(status(&client), "200");
        client
    }

    /// A connection with a request.
    fn request(&self, path: &str) -> TcpStream {
        let mut client = TcpStream::connect(&self.address).expect("connects");
        client.set_read_timeout(Some(IO_TIMEOUT)).expect("sets");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        client.write_all(request.as_bytes()).expect("sends");
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

    /// Drops running requests, and returns the complete log.
    fn terminate(mut self) -> String {
        self.signal("INT");
        self.child.wait().expect("it ends");
        self.read_log()
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.expect("a shell").success());
    }

    fn stop(mut self) -> String {
        self.child.kill().expect("it runs");
        self.read_log()
    }

    fn read_log(&mut self) -> String {
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

/// The status code of the next response.
fn status(mut client: &TcpStream) -> String {
    let mut begun = [0; 12];
    client.read_exact(&mut begun).expect("a response");
    String::from_utf8_lossy(&begun[9..]).into_owned()
}

/// The first response that any of the clients receives.
fn first_response(clients: &[TcpStream]) -> String {
    let due = Instant::now() + IO_TIMEOUT;
    for client in clients {
        client.set_nonblocking(true).expect("sets");
    }
    let mut response = [0; 1024];
    while Instant::now() < due {
        for mut client in clients {
            if let Ok(read) = client.read(&mut response) {
                return String::from_utf8_lossy(&response[..read]).into_owned();
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("no response");
}

/// An upstream that responds to each request after this time. Returns the value of `--to`.
fn slow_upstream(delay: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let target = format!("--to=/slow=http://{}", listener.local_addr().expect("it"));
    thread::spawn(move || {
        for mut peer in listener.incoming().flatten() {
            thread::spawn(move || {
                while peer.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {
                    thread::sleep(delay);
                    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    if peer.write_all(response).is_err() {
                        return;
                    }
                }
            });
        }
    });
    target
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
        let server = Limited::start(75, &["--cores", "1", "--io", io]);
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
        assert!(warnings[0].contains("limit=49"), "{log}");
        assert!(warnings[1].contains("idle longest"), "{log}");
    }
}

#[test]
fn at_a_low_limit_of_open_files_idle_connections_make_room_for_upstream_connections() {
    let to = slow_upstream(Duration::from_millis(200));
    for io in ["uring", "epoll"] {
        let server = Limited::start(95, &["--cores", "1", "--io", io, &to]);
        let _idle: Vec<TcpStream> = (0..100).map(|_| server.get()).collect();
        let clients: Vec<TcpStream> = (0..40).map(|_| server.request("/slow")).collect();
        let statuses: Vec<String> = clients.iter().map(status).collect();
        assert!(
            statuses.iter().all(|code| code == "200"),
            "{io}: {statuses:?}"
        );
        server.stop();
    }
}

#[test]
fn without_an_idle_connection_requests_wait_for_descriptors_as_long_as_for_a_connection() {
    let to = slow_upstream(IO_TIMEOUT);
    for io in ["uring", "epoll"] {
        let flags = ["--cores=1", "--io", io, &to, "--timeout-connect=300ms"];
        let server = Limited::start(35, &flags);
        let clients: Vec<TcpStream> = (0..12).map(|_| server.get()).collect();
        // Their requests together need more connections to the upstream than there are descriptors.
        server.signal("STOP");
        for mut client in &clients {
            assert!(client.read(&mut [0; 1024]).expect("the rest of a response") > 0);
            let request = b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";
            client.write_all(request).expect("sends");
        }
        server.signal("CONT");
        let start = Instant::now();
        let response = first_response(&clients).to_lowercase();
        assert!(start.elapsed() > Duration::from_millis(200), "{response}");
        assert!(response.starts_with("http/1.1 503 "), "{response}");
        assert!(
            response.contains("error=connection_limit_reached"),
            "{response}"
        );
        let log = server.terminate();
        let cause =
            "cause=\"the gateway has no free sockets: raise its limit of open files (nofile)\"";
        assert!(log.contains(cause), "{log}");
    }
}

/// The content of a response of the control interface, which has a second for it.
fn ask_control(socket: &Path, target: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("connects");
    stream
        .set_read_timeout(Some(CONTROL_TIMEOUT))
        .expect("sets");
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sends");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    assert!(
        response.starts_with("HTTP/1.1 200 "),
        "{target}: {response}"
    );
    response
}

#[test]
fn the_control_interface_answers_while_the_cores_are_at_their_limit_of_sockets() {
    let to = slow_upstream(IO_TIMEOUT);
    for io in ["uring", "epoll"] {
        let socket = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let socket = socket.join(format!("limit-{io}-{}.sock", std::process::id()));
        let control = socket.to_str().expect("text");
        let flags = ["--cores=2", "--io", io, &to, "--control", control];
        let server = Limited::start(105, &flags);
        let clients: Vec<TcpStream> = (0..100).map(|_| server.request("/slow")).collect();
        let is_full = |metrics: &str| {
            let open = number(metrics, "blitz_sockets_open{core=\"0\"} ");
            let limits = open.zip(number(metrics, "blitz_sockets_max "));
            limits.is_some_and(|(open, max)| open >= (max * 0.85).floor())
        };
        let due = Instant::now() + IO_TIMEOUT;
        while !is_full(&ask_control(&socket, "/metrics")) {
            assert!(Instant::now() < due, "{}", ask_control(&socket, "/metrics"));
            thread::sleep(Duration::from_millis(20));
        }
        for _ in 0..5 {
            let asked = Instant::now();
            ask_control(&socket, "/livez");
            let metrics = ask_control(&socket, "/metrics");
            assert!(asked.elapsed() < CONTROL_TIMEOUT, "{io}");
            let max = number(&metrics, "process_max_fds ").expect("it is known");
            assert!((105.0..1000.0).contains(&max), "{max}");
            let open = number(&metrics, "process_open_fds ").expect("it is counted");
            assert!(open > 60.0 && open < max - 10.0, "{open} of {max}");
            assert!(
                metrics.contains("\nprocess_cpu_seconds_total "),
                "{metrics}"
            );
            assert!(
                metrics.contains("\nprocess_start_time_seconds "),
                "{metrics}"
            );
        }
        let asked = Instant::now();
        let top = Command::new(env!("CARGO_BIN_EXE_blitz"))
            .args(["top", "--once", "--interval=100ms", "--control", control])
            .output()
            .expect("it runs");
        assert!(top.status.success() && asked.elapsed() < CONTROL_TIMEOUT * 2);
        drop(clients);
        server.terminate();
    }
}

/// A process whose control address may have 16 connections, with both places.
fn start_with_few_control_connections(name: &str) -> (Limited, PathBuf, String) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let socket = folder.join(format!("{name}-{}.sock", std::process::id()));
    let control = socket.to_str().expect("text");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("it is bound").to_string();
    drop(free);
    let flags = ["--cores=1", "--control", control, "--control-listen"];
    let server = Limited::start(1019, &[&flags[..], &[&address]].concat());
    (server, socket, address)
}

/// Pipelined requests for the page.
fn pipelined(address: &str, count: usize) -> Vec<u8> {
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nAccept: text/html\r\n\r\n");
    request.repeat(count).into_bytes()
}

/// A client that sends requests and reads no response, until the server receives nothing any more.
fn stall(address: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("connects");
    let stall = Some(Duration::from_millis(100));
    client.set_write_timeout(stall).expect("sets");
    let requests = pipelined(address, 64);
    while client.write_all(&requests).is_ok() {}
    client
}

/// A client with many requests at any time, which reads responses until the server closes the connection.
fn keep_busy(address: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("connects");
    let (request, mut part) = (pipelined(address, 1), [0; 32 * 1024]);
    let mut is_sent = client.write_all(&pipelined(address, 64)).is_ok();
    while is_sent && client.read(&mut part).is_ok_and(|bytes| bytes > 0) {
        thread::sleep(Duration::from_millis(5));
        is_sent = client.write_all(&request).is_ok();
    }
    client
}

/// The log of a process whose control address has more of these clients than it may have connections.
fn occupy_control_address(name: &str, client: fn(&str) -> TcpStream) -> String {
    const RECOVERY_MAX: Duration = Duration::from_secs(8);
    let (server, socket, address) = start_with_few_control_connections(name);
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let address = address.clone();
            thread::spawn(move || client(&address))
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    for target in ["/livez", "/metrics", "/connections"] {
        ask_control(&socket, target);
    }
    let mut client = TcpStream::connect(&address).expect("connects");
    client.set_read_timeout(Some(RECOVERY_MAX)).expect("sets");
    let request = format!("GET /livez HTTP/1.1\r\nHost: {address}\r\n\r\n");
    client.write_all(request.as_bytes()).expect("sends");
    assert_eq!(status(&client), "200", "{name}");
    // Those that are stalled are still open until now.
    let log = server.terminate();
    clients.into_iter().for_each(|client| drop(client.join()));
    log
}

#[test]
fn clients_of_the_control_address_that_read_nothing_block_neither_socket_nor_address_for_long() {
    let log = occupy_control_address("stalled", stall);
    let mut warnings = log.lines().filter(|line| line.contains("limit=16"));
    let warning = warnings.next().unwrap_or_else(|| panic!("{log}"));
    assert!(warning.contains("the address of the control interface has as many"));
    assert!(!warning.contains("LimitNOFILE") && !warning.contains("core=0"));
}

#[test]
fn busy_clients_of_the_control_address_make_room() {
    occupy_control_address("busy", keep_busy);
}

#[test]
fn cores_and_the_process_share_the_descriptors() {
    let warning_of = |open_files| {
        let socket = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let socket = socket.join(format!("few-{open_files}-{}.sock", std::process::id()));
        let control = socket.to_str().expect("text");
        let server = Limited::start(open_files, &["--cores=2", "--control", control]);
        server.get();
        server.terminate()
    };
    let log = warning_of(40);
    assert!(
        log.contains("nothing is kept for the control interface"),
        "{log}"
    );
    let log = warning_of(110);
    assert!(
        log.contains("each core may have few open sockets; raise"),
        "{log}"
    );
}

/// The value of the first line of metrics that begins like this.
fn number(metrics: &str, beginning: &str) -> Option<f64> {
    let mut lines = metrics.lines();
    lines.find_map(|line| line.strip_prefix(beginning)?.parse().ok())
}

#[test]
fn blitz_serves_with_the_open_files_that_it_starts_with() {
    for io in ["uring", "epoll"] {
        let cores = ["--cores", "2", "--io", io];
        let secure = [&cores[..], &["--listen-tls", "127.0.0.1:0"]].concat();
        for (flags, open_files_max) in [(&cores[..], 17), (&secure, 27)] {
            let range = 3..=open_files_max;
            let failures = range.filter(|&open_files| !starts_and_serves(open_files, flags));
            let failures = failures.count();
            assert!(
                (1..open_files_max - 3).contains(&failures),
                "{failures} failures"
            );
        }
    }
}

/// Starts with a limit, and sends a request if that succeeds. False if the start fails, with a cause.
fn starts_and_serves(open_files: usize, flags: &[&str]) -> bool {
    let mut child = Command::new("sh")
        .args(["-c", &limited(open_files), env!("CARGO_BIN_EXE_blitz")])
        .arg("run")
        .args(["--listen", "127.0.0.1:0", "--control-listen=off"])
        .args(flags)
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    let output = child.stdout.take().expect("it is a pipe");
    let starts = BufReader::new(output)
        .lines()
        .map_while(Result::ok)
        .any(|line| line.contains("listening on"));
    if starts {
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        let server = Limited::start(open_files, flags);
        server.get();
        let log = server.stop();
        assert!(!log.contains("HTTP/3"), "{open_files}: {log}");
        return true;
    }
    let output = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{open_files}: {errors}");
    assert!(errors.contains("open files"), "{open_files}: {errors}");
    assert!(
        !errors.contains("another address"),
        "{open_files}: {errors}"
    );
    false
}

#[test]
fn threads_are_pinned_if_they_are_all_that_the_process_may_use() {
    let ours = allowed(&fs::read_to_string("/proc/self/status").expect("Linux has it"));
    let is_one = |list: &String| list.parse::<usize>().is_ok();
    let on = |flags: &[&str]| Limited::start(4091, flags).processors();
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
