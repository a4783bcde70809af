use std::sync::{Arc, Barrier};
use std::time::Duration;

use blitz_http::{
    Address, BodyLength, ClientError, ClientOptions, IoChoice, Limits, Method, Pool, RequestHead,
    Upstream,
};
use blitz_testing::Raw;

use crate::client_exchange::get;
use crate::support::{on_each_driver, run, scripted};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// One exchange; the content, and whether the connection was used before.
async fn fetch(upstream: &Upstream) -> Result<(String, bool), ClientError> {
    let connection = upstream.checkout().await?;
    let reused = connection.is_reused();
    let (_, response) = connection.request(&get("/x"), BodyLength::Empty);
    let mut response = response.response().await?;
    let content = match response.body.read_to_end(1 << 16).await {
        Ok(content) => String::from_utf8_lossy(&content).into_owned(),
        Err(error) => error.to_string(),
    };
    Ok((content, reused))
}

/// Runs `client` with a pool, against a server that plays a script.
fn pooled(
    io: IoChoice,
    script: impl FnOnce(std::net::TcpListener) + Send + 'static,
    client: impl AsyncFnOnce(Pool, Upstream),
) {
    let (address, server) = scripted(script);
    run(io, async {
        let pool = Pool::new(ClientOptions::default());
        let upstream = pool.upstream(&address);
        client(pool, upstream).await;
    });
    server.join().expect("the script ran");
}

fn turn(server: &mut Raw, response: &str) {
    server.head();
    server.send(response);
}

/// Waits until the server's bytes have arrived.
async fn settle() {
    blitz_http::sleep(Duration::from_millis(30)).await;
}

#[test]
fn a_clean_connection_is_reused() {
    on_each_driver(|io| {
        let script = |listener: std::net::TcpListener| {
            let mut server = Raw::accept(&listener);
            for response in [OK, "HTTP/1.1 204 No Content\r\n\r\n", OK] {
                turn(&mut server, response);
            }
            turn(
                &mut server,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            );
            server.send("2\r\nok\r\n0\r\n\r\n");
            turn(&mut server, OK);
            server.expect_end();
        };
        pooled(io, script, async |pool, upstream| {
            let contents = ["ok", "", "ok", "ok", "ok"];
            for (index, content) in contents.into_iter().enumerate() {
                let (got, reused) = fetch(&upstream).await.expect("answers");
                assert_eq!((got.as_str(), reused), (content, index > 0));
                assert_eq!((pool.idle(), upstream.idle(), upstream.active()), (1, 1, 0));
            }
        });
    });
}

/// The kernel takes no byte for a connection that was reset, so that any request may be sent again (rule 13).
#[test]
fn a_request_that_never_left_is_unprocessed() {
    on_each_driver(|io| {
        let steps = [(), ()].map(|()| Arc::new(Barrier::new(2)));
        let [reset, is_reset] = steps.clone();
        let script = move |listener: std::net::TcpListener| {
            let mut server = Raw::accept(&listener);
            // The content stays unread, so that closing resets the connection.
            turn(&mut server, OK);
            reset.wait();
            server.reset();
            is_reset.wait();
        };
        let post = RequestHead::new(Method::Post, "/x");
        pooled(io, script, async |_, upstream| {
            let connection = upstream.checkout().await.expect("connects");
            let (mut content, response) = connection.request(&post, BodyLength::Known(5));
            content.queue("hello").expect("it takes content");
            content.finish(None).expect("it is complete");
            let mut response = response.response().await.expect("answers");
            response.body.read_to_end(16).await.expect("is complete");
            let connection = upstream.checkout().await.expect("it is idle");
            assert!(connection.is_reused());
            // The core is blocked, so that it sees nothing of the reset before it sends.
            for step in &steps {
                step.wait();
            }
            let (_, response) = connection.request(&post, BodyLength::Empty);
            let error = response.response().await.err().expect("no response");
            assert!(error.is_unprocessed(), "{error:?}");
        });
    });
}

