use crate::support::{Server, on_each_driver};

pub(crate) const ASK: &str =
    "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn bytes_held_during_the_upgrade_open_the_tunnel() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send(format!("{ASK}early "));
        let head = client.head();
        assert!(
            head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"),
            "{head}"
        );
        client.expect("early ").send("and late").expect("and late");
        assert_eq!(server.counters().upgrades, 1);
        // FIN passes through separately in each direction.
        client.fin().expect("bye").expect_end();
        server.until("closed", |counters| counters.connections == 0);
    });
}

#[test]
fn large_data_passes_through_a_tunnel() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send(ASK).head();
        let content: Vec<u8> = (0..1 << 20).map(|i| (i % 253) as u8).collect();
        let mut sender = client.0.try_clone().unwrap();
        let sent = content.clone();
        let writer = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &sent));
        client.expect(content);
        writer.join().unwrap().unwrap();
        client.fin().expect("bye").expect_end();
    });
}

#[test]
fn a_refused_upgrade_with_bytes_pending_closes() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send(format!("{}early", ASK.replace("/upgrade", "/slow")));
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(
            head.to_lowercase().contains("\r\nconnection: close\r\n"),
            "{head}"
        );
        client.expect("slow").expect_end();
    });
}

#[test]
fn a_refused_upgrade_without_bytes_continues() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send(ASK.replace("/upgrade", "/hello")).head();
        client.expect("hello");
        client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").head();
        client.expect("hello");
    });
}
