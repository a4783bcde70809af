//! The client of this crate with the server of the `h2` crate, and the reverse, over a pipe that cuts
//! the bytes: each end must receive what the other sent.

use std::time::Duration;

use blitz_proto::{Fields, Limits, Method, Name, RequestHead, ResponseHead};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::h2_support::{End, Message};

const COUNT: usize = 40;

fn run<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.expect("a runtime").block_on(async {
        let limited = tokio::time::timeout(Duration::from_secs(30), what).await;
        limited.expect("no hang")
    })
}

/// Content with a different length for each index, some beyond the windows.
fn content(index: usize) -> Vec<u8> {
    let len = [0, 1, 13, 1_000, 16_384, 16_385, 100_000, 300_000][index % 8];
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Moves bytes between `end` and the pipe until `is_done`.
async fn drive(end: &mut End, pipe: &mut DuplexStream, mut is_done: impl FnMut(&mut End) -> bool) {
    let mut buffer = vec![0; 7_001];
    let mut out = Vec::new();
    let (mut reader, mut writer) = tokio::io::split(pipe);
    while !is_done(end) {
        end.send();
        out.append(&mut end.out);
        // Reads and writes concurrently: the other end may not read while it cannot write.
        tokio::select! {
            written = writer.write(&out), if !out.is_empty() => {
                out.drain(..written.expect("the other end reads"));
            }
            len = reader.read(&mut buffer) => {
                let len = len.expect("the other end writes");
                assert!(len > 0, "the other end closed");
                end.receive(&buffer[..len]);
                assert!(end.failure.is_none(), "{:?}", end.failure);
            }
        }
    }
    writer.write_all(&out).await.expect("the other end reads");
}

#[test]
fn the_client_works_with_the_server_of_h2() {
    run(async {
        let (mut ours, theirs) = tokio::io::duplex(10_000);
        let serving = tokio::spawn(serve(theirs));
        let mut client = End::client(&Limits::default());
        let mut streams = Vec::new();
        for index in 0..COUNT {
            let mut head = RequestHead::new(Method::Post, &format!("/echo/{index}?q"));
            head.set_authority("example.org");
            head.fields.append("X-Index", index.to_string());
            head.fields.append(Name::Cookie, "a=1");
            let mut trailers = Fields::new();
            trailers.append("x-sum", index.to_string());
            let trailers = (index % 3 == 0).then_some(trailers);
            streams.push(
                client
                    .request(&head, content(index), trailers)
                    .expect("a free stream"),
            );
        }
        let is_done = |end: &mut End| {
            streams
                .iter()
                .all(|s| end.messages.get(s).is_some_and(|m| m.is_complete))
        };
        drive(&mut client, &mut ours, is_done).await;
        for (index, stream) in streams.iter().enumerate() {
            let answer = &client.messages[stream];
            assert_eq!(answer.start, "201", "{index}");
            assert!(
                answer.content == content(index),
                "{index}: the content differs"
            );
            let method = field(answer, "x-seen");
            assert_eq!(
                method,
                format!("POST https://example.org/echo/{index}?q {index}")
            );
            let expected = if index % 3 == 0 {
                index.to_string()
            } else {
                "none".to_owned()
            };
            assert_eq!(answer.trailers, [("x-sum".to_owned(), expected)], "{index}");
        }
        drop(ours);
        let _ = serving.await;
    });
}

fn field(message: &Message, name: &str) -> String {
    let found = message.fields.iter().find(|(other, _)| other == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

/// A server of the `h2` crate that echoes content and adds trailers.
async fn serve(pipe: DuplexStream) {
    let mut connection = h2::server::handshake(pipe).await.expect("a good preface");
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(echo(request, respond));
    }
}

async fn echo(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) {
    let index = request.headers()["x-index"].to_str().expect("text");
    let seen = format!("{} {} {index}", request.method(), request.uri());
    assert_eq!(request.headers()["cookie"], "a=1");
    let mut body = request.into_body();
    let content = collect(&mut body).await;
    let trailers = body.trailers().await.expect("good trailers");
    let response = http::Response::builder().status(201).header("x-seen", seen);
    let response = response.body(()).expect("a response");
    let mut stream = respond
        .send_response(response, false)
        .expect("an open stream");
    send(&mut stream, content).await;
    let mut all = http::HeaderMap::new();
    let sum = trailers.and_then(|trailers| trailers.get("x-sum").cloned());
    all.insert(
        "x-sum",
        sum.unwrap_or(http::HeaderValue::from_static("none")),
    );
    stream.send_trailers(all).expect("an open stream");
}

async fn collect(body: &mut h2::RecvStream) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.expect("good content");
        body.flow_control()
            .release_capacity(data.len())
            .expect("what was received");
        content.extend_from_slice(&data);
    }
    content
}

