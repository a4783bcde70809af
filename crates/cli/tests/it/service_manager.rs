//! Messages to the service manager, for `Type=notify` of systemd.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use blitz_testing::IO_TIMEOUT;

use crate::run::Running;

/// Blitz tells this socket that it serves, reloads and stops.
fn expect_messages(socket: &UnixDatagram, address: &str) {
    socket.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
    let message = || {
        let mut bytes = [0; 100];
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let mut running = Running::start_with(&[], &[("NOTIFY_SOCKET", address)]);
    assert_eq!(message(), "READY=1");
    running.signal("HUP");
    let reloading = message();
    let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    let time = time.expect("the time of the reload");
    assert!(time.parse::<u64>().unwrap() > 0, "{reloading}");
    assert_eq!(message(), "READY=1");
    running.signal("TERM");
    assert_eq!(message(), "STOPPING=1");
    assert_eq!(running.wait().code(), Some(0));
}

#[test]
fn the_service_manager_knows_the_state() {
    let name = format!("blitz-notify-{}", std::process::id());
    let path = std::env::temp_dir().join(&name);
    let socket = UnixDatagram::bind(&path).unwrap();
    expect_messages(&socket, path.to_str().unwrap());
    std::fs::remove_file(path).unwrap();
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    expect_messages(&socket, &format!("@{name}"));
}

#[test]
fn a_missing_service_manager_is_no_failure() {
    let running = Running::start_with(&[], &[("NOTIFY_SOCKET", "/no/such/socket")]);
    assert_eq!(running.connect().get("/ping").text(), "pong");
}
