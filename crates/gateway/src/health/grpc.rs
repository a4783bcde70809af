//! The health protocol of gRPC: a call of `grpc.health.v1.Health/Check`.

use blitz_http::{
    BodyLength, Connection, Fields, Method, Name, Part, RecvBody, RequestHead, Response,
};
use prost::Message;

use super::problem::Problem;
use super::user_agent::USER_AGENT;

const METHOD: &str = "/grpc.health.v1.Health/Check";

/// A response has one number, and a longer one is of something else.
const MESSAGE_BYTES_MAX: usize = 1024;

/// The bytes before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

const SERVING: i32 = 1;

#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Makes the call.
///
/// # Errors
/// The service does not serve, or does not say that it does.
pub(super) async fn request(
    connection: Connection,
    service: &str,
    host: &str,
) -> Result<(), Problem> {
    if !connection.capabilities().multiplexes {
        return Err("it does not speak HTTP/2, which gRPC needs".into());
    }
    let mut head = RequestHead::new(Method::Post, METHOD);
    head.set_authority(host);
    head.fields.append(Name::ContentType, "application/grpc");
    head.fields.append(Name::Te, "trailers");
    head.fields.append(Name::UserAgent, USER_AGENT);
    let message = framed(&HealthCheckRequest {
        service: service.to_owned(),
    });
    let length = BodyLength::Known(message.len() as u64);
    let (mut content, stream) = connection.request(&head, length);
    // The response may come before the end of the request, and says more than an error here.
    let _ = content.queue(message).and_then(|()| content.finish(None));
    let Response { head, mut body, .. } = stream.response().await?;
    if head.status.code() != 200 {
        return Err(format!("it responds with status {}", head.status.code()).into());
    }
    // A call without a message has its status in the only head.
    check_status(&head.fields)?;
    let received = receive(&mut body).await?;
    let status = serving_status(&received)?;
    match status {
        SERVING => Ok(()),
        _ => Err(format!("it is {}", name_of(status)).into()),
    }
}

fn framed(message: &impl Message) -> Vec<u8> {
    let mut bytes = vec![0; PREFIX_BYTES];
    bytes[1..].copy_from_slice(&(message.encoded_len() as u32).to_be_bytes());
    bytes.extend(message.encode_to_vec());
    bytes
}

async fn receive(body: &mut RecvBody) -> Result<Vec<u8>, Problem> {
    let mut content = Vec::new();
    loop {
        match body.next().await {
            Ok(Some(Part::Data(slice))) => {
                if content.len() + slice.len() > MESSAGE_BYTES_MAX {
                    return Err("its response is too long for that of a health check".into());
                }
                content.extend_from_slice(&slice);
            }
            Ok(Some(Part::Trailers(trailers))) => check_status(&trailers)?,
            Ok(None) => return Ok(content),
            Err(error) => return Err(error.to_string().into()),
        }
    }
}

/// # Errors
/// The call has failed.
fn check_status(fields: &Fields) -> Result<(), Problem> {
    let status = fields.get_str("grpc-status");
    match status.map(str::parse::<u32>) {
        None | Some(Ok(0)) => Ok(()),
        Some(Ok(5)) => Err("it does not know the service (gRPC status 5)".into()),
        Some(Ok(12)) => Err("it has no health protocol (gRPC status 12)".into()),
        Some(Ok(status)) => Err(format!("the call fails with gRPC status {status}").into()),
        Some(Err(_)) => Err("its gRPC status is no number".into()),
    }
}

fn serving_status(content: &[u8]) -> Result<i32, Problem> {
    let no_message = || Problem::from("its response is not that of a health check");
    let (prefix, message) = content
        .split_at_checked(PREFIX_BYTES)
        .ok_or_else(no_message)?;
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    if prefix[0] != 0 || length as usize != message.len() {
        return Err(no_message());
    }
    let response = HealthCheckResponse::decode(message).map_err(|_| no_message())?;
    Ok(response.status)
}

fn name_of(status: i32) -> String {
    match status {
        0 => "UNKNOWN".to_owned(),
        2 => "NOT_SERVING".to_owned(),
        3 => "SERVICE_UNKNOWN".to_owned(),
        other => format!("in the unknown state {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_a_prefix() {
        let request = |service: &str| {
            framed(&HealthCheckRequest {
                service: service.to_owned(),
            })
        };
        assert_eq!(request(""), [0; 5]);
        assert_eq!(request("a.B"), *b"\0\0\0\0\x05\x0a\x03a.B");
        for (bytes, status) in [
            (&b"\0\0\0\0\x02\x08\x01"[..], 1),
            (b"\0\0\0\0\x02\x08\x02", 2),
            // The default is not sent.
            (b"\0\0\0\0\0", 0),
        ] {
            assert_eq!(serving_status(bytes), Ok(status));
        }
        for bytes in [
            &b""[..],
            b"\0\0\0\0",
            b"\x01\0\0\0\x02\x08\x01",
            b"\0\0\0\0\x03\x08\x01",
            b"\0\0\0\0\x02\x08\xff",
        ] {
            assert!(serving_status(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_call_that_fails_is_a_problem() {
        let of = |status: Option<&str>| {
            let mut fields = Fields::default();
            status.inspect(|status| fields.append("grpc-status", *status));
            check_status(&fields).is_ok()
        };
        assert!(of(None) && of(Some("0")));
        assert!(!of(Some("5")) && !of(Some("12")) && !of(Some("14")) && !of(Some("x")));
    }
}
