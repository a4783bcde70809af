//! Where requests in clear text are redirected to.

use blitz_host::serving::ListenerConfig;
use blitz_http::{Address, Scheme};

use crate::sites::host_of;

const HTTP_PORT: u16 = Scheme::Http.default_port();
const HTTPS_PORT: u16 = Scheme::Https.default_port();

/// The ports that decide about redirects to HTTPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HttpsRedirect {
    /// Port of the TLS listener; 443 if a proxy in front terminates TLS.
    pub(crate) tls_port: u16,
    /// Whether a listener for clear text has port 80.
    pub(crate) listens_on_http_port: bool,
}

impl HttpsRedirect {
    /// For these listeners, with their actual ports.
    pub(crate) fn of<'a>(listeners: impl IntoIterator<Item = &'a ListenerConfig>) -> HttpsRedirect {
        let (mut tls_port, mut listens_on_http_port) = (None, false);
        for listener in listeners {
            let Address::Tcp(address) = &listener.address else {
                continue;
            };
            match listener.tls {
                Some(_) => tls_port = tls_port.or(Some(address.port())),
                None => listens_on_http_port |= address.port() == HTTP_PORT,
            }
        }
        HttpsRedirect {
            tls_port: tls_port.unwrap_or(HTTPS_PORT),
            listens_on_http_port,
        }
    }

    /// URL of the same resource over HTTPS; `target` is its path and query.
    pub(crate) fn url(self, authority: &str, target: &str) -> String {
        let host = host_of(authority);
        let port = match self.port(authority) {
            HTTPS_PORT => String::new(),
            port => format!(":{port}"),
        };
        // `OPTIONS *` is about the server, not about a path.
        let path = match target {
            "*" => "/",
            path => path,
        };
        format!("https://{host}{port}{path}")
    }

    /// A client that named no port has reached port 80, so that HTTPS is on 443, whichever ports of ours
    /// these are mapped to. A client that named a port will reach the port of our TLS listener.
    fn port(self, authority: &str) -> u16 {
        let port = authority[host_of(authority).len()..].trim_start_matches(':');
        match port.parse() {
            Err(_) => HTTPS_PORT,
            Ok(HTTP_PORT) if !self.listens_on_http_port => HTTPS_PORT,
            Ok(_) => self.tls_port,
        }
    }
}

#[cfg(test)]
mod tests {
    use blitz_http::{Method, RequestHead};

    use super::*;

    #[test]
    fn redirects_to_https_keep_host_path_and_query() {
        for (authority, target, location) in [
            ("a.example", "/x?y=1", "https://a.example/x?y=1"),
            ("[::1]", "/x", "https://[::1]/x"),
            ("a.example", "//b.example/", "https://a.example//b.example/"),
            ("a.example", "/\u{e9}?<", "https://a.example/%C3%A9?%3C"),
        ] {
            let head = RequestHead::new(Method::Get, target);
            let redirect = HttpsRedirect {
                tls_port: 8443,
                listens_on_http_port: false,
            };
            assert_eq!(redirect.url(authority, head.path_and_query()), location);
        }
        let redirect = HttpsRedirect {
            tls_port: 443,
            listens_on_http_port: true,
        };
        assert_eq!(redirect.url("a", "*"), "https://a/");
    }

    #[test]
    fn the_port_of_a_redirect_follows_from_the_port_of_the_request() {
        for (authority, tls_port, listens_on_http_port, location) in [
            // 80:8080 and 443:8443 are mapped.
            ("a.example", 8443, false, "https://a.example"),
            ("a.example:80", 8443, false, "https://a.example"),
            ("a.example:", 8443, false, "https://a.example"),
            ("[::1]", 8443, false, "https://[::1]"),
            ("[::1]:80", 8443, false, "https://[::1]"),
            ("192.0.2.1", 8443, false, "https://192.0.2.1"),
            // Nothing is mapped.
            ("a.example:8080", 8443, false, "https://a.example:8443"),
            ("[::1]:8080", 8443, false, "https://[::1]:8443"),
            ("a.example:8080", 443, false, "https://a.example"),
            ("a.example", 443, true, "https://a.example"),
            ("a.example:80", 8443, true, "https://a.example:8443"),
            // 8081:8080 is mapped.
            ("a.example:8081", 8443, false, "https://a.example:8443"),
        ] {
            let redirect = HttpsRedirect {
                tls_port,
                listens_on_http_port,
            };
            assert_eq!(redirect.url(authority, ""), location, "{authority}");
        }
    }
}
