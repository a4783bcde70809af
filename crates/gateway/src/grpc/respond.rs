//! The gateway's own responses to calls: the status of the call, and nothing else (PROTOCOL-HTTP2,
//! `Trailers-Only`).

use std::fmt::Display;

use blitz_http::{Chunk, Fields, Name, Pooled, Refusal, ResponseHead, Status};

use super::call::{Call, Dialect};
use super::status::Code;

impl Call {
    /// Writes the head of a response and returns its content: in gRPC a head alone, in gRPC-Web a
    /// frame. `head` may have fields already; its status becomes 200, since the call has its own.
    pub(crate) fn respond(
        &self,
        head: &mut ResponseHead,
        code: Code,
        message: impl Display,
    ) -> Chunk {
        write(self.dialect, head, code, &message.to_string())
    }
}

/// Makes the response to a call that was refused before it became a request; `None` for other
/// requests.
#[cold]
pub(crate) fn refusal(refusal: Refusal, fields: &Fields, head: &mut ResponseHead) -> Option<Chunk> {
    let dialect = Dialect::of(fields)?;
    let Refusal { status, rule } = refusal;
    let message = format!("{} {}: {rule}", status.code(), status.reason());
    Some(write(dialect, head, Code::of_status(status), &message))
}

/// Writes the head, and gives the content that follows it.
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
