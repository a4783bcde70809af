//! Content that is streamed in bounded memory.
//!
//! ```sh
//! curl -N localhost:8080/clock                                 # a line each second
//! curl localhost:8080/numbers/10000000 | tail -n 1             # as fast as you read
//! head -c 1G /dev/zero | curl -T - localhost:8080/checksum     # as fast as it counts
//! ```

use std::time::Duration;

use blitz::extract::{Body, Path};
use blitz::{App, Problem, Response, sleep};

fn main() -> blitz::Result {
    App::new()
        .get("/clock", clock)
        .get("/numbers/{count:u64}", numbers)
        .put("/checksum", checksum)
        .run()
}

/// Ends when the client disconnects: the handler's future is dropped.
fn clock() -> Response {
    Response::stream(async |writer| {
        for second in 0.. {
            writer.send(format!("{second}\n")).await?;
            sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    })
}

/// `send` waits for room, so the handler is as slow as its reader.
fn numbers(Path(count): Path<u64>) -> Response {
    let lines = Response::stream(async move |writer| {
        for start in (0..count).step_by(1000) {
            let end = count.min(start + 1000);
            let lines: String = (start..end).map(|number| format!("{number}\n")).collect();
            writer.send(lines).await?;
        }
        Ok(())
    });
    lines.content_type("text/plain; charset=utf-8")
}

/// Adler-32 of the uploaded content; the default timeouts end a client that is too slow.
async fn checksum(mut body: Body) -> Result<String, Problem> {
    let (mut low, mut high, mut bytes) = (1_u32, 0_u32, 0_u64);
    while let Some(chunk) = body.chunk().await? {
        for byte in &chunk[..] {
            low = (low + u32::from(*byte)) % 65_521;
            high = (high + low) % 65_521;
        }
        bytes += chunk.len() as u64;
    }
    Ok(format!(
        "{bytes} bytes, Adler-32 {:08x}\n",
        high << 16 | low
    ))
}
