use std::process::Command;

use crate::{blitz, stdout};

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
    let cores = std::thread::available_parallelism().expect("it is known");
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
