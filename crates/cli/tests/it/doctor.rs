use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use blitz_testing::{Client, refusing_address};

use crate::control_support::{Controlled, Place};
use crate::{blitz, stderr, stdout};

#[test]
fn doctor_prints_all_checks_and_no_colour_into_a_pipe() {
    let output = blitz(&["doctor"]);
    let text = stdout(&output);
    let names = [
        "io_uring",
        "epoll",
        "nofile",
        "memlock",
        "somaxconn",
        "tcp_max_syn_backlog",
        "netdev_max_backlog",
        "governor",
        "reuseport",
        "UDP receive buffer",
        "UDP send buffer",
        "UDP GSO",
        "UDP GRO",
        "QUIC steering",
        "clock source",
    ];
    for name in names {
        let verdict = text.lines().find_map(|line| {
            let (verdict, rest) = line.split_once(' ')?;
            rest.trim_start().starts_with(name).then_some(verdict)
        });
        assert!(
            matches!(verdict, Some("ok" | "slow" | "stop" | "unknown")),
            "{name} in:\n{text}"
        );
    }
    assert!(!text.contains('\x1b'));
    let stops = text.lines().any(|line| line.starts_with("stop"));
    assert_eq!(output.status.code(), Some(i32::from(stops)));
}

#[test]
fn only_what_stops_blitz_is_a_failure() {
    let cores = thread::available_parallelism().expect("it is known");
    let needed = 4 * cores.get() + 6;
    for (limit, verdict, code) in [(needed - 1, "stop", 1), (1000, "slow", 0)] {
        let script = format!(
            "ulimit -n {limit} && exec {} doctor",
            env!("CARGO_BIN_EXE_blitz")
        );
        let output = Command::new("sh").args(["-c", &script]).output();
        let output = output.expect("a shell");
        let text = stdout(&output);
        let line = format!("{verdict:<8} nofile");
        assert!(text.contains(&line), "{text}");
        assert_eq!(output.status.code(), Some(code), "{text}");
    }
}

#[test]
fn doctor_prints_the_dns_record_of_a_site() {
    let record = |arguments: &[&str]| {
        let output = blitz(&[&["doctor"], arguments].concat());
        stdout(&output)
            .lines()
            .last()
            .map(str::to_owned)
            .unwrap_or_default()
    };
    let example = "example.com. 3600 IN HTTPS 1 . alpn=\"h3,h2\"";
    assert_eq!(record(&[]), example);
    let other_port = "_8443._https.a.test. 3600 IN HTTPS 1 a.test. alpn=\"h3,h2\" port=8443";
    assert_eq!(record(&["--name", "a.test", "--port", "8443"]), other_port);
    let refused = blitz(&["doctor", "--name", "127.0.0.1"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// Looks at a process, to which these requests are sent meanwhile.
fn look_at(control: &Controlled, place: &Place, paths: &[&str]) -> Output {
    let place = match place {
        Place::Socket(path) => path.clone(),
        Place::Address(address) => address.to_string(),
    };
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_blitz"))
        .args(["doctor", "--interval", "500ms", "--control", &place])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut client = Client::connect(control.running.address("http://"));
    while doctor.try_wait().unwrap().is_none() {
        for path in paths {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
            client.response();
        }
        thread::sleep(Duration::from_millis(20));
    }
    doctor.wait_with_output().unwrap()
}

#[test]
fn doctor_finds_what_slows_a_running_process_now() {
    let refusing = refusing_address();
    let text =
        format!("[site.\"a.example\"]\nrespond = 204\n\"/broken\" = \"http://{refusing}\"\n");
    let control = Controlled::with_file(&text);
    let output = look_at(&control, &control.address, &["/"]);
    let healthy = stdout(&output);
    assert!(
        healthy.contains("\nThe running Blitz has no problem.\n"),
        "{healthy}"
    );
    assert!(
        healthy.contains("\nok       process              blitz "),
        "{healthy}"
    );

    control.write("[site.\"a.example\"]\nrespnd = 204\n");
    assert_eq!(control.socket.post("/reload").status, 422);
    let output = look_at(&control, &control.socket, &["/", "/broken"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let has = |verdict: &str, name: &str, part: &str| {
        let start = format!("{verdict:<8} {name:<20} ");
        let mut lines = text.lines().filter(|line| line.starts_with(&start));
        assert!(
            lines.any(|line| line.contains(part)),
            "{name}: {part}\n{text}"
        );
    };
    has(
        "stop",
        "upstreams",
        &format!("http://{refusing}: cannot be reached"),
    );
    has(
        "slow",
        "failures",
        &format!("on a.example/broken, upstream {refusing}"),
    );
    has("slow", "configuration", "ago failed");
    // The same failures, when they are over.
    let output = look_at(&control, &control.socket, &["/"]);
    let text = stdout(&output);
    assert!(
        text.contains("\nok       earlier              upstream"),
        "{text}"
    );
    assert!(!text.contains("\nslow     failures"), "{text}");
}

#[test]
fn a_process_that_is_named_and_does_not_answer_is_a_failure() {
    let output = blitz(&["doctor", "--control", "/no/such/socket"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("no process listens at /no/such/socket"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn doctor_tells_the_descriptors_of_a_process_that_does_not_answer() {
    let folder = std::env::temp_dir();
    let path = folder.join(format!("blitz-silent-{}.sock", std::process::id()));
    let _silent = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let output = blitz(&["doctor", "--control", path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();
    let text = stdout(&output);
    let line = format!(
        "stop     process              process {}: the process has not answered in time",
        std::process::id()
    );
    assert!(text.contains(&line), "{text}");
    let mut lines = text.lines();
    assert!(lines.any(|line| line.contains(" descriptors ") && line.ends_with(" of the process")));
    assert_eq!(output.status.code(), Some(1));
    let mut lines = text.lines().filter(|line| line.contains(" nofile "));
    assert!(
        lines.all(|line| line.contains("the limit of this shell")),
        "{text}"
    );
}
