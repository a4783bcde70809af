//! The log line of a failed handshake of QUIC.

use blitz_testing::{keep_log_lines, log_lines};
use quinn::TransportConfig;

use crate::h3_support::{Quic, with_server};
use crate::tls_support::Authority;

fn line_with(text: &str) -> Option<String> {
    log_lines().into_iter().find(|line| line.contains(text))
}

#[test]
fn a_failed_handshake_is_logged_with_the_server_name() {
    keep_log_lines(&["blitz_http::tls::failure_log"]);
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
            let connected = Quic::connect(&client.config, transport, server.address, &name).await;
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
