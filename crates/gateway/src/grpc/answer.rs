//! What the client of a call gets from the gateway itself: how the call ended, and nothing else
//! (PROTOCOL-HTTP2, `Trailers-Only`).

use std::fmt::Display;

use blitz_http::{Chunk, Exchange, Fields, Name, Pooled, Refusal, Responder, ResponseHead, Status};

use super::{Call, Code, Dialect};

/// Answers a call: in gRPC with a head alone, in gRPC-Web with a frame. `head` may have fields
/// already; its status becomes 200, since the call's is another.
pub(crate) fn answer(
    call: Call,
    responder: Responder,
    mut head: Pooled<ResponseHead>,
    code: Code,
    message: impl Display,
) {
    let content = write(call.dialect, &mut head, code, &message.to_string());
    responder.send(&mut head, content);
}

/// Answers a call that no target takes.
#[cold]
pub(crate) fn answer_unrouted(call: Call, exchange: Exchange) {
    let head = Pooled::response(Status::NOT_FOUND);
    let code = Code::of_status(head.status);
    let message = "no upstream takes this path";
    answer(call, exchange.responder, head, code, message);
}

/// Makes the answer to a call that was refused before it became a request; nothing to say about
/// other requests.
#[cold]
pub(crate) fn refusal(refusal: Refusal, asked: &Fields, head: &mut ResponseHead) -> Option<Chunk> {
    let dialect = Dialect::of(asked)?;
    let Refusal { status, rule } = refusal;
    let message = format!("{} {}: {rule}", status.code(), status.reason());
    Some(write(dialect, head, Code::of_status(status), &message))
}

/// Writes the head, and gives what follows it.
fn write(dialect: Dialect, head: &mut ResponseHead, code: Code, message: &str) -> Chunk {
    head.status = Status::OK;
    match dialect {
        Dialect::Grpc => {
            head.fields.set(Name::ContentType, "application/grpc");
            code.write(message, &mut head.fields);
            Chunk::from("")
        }
        Dialect::Web(web) => {
            head.fields.set(Name::ContentType, web.content_type());
            let mut trailers = Pooled::<Fields>::take();
            code.write(message, &mut trailers);
            web.trailers_only(&trailers)
        }
    }
}