async fn send(stream: &mut h2::SendStream<Bytes>, content: Vec<u8>) {
    let mut rest = Bytes::from(content);
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let capacity = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let capacity = capacity
            .expect("an open stream")
            .expect("a good connection");
        let piece = rest.split_to(capacity.min(rest.len()));
        stream.send_data(piece, false).expect("an open stream");
    }
}

#[test]
fn the_server_works_with_the_client_of_h2() {
    run(async {
        let (mut ours, theirs) = tokio::io::duplex(10_000);
        let asking = tokio::spawn(ask(theirs));
        let mut server = End::server(&Limits::default());
        let mut answered = 0;
        let is_done = |end: &mut End| {
            for stream in std::mem::take(&mut end.complete) {
                let message = end.messages[&stream].clone();
                let mut head = ResponseHead::default();
                head.fields.append("X-Seen", message.start.as_str());
                head.fields.append(Name::SetCookie, "a=1");
                let mut trailers = Fields::new();
                trailers.append("x-sum", field(&message, "x-index"));
                end.respond(stream, &head, message.content, Some(trailers));
                answered += 1;
            }
            answered == COUNT && end.connection.is_idle()
        };
        drive(&mut server, &mut ours, is_done).await;
        ours.write_all(&server.take_out())
            .await
            .expect("the other end reads");
        asking.await.expect("all answers are good");
    });
}

async fn ask(pipe: DuplexStream) {
    let (sender, connection) = h2::client::handshake(pipe).await.expect("a good preface");
    tokio::spawn(connection);
    let mut exchanges = Vec::new();
    for index in 0..COUNT {
        exchanges.push(tokio::spawn(exchange(sender.clone(), index)));
    }
    for exchange in exchanges {
        exchange.await.expect("a good answer");
    }
}

async fn exchange(sender: h2::client::SendRequest<Bytes>, index: usize) {
    let mut sender = sender.ready().await.expect("room for a stream");
    let request = http::Request::builder()
        .method("PUT")
        .uri(format!("https://example.org/p/{index}?q"))
        .header("x-index", index.to_string())
        .body(())
        .expect("a request");
    let (response, mut stream) = sender.send_request(request, false).expect("an open stream");
    let sending = tokio::spawn(async move {
        send(&mut stream, content(index)).await;
        stream
            .send_data(Bytes::new(), true)
            .expect("an open stream");
    });
    let response = response.await.expect("an answer");
    assert_eq!(response.status(), 200);
    let seen = format!("PUT /p/{index}?q @example.org https");
    assert_eq!(response.headers()["x-seen"], seen);
    assert_eq!(response.headers()["set-cookie"], "a=1");
    let mut body = response.into_body();
    assert!(
        collect(&mut body).await == content(index),
        "{index}: the content differs"
    );
    let trailers = body
        .trailers()
        .await
        .expect("good trailers")
        .expect("trailers");
    assert_eq!(trailers["x-sum"], index.to_string());
    sending.await.expect("everything was sent");
}
