//! Listeners of sites that have addresses of their own, beside those of the file.

use std::net::SocketAddr;

use blitz_config::{Configuration, Diagnostic, Placed};
use blitz_gateway::Site;
use blitz_host::serving::ListenerConfig;
use blitz_http::Address;

use crate::listen;

/// The listeners for clear text and for TLS, and the mistakes in them.
pub(crate) struct Collected<'a> {
    pub(crate) plain: Vec<ListenerConfig>,
    /// Those for TLS, without its settings.
    pub(crate) tls: Vec<ListenerConfig>,
    pub(crate) diagnostics: &'a mut Vec<Diagnostic>,
}

impl Collected<'_> {
    /// Adds the listeners of sites to those of the file, and tells each site which are its own.
    pub(crate) fn add_own(&mut self, configuration: &Configuration, sites: &mut [Site]) {
        for configured in &configuration.sites {
            let Some(listen) = &configured.listen else {
                continue;
            };
            let is_tls = configured.tls.is_on;
            let own = listen
                .iter()
                .filter_map(|address| self.own(address, is_tls));
            let own: Box<[SocketAddr]> = own.collect();
            for site in sites
                .iter_mut()
                .filter(|site| site.is_of(&configured.host.value))
            {
                site.listeners = Some(own.clone());
            }
        }
    }

    fn own(&mut self, written: &Placed<String>, is_tls: bool) -> Option<SocketAddr> {
        let address = match listen::parse(&written.value) {
            Ok(Address::Tcp(address)) => address,
            Ok(Address::Unix(_)) => {
                let problem = "a unix socket is for all sites";
                return self.error(
                    written,
                    problem,
                    "write it in `listen` at the top of the file",
                );
            }
            Err(error) => {
                let (problem, remedy) = error.split_once("\n  ").unwrap_or((&error, ""));
                return self.error(written, problem, remedy);
            }
        };
        if address.port() == 0 {
            return self.error(written, "the port of a site must be known", "write a port");
        }
        let listener = ListenerConfig::from(Address::Tcp(address));
        let (own, others, problem) = match is_tls {
            true => (
                &mut self.tls,
                &self.plain,
                "this address is for clear text, and the site has TLS",
            ),
            false => (
                &mut self.plain,
                &self.tls,
                "this address is for TLS, and the site has none",
            ),
        };
        let has = |list: &[ListenerConfig]| list.iter().any(|one| one.address == listener.address);
        if has(others) {
            return self.error(written, problem, "write another port");
        }
        if !has(own) {
            own.push(listener);
        }
        Some(address)
    }

    fn error<T>(&mut self, written: &Placed<String>, problem: &str, remedy: &str) -> Option<T> {
        let error = Diagnostic::error("address", written.span.clone(), problem, remedy);
        self.diagnostics.push(error);
        None
    }
}

#[cfg(test)]
mod tests {
    use blitz_config::{Document, Environment, read};
    use blitz_gateway::compile;

    use super::*;

    /// The addresses for clear text and for TLS, the problems, and the own listeners of the sites.
    fn collected(text: &str) -> (Vec<String>, Vec<String>, Vec<String>, Vec<usize>) {
        let document = Document::new("blitz.toml", text);
        let (configuration, mut diagnostics) = read(&document, &Environment::default());
        assert_eq!(diagnostics, []);
        let mut no_file = |_: &str| Err((String::new(), String::new()));
        let mut sites = compile(&configuration, &mut no_file, &mut diagnostics);
        let listener =
            |address: &str| ListenerConfig::from(listen::parse(address).expect("it is an address"));
        let mut all = Collected {
            plain: vec![listener("127.0.0.1:80")],
            tls: vec![listener("127.0.0.1:443")],
            diagnostics: &mut diagnostics,
        };
        all.add_own(&configuration, &mut sites);
        let shown =
            |list: &[ListenerConfig]| list.iter().map(|one| one.address.to_string()).collect();
        let (plain, tls) = (shown(&all.plain), shown(&all.tls));
        let problems = diagnostics.into_iter().map(|one| one.message).collect();
        let own = sites
            .iter()
            .map(|site| site.listeners.as_ref().map_or(0, |own| own.len()));
        (plain, tls, problems, own.collect())
    }

    #[test]
    fn listeners_of_sites_are_added_once() {
        let (plain, tls, problems, own) = collected(
            "[site.\"a.example\"]\nrespond = 204\nlisten = [\"127.0.0.1:81\", \"127.0.0.1:80\"]\n\
             canonical_for = [\"www.a.example\"]\n\
             [site.\"b.example\"]\nrespond = 204\nlisten = [\"127.0.0.1:81\"]\n\
             [site.\"c.example\"]\nrespond = 204\ntls = true\nlisten = [\"127.0.0.1:444\"]\n\
             [site.\"d.example\"]\nrespond = 204\n",
        );
        assert_eq!(problems, [""; 0]);
        assert_eq!(plain, ["127.0.0.1:80", "127.0.0.1:81"]);
        assert_eq!(tls, ["127.0.0.1:443", "127.0.0.1:444"]);
        assert_eq!(own, [2, 2, 1, 1, 0]);
    }

    #[test]
    fn addresses_that_cannot_be_of_one_site_are_mistakes() {
        for (site, problem) in [
            (
                "listen = [\"unix:/run/x.sock\"]",
                "a unix socket is for all sites",
            ),
            (
                "listen = [\"127.0.0.1:0\"]",
                "the port of a site must be known",
            ),
            (
                "listen = [\"127.0.0.1:443\"]",
                "this address is for TLS, and the site has none",
            ),
            (
                "tls = true\nlisten = [\"127.0.0.1:80\"]",
                "this address is for clear text, and the site has TLS",
            ),
            (
                "listen = [\"80\"]",
                "this is a port alone, without an address",
            ),
        ] {
            let text = format!("[site.\"a.example\"]\nrespond = 204\n{site}\n");
            assert_eq!(collected(&text).2, [problem], "{site}");
        }
    }
}
