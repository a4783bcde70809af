//! Outputs to syslog and to the journal.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::thread;
use std::time::Duration;

use blitz_host::log::{Destination, LogOutput, SyslogAddress};
use blitz_testing::{IO_TIMEOUT, keep_log_lines};
use tempfile::TempDir;

use crate::{eventually, warnings};

fn write(output: &LogOutput, lines: &str) {
    let _ = output.write(lines.as_bytes().to_vec());
}

fn open_syslog(path: &Path) -> LogOutput {
    let address = SyslogAddress::Unix(path.to_owned());
    LogOutput::open(&Destination::Syslog(address)).unwrap()
}

fn bind(path: &Path) -> UnixDatagram {
    let daemon = UnixDatagram::bind(path).unwrap();
    daemon.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
    daemon
}

fn receive(daemon: &UnixDatagram) -> Vec<u8> {
    let mut message = vec![0; 100_000];
    let length = daemon.recv(&mut message).expect("a message");
    message.truncate(length);
    message
}

/// Checks all parts of a message (RFC 5424, section 6) and gives its text.
fn parse_syslog(message: &[u8]) -> String {
    let message = std::str::from_utf8(message).unwrap();
    let mut parts = message.splitn(8, ' ');
    let mut part = || parts.next().expect("a message has eight parts");
    // PRI and VERSION: local0 and info.
    assert_eq!(part(), "<134>1");
    let timestamp = part();
    let shape: String = timestamp
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000000Z");
    let year: u32 = timestamp[..4].parse().unwrap();
    assert!((2025..2200).contains(&year), "{timestamp}");
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(part(), hostname.trim());
    assert_eq!(part(), "blitz");
    assert_eq!(part(), std::process::id().to_string());
    // MSGID and STRUCTURED-DATA.
    assert_eq!((part(), part()), ("-", "-"));
    part().to_owned()
}

#[test]
fn syslog_gets_a_message_for_each_line() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log");
    let daemon = bind(&path);
    let output = open_syslog(&path);
    write(&output, "GET /a  -\n\n{\"path\":\"/ä\"}\n");
    for expected in ["GET /a  -", "", "{\"path\":\"/ä\"}"] {
        assert_eq!(parse_syslog(&receive(&daemon)), expected);
    }
    write(&output, "last\n");
    drop(output);
    assert_eq!(parse_syslog(&receive(&daemon)), "last");
}

#[test]
fn syslog_gets_datagrams_over_udp() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(daemon) = UdpSocket::bind(address) else {
            continue;
        };
        daemon.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        let text = format!("syslog:{}", daemon.local_addr().unwrap());
        let output = LogOutput::open(&text.parse().unwrap()).unwrap();
        write(&output, "one\ntwo\n");
        for expected in ["one", "two"] {
            let mut message = [0; 1000];
            let length = daemon.recv(&mut message).unwrap();
            assert_eq!(parse_syslog(&message[..length]), expected);
        }
    }
}

#[test]
fn refused_datagrams_are_counted_and_later_ones_arrive() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let output = LogOutput::open(&format!("syslog:{address}").parse().unwrap()).unwrap();
    // The kernel tells of a refused datagram at the next one.
    write(&output, "one\ntwo\n");
    eventually("a lost line is counted", || output.dropped() > 0);
    let daemon = UdpSocket::bind(address).unwrap();
    daemon
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    eventually("a message arrives", || {
        write(&output, "later\n");
        let mut message = [0; 1000];
        let length = daemon.recv(&mut message);
        length.is_ok_and(|length| parse_syslog(&message[..length]) == "later")
    });
}

#[test]
fn a_daemon_of_syslog_may_restart() {
    keep_log_lines(&["blitz_host"]);
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log");
    let daemon = bind(&path);
    let output = open_syslog(&path);
    write(&output, "one\n");
    assert_eq!(parse_syslog(&receive(&daemon)), "one");
    drop(daemon);
    let name = format!("syslog:{}", path.display());
    // First the socket refuses, then it is gone.
    write(&output, "two\nthree\n");
    eventually("there is a warning", || !warnings(&name).is_empty());
    fs::remove_file(&path).unwrap();
    thread::sleep(Duration::from_millis(250));
    write(&output, "four\n");
    let daemon = bind(&path);
    for expected in ["two", "three", "four"] {
        assert_eq!(parse_syslog(&receive(&daemon)), expected);
    }
    assert_eq!(output.dropped(), 0);
    let warnings = warnings(&name);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("cannot be written"), "{warnings:?}");
}

