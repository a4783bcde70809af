//! Settings of `blitz run` that contradict each other, which are errors, or that are probably not
//! meant, which are warnings. Nothing is bound before they are checked.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::FileTypeExt;
use std::thread;

use blitz_gateway::{Origin, Sites, Target};
use blitz_http::Address;

use crate::listen::text_of;

/// An address with its flag.
pub(crate) struct ListenAddress<'a> {
    pub(crate) flag: &'static str,
    pub(crate) address: &'a Address,
}

/// Checks that targets and listeners do not contradict each other.
///
/// # Errors
/// The first contradiction, with the remedy.
pub(crate) fn check(targets: &[Target], listeners: &[ListenAddress<'_>]) -> Result<(), String> {
    Sites::of_targets(targets.to_vec(), false).map_err(|conflict| conflict.to_string())?;
    for (at, listener) in listeners.iter().enumerate() {
        let is_same = |other: &&ListenAddress<'_>| {
            other.address == listener.address && !has_any_port(listener.address)
        };
        if let Some(first) = listeners[..at].iter().find(is_same) {
            return Err(twice(first, listener));
        }
    }
    Ok(())
}

fn twice(first: &ListenAddress<'_>, second: &ListenAddress<'_>) -> String {
    let address = text_of(first.address);
    match first.flag == second.flag {
        true => format!(
            "{} {address} is given twice\n  leave out one of them, or choose another address",
            first.flag
        ),
        false => format!(
            "{} and {} are both {address}, but a connection to it is either for clear text or for \
             TLS\n  choose another port for one of them",
            first.flag, second.flag
        ),
    }
}

/// Port 0 means any free port, each time another one.
fn has_any_port(address: &Address) -> bool {
    matches!(address, Address::Tcp(address) if address.port() == 0)
}

/// More cores than the process may use. `setting` is the flag, or the key of the file.
pub(crate) fn too_many_cores(setting: &str, cores: usize) -> Option<String> {
    let available = thread::available_parallelism().map_or(usize::MAX, Into::into);
    (cores > available).then(|| {
        format!(
            "{setting} {cores} is more than the {available} that this process may use: several \
             threads share a core, which increases latency"
        )
    })
}

