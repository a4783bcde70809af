//! Seccomp filters that kill: the reactor survives them and uses epoll.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::mpsc;

use blitz_reactor::{Config, DriverKind, IoChoice, Listener, probe};

use crate::anywhere;

const CHOICE: &str = "BLITZ_TEST_IO";
const FILTERED: &str = "BLITZ_TEST_KILLED_CALL";
const ACTION: &str = "BLITZ_TEST_KILL_ACTION";

#[test]
fn filters_that_kill_for_io_uring_are_survived() {
    for call in [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_register,
        libc::SYS_io_uring_enter,
    ] {
        for action in [
            libc::SECCOMP_RET_KILL_PROCESS,
            libc::SECCOMP_RET_KILL_THREAD,
            libc::SECCOMP_RET_TRAP,
        ] {
            let ran = run_filtered("auto", call, action);
            assert!(ran.contains("outcome: served"), "{call} {action:#x}: {ran}");
        }
    }
}

#[test]
fn io_uring_that_is_chosen_and_would_kill_is_an_error() {
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter] {
        let ran = run_filtered("uring", call, libc::SECCOMP_RET_KILL_PROCESS);
        let expected = "outcome: a seccomp filter kills processes that use io_uring";
        assert!(ran.contains(expected), "{call}: {ran}");
    }
}

/// Docker's profile: the kernel returns EPERM.
#[test]
fn filters_that_do_not_kill_are_left_to_the_driver() {
    let ran = run_filtered(
        "auto",
        libc::SYS_io_uring_setup,
        libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
    );
    assert!(ran.contains("io_uring is forbidden here"), "{ran}");
    let ran = run_filtered("auto", libc::SYS_io_uring_setup, libc::SECCOMP_RET_ALLOW);
    assert!(ran.contains("driver: io_uring"), "{ran}");
}

fn run_filtered(io: &str, call: libc::c_long, action: u32) -> String {
    let ran = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "seccomp::a_process_with_a_filter",
            "--ignored",
            "--nocapture",
        ])
        .env(CHOICE, io)
        .env(FILTERED, call.to_string())
        .env(ACTION, action.to_string())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{}: {output}", ran.status);
    output
}

/// Installs a filter, and serves a connection.
#[test]
#[ignore = "it is the process that the other tests start"]
fn a_process_with_a_filter() {
    let number = |name| std::env::var(name).unwrap().parse::<u32>().unwrap();
    let action = number(ACTION);
    install(number(FILTERED), action);
    let (ready, is_ready) = mpsc::channel();
    let config = Config {
        io: match std::env::var(CHOICE).unwrap().as_str() {
            "uring" => IoChoice::Uring,
            _ => IoChoice::Auto,
        },
        cores: 2,
        ..Config::default()
    };
    let started = blitz_reactor::start(&config, move |_| {
        let ready = ready.clone();
        async move {
            let listener = Listener::bind(&anywhere()).unwrap();
            ready.send(listener.local().clone()).unwrap();
            let socket = listener.accept().await;
            while let Ok(Some(bytes)) = socket.recv().await {
                socket.send(bytes);
            }
        }
    });
    let cores = match started {
        Ok(cores) => cores,
        Err(error) => return println!("outcome: {error}"),
    };
    for _ in 0..2 {
        let blitz_reactor::Address::Tcp(address) = is_ready.recv().unwrap() else {
            unreachable!("it is TCP")
        };
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"hi").unwrap();
        client.read_exact(&mut [0; 2]).unwrap();
    }
    println!("driver: {} {:?}", cores.driver(), cores.fallback_reason());
    let kills = !matches!(
        action & 0xffff_0000,
        libc::SECCOMP_RET_ERRNO | libc::SECCOMP_RET_ALLOW
    );
    if kills {
        assert_eq!(cores.driver(), DriverKind::Epoll);
        let reason = cores.fallback_reason().unwrap();
        assert!(reason.contains("seccomp filter kills"), "{reason}");
        assert_eq!(probe::io_uring().unwrap_err(), reason);
    }
    cores.join().unwrap();
    println!("outcome: served");
}

/// Applies `action` to the system call `call` of this thread, and of those that it starts.
fn install(call: u32, action: u32) {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let program = [
        // The number of the call is the first word.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, action),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: plain system calls; the kernel copies the program.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const filter
            ),
            0
        );
    }
}