#[test]
fn a_daemon_that_reads_nothing_holds_nothing_up() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log");
    let daemon = bind(&path);
    let output = open_syslog(&path);
    let mut sent = 0;
    while output.dropped() == 0 {
        let lines: String = (sent..sent + 10)
            .map(|number| format!("{number:0>5999}\n"))
            .collect();
        write(&output, &lines);
        sent += 10;
    }
    let arrived = sent - output.dropped();
    for number in 0..arrived {
        assert_eq!(parse_syslog(&receive(&daemon)), format!("{number:0>5999}"));
    }
    write(&output, "later\n");
    assert_eq!(parse_syslog(&receive(&daemon)), "later");
}

#[test]
fn a_line_that_is_too_long_for_a_message_is_dropped_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log");
    let daemon = bind(&path);
    let output = open_syslog(&path);
    write(&output, &format!("one\n{}\ntwo\n", "x".repeat(4_000_000)));
    for expected in ["one", "two"] {
        assert_eq!(parse_syslog(&receive(&daemon)), expected);
    }
    assert_eq!(output.dropped(), 1);
}

#[test]
fn a_missing_daemon_is_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log");
    let unix = Destination::Syslog(SyslogAddress::Unix(path.clone()));
    // No name has this character, so none is looked up.
    let name = "syslog:no\0host:514";
    let cases = [
        (unix, format!("syslog:{}: ", path.display())),
        (name.parse().unwrap(), format!("{name}: ")),
        (
            Destination::Journal(path.clone()),
            format!("the journal at {}: ", path.display()),
        ),
    ];
    for (destination, beginning) in cases {
        let error = LogOutput::open(&destination).unwrap_err().to_string();
        assert!(error.starts_with(&beginning), "{error}");
    }
}

/// The fields of an entry, whose values have no line breaks: each is a name, `=`, a value and a line break.
fn parse_journal(mut entry: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut fields = BTreeMap::new();
    while !entry.is_empty() {
        let end = entry
            .iter()
            .position(|&byte| byte == b'\n')
            .expect("each field ends");
        let field = &entry[..end];
        let name = field
            .iter()
            .position(|&byte| byte == b'=')
            .expect("each field has a value");
        let (name, value) = (
            std::str::from_utf8(&field[..name]).unwrap(),
            &field[name + 1..],
        );
        let is_valid = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        assert!(!name.is_empty() && name.chars().all(is_valid), "{name}");
        // Clients may not set trusted fields.
        assert!(!name.starts_with('_') && !name.starts_with(|c: char| c.is_ascii_digit()));
        assert!(
            fields.insert(name.to_owned(), value.to_vec()).is_none(),
            "{name} twice"
        );
        entry = &entry[end + 1..];
    }
    fields
}

#[test]
fn the_journal_gets_an_entry_for_each_line_also_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("socket");
    let expect = |daemon: &UnixDatagram, message: &[u8]| {
        let fields = parse_journal(&receive(daemon));
        let fields: Vec<(&str, &[u8])> = fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
            .collect();
        let expected: [(&str, &[u8]); 3] = [
            ("MESSAGE", message),
            ("PRIORITY", b"6"),
            ("SYSLOG_IDENTIFIER", b"blitz"),
        ];
        assert_eq!(fields, expected);
    };
    let daemon = bind(&path);
    let output = LogOutput::open(&Destination::Journal(path.clone())).unwrap();
    let _ = output.write(b"A=B\n\xff PRIORITY=0\n\n".to_vec());
    for message in [b"A=B".as_slice(), b"\xff PRIORITY=0", b""] {
        expect(&daemon, message);
    }
    drop(daemon);
    fs::remove_file(&path).unwrap();
    write(&output, "later\n");
    expect(&bind(&path), b"later");
    assert_eq!(output.dropped(), 0);
}
