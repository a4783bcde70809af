//! The DNS record that announces HTTP/3 (RFC 9460): with it, clients use HTTP/3 for their first connection,
//! which `Alt-Svc` cannot achieve.

use std::net::IpAddr;
use std::num::NonZeroU16;

use clap::Args;

use crate::issue;

/// The default port of HTTPS, whose records have the plain name.
const HTTPS_PORT: u16 = 443;
/// Seconds for which resolvers keep the record, as long as clients remember `Alt-Svc` by default.
const TTL: u32 = 3600;
const EXAMPLE: &str = "example.com";

#[derive(Debug, Args)]
pub(crate) struct RecordArguments {
    /// The site's name, for its DNS record
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,

    /// The site's port as clients see it
    #[arg(long, value_name = "PORT", default_value = "443")]
    port: NonZeroU16,
}

/// A name without its last dot.
fn name(value: &str) -> Result<String, String> {
    let name = value.strip_suffix('.').unwrap_or(value);
    let is_one = !name.starts_with('*') && name.parse::<IpAddr>().is_err();
    if is_one && issue::is_name(name) {
        return Ok(name.to_ascii_lowercase());
    }
    Err("this is not the name of a site\n  \
         write the name in its URL, such as www.example.com"
        .to_owned())
}

impl RecordArguments {
    /// The record, below a line that explains it.
    pub(super) fn text(&self) -> String {
        let name = self.name.as_deref().unwrap_or(EXAMPLE);
        let record = record(name, self.port.get());
        let hint = match self.name {
            Some(_) => "",
            None => "; for your site: blitz doctor --name NAME [--port PORT]",
        };
        format!("DNS record for HTTP/3 from the first connection on{hint}\n{record}")
    }
}

/// The record as a line of a zone file. HTTP/1.1 is implied.
fn record(name: &str, port: u16) -> String {
    match port {
        HTTPS_PORT => format!("{name}. {TTL} IN HTTPS 1 . alpn=\"h3,h2\""),
        // The name of the record has no address, so the record names the host
        // (RFC 9460, sections 2.5.2 and 9.1).
        _ => format!("_{port}._https.{name}. {TTL} IN HTTPS 1 {name}. alpn=\"h3,h2\" port={port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: Option<&str>, port: u16) -> String {
        let name = name.map(|value| super::name(value).unwrap());
        let port = NonZeroU16::new(port).unwrap();
        RecordArguments { name, port }.text()
    }

    #[test]
    fn the_record_has_the_name_of_the_site() {
        let text = text(Some("WWW.Example.org."), 443);
        let record = "www.example.org. 3600 IN HTTPS 1 . alpn=\"h3,h2\"";
        assert_eq!(text.lines().last(), Some(record));
        assert!(!text.contains("--name"));
    }

    #[test]
    fn another_port_is_a_part_of_the_records_name() {
        let record =
            "_8443._https.example.org. 3600 IN HTTPS 1 example.org. alpn=\"h3,h2\" port=8443";
        assert_eq!(text(Some("example.org"), 8443).lines().last(), Some(record));
    }

    #[test]
    fn without_a_name_it_is_an_example() {
        let text = text(None, 443);
        assert!(text.ends_with("\nexample.com. 3600 IN HTTPS 1 . alpn=\"h3,h2\""));
        assert!(text.contains("blitz doctor --name NAME"));
    }

    #[test]
    fn addresses_wildcards_and_urls_are_not_names() {
        for value in [
            "127.0.0.1",
            "::1",
            "*.example.com",
            "https://example.com",
            "a b",
            "",
        ] {
            assert!(name(value).is_err(), "{value}");
        }
    }
}