/// Plays `response` on one connection and a valid one on the next: the client must use both.
fn poisons(io: IoChoice, response: &'static str, content: &'static str) {
    let script = move |listener: std::net::TcpListener| {
        let mut first = Raw::accept(&listener);
        turn(&mut first, response);
        let mut second = Raw::accept(&listener);
        turn(&mut second, OK);
        drop(first);
        second.expect_end();
    };
    pooled(io, script, async |pool, upstream| {
        let (got, _) = fetch(&upstream).await.expect("answers");
        assert_eq!(got, content);
        settle().await;
        assert_eq!(
            (pool.idle(), upstream.active()),
            (0, 0),
            "after {response:?}"
        );
        assert_eq!(
            fetch(&upstream).await.expect("answers"),
            ("ok".to_owned(), false)
        );
    });
}

#[test]
fn surplus_bytes_never_reach_the_next_client() {
    on_each_driver(|io| {
        poisons(
            io,
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n",
            "ok",
        );
        poisons(
            io,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nx",
            "",
        );
        poisons(io, "HTTP/1.1 204 No Content\r\n\r\nsurprise", "");
    });
}

#[test]
fn responses_that_end_the_connection_are_not_pooled() {
    on_each_driver(|io| {
        poisons(
            io,
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
            "ok",
        );
        poisons(io, "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok");
    });
}

/// The content may still arrive, and would be mistaken for the response to the next request.
#[test]
fn responses_that_declare_forbidden_content_are_not_pooled() {
    on_each_driver(|io| {
        poisons(
            io,
            "HTTP/1.1 204 No Content\r\nContent-Length: 60\r\n\r\n",
            "",
        );
        poisons(
            io,
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 60\r\n\r\n",
            "",
        );
    });
}

#[test]
fn a_response_before_its_request_is_discarded() {
    on_each_driver(|io| {
        let script = |listener: std::net::TcpListener| {
            let mut early = Raw::accept(&listener);
            early.send(OK).expect_end_or_reset();
        };
        pooled(io, script, async |_, upstream| {
            let connection = upstream.checkout().await.expect("connects");
            settle().await;
            let (_, response) = connection.request(&get("/x"), BodyLength::Empty);
            let error = response.response().await.err();
            assert!(
                matches!(error, Some(ClientError::Reset { reused: false })),
                "{error:?}"
            );
        });
    });
}

#[test]
fn bytes_that_arrive_while_pooled_remove_the_connection() {
    on_each_driver(|io| {
        let script = |listener: std::net::TcpListener| {
            let mut first = Raw::accept(&listener);
            turn(&mut first, OK);
            std::thread::sleep(Duration::from_millis(20));
            first.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
            let mut second = Raw::accept(&listener);
            turn(&mut second, OK);
        };
        pooled(io, script, async |pool, upstream| {
            fetch(&upstream).await.expect("answers");
            assert_eq!(pool.idle(), 1);
            blitz_http::sleep(Duration::from_millis(80)).await;
            assert_eq!(pool.idle(), 0, "unsolicited bytes remove the connection");
            assert_eq!(
                fetch(&upstream).await.expect("answers"),
                ("ok".to_owned(), false)
            );
        });
    });
}

#[test]
fn a_connection_closed_while_pooled_is_not_used() {
    on_each_driver(|io| {
        let script = |listener: std::net::TcpListener| {
            turn(&mut Raw::accept(&listener), OK);
            turn(&mut Raw::accept(&listener), OK);
        };
        pooled(io, script, async |pool, upstream| {
            fetch(&upstream).await.expect("answers");
            settle().await;
            assert_eq!(pool.idle(), 0);
            assert_eq!(
                fetch(&upstream).await.expect("answers"),
                ("ok".to_owned(), false)
            );
        });
    });
}

#[test]
fn truncated_responses_are_not_pooled() {
    on_each_driver(|io| {
        let script = |listener: std::net::TcpListener| {
            turn(
                &mut Raw::accept(&listener),
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
            );
            turn(&mut Raw::accept(&listener), OK);
        };
        pooled(io, script, async |pool, upstream| {
            let (got, _) = fetch(&upstream).await.expect("a head comes");
            assert_eq!(got, "the connection ended during the message");
            assert_eq!((pool.idle(), upstream.active()), (0, 0));
            assert_eq!(
                fetch(&upstream).await.expect("answers"),
                ("ok".to_owned(), false)
            );
        });
    });
}

