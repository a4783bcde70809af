//! `GET /hello` with actix-web. Its workers have one thread each, beside the thread that accepts.

use std::time::Duration;

use actix_web::http::header::ContentType;
use actix_web::{App, HttpResponse, HttpServer, web};
use blitz_frameworks::{CONTENT, Flags};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let flags = Flags::of_process()?;
    let hello = || async {
        HttpResponse::Ok()
            .content_type(ContentType::plaintext())
            .body(CONTENT)
    };
    let server = HttpServer::new(move || App::new().route("/hello", web::get().to(hello)));
    // Connections that no load uses for a while stay open, as they do in the other servers.
    let server = server
        .workers(flags.threads)
        .keep_alive(Duration::from_secs(75))
        .shutdown_timeout(1)
        .bind(flags.listen)?;
    actix_web::rt::System::new().block_on(server.run())?;
    Ok(())
}
