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
        "UDP GSO",
        "clock source",
    ];
    for name in names {
        let verdict = text.lines().find_map(|line| {
            let (verdict, rest) = line.split_once(' ')?;
            rest.trim_start().starts_with(name).then_some(verdict)
        });
        assert!(
            matches!(verdict, Some("good" | "bad" | "unknown")),
            "{name} in:\n{text}"
        );
    }
    assert!(!text.contains('\x1b'));
    let any_bad = text.lines().any(|line| line.starts_with("bad"));
    assert_eq!(output.status.code(), Some(i32::from(any_bad)));
}
