//! `GET /hello` with axum.
//!
//! With one thread, tokio's runtime for a single thread; otherwise the one with work stealing.

use axum::Router;
use axum::routing::get;
use axum::serve::ListenerExt as _;
use blitz_frameworks::{CONTENT, Flags};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let flags = Flags::of_process()?;
    runtime(flags.threads)?.block_on(async {
        let listener = TcpListener::bind(flags.listen).await?;
        // Like the other servers, it does not wait for more bytes to send.
        let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
        let routes = Router::new().route("/hello", get(|| async { CONTENT }));
        axum::serve(listener, routes).await?;
        Ok(())
    })
}

fn runtime(threads: usize) -> std::io::Result<Runtime> {
    match threads {
        1 => Builder::new_current_thread().enable_all().build(),
        _ => Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build(),
    }
}
