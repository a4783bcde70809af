//! The hosts file and `resolv.conf`. Both are read again for each look-up, so that edits need no restart.
//!
//! Lines that nobody understands are skipped, as the C library does. A file that exists and cannot be read,
//! for example without a free descriptor, is an error: without it a name could lead to another machine.

use std::fs;
use std::io;
use std::net::IpAddr;

use hickory_resolver::Hosts;
use hickory_resolver::config::{NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::proto::rr::Name;
use hickory_resolver::system_conf::parse_resolv_conf;

const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// # Errors
/// Names the file that cannot be read.
pub(super) fn hosts() -> Result<Hosts, String> {
    Ok(parse_hosts(&read(HOSTS)?))
}

/// The name servers, the search list and the options.
///
/// # Errors
/// Names the file that cannot be read.
pub(super) fn resolver_settings() -> Result<(ResolverConfig, ResolverOpts), String> {
    Ok(parse_settings(&read(RESOLV_CONF)?))
}

/// The text of a file, empty if there is none. Comments may be in any encoding.
fn read(path: &str) -> Result<String, String> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(format!("{path} cannot be read: {error}")),
    }
}

fn parse_hosts(text: &str) -> Hosts {
    let mut hosts = Hosts::default();
    // Reading from memory does not fail.
    let _ = hosts.read_hosts_conf(text.as_bytes());
    hosts
}

/// resolv.conf(5): without a name server, that on this machine is used.
fn parse_settings(text: &str) -> (ResolverConfig, ResolverOpts) {
    let mut lines: Vec<String> = text.lines().filter_map(usable).collect();
    if !lines.iter().any(|line| line.starts_with("nameserver ")) {
        lines.push("nameserver 127.0.0.1".to_owned());
    }
    parse_resolv_conf(lines.join("\n")).unwrap_or_else(|_| {
        let local = NameServerConfig::udp_and_tcp(IpAddr::from([127, 0, 0, 1]));
        (
            ResolverConfig::from_name_servers(vec![local]),
            ResolverOpts::default(),
        )
    })
}

/// A line of `resolv.conf` without what would make the whole file invalid.
fn usable(line: &str) -> Option<String> {
    let mut words = line.split_ascii_whitespace();
    let keyword = words.next()?;
    let is_name = |word: &&str| word.parse::<Name>().is_ok();
    let values: Vec<&str> = match keyword {
        "search" | "domain" => words.filter(is_name).collect(),
        "nameserver" => words
            .filter(|word| word.parse::<IpAddr>().is_ok())
            .collect(),
        "options" => words.collect(),
        _ => return None,
    };
    (!values.is_empty()).then(|| format!("{keyword} {}", values.join(" ")))
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::op::Query;
    use hickory_resolver::proto::rr::RecordType;

    use super::*;

    #[test]
    fn lines_in_another_encoding_spoil_no_others() {
        let text =
            String::from_utf8_lossy(b"# caf\xe9\n10.0.0.5 app\n10.0.0.6 b\xe9\nno address\n");
        let hosts = parse_hosts(&text);
        let query = Query::query("app".parse().unwrap(), RecordType::A);
        let found = hosts.lookup_static_host(&query).unwrap();
        assert_eq!(
            found.answers()[0].data.ip_addr(),
            Some([10, 0, 0, 5].into())
        );
    }

    #[test]
    fn a_word_that_is_no_name_spoils_no_others() {
        let text = "; caf\u{e9}\nnameserver 10.0.0.2\nnameserver fe80::1%lo0\nsearch a.example bad..name\noptions ndots:3 unknown\nsortlist x\n";
        let (config, options) = parse_settings(text);
        assert_eq!(config.name_servers()[0].ip, IpAddr::from([10, 0, 0, 2]));
        assert_eq!(config.name_servers().len(), 1);
        assert_eq!(config.search(), ["a.example".parse().unwrap()]);
        assert_eq!(options.ndots, 3);
    }

    #[test]
    fn a_missing_file_is_empty_and_an_unreadable_one_an_error() {
        assert_eq!(read("/no/such/file").unwrap(), "");
        assert!(read("/").unwrap_err().starts_with("/ cannot be read: "));
    }

    #[test]
    fn without_a_name_server_the_one_on_this_machine_is_used() {
        let (config, _) = parse_settings("search a.example\n");
        assert_eq!(config.name_servers()[0].ip, IpAddr::from([127, 0, 0, 1]));
        assert_eq!(config.search().len(), 1);
    }
}