/// Flags that are probably not meant.
pub(crate) fn warnings(targets: &[Target], listeners: &[ListenAddress<'_>]) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(loops(targets, listeners));
    warnings.extend(targets.iter().filter_map(unusable_socket));
    warnings
}

/// A unix socket that cannot be connected to. The application may make it later.
fn unusable_socket(target: &Target) -> Option<String> {
    let Origin::Unix(path) = &target.origin else {
        return None;
    };
    let (to, found) = (target.url(), fs::metadata(path));
    match found {
        Ok(found) if found.file_type().is_socket() => None,
        Ok(_) => Some(format!("--to {to} is not a socket")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Some(format!(
            "--to {to} cannot be reached: this user has no permission for a folder of the path"
        )),
        Err(_) => Some(format!(
            "there is no socket at {}: requests get 502 until an application listens there",
            path.display()
        )),
    }
}

/// Whether a listener on `wide` accepts connections to `ip`. `::` includes IPv4.
fn includes(wide: IpAddr, ip: IpAddr) -> bool {
    wide == ip
        || match wide {
            IpAddr::V4(wide) => wide.is_unspecified() && ip.is_ipv4(),
            IpAddr::V6(wide) => wide.is_unspecified(),
        }
}

/// Targets that are this process.
fn loops(targets: &[Target], listeners: &[ListenAddress<'_>]) -> impl Iterator<Item = String> {
    targets.iter().filter_map(|target| {
        let listener = listeners
            .iter()
            .find(|listener| is_reached_by(&target.origin, listener.address))?;
        Some(format!(
            "--to {} is this process, which listens there ({} {}): its requests come back until \
             they are refused as a loop",
            target.url(),
            listener.flag,
            text_of(listener.address)
        ))
    })
}

/// Whether connections to the upstream arrive at the listener. Names are not resolved for this.
fn is_reached_by(origin: &Origin, listener: &Address) -> bool {
    let to = |address: SocketAddr| match listener {
        Address::Tcp(listener) => {
            let ip = match address.ip() {
                // Connecting to the unspecified address connects to this machine.
                ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
                ip => ip.to_canonical(),
            };
            address.port() == listener.port()
                && includes(listener.ip(), ip)
                && (listener.ip() == ip || is_of_this_machine(ip))
        }
        Address::Unix(_) => false,
    };
    match origin {
        Origin::Ip(address) => to(*address),
        Origin::Localhost(port) => {
            to((Ipv4Addr::LOCALHOST, *port).into()) || to((Ipv6Addr::LOCALHOST, *port).into())
        }
        Origin::Unix(path) => matches!(listener, Address::Unix(listener) if **listener == *path),
        Origin::Name(..) | Origin::Service(_) => false,
    }
}

/// Whether this machine has the address: only then a socket can be bound to it.
fn is_of_this_machine(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen;

    fn addresses(values: &[&str]) -> Vec<Address> {
        let parse = |value: &&str| listen::parse(value).unwrap();
        values.iter().map(parse).collect()
    }

    fn listening(addresses: &[Address]) -> Vec<ListenAddress<'_>> {
        let flag = "--listen";
        let listening = |address| ListenAddress { flag, address };
        addresses.iter().map(listening).collect()
    }

    #[test]
    fn an_address_is_listened_on_once() {
        for (values, is_valid) in [
            (["127.0.0.1:80", "127.0.0.1:80"], false),
            (["localhost:80", "127.0.0.1:80"], false),
            (["unix:/run/a", "unix:/run/a"], false),
            (["unix:/run/a", "unix:/run/./a"], false),
            (["127.0.0.1:0", "127.0.0.1:0"], true),
            (["127.0.0.1:80", "127.0.0.2:80"], true),
            (["127.0.0.1:80", "0.0.0.0:80"], true),
        ] {
            let addresses = addresses(&values);
            let checked = check(&[], &listening(&addresses));
            assert_eq!(checked.is_ok(), is_valid, "{values:?}");
        }
    }

    #[test]
    fn a_target_that_is_this_process_is_a_loop() {
        for (target, listener, is_loop) in [
            ("http://127.0.0.1:80", "127.0.0.1:80", true),
            ("http://localhost:80", "127.0.0.1:80", true),
            ("http://localhost:80", "[::1]:80", true),
            ("http://127.0.0.1:80", "0.0.0.0:80", true),
            ("http://127.0.0.1:80", "[::]:80", true),
            ("http://0.0.0.0:80", "127.0.0.1:80", true),
            ("unix:/run/a", "unix:/run/a", true),
            ("http://127.0.0.1:81", "127.0.0.1:80", false),
            ("http://127.0.0.2:80", "127.0.0.1:80", false),
            ("http://192.0.2.1:80", "0.0.0.0:80", false),
            ("http://a.example:80", "0.0.0.0:80", false),
            ("unix:/run/b", "unix:/run/a", false),
        ] {
            let targets = [target.parse().unwrap()];
            let addresses = addresses(&[listener]);
            let found = loops(&targets, &listening(&addresses)).count();
            assert_eq!(found == 1, is_loop, "{target} {listener}");
        }
    }

    #[test]
    fn a_missing_socket_and_a_file_in_its_place_are_named() {
        let name = format!("blitz-conflicts-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let warning = |path: &std::path::Path| {
            let target = format!("unix:{}", path.display()).parse().unwrap();
            unusable_socket(&target)
        };
        let missing = folder.join("missing");
        let text = format!("there is no socket at {}", missing.display());
        assert!(warning(&missing).unwrap().starts_with(&text));
        assert!(warning(&folder).unwrap().ends_with("is not a socket"));
        let socket = folder.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(warning(&socket), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
