//! The log line of a failed handshake of QUIC.

use std::io;
use std::sync::Mutex;

use quinn::TransportConfig;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::h3_support::{connect, with_server};
use crate::tls_support::Authority;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Lines;

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8(line.to_vec()).unwrap();
        LINES.lock().unwrap().push(text);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn line_with(text: &str) -> Option<String> {
    let lines = LINES.lock().unwrap();
    lines.iter().find(|line| line.contains(text)).cloned()
}

#[test]
fn a_failed_handshake_is_logged_with_the_server_name() {
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(|| Lines);
    let level = tracing::Level::DEBUG;
    tracing_subscriber::registry()
        .with(Targets::new().with_target("blitz_http::tls::failure_log", level))
        .with(lines)
        .init();
    with_server(async |server| {
        // The names of the two drivers differ.
        let port = server.address.port();
        let distrusting = Authority::new()
            .client_of(&[&rustls::version::TLS13], None)
            .of_h3();
        let mut without_protocol = server.outside();
        without_protocol.change(|config| config.alpn_protocols = vec![b"hq".to_vec()]);
        for (client, rule) in [
            (distrusting, "alert-received"),
            (without_protocol, "no-application-protocol"),
        ] {
            let name = format!("{rule}.{port}.example");
            let transport = TransportConfig::default();
            let connected = connect(&client, transport, server.address, &name).await;
            assert!(connected.is_err());
            let counted = |counters: &blitz_http::Counters| counters.tls.failed_for(rule) == 1;
            server.when("counted", counted).await;
            let name = format!("server_name=\"{name}\"");
            let has_line = |_: &blitz_http::Counters| line_with(&name).is_some();
            server.when("logged", has_line).await;
            let line = line_with(&name).unwrap();
            assert!(line.contains(&format!("rule=\"{rule}\"")), "{line}");
        }
    });
}