#[test]
fn an_early_response_is_not_pooled() {
    on_each_driver(|io| {
        let script = |listener: std::net::TcpListener| {
            let mut server = Raw::accept(&listener);
            turn(&mut server, OK);
            server.expect_end();
        };
        pooled(io, script, async |pool, upstream| {
            let connection = upstream.checkout().await.expect("connects");
            let mut head = get("/x");
            head.set_method(Method::Post);
            let (mut send, response) = connection.request(&head, BodyLength::Known(4));
            let mut response = response.response().await.expect("answers");
            response.body.read_to_end(100).await.expect("ends");
            assert!(send.data("late").await.is_err());
            assert_eq!((pool.idle(), upstream.active()), (0, 0));
        });
    });
}

#[test]
fn the_pool_is_bounded_and_closes_the_oldest() {
    on_each_driver(|io| {
        let script = |listener: std::net::TcpListener| {
            let servers: Vec<_> = (0..3).map(|_| Raw::accept(&listener)).collect();
            for mut server in servers {
                server.expect_end();
            }
        };
        let (address, server) = scripted(script);
        run(io, async {
            let limits = Limits {
                pool_idle_max: 2,
                ..Limits::default()
            };
            let pool = Pool::new(ClientOptions {
                limits,
                ..ClientOptions::default()
            });
            let upstream = pool.upstream(&address);
            let mut connections = Vec::new();
            for _ in 0..3 {
                connections.push(upstream.connect().await.expect("connects"));
            }
            assert_eq!(upstream.active(), 3);
            drop(connections);
            assert_eq!((pool.idle(), upstream.idle(), upstream.active()), (2, 2, 0));
        });
        server.join().expect("the script ran");
    });
}

#[test]
fn idle_connections_are_closed_at_their_deadline() {
    on_each_driver(|io| {
        let script = |listener: std::net::TcpListener| Raw::accept(&listener).expect_end();
        let (address, server) = scripted(script);
        run(io, async {
            let idle_timeout = Duration::from_millis(50);
            let pool = Pool::new(ClientOptions {
                idle_timeout,
                ..ClientOptions::default()
            });
            drop(pool.upstream(&address).connect().await.expect("connects"));
            assert_eq!(pool.idle(), 1);
            blitz_http::sleep(Duration::from_millis(120)).await;
            assert_eq!(pool.idle(), 0);
        });
        server.join().expect("the script ran");
    });
}

#[test]
fn unix_sockets_are_upstreams_too() {
    use std::os::unix::net::UnixListener;
    on_each_driver(|io| {
        let name = format!("blitz-http-pool-{}-{io:?}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&path).expect("binds");
        let server = std::thread::spawn(move || {
            use std::io::{Read, Write};
            let (mut stream, _) = listener.accept().expect("accepts");
            let mut request = [0; 1024];
            for _ in 0..2 {
                let n = stream.read(&mut request).expect("reads");
                assert!(request[..n].starts_with(b"GET /x HTTP/1.1\r\n"));
                stream.write_all(OK.as_bytes()).expect("writes");
            }
        });
        run(io, async {
            let address = Address::Unix(Arc::new(path.clone()));
            let upstream = Pool::new(ClientOptions::default()).upstream(&address);
            assert_eq!(
                fetch(&upstream).await.expect("answers"),
                ("ok".to_owned(), false)
            );
            assert_eq!(
                fetch(&upstream).await.expect("answers"),
                ("ok".to_owned(), true)
            );
        });
        server.join().expect("the script ran");
        std::fs::remove_file(path).expect("removes");
    });
}

#[test]
fn a_pool_without_room_closes_each_connection_after_its_response() {
    on_each_driver(|io| {
        let script = |listener: std::net::TcpListener| {
            for _ in 0..2 {
                let mut server = Raw::accept(&listener);
                turn(&mut server, OK);
                server.expect_end();
            }
        };
        let (address, server) = scripted(script);
        run(io, async {
            let mut options = ClientOptions::default();
            options.limits.pool_idle_max = 0;
            let pool = Pool::new(options);
            let upstream = pool.upstream(&address);
            for _ in 0..2 {
                let got = fetch(&upstream).await.expect("answers");
                assert_eq!(got, ("ok".to_owned(), false));
                assert_eq!((pool.idle(), upstream.active()), (0, 0));
            }
        });
        server.join().expect("the script ran");
    });
}
